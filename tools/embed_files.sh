#!/bin/sh
# Makes C arrays of files, for apps/serve/home_page.c: `static const unsigned char page_NAME_ENDING[] = {...};`
# usage: embed_files.sh PREFIX FILE...
set -eu
prefix=$1
shift
for file in "$@"; do
    name=$(basename "$file" | tr -c 'A-Za-z0-9\n' '_')
    printf 'static const unsigned char %s_%s[] = {\n' "$prefix" "$name"
    od -An -v -tx1 "$file" | sed -e 's/ \(..\)/0x\1,/g'
    echo '};'
done
