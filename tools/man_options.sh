#!/bin/sh
# Writes the section COMMAND OPTIONS of docs/tern.1, which is what `tern help --all --tsv` says of every
# option that the hand-written section OPTIONS before it does not have:
#
#     tools/man_options.sh build/tern docs/tern.1        to standard output
set -eu
shared=$(sed -n '/^\.Sh OPTIONS/,/^\.Sh COMMAND OPTIONS/p' "$2" | grep -o -e 'Fl -[a-z0-9-]*' -e ', -[a-z][a-z0-9-]*' |
    sed 's/^Fl -/--/; s/^, -/--/' | sort -u | tr '\n' ' ')
sed '/^\.Sh COMMAND OPTIONS/,$d' "$2"
echo '.Sh COMMAND OPTIONS'
echo '.\" Written by tools/man_options.sh.'
"$1" help --all --tsv | awk -F '\t' -v shared=" $shared" '
function plain(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.'"'"']/, "\\\\\\&&", s); return s }
$1 == "command" { command = $2; next }
command == "run" { usual[$4] = $10 } # of other commands some options of these names are others
index(shared, " " $4 " ") && (!($4 in usual) || usual[$4] == $10) { next }
{
    if (command != shown) { if (shown) print ".El"; print ".Ss " command; print ".Bl -tag -width indent"; shown = command }
    name = substr($4, 2); gsub(/-/, "\\-", name)
    argument = $6; gsub(/-/, "\\-", argument); gsub(/\[/, " Ns Op ", argument); gsub(/\]/, "", argument)
    print ".It " ($3 != "" ? "Fl " substr($3, 2) " , " : "") "Fl " name (argument != "" ? " Ar " argument : "")
    print plain($10 != "" ? $10 : "See above.")
}
END { if (shown) print ".El" }'
sed -n '/^\.Sh COMMAND OPTIONS/,$p' "$2" | sed -n '/^\.Sh ENVIRONMENT/,$p'
