#!/bin/sh
# The law of the folders: a file in src/A may include only from folders that sort before A and from
# A itself, and from another folder only its front door A/A.h (base has many doors). Programs
# include only include/.
set -eu
status=0
complain() { echo "$1" >&2; status=1; }
for file in $(find src -name '*.[ch]' ! -name '*_test.c' ! -name '*_check.c'); do
    own=${file#src/}; own=${own%%/*}
    for header in $(sed -n 's/^#include "\([a-z0-9_/.]*\)".*/\1/p' "$file"); do
        folder=${header%%/*}
        case $header in tern.h|tern_tools.h|tern_train.h|*.inl|*.inc) continue ;; */*) ;; *) continue ;; esac
        [ -d "src/$folder" ] || continue
        [ "$folder" = "$own" ] && continue
        first=$(printf '%s\n%s\n' "$folder" "$own" | sort | head -n 1)
        [ "$first" = "$folder" ] || complain "$file: $own may not include $header (a later folder)"
        case $header in
        base/*|"$folder/$folder.h"|formats/chains.h|formats/shard.h|kernels/backend.h|kernels/train.h|kernels/cpu/kernels.h|kernels/cpu/pool.h) ;;
        *) complain "$file: $header is private to src/$folder" ;;
        esac
    done
done
for file in $(find apps examples -name '*.[ch]'); do
    if grep -nE '^#include "(src/|base/|formats/|graph/|input/|kernels/|models/|runtime/|session/|tasks/|train/)' "$file"; then
        complain "$file: programs use include/ only"
    fi
done
for name in $(find src apps tests tools fuzz bench examples -name '*.[ch]' -exec basename {} \; | sort | uniq -d); do
    complain "the file name $name is used twice"
done
exit $status
