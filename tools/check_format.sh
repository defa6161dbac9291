#!/bin/sh
# C sources are as clang-format writes them (.clang-format, Debian 12's version 14): all, or the FILEs named.
# Besides, what it does not look at: tabs, trailing blanks, lines over 100 columns, files over 1000 lines,
# and headings between parts of a file, "// ---- Title ----...", which fill their line.
set -eu
clang_format=
for name in clang-format-14 clang-format; do
    command -v $name >/dev/null && $name --version | grep -q 'version 14\.' && { clang_format=$name; break; }
done
[ $# -gt 0 ] || set -- $(find include src apps tests tools bench fuzz examples bindings -name '*.[ch]' -o -name '*.inl' -o -name '*.inc')
status=0
if [ -n "$clang_format" ]; then
    for file; do case $file in *.[ch]) echo "$file" ;; esac; done | xargs $clang_format --dry-run -Werror 2>&1 |
        sed -n 's/^\(.*\):[0-9]*:[0-9]*: error: code should.*/\1: other than clang-format writes it (clang-format -i \1)/p' |
        sort -u | grep . && status=1
elif [ -n "${CI:-}" ]; then
    echo "check_format: there is no clang-format 14"
    status=1
fi
awk '
    FNR == 1 { if (lines > 1000) { print name ": " lines " lines"; bad = 1 } name = FILENAME }
    { lines = FNR }
    /\t/ { print FILENAME ":" FNR ": tab"; bad = 1 }
    /[ \t]+$/ { print FILENAME ":" FNR ": blank at the end"; bad = 1 }
    length($0) > 100 && !/[^\x01-\x7f]/ { print FILENAME ":" FNR ": " length($0) " columns"; bad = 1 }
    /^\/\/ ----/ && !(/^\/\/ ---- [^ ].* ---+$/ && (/[^\x01-\x7f]/ || (length($0) > 95 && length($0) < 101))) {
        print FILENAME ":" FNR ": a heading is \"// ---- Title ---...\", 99 columns wide"; bad = 1
    }
    END { if (lines > 1000) { print name ": " lines " lines"; bad = 1 } exit bad }' "$@" || status=1
exit $status
