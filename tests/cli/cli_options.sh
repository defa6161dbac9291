# Part of cli_test.sh: the tables of options, as `tern help --all --tsv` prints them.
tab=$(printf '\t')
"$tern" help --all --tsv >"$dir/tsv" || wrong "help --all --tsv fails"
same "$(awk -F '\t' '$1 == "command" && NF != 4 || $1 == "option" && NF != 10' "$dir/tsv")" "" \
    "lines of help --all --tsv with other fields"

# Every value of another kind or out of range is refused by its option's name, whatever the command.
# Seen to fail with in_range() always true, and with strtol's own idea of a number.
refused() { # COMMAND OPTION VALUE
    n=$((n + 1))
    said=$("$tern" $1 "$2=$3" 2>&1 </dev/null)
    got=$?
    case $got$said in
    "2tern: $1: $2 '$3': expected "*) ;;
    *) wrong "tern $1 $2=$3: exit $got: $said" ;;
    esac
}
beyond() { awk "BEGIN { printf \"%.10g\", $1 }"; }
seen=
while IFS=$tab read -r what command short name kind argument position least most help; do
    [ "$what" = option ] || continue
    junk=
    case "$seen" in *" $kind "*) ;; *) # all of it for one option of a kind: they are read alike
        case $kind in
        count | counts | size) junk="-1|| 1|1x|1.5|99999999999999999999|1KK|1,,2" ;;
        number) junk="|nan|inf|0x1|1e99| 1|1,5|-0.5" ;;
        esac
        seen="$seen $kind "
        ;;
    esac
    case $kind in
    flag) fails 2 "takes no value" "$tern" $command "$name=1" ;;
    count | counts | size | number | name)
        for value in zork $([ "$least" = 0 ] || beyond "$least - 1") \
            $([ "$most" = 0 ] || beyond "$most + 1"); do
            refused "$command" "$name" "$value"
        done
        while [ "$junk" ]; do
            refused "$command" "$name" "${junk%%|*}"
            case $junk in *"|"*) junk=${junk#*|} ;; *) junk= ;; esac
        done
        ;;
    *) [ "$argument" != - ] || wrong "tern $command $name: a value without a name in the help" ;;
    esac
done <<END
$(awk -F '\t' '{ gsub(/\t\t/, "\t-\t"); gsub(/\t\t/, "\t-\t"); print }' "$dir/tsv")
END

# Counts and sizes take K, M and G, small or great.
for size in 500K 20m 4G 7; do
    fails 1 "$dir/none.gguf" "$tern" convert "$dir/none.gguf" "$dir/o.gguf" --split $size
done
ends 0 "$tern" run "$model" x -n 1k -c 1K --stop x --temp 0

# Models and texts are accepted by position as well as by name, in any order with the options.
ends 0 "$tern" run "$model" "Once upon a time" -n 12 --seed 7
by_place=$(cat "$dir/out")
for words in "run -m $model -p" "run -m $model" "run $model -p"; do
    ends 0 "$tern" $words "Once upon a time" -n 12 --seed 7
    same "$(cat "$dir/out")" "$by_place" "tern $words"
done
ends 0 "$tern" run "Once upon a time" -m "$model" -n 12 --seed 7
same "$(cat "$dir/out")" "$by_place" "a text by place, the model by name"
ends 0 "$tern" tokenize "$model" "Once upon"
ids=$(cat "$dir/out")
ends 0 "$tern" detokenize "$model" "$ids"
same "$(cat "$dir/out")" "Once upon" "ids by place"
fails 1 "prompt: 'x' is not a token id" "$tern" detokenize "$model" "3 x"
for words in inspect "inspect -m" graph "graph -m" "eval paper" "eval paper -m" \
    "bench -p 4 -n 0 -r 1 -t 1 --no-limits" "diagnose --no-limits" "logits -o $dir/l --ids $dir/ids"; do
    ends 0 "$tern" $words "$model"
done
fails 2 "unexpected argument 'more'" "$tern" run "$model" some more
fails 2 "no model" "$tern" chat
fails 2 "unexpected argument" "$tern" chat "$model" some

# The docs know every command; the man page, which tools/man_options.sh writes, also every option.
root=$(dirname "$0")/../..
while IFS=$tab read -r what command usage rest; do
    [ "$what" = command ] || continue
    grep -q "tern $command" "$root/docs/cli.md" || wrong "docs/cli.md does not know tern $command"
    grep -q "^\.It Cm $command\$" "$root/docs/tern.1" || wrong "docs/tern.1 does not know $command"
done <"$dir/tsv"
sed 's/\\-/-/g' "$root/docs/tern.1" >"$dir/man"
for name in $(awk -F '\t' '$1 == "option" { print $4 }' "$dir/tsv" | sort -u); do
    n=$((n + 1))
    grep -q "\(Fl\|,\) -${name#--}\b" "$dir/man" || wrong "docs/tern.1 does not know $name"
done
