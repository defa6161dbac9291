#!/bin/sh
# Makes C initialisers {"name", "text"} of WGSL files, for src/kernels/webgpu/device/gpu_shaders.c. -n: in the place
# of a text a line "#name", for those who have the texts elsewhere. -j: these, JSON of {"name": "text"},
# without comments and indentation; lines keep their numbers.
# usage: embed_wgsl.sh [-n | -j] FILE.wgsl...
set -eu
how=
case ${1-} in -[nj]) how=$1; shift ;; esac
small='s|[ ]*//.*||; s/^ *//'
quoted='s/\\/\\\\/g; s/"/\\"/g'
between='{'
for file in "$@"; do
    name=$(basename "$file" .wgsl)
    case $how in
    -n) printf '{"%s", "#%s\\n"},\n' "$name" "$name" ;;
    -j)
        printf '%s\n"%s": "' "$between" "$name"
        sed -e "$small" -e "$quoted" -e 's/$/\\n/' "$file" | tr -d '\n'
        printf '"'
        between=,
        ;;
    *)
        printf '{"%s",\n' "$name"
        sed -e "$quoted" -e 's/.*/    "&\\n"/' "$file"
        echo '},'
        ;;
    esac
done
[ "$how" != -j ] || printf '\n}\n'
