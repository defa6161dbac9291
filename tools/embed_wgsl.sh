#!/bin/sh
# Makes C initialisers {"name", "text"} of WGSL files, for src/kernels/webgpu/gpu_shaders.c. -s: small,
# without comments and indentation; lines keep their numbers.
# usage: embed_wgsl.sh [-s] FILE.wgsl...
set -eu
small=
[ "${1-}" != -s ] || { small='s|[ ]*//.*||; s/^ *//'; shift; }
for file in "$@"; do
    name=$(basename "$file" .wgsl)
    printf '{"%s",\n' "$name"
    sed -e "$small" -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' "$file"
    echo '},'
done
