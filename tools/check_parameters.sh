#!/bin/sh
# Counts parameters of functions, tests left out: none has more than eight, and at most one of 200 has
# more than six. What else a function needs belongs into a struct. (tests/header_test.sh refuses seven in
# the public API.) All sources, or the FILEs named. Prints the functions of more than six with -v.
#
# Seen to fail: a ninth parameter, also one after a line's end or after a pointer to a function.
set -eu
verbose=0
[ "${1:-}" != -v ] || { verbose=1; shift; }
[ $# -gt 0 ] || set -- $(find include src apps packages tools examples bench fuzz -name '*.[ch]' -o -name '*.inl' |
    grep -v -e '_test\.c$' -e '_cases\.c$' -e '/node_modules/' | LC_ALL=C sort)
awk -v verbose="$verbose" '
    FNR == 1 { open = macro = 0 }
    { continued = macro; macro = (/^#/ || continued) && /\\$/ }
    continued || /^#/ { next }
    # A definition begins in the first column, and its parameters end before the first brace.
    !open && /^[A-Za-z_]/ { open = 1; text = ""; line = FNR }
    open {
        sub(/\/\/.*/, "")
        text = text " " $0
        if (!/[{;]/) next
        open = 0
        gsub(/__attribute__\(\([a-z_]*\)\)/, "", text)
        if (text !~ /^[^={;(]*[A-Za-z0-9_]\(.*\) *\{/ || match(text, /[;=]/) && RSTART < index(text, "{")) next
        head = substr(text, 1, index(text, "(") - 1)
        sub(/.*[ *]/, "", head)
        depth = 0; n = 1
        for (i = index(text, "("); i <= length(text); i++) {
            c = substr(text, i, 1)
            depth += (c == "(") - (c == ")")
            n += c == "," && depth == 1
            if (depth == 0) break
        }
        all++
        if (n > 6) many++
        if (n > 8) { print FILENAME ":" line ": " head " has " n " parameters: expected 8 or fewer"; bad = 1 }
        else if (n > 6 && verbose) print FILENAME ":" line ": " head " has " n " parameters"
    }
    END {
        if (verbose) printf "%d of %d functions (%.2f%%) have more than six parameters\n", many, all, 100 * many / all
        if (all > 1000 && 200 * many > all) {
            printf "%d of %d functions have more than six parameters: expected one of 200 or fewer (-v lists them)\n", many, all
            bad = 1
        }
        exit bad
    }' "$@"
