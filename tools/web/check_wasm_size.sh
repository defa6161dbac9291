#!/bin/sh
# Prints a module's size and fails if it is larger than it may be once compressed.
# usage: check_wasm_size.sh FILE.wasm MAX_GZIP_BYTES
set -eu
n=$(wc -c <"$1")
packed=$(gzip -9nc "$1" | wc -c)
name=$(basename "$1" .tmp)
echo "        $name: $n bytes, $packed with gzip"
[ "$packed" -le "$2" ] || { echo "$name: $packed bytes with gzip, more than $2" >&2; exit 1; }
