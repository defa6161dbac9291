# Part of cli_test.sh: conversations, and standard output that cannot be written.
talk() { # STATUS OPTIONS...: standard input is what the user types
    want=$1
    shift
    n=$((n + 1))
    "$tern" chat "$model" --seed 1 "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    [ $got = "$want" ] || wrong "chat $*: exit $got, not $want: $(cat "$dir/err")"
}

# Without a terminal: one line a question, only answers are printed, and the status tells whether
# everything worked.
printf 'Hi\n/system Be kind\n"""a\nb"""\n/save %s\n/quit\nnever\n' "$dir/talk.json" | talk 0 -n 4
same "$(grep -c '"role"' "$dir/talk.json")" 5 "messages that were saved"
grep -q '"role":"user","content":"a\\nb"' "$dir/talk.json" || wrong "chat loses quoted lines"
grep -q '> ' "$dir/out" && wrong "chat prompts although there is no terminal"
for line in /zork /save /load '/load none.json' '/save /nowhere/talk.md' /regenerate '/set zork 1' \
    '/set temperature hot' '/set top_p 1.5' '/set max_tokens -1'; do
    echo "$line" | talk 1
    same "$(grep -c '^tern: ' "$dir/err")" 1 "one complaint about $line"
done
printf '/set temperature hot\n' | talk 1
says "^tern: /set temperature 'hot': expected a number from 0 to 100$"
printf '/set temperature 0.25\n/set max_tokens 3\n/set\nHi\n' | talk 0
has '^  temperature *0.25$'
has '^  top_k *40 (default)$'
has '^  max_tokens *3$'

# The same question again gives another answer, and the conversation keeps only one.
printf 'Hi\n/regenerate\n/save %s\n' "$dir/again.json" | talk 0 -n 12 --temp 1.5
same "$(grep -c '"role"' "$dir/again.json")" 2 "messages after /regenerate"
printf '/load %s\n/regenerate\n/history\n/save %s\n' "$dir/again.json" "$dir/again.md" | talk 0 -n 5
has '^user:$'
has '^Hi$'
printf '/load %s\n/save %s\n' "$dir/talk.json" "$dir/talk.md" | talk 0
printf '/load %s\n/save %s\n' "$dir/talk.md" "$dir/back.json" | talk 0
cmp -s "$dir/talk.json" "$dir/back.json" || wrong "a transcript comes back from Markdown as another"

# Conversations and answers of any length: seen to fail with the generation of `tern run`, which
# ends with the context. The transcript has all of it.
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "Question $i about the fox and the hen"; done >"$dir/long"
echo "/save $dir/long.json" >>"$dir/long"
talk 0 -c 96 -n 20 --ignore-eos --system "Be kind" <"$dir/long"
same "$(grep -c '"role"' "$dir/long.json")" 25 "messages of a long conversation"
same "$(grep -c 'longer than the context of 96' "$dir/err")" 1 "notes on what is dropped"
grep -q 'context is full' "$dir/err" && wrong "a chat's context is full"
echo 'Tell on' | talk 0 -c 96 -n 500 --ignore-eos --verbose
says 'answer: 500 tokens,.*stopped by length'
(yes x | head -c 400 | tr -d '\n'; printf '\nHi\n') | talk 1 -c 96 -n 4
says '^tern: the newest message has [0-9]* tokens, too many for a context of 96$'
[ -s "$dir/out" ] || wrong "chat does not go on after a message that is too long"

# Standard output on a full disk: every command says so, whatever it prints. Seen to fail when
# close_out() trusts fflush() alone, which succeeds once the text is lost.
full() { # COMMAND...
    n=$((n + 1))
    "$@" </dev/null >/dev/full 2>"$dir/err"
    got=$?
    [ $got = 1 ] || wrong "exit $got with a full disk: $*"
    grep -q '^tern: standard output: ' "$dir/err" || wrong "no word on a full disk: $*"
}
echo '{"sentence_good":"He is.","sentence_bad":"He are."}' >"$dir/blimp.jsonl"
mkdir "$dir/shelf" && cp "$model" "$dir/shelf/tiny.gguf"
has_memory= # it needs SQLite
"$tern" memory add "$dir/shelf/memory" --text "The fox and the hen" >/dev/null 2>&1 && has_memory=1
full "$tern" --version
full "$tern" help
full "$tern" help --all
full "$tern" help --all --tsv
for name in $(awk -F '\t' '$1 == "command" { gsub(" ", "_", $2); print $2 }' "$dir/tsv"); do
    command=$(echo "$name" | tr _ ' ')
    full "$tern" $command --help
    case $name in
    run) full "$tern" run "$model" x -n 4 && full "$tern" run "$model" x -n 4 --json ;;
    chat)
        n=$((n + 1))
        echo Hi | "$tern" chat "$model" -n 4 >/dev/full 2>"$dir/err" && wrong "chat on a full disk"
        says '^tern: standard output: '
        ;;
    transcribe) full "$tern" transcribe tests/oracles/moonshine tests/oracles/moonshine/sound.wav --ids --whole ;;
    speak)
        /usr/bin/env printf '\223NUMPY\001\000\166\000%-117s\n\001\000\000\000\002\000\000\000\003\000\000\000\004\000\000\000' \
            "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 4), }" >"$dir/codes.npy"
        full "$tern" speak --codec tests/oracles/nanocodec --codes "$dir/codes.npy" -o -
        ;;
    classify) full "$tern" classify tests/oracles/vit docs/images/server-chat.png ;;
    embed) full "$tern" embed "$model" x --pooling mean ;;
    inspect | graph | compute) full "$tern" $name "$model" ;;
    tokenize | detokenize) full "$tern" $name "$model" 3 ;;
    logits) full "$tern" logits "$model" --ids "$dir/ids" -o - ;;
    bench) full "$tern" bench "$model" -p 4 -n 0 -t 1 -r 1 --no-limits ;;
    diagnose) full "$tern" diagnose --no-limits ;;
    data_tokenizer) full "$tern" $command "$dir/stories.txt" -o "$dir/full.json" --vocab 280 ;;
    data_build) full "$tern" $command "$dir/lower.txt" --tokenizer "$model" -o "$dir/full" ;;
    data_inspect) full "$tern" $command "$dir/own/train-00000.tern" ;;
    eval_ppl) full "$tern" $command "$model" "$dir/story" --window 16 ;;
    eval_compare) full "$tern" $command "$model" "$model" "$dir/story" --window 16 ;;
    eval_choice | eval_run) full "$tern" $command "$model" --task blimp -f "$dir/blimp.jsonl" ;;
    eval_significance | eval_table)
        "$tern" eval choice "$model" --task blimp -f "$dir/blimp.jsonl" --results "$dir/$name" >/dev/null
        full "$tern" $command "$dir/$name" "$dir/$name" ;;
    eval_paper) full "$tern" $command "$model" ;;
    datagen) full "$tern" datagen "$model" hello --raw --keep-cut -n 4 --count 1 --max-repetition 1 ;;
    imatrix) full "$tern" imatrix "$model" "$dir/story" -o "$dir/full.gguf" --window 16 ;;
    list) full "$tern" list --models-dir "$dir/shelf" ;;
    show | rm) full "$tern" $name tiny --models-dir "$dir/shelf" ;;
    ternarize)
        "$tern" train --data "$dir/own" -o "$dir/float" --recipe llama --layers 1 --embd 128 --heads 2 --ff 128 \
            --seq-len 16 --batch-tokens 16 -n 1 2>/dev/null
        full "$tern" ternarize "$dir/float/step-00000001.gguf" -o "$dir/full.gguf" --data "$dir/story" \
            --held-out "$dir/stories.txt" -n 1 --seq-len 16 --batch-tokens 16 -t 1
        ;;
    mine) full "$tern" mine "$model" "$dir/own" -o "$dir/full.bin" ;;
    memory_rules) full "$tern" $command ;;
    memory_compact) ;;
    memory_*)
        if [ "$has_memory" ]; then
            case $name in
            *_add) full "$tern" $command "$dir/shelf/memory" --text "The fox and the hen" ;;
            *_show | *_forget) full "$tern" $command "$dir/shelf/memory" 1 ;;
            *_recall) full "$tern" $command "$dir/shelf/memory" fox ;;
            *) full "$tern" $command "$dir/shelf/memory" ;;
            esac
        fi
        ;;
    agent) full "$tern" agent "$model" x --max-tokens 4 --temp 0 --json ;;
    ask) [ ! "$has_memory" ] || full "$tern" ask "$model" fox --memory "$dir/shelf/memory" ;;
    mcp)
        n=$((n + 1))
        echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | "$tern" mcp "$model" >/dev/full 2>"$dir/err" && wrong "mcp on a full disk"
        says '^tern: standard output: '
        ;;
    compute | convert | pull | ps | serve | train | train_plot) ;; # print nothing but their help
    *) wrong "tern $command was not tried with a full disk" ;;
    esac
done

# How likely tokens were: one entry a token, each with the likeliest first.
ends 0 "$tern" run "$model" "Once upon" -n 5 --temp 0 --json --logprobs 3
same "$(grep -c '^{"id":[0-9]*,"token":".*","bytes":\[[0-9,]*\],"logprob":-[0-9.]*,"top":\[' "$dir/out")" 5 "logprobs"
grep -q '"speculation"\|"device_memory"\|,0,0' "$dir/out" && wrong "--json prints what says nothing"
fails 2 "needs --json" "$tern" run "$model" x --logprobs 1
fails 2 "from 0 to 20" "$tern" run "$model" x --json --logprobs 21

# On a terminal, simulated by script(1): words wrapped, Markdown as styles. Chats end with /exit: an
# end of input that comes while the terminal changes its mode is lost, and the chat would wait.
on_terminal() { # COLUMNS COMMAND: its screen is in $dir/screen
    (cat; echo /exit; sleep 0.2) | TERM=xterm timeout 300 script -qec "stty cols $1 -echo; $2" /dev/null 2>&1 | tr -d '\r' >"$dir/screen"
}
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    n=$((n + 4))
    cat >"$dir/md.md" <<'END'
<!-- tern: user -->
## user

Show me **everything** about the fox, the hen and the river that runs to the sea

<!-- tern: assistant -->
## assistant

# A heading
Some **bold words**, *weak ones*, `code * here`, 2 * 3 * 4 and 中文字符宽度测试中文字符宽度测试
- an item that is longer than a line of this window has room for
```
a line of code that is longer than the window and stays whole
```
END
    esc=$(printf '\033')
    chat="XDG_STATE_HOME=$dir $tern chat $model -t 1"
    # Tab completes the file and the command. Seen to fail without the binding of ^I.
    printf '/load %s\t\n/hist\t\n' "$dir/md.m" | on_terminal 40 "$chat"
    for line in "${esc}\[1mA heading$esc\[22m" "${esc}\[1mbold words$esc\[22m" \
        "${esc}\[3mweak" "${esc}\[36mcode \* here" '2 \* 3 \* 4' '^  this window has room for$' \
        'a line of code that is longer than the window and stays whole' '^hen and the river'; do
        grep -q -e "$line" "$dir/screen" || wrong "no '$line' on a terminal"
    done
    grep -q '/help lists the commands' "$dir/screen" || wrong "chat does not greet"
    printf '/load %s\n/history\n' "$dir/md.md" | NO_COLOR=1 on_terminal 40 "$chat"
    grep -q '^Some \*\*bold words\*\*, ' "$dir/screen" || wrong "NO_COLOR does not leave Markdown as it is"
    echo 'Hi' | on_terminal 60 "$chat -n 5 --ignore-eos"
    grep -q '5 tokens, [0-9.]* tokens/s' "$dir/screen" || wrong "no speed after an answer"
    # run -p - ends with the first end of input, though the terminal could go on.
    mkfifo "$dir/typed"
    script -qec "$tern run $model -p - -n 3 >$dir/done 2>$dir/err; echo over >>$dir/done" /dev/null \
        <"$dir/typed" >/dev/null 2>&1 &
    script_id=$!
    exec 9>"$dir/typed"
    printf 'Once upon a time\n\004' >&9
    for i in $(seq 3000); do
        grep -q over "$dir/done" 2>/dev/null && break
        sleep 0.1
    done
    grep -q over "$dir/done" || wrong "run -p - waits for a second Ctrl-D"
    exec 9>&-
    wait $script_id
fi
