#!/bin/sh
# No tabs, no trailing blanks, no line over 100 columns, no file over 1000 lines in C sources.
set -eu
status=0
for file in $(find include src apps tests tools bench fuzz examples -name '*.[ch]' -o -name '*.inl' -o -name '*.inc'); do
    awk -v file="$file" '
        /\t/ { print file ":" NR ": tab"; bad = 1 }
        /[ \t]+$/ { print file ":" NR ": blank at the end"; bad = 1 }
        length($0) > 100 && !/[^\x01-\x7f]/ { print file ":" NR ": " length($0) " columns"; bad = 1 }
        END { if (NR > 1000) { print file ": " NR " lines"; bad = 1 } exit bad }' "$file" || status=1
done
exit $status
