#!/bin/sh
# A C file with a stub for each function of libraries that some objects call: src/base/os/lazy.h.
#
#     tools/lazy_stubs.sh NAME 'WORDS FOR PEOPLE' 'CC' '-lLIBRARY ...' OBJECT... >FILE
set -eu
name=$1 words=$2 cc=$3 flags=$4
shift 4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# What the linker would write into a program that uses them is what is loaded.
echo 'int tern_nothing;' >"$dir/none.c"
# shellcheck disable=SC2086
$cc -shared -fPIC -nodefaultlibs -o "$dir/none.so" "$dir/none.c" -Wl,--no-as-needed $flags
files=$(readelf -dW "$dir/none.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for flag in $flags; do
    case $flag in -l*) nm -D --defined-only "$($cc -print-file-name="lib${flag#-l}.so")" ;; esac
done | awk '$2 ~ /[TWi]/ { sub(/@.*/, "", $3); print $3 }' | sort -u >"$dir/there"
nm -u "$@" | awk 'NF == 2 { print $2 }' | sort -u >"$dir/called"
comm -12 "$dir/there" "$dir/called" >"$dir/stubs"
[ -n "$files" ] && [ -s "$dir/stubs" ] || { echo "$flags: no function of theirs is called" >&2; exit 1; }

echo "// Made by tools/lazy_stubs.sh."
echo '#include "base/os/lazy.h"'
echo "static const char *const libraries[] = {"
for file in $files; do echo "    \"$file\","; done
echo "    0};"
echo "static const char *const names[] = {"
sed 's/.*/    "&",/' "$dir/stubs"
echo "};"
n=$(wc -l <"$dir/stubs")
echo "extern void *tern_lazy_at_$name[$n];"
echo "void *tern_lazy_at_$name[$n];"
echo "tern_lazy tern_lazy_$name = {libraries, names, tern_lazy_at_$name, $n, \"$words\", 0};"
awk -v table="tern_lazy_at_$name" '{ printf "TERN_LAZY_STUB(%s, %s, %d);\n", $1, table, NR - 1 }' "$dir/stubs"
