#!/bin/sh
# Of HTML's named character references the oldest, 106 that are known without their semicolon, each with
# and without it: what the modules for browsers know (src/input/jinja/jinja_html.c, mk/web.mk).
# usage: few_html_names.sh html_entities.inl
set -eu
# A name to a line: the parts of the C text are joined, and cut at zeros, which are no octal numbers.
sed -n 's/^"\(.*\)"$/\1/p' "$1" | tr -d '\n' | sed -E 's/\\0([A-Za-z]|$)/\n\1/g' | awk '
    NF { name = substr($0, 1, index($0, " ") - 1); text[name] = $0; names[++n] = name }
    END {
        for (i = 1; i <= n; i++) {
            bare = names[i]
            sub(/;$/, "", bare)
            if (bare in text) printf "\"%s\\0\"\n", text[names[i]]
        }
    }'
