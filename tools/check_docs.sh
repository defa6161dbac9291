#!/bin/sh
# The docs against the program: links and anchors lead somewhere, commands have the options and make the
# targets that are written, README's examples run, the man page has every option, and figures that can be
# had at once are those that the program prints. Each check was seen to fail with one word changed.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
tern=$build/tern
[ -x "$tern" ] || { echo "check_docs: $tern is not there: run make first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
wrong() { echo "check_docs: $*" >&2; status=1; }
pages=$(find . -name '*.md' -not -path './build/*' -not -path './.*' -not -path '*/node_modules/*' | sed 's|^\./||' | sort)

# ---- Links and anchors, as GitHub makes them of headings -----------------------------------------
for page in $pages; do
    awk -v page="$page" '
        /^    / || /^```/ { next }
        /^#+ / {
            slug = tolower($0); sub(/^#+ /, "", slug); gsub(/[`*:,.!?()\/+"\047]/, "", slug); gsub(/ /, "-", slug)
            print "anchor\t" page "#" slug
        }
        {
            while (match($0, /\]\([^) ]*\)/)) {
                link = substr($0, RSTART + 2, RLENGTH - 3); $0 = substr($0, RSTART + RLENGTH)
                if (link ~ /^(https?|mailto):/) continue
                folder = page; if (!sub(/[^\/]*$/, "", folder)) folder = ""
                print "link\t" page ":" NR "\t" (link ~ /^#/ ? page link : folder link)
            }
        }' "$page"
done | awk -F '\t' -v OFS='\t' '
    { while (sub(/[^\/]+\/\.\.\//, "", $3)) {} }
    $1 == "anchor" { anchors[$2] = 1 }
    $1 == "link" { from[++n] = $2; to[n] = $3 }
    END {
        for (i = 1; i <= n; i++) {
            if (to[i] ~ /#/ && to[i] ~ /\.md#/ && !(to[i] in anchors)) print from[i] ": no heading for " to[i]
            file = to[i]; sub(/#.*/, "", file); print "file\t" from[i] "\t" file
        }
    }' >"$work/links"
grep -v '^file' "$work/links" >&2 && status=1
grep '^file' "$work/links" | while IFS="$(printf '\t')" read -r _ from file; do
    [ -e "$file" ] || echo "$from: no file $file"
done >"$work/files"
[ ! -s "$work/files" ] || { cat "$work/files" >&2; status=1; }

# ---- Files that are named: in `code` of pages, and the rows of tests/mutants/list -----------------
{
    for page in $pages; do
        awk -v page="$page" '
            /^    / || /^```/ { next }
            { n = split($0, part, "`")
              for (i = 2; i <= n; i += 2) if (part[i] ~ /^[a-z]+(\/[A-Za-z0-9_.*]+)+\/?$/) print page ":" NR "\t" part[i] }' "$page"
    done
    awk -F '|' 'NF > 2 && !/^#/ { gsub(/ /, "", $2); print "tests/mutants/list:" NR "\t" $2 }' tests/mutants/list
} >"$work/named"
[ "$(wc -l <"$work/named")" -ge 100 ] || wrong "too few files are named: $(wc -l <"$work/named")"
while IFS="$(printf '\t')" read -r from name; do
    case $name in */NAME*|build/*) continue ;; esac
    [ -d "${name%%/*}" ] || [ -d "src/${name%%/*}" ] || continue # no path of this tree
    # shellcheck disable=SC2086
    ls -d $name >"$work/log" 2>&1 || ls -d src/$name >"$work/log" 2>&1 || wrong "$from: no file $name"
done <"$work/named"

# ---- Commands: in indented lines (with what they are continued by), in `code`, in the man page ---
for page in $pages docs/tern.1; do
    awk -v page="$page" '
        function say(text) { sub(/^.*(mpirun|[A-Z_]+=[^ ]*) +([-n0-9 ]* )?/, "", text); print page ":" NR "\t" text }
        /^\.Dl / { gsub(/\\\(dq/, "\""); say(substr($0, 5)); next }
        /^    / {
            line = begun $0; sub(/^ +/, "", line)
            if (sub(/ *\\$/, "", line)) { begun = line; next }
            begun = ""
            if (line ~ /^\[/ && last) say(last " " line); else { last = line; say(line) }
            next
        }
        { last = ""; n = split($0, part, "`"); for (i = 2; i <= n; i += 2) say(part[i]) }' "$page"
done >"$work/commands"
"$tern" help --all --tsv >"$work/tsv"
awk -F '\t' '
    FNR == NR && $1 == "command" { known[$2] = 1; split($2, word, " "); known[word[1]] = 1; next }
    FNR == NR { has[$2 " " $3] = has[$2 " " $4] = 1; split($2, word, " "); any[word[1] " " $3] = any[word[1] " " $4] = 1; next }
    $2 !~ /^(build\/)?tern(-mpi)? / { next }
    {
        text = $2; sub(/ #.*/, "", text); sub(/ [|>].*/, "", text); gsub(/"[^"]*"/, "TEXT", text)
        n = split(text, word, /[][ ,()]+/); command = word[2]; options = 3
        if (command !~ /^[a-z]/ || command == "help") next
        if ((command " " word[3]) in known) { command = command " " word[3]; options = 4 }
        if (!(command in known)) { print $1 ": no command tern " command; next }
        for (i = options; i <= n; i++) {
            m = split(word[i], either, "|")
            for (k = 1; k <= m; k++) {
                name = either[k]; sub(/=.*/, "", name); sub(/[.;:]+$/, "", name)
                if (name !~ /^--?[A-Za-z]/ || name == "--help") continue
                if (!((command " " name) in has) && !((command " " substr(name, 1, 2)) in has && name ~ /^-[a-z][0-9]/) &&
                    !(index(command, " ") == 0 && (command " " name) in any)) print $1 ": tern " command " has no " name
            }
        }
    }' "$work/tsv" "$work/commands" >"$work/bad"
[ ! -s "$work/bad" ] || { cat "$work/bad" >&2; status=1; }

# ---- make's targets ------------------------------------------------------------------------------
${MAKE:-make} -pRrqn : 2>/dev/null | sed -n 's/^\([^#.%$\t ][^:=%]*\):\([^=].*\)\{0,1\}$/\1/p' | tr ' ' '\n' |
    sed "s|^$build/|build/|" | sort -u >"$work/targets"
awk -F '\t' '
    FNR == NR { target[$1] = 1; next }
    $2 ~ /^make( |$)/ {
        sub(/ *(#|&&|;).*/, "", $2); n = split($2, word, " ")
        for (i = 2; i <= n; i++)
            if (word[i] !~ /=|^-|NAME/ && !(word[i] in target)) print $1 ": make has no " word[i]
    }' "$work/targets" "$work/commands" >"$work/bad"
[ ! -s "$work/bad" ] || { cat "$work/bad" >&2; status=1; }

# ---- README's own commands, with the carried model in place of a downloaded one ------------------
grep '^README.md' "$work/commands" | cut -f 2 | sed -n 's|^build/tern|\$tern|p' |
    sed 's|ggml-model-i2_s.gguf|models/stories.gguf|' >"$work/examples"
[ "$(wc -l <"$work/examples")" -ge 3 ] || wrong "README.md has fewer than three examples"
while read -r example; do
    echo 'Write a bedtime story about a fox.' | (eval "$example -n 16") >"$work/said" 2>"$work/error" ||
        wrong "README.md: $example: $(cat "$work/error")"
    [ -s "$work/said" ] || wrong "README.md: $example prints nothing"
done <"$work/examples"
# What it quotes is what the command above it says, on any processor; the first is what `make run` begins with.
awk -v command='$tern run models/stories.gguf "Once upon a time" -n 100 --temp 0.7 --seed 3' '
    function end() { if (quote != "") print command "\t" quote; quote = "" }
    /^>/ { sub(/^> ?/, ""); if ($0 != "") quote = quote (quote == "" ? "" : " ") $0; next }
    { end() }
    /^    / { line = begun $0; begun = ""; sub(/^ +/, "", line); if (sub(/ *\\$/, "", line)) begun = line }
    sub(/^build\/tern run/, "$tern run", line) { command = line }
    END { end() }' README.md >"$work/quotes"
[ "$(wc -l <"$work/quotes")" -ge 3 ] || wrong "README.md quotes fewer than three texts"
while IFS="$(printf '\t')" read -r example quoted; do
    told=$(eval "$example" </dev/null | tr -s '\n' ' ')
    case $told in
    "$quoted"*) ;;
    *) wrong "README.md quotes \"$quoted\", but $example says: $told" ;;
    esac
done <"$work/quotes"

says() { # PAGE TEXT
    tr '\n' ' ' <"$1" | tr -s ' ' | grep -qF -e "$2" || wrong "$1 does not say \"$2\""
}

# ---- What the pages claim and the program can show ------------------------------------------------
# Each failed with the text that stood there before: an example of a schema that allowed, and got, other keys;
# a memory "in one file"; "inspect describes any file"; "man tern" where there is none.
example=$(sed -n "/^    tern run MODEL .* --schema '/,/'\$/p" docs/cli.md | sed '1s|^ *tern run MODEL|$tern run models/stories.gguf|')
told=$(eval "$example --seed 1" </dev/null 2>&1 | tr -d ' \n')
echo "$told" | grep -qx '{"age":[0-9]*}' || wrong "docs/cli.md: the example of --schema says: $told"
LC_ALL=C sed 's/bitnet-b1\.58/another-arch/g' models/stories.gguf >"$work/other.gguf"
"$tern" inspect "$work/other.gguf" >"$work/said" 2>&1 && grep -q 'cannot be run: .*another-arch' "$work/said" ||
    wrong "README.md: tern inspect does not describe a file of an unsupported model: $(head -n 3 "$work/said")"
if "$tern" memory add "$work/notes" --text "a fox" >/dev/null 2>&1; then
    [ -d "$work/notes" ] && says README.md "in one folder on your disk"
fi
"$tern" help | grep -q 'once installed, `man tern`' || wrong "tern help does not say that man tern needs make install"
says docs/browser.md "may have $(sed -n 's/^WEB_GZIP_MAX *= *\([0-9]*\)\([0-9][0-9][0-9]\)$/\1,\2/p' mk/web.mk) bytes with gzip"

# ---- The man page --------------------------------------------------------------------------------
tools/man_options.sh "$tern" docs/tern.1 | cmp -s - docs/tern.1 ||
    wrong "docs/tern.1 is not what tools/man_options.sh writes: tools/man_options.sh $tern docs/tern.1 > new"

# ---- Figures -------------------------------------------------------------------------------------
spell() { echo "Zero One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve" | cut -d ' ' -f $(($1 + 1)); }
"$tern" inspect models/stories.gguf --json >"$work/model"
field() { sed -n "s/.*\"\(bitnet-b1.58\.\)\{0,1\}$1\":\([0-9.]*\).*/\2/p" "$work/model" | head -n 1; }
million() { awk "BEGIN { printf \"%.1f\", $1 / 1e6 }"; }
weights=$(sed -n 's/^"all":.*"n_weights":\([0-9]*\).*/\1/p' "$work/model")
bytes=$(wc -c <models/stories.gguf)
says README.md "a BitNet of $(million "$weights") million parameters in $(million "$bytes") MB"
says models/README.md "a BitNet b1.58 of $(million "$weights") million parameters"
says models/README.md "$(spell "$(field block_count)") layers of $(field embedding_length) dimensions"
says models/README.md "a vocabulary of $(field vocab_size) tokens of its own, a context of $(field context_length)"
says web/index.html "A model of $(million "$bytes") MB"
says web/diagnose/steps.ts "the model that comes with these pages, $(million "$bytes") MB"
says web/chat/models.ts "beside the pages: $(million "$bytes") MB"
says web/chat/models.ts "size: $bytes,"
says docs/images/chat.svg "(bitnet-b1.58, $(million "$weights")M weights)"
says docs/images/chat.svg "context of $(field context_length) tokens" # else: tools/pictures/readme_picture.sh
sed -n 's/^TERN_DTYPE_ROW([A-Z0-9_]*, "\(I2_S\|TQ[12]_0\)", \([0-9]*\), \([0-9]*\), \([0-9]*\)).*/\1 \2 \3 \4/p' \
    src/base/dtype/dtype.inc >"$work/types"
[ "$(wc -l <"$work/types")" = 3 ] || wrong "src/base/dtype/dtype.inc has not the three ternary types"
while read -r name id block size; do
    bits=$(awk "BEGIN { b = $size * 8 / $block; printf b * 1000 == int(b * 1000) ? \"%.3f\" : \"%.4f\", b }")
    says docs/formats.md "| $name | GGUF, type $id | $block | $size | $bits |"
done <"$work/types"
says docs/correctness.md "| $(spell "$(ls tests/oracles/tokenizers/*.ids.json | wc -l)" | tr 'A-Z' 'a-z') vocabularies:"
says docs/correctness.md "of $(grep -c . tests/oracles/tokenizers/texts.json) strings"
needs=$(sed -n 's/^ *\([0-9]*\) skipped: TERN_TEST_DATA is not set.*/\1/p' "$build/tests.log" 2>/dev/null || true)
[ -z "$needs" ] || says docs/correctness.md "$needs tests ask for it" # where `make test` ran without it
exit $status
