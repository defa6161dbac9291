#!/bin/sh
# Draws what a terminal shows as SVG, from standard input to standard output:
#
#     tools/pictures/terminal_picture.sh tern < session.txt > docs/images/session.svg
#
# Lines that begin with "$ " or "> " were typed, one between ** is bold, one that begins with "[" grey.
set -eu
awk -v title="${1:-tern}" '
function escape(s) {
    gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s)
    return s
}
{ sub(/\r$/, ""); lines[++n] = $0; if (length($0) > wide) wide = length($0) }
END {
    w = int(wide * 8.45 + 40); h = n * 20 + 62
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" " \
        "font-family=\"ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace\" font-size=\"14\">\n", w, h, w
    printf "<title>%s</title>\n<rect width=\"%d\" height=\"%d\" rx=\"9\" fill=\"#16181d\"/>\n", escape(title), w, h
    for (i = 0; i < 3; i++)
        printf "<circle cx=\"%d\" cy=\"19\" r=\"6\" fill=\"%s\"/>\n", 22 + 20 * i, \
            i == 0 ? "#ec6a5e" : i == 1 ? "#f4be4f" : "#61c454"
    printf "<g fill=\"#d7dae0\" xml:space=\"preserve\">\n"
    for (i = 1; i <= n; i++) {
        if (lines[i] == "") continue
        style = lines[i] ~ /^[$>]( |$)/ ? " fill=\"#7ec699\" font-weight=\"bold\"" : \
            lines[i] ~ /^\[/ ? " fill=\"#858b98\"" : ""
        if (gsub(/^\*\*|\*\*$/, "", lines[i]) == 2) style = " font-weight=\"bold\""
        printf "<text x=\"20\" y=\"%d\"%s>%s</text>\n", 36 + 20 * i, style, escape(lines[i])
    }
    print "</g>\n</svg>"
}'
