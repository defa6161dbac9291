#!/bin/sh
# Every symbol that the library defines for others to link begins with tern_, but for the private
# ones of the backends (cpu_, gpu_), which the shared library does not export.
set -eu
[ -s "$1" ] || { echo "$1 is not built" >&2; exit 1; }
bad=$(nm -g --defined-only "$1" | awk 'NF == 3 {print $3}' | grep -vE '^_?(tern|cpu|gpu)_' || true)
[ -z "$bad" ] && exit 0
echo "symbols that do not begin with tern_:" "$bad" >&2
exit 1
