#!/bin/sh
# Completions of the command line for a shell, generated from `tern help --all --tsv`.
#
#     tools/completions.sh bash|zsh|fish build/tern
#
# Options, the values of options with choices, and otherwise file names.
set -eu
[ $# = 2 ] || { sed -n '4p' "$0" >&2; exit 2; }

# $1 command|option; option: $2 command, $3 -x, $4 --name, $5 kind, $6 argument or choices, $10 help.
# A command of two words ("data build") is offered after its first one.
case $1 in
bash) "$2" help --all --tsv | awk -F '\t' '
    $1 == "command" {
        split($2, w, " ")
        if (w[2] != "") jobs[w[1]] = jobs[w[1]] " " w[2]
        if (!(w[1] in seen)) { seen[w[1]] = 1; first = first " " w[1] }
        all[++n] = $2
    }
    $1 == "option" {
        options[$2] = options[$2] " " $4 ($3 != "" ? " " $3 : "")
        if ($5 == "name") { choice = $6; gsub(/\|/, " ", choice); values[$2 " " $4] = choice }
    }
    END {
        print "# bash completion of tern, made by tools/completions.sh"
        print "_tern() {"
        print "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} self=${COMP_WORDS[1]} words="
        print "    COMPREPLY=()"
        print "    if [ \"$COMP_CWORD\" = 1 ]; then"
        printf "        COMPREPLY=($(compgen -W \"%s help --version\" -- \"$word\")); return\n", substr(first, 2)
        print "    fi"
        print "    case $self in"
        for (c in jobs) {
            printf "    %s) [ \"$COMP_CWORD\" = 2 ] && words=\"%s\"; case ${COMP_WORDS[2]} in", c, substr(jobs[c], 2)
            k = split(jobs[c], j, " ")
            for (i = 1; i <= k; i++) printf " %s) self=\"%s %s\";;", j[i], c, j[i]
            print " esac;;"
        }
        print "    esac"
        print "    case \"$self $before\" in"
        for (v in values) printf "    \"%s\") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return;;\n", v, values[v]
        print "    esac"
        print "    case $word in -*) case $self in"
        for (i = 1; i <= n; i++)
            if (all[i] in options) printf "    \"%s\") words=\"%s --help\";;\n", all[i], substr(options[all[i]], 2)
        print "    esac;; esac"
        print "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))"
        print "}"
        print "complete -o default -F _tern tern"
    }' ;;
zsh) "$2" help --all --tsv | awk -F '\t' '
    function quoted(s) { gsub(/\x27/, "\x27\\\x27\x27", s); gsub(/[\[\]:]/, "\\\\&", s); return s }
    $1 == "command" { all[++n] = $2; help[$2] = $4 }
    $1 == "option" {
        value = $5 == "flag" ? "" : ":" quoted(tolower($5)) ":" ($5 == "name" ? "(" $6 ")" : "_files")
        gsub(/\|/, " ", value)
        line = "        \x27*" $4 "[" quoted($10) "]" value "\x27"
        if ($3 != "") line = line " \\\n        \x27*" $3 "[" quoted($10) "]" value "\x27"
        options[$2] = options[$2] line " \\\n"
    }
    END {
        print "#compdef tern"
        print "# zsh completion of tern, made by tools/completions.sh"
        print "_tern() {"
        print "    local -a commands; local self=$words[2] first=3"
        print "    commands=("
        for (i = 1; i <= n; i++) if (all[i] !~ / /) printf "        \x27%s:%s\x27\n", all[i], quoted(help[all[i]])
        for (i = 1; i <= n; i++) {
            split(all[i], w, " ")
            if (w[2] != "" && !(w[1] in help) && !(w[1] in said)) { said[w[1]] = 1; printf "        \x27%s\x27\n", w[1] }
        }
        print "    )"
        print "    if (( CURRENT == 2 )); then _describe command commands; return; fi"
        print "    case \"$words[2] $words[3]\" in"
        for (i = 1; i <= n; i++) if (all[i] ~ / /) printf "    \"%s\") self=\"%s\"; first=4;;\n", all[i], all[i]
        print "    esac"
        print "    if (( CURRENT == 3 )); then case $self in"
        for (i = 1; i <= n; i++) {
            split(all[i], w, " ")
            if (w[2] != "") jobs[w[1]] = jobs[w[1]] " " w[2]
        }
        for (c in jobs) printf "    %s) compadd --%s;;\n", c, jobs[c]
        print "    esac; fi"
        print "    case $self in"
        for (i = 1; i <= n; i++) if (all[i] in options) printf "    \"%s\") _arguments \\\n%s        \x27*:file:_files\x27;;\n", all[i], options[all[i]]
        print "    *) _files;;"
        print "    esac"
        print "}"
        print "_tern \"$@\""
    }' ;;
fish) "$2" help --all --tsv | awk -F '\t' '
    function quoted(s) { gsub(/\\/, "\\\\", s); gsub(/\x27/, "\\\x27", s); return s }
    BEGIN {
        print "# fish completion of tern, made by tools/completions.sh"
    }
    function condition(c,   w) {
        split(c, w, " ")
        return w[2] == "" ? "__fish_seen_subcommand_from " w[1] \
            : "__fish_seen_subcommand_from " w[1] "; and __fish_seen_subcommand_from " w[2]
    }
    $1 == "command" {
        split($2, w, " ")
        if (w[2] == "") printf "complete -c tern -n __fish_use_subcommand -a %s -d \x27%s\x27\n", $2, quoted($4)
        else {
            if (!(w[1] in seen)) printf "complete -c tern -n __fish_use_subcommand -a %s\n", w[1]
            printf "complete -c tern -n \x27__fish_seen_subcommand_from %s\x27 -a %s -d \x27%s\x27\n", w[1], w[2], quoted($4)
        }
        seen[w[1]] = 1
    }
    $1 == "option" {
        line = "complete -c tern -n \x27" condition($2) "\x27 -l " substr($4, 3)
        if ($3 != "") line = line (length($3) > 2 ? " -o " : " -s ") substr($3, 2)
        if ($5 == "name") { choice = $6; gsub(/\|/, " ", choice); line = line " -x -a \x27" choice "\x27" }
        else if ($5 != "flag") line = line " -r"
        print line " -d \x27" quoted($10) "\x27"
    }' ;;
*) echo "completions.sh: $1: expected bash, zsh or fish" >&2; exit 2 ;;
esac
