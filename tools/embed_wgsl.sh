#!/bin/sh
# Makes C initialisers {"name", "text"} of WGSL files, for src/kernels/webgpu/gpu_shaders.c.
set -eu
for file in "$@"; do
    name=$(basename "$file" .wgsl)
    printf '{"%s",\n' "$name"
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' "$file"
    echo '},'
done
