#!/bin/sh
# `tern data` and `tern train` from outside: what a run says, how it is stopped, what it leaves.
#     tests/train_test.sh build/tern build/tiny.gguf
set -u
tern=$1 model=$2
. "$(dirname "$0")/cli/cli_checks.sh"
there() { # FILE...
    for f in "$@"; do
        n=$((n + 1))
        [ -e "$f" ] || wrong "$f is not there"
    done
}
await() { # PATTERN FILE: at most five minutes
    for i in $(seq 3000); do
        grep -q -- "$1" "$2" 2>/dev/null && return
        sleep 0.1
    done
    wrong "no '$1' in $2 after five minutes: $(head -c 600 "$2")"
}

# A tokenizer is written as a folder unless its name is a file's.
awk 'BEGIN { for (i = 0; i < 400; i++) printf "Story %d: the cat met dog %d at the river.<|endoftext|>",
    i, i * 7 % 97 }' >"$dir/stories.txt"
ends 0 "$tern" data tokenizer "$dir/stories.txt" -o "$dir/tok" --vocab 280
there "$dir/tok/tokenizer.json" "$dir/tok/tokenizer_config.json"
ends 0 "$tern" data tokenizer "$dir/stories.txt" -o "$dir/one.json" --vocab 280
n=$((n + 1))
[ -f "$dir/one.json" ] || wrong "-o one.json is no file"

# How the text is split, and the warnings about what may not be meant.
ends 0 "$tern" data build "$dir/stories.txt" --tokenizer "$dir/tok" -o "$dir/shards" --valid 0.1
has '^  train  3[0-9][0-9] documents, [0-9]* tokens (8[0-9.]*%\|9[0-9.]*%).*, 1 shard$'
has '^  valid  [0-9]* documents, [0-9]* tokens ([0-9.]*%).*, 1 shard$'
n=$((n + 1))
[ -s "$dir/err" ] && wrong "a note without a reason: $(cat "$dir/err")"
echo "A text without a separator" >"$dir/plain.txt"
ends 0 "$tern" data build "$dir/plain.txt" --tokenizer "$dir/tok" -o "$dir/plain"
says 'note: .*plain.txt is one document: there is no "<|endoftext|>" in it'
says 'note: nothing is held out'
cp "$dir/plain.txt" "$dir/plain2.txt"
ends 0 "$tern" data build "$dir/stories.txt" "$dir/plain.txt" "$dir/plain2.txt" --dedup none \
    --tokenizer "$dir/tok" -o "$dir/plain"
says 'note: 2 text files are one document each'
ends 0 "$tern" data build "$dir/plain.txt" --tokenizer "$dir/tok" -o "$dir/plain" --separator '' \
    --valid 0
n=$((n + 1))
[ -s "$dir/err" ] && wrong "--separator '' is noted: $(cat "$dir/err")"

# A plan is only said.
small="--layers 1 --embd 32 --heads 2 --ff 64 --seq-len 32 --batch-tokens 256 -t 1"
ends 0 "$tern" train --data "$dir/shards" $small --plan -o "$dir/none" -n 12
says '^plan    12 steps of 256 tokens (sequences of 32): 3072 tokens, [0-9.]* epochs$'
says '^time    about [0-9:]*, as measured with 256 tokens$'
n=$((n + 1))
[ ! -e "$dir/none" ] || wrong "--plan writes"
ends 1 "$tern" train --data "$dir/shards" $small --layers 20 --embd 65536 --ff 1048576 --plan
says 'the run needs [0-9.]* GB of memory and [0-9.]* GB are free (weights .*): it needs a smaller shape'

# The beginning of a run says what it will be.
train="$tern train --data $dir/shards $small"
ends 0 $train -o "$dir/run" -n 12 --log-every 4
says '^model   bitnet, 1 layer of 32: .* parameters, .* ternary$'
says '^data    .* tokens, [0-9]* held out$'
says '^plan    12 steps of 256 tokens (sequences of 32): 3072 tokens, [0-9.]* epochs$'
says '^device  cpu .*1 thread$'
says '^memory  [0-9.]* MB of .*: weights .*, gradients .*, optimizer .*, activations .* (logits .*)$'
says '^time    about [0-9:]* for the remaining 8 steps, at [0-9]* tokens/s$'
says '^step 12/12, wrote .*run/step-00000012.gguf$'
there "$dir/run/step-00000012.gguf" "$dir/run/log.jsonl"
sum=$(cksum "$dir/run/log.jsonl")
ends 1 $train -o "$dir/run" -n 12
says '^tern: .*run holds a run already (step 12, 1 checkpoint): resume goes on'
n=$((n + 1))
[ "$(cksum "$dir/run/log.jsonl")" = "$sum" ] || wrong "a refused run has changed the log"
ends 1 $train -o "$dir/run" --resume --rate 0.001
says '^tern: .* is of another run: .*rate is 0.003 there and 0.001 here'
ends 0 $train -o "$dir/run" --resume
says '^all 12 steps are done; -n MORE makes the run longer$'
ends 0 $train -o "$dir/run" --resume -n 20
says '^resumes .*run after step 12$'
there "$dir/run/step-00000020.gguf"
n=$((n + 1))
[ "$(grep -c '"loss"' "$dir/run/log.jsonl")" = 4 ] || wrong "the log lost lines of the first part"

# Chats: how they are told apart, and what of them is scored.
for i in 1 2 3 4 5 6 7 8 9; do
    echo '{"messages":[{"role":"user","content":"Cat '$i'?"},{"role":"assistant","content":"At the river '$i'."}]}'
    echo '{"instruction":"Where is dog '$i'?","output":"It is at the river, near cat '$i'."}'
done >"$dir/chats.jsonl"
ends 0 "$tern" data build "$dir/chats.jsonl" --tokenizer "$dir/tok" -o "$dir/chats" --held-out "$dir/stories.txt"
has '^  read   400 of plain text, 9 of OpenAI messages, 9 of Alpaca$'
ends 0 "$tern" train --data "$dir/chats" $small -o "$dir/says" -n 2 --assistant-only
says '^scored  [1-9][0-9.]*% of the tokens; none of those held out, so there is no loss of these$'
n=$((n + 1))
grep -q 'valid_loss' "$dir/says/log.jsonl" && wrong "a loss of no tokens"
fails 1 'nothing to learn: an assistant says none of its tokens' $train -o "$dir/mute" -n 2 --assistant-only

# Ctrl-C is answered at once, and the checkpoint is there; two runs cannot share a folder; the log
# and an image of it can be read while it grows. Seen to fail: with a handler that says nothing.
$train -o "$dir/long" -n 1000000 --log-every 10 --valid-every 100000 >"$dir/out" 2>"$dir/long.err" &
run=$!
await '"loss"' "$dir/long/log.jsonl"
ends 1 $train -o "$dir/long" -n 1000000 --resume
says 'another process'
ends 0 "$tern" train plot "$dir/long/log.jsonl" -o "$dir/loss.svg"
there "$dir/loss.svg"
ends 0 "$tern" train plot "$dir/long/log.jsonl" -o "$dir/loss.csv"
same "$(head -n 1 "$dir/loss.csv")" "log,step,tokens,valid_loss,minus,zero,plus,loss,rate,grad_norm,tokens_per_second" \
    "a table's first line"
grep -q '^".*/long/log.jsonl",10,2560,,,,,[0-9.]*,[-0-9.e]*,[0-9.]*,[0-9.e+]*$' "$dir/loss.csv" || wrong "a row of $(head -n 3 "$dir/loss.csv")"
fails 1 'l.png: a plot is an image, .svg, or a table, .csv; there is no writer for .png' \
    "$tern" train plot "$dir/long/log.jsonl" -o "$dir/l.png"
kill -INT $run
await 'stopping, writing a checkpoint; once more to stop at once' "$dir/long.err"
wait $run
stopped=$?
n=$((n + 1))
[ $stopped = 1 ] || wrong "a stopped run does not exit with 1"
grep -q '^tern: train: stopped after step [0-9]* of 1000000; resume goes on' "$dir/long.err" ||
    wrong "no word on where it stopped: $(tail -n 1 "$dir/long.err")"
stopped=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' "$dir/long.err")
there "$dir/long/step-$(printf %08d "${stopped:-0}").gguf"
ends 1 $train -o "$dir/long" --resume -n "$((${stopped:-1} - 1))"
says 'beyond the'

# Shards with the tokenizer of a GGUF file train a whole model, which has that tokenizer.
ends 0 "$tern" data build "$dir/stories.txt" --tokenizer "$model" -o "$dir/gguf"
there "$dir/gguf/tokenizer.gguf"
ends 0 "$tern" data inspect "$dir/gguf/train-00000.tern"
has 'begins      ".*Story [0-9]*: the cat met'
ends 0 "$tern" train --data "$dir/gguf" -o "$dir/whole" $small -n 2
ends 0 "$tern" run -m "$dir/whole/step-00000002.gguf" -p "Story" -n 4
for m in "$model" "$dir/whole/step-00000002.gguf"; do
    printf 'Story 7: the cat' | "$tern" tokenize -m "$m" >"$dir/ids.$(basename "$m")" 2>/dev/null
done
n=$((n + 1))
cmp -s "$dir/ids.$(basename "$model")" "$dir/ids.step-00000002.gguf" || wrong "another tokenizer"

# A teacher runs once, which a plan counts and does not do.
taught="--data $dir/gguf $small -n 2 --teacher-cache $dir/said --teacher-top-k 7"
ends 0 "$tern" train $taught --teacher "$dir/whole/step-00000002.gguf" --plan
says '^cache   .*/said: [0-9.]* [kM]B on disk, 0% of it written$'
n=$((n + 1))
[ -e "$dir/said" ] && wrong "--plan writes the cache"
ends 0 "$tern" train $taught --teacher "$dir/whole/step-00000002.gguf" -o "$dir/pupil"
says '^cache   .*/said: [0-9.]* [kM]B on disk, 0% of it written$'
ends 0 "$tern" train $taught -o "$dir/pupil2"
says '^cache   .*/said: [0-9.]* [kM]B on disk$'
n=$((n + 1))
cmp -s "$dir/pupil/step-00000002.gguf" "$dir/pupil2/step-00000002.gguf" || wrong "another pupil"
fails 1 'it has the best 7 of each token.s, and teacher_top_k is 8' \
    "$tern" train $taught --teacher-top-k 8 -o "$dir/no"
fails 2 'teacher-top-k and --teacher-tail go with --teacher-cache' \
    "$tern" train --data "$dir/gguf" $small -o "$dir/no" --teacher-top-k 7

# Every step rounds the matrices, and a checkpoint has their codes.
ends 0 "$tern" train --data "$dir/gguf" -o "$dir/qat" $small -n 2 --recipe llama --embd 64 --ff 64 --qat q2_0
says '^model   llama, .* rounded to q2_0$'
ends 0 "$tern" inspect "$dir/qat/step-00000002.gguf"
has '^  Q2_0  *7 tensors '
ends 0 "$tern" run -m "$dir/qat/step-00000002.gguf" -p "Story" -n 4
fails 1 'a BitNet is trained ternary; for qat take the recipe llama' \
    "$tern" train --data "$dir/gguf" -o "$dir/no" $small -n 2 --qat q2_0

# A model is tuned with its own shape and tokenizer, without some parts; it runs and is converted.
ends 0 "$tern" train --data "$dir/gguf" -o "$dir/tuned" --init "$model" -n 2 --seq-len 32 --batch-tokens 64 \
    --freeze embed_tokens,norm --layer-rate-decay 0.9
says '^model   that of --init, 4 layers of 256: .* parameters of .*, .* ternary$'
ends 0 "$tern" run -m "$dir/tuned/step-00000002.gguf" -p "Story" -n 4
ends 0 "$tern" convert "$dir/tuned/step-00000002.gguf" "$dir/tuned.gguf" --type i2_s
ends 0 "$tern" convert "$dir/tuned/step-00000002.gguf" "$dir/tuned/folder"
fails 1 'preset, recipe and shape are those of the model that it begins with' \
    "$tern" train --data "$dir/gguf" -o "$dir/no" --init "$model" --preset tiny
fails 1 "freeze: no weight of this bitnet is 'layers.9'" \
    "$tern" train --data "$dir/gguf" -o "$dir/no" --init "$model" --freeze layers.9 --seq-len 32
fails 1 'was not made with the tokenizer of' \
    "$tern" train --data "$dir/shards" -o "$dir/no" --init "$model"

# It grows by new tokens of its data. A run that is killed goes on to the same bits.
printf '<cat>\nthe river\n' >"$dir/new.txt"
ends 0 "$tern" data build "$dir/stories.txt" --tokenizer "$model" --add-tokens "$dir/new.txt" \
    --add-special-tokens '["<|cat|>"]' -o "$dir/grown"
has '^  3 new tokens, from 300 to 302$'
grow="$tern train --data $dir/grown --init $model --seq-len 32 --batch-tokens 64 -t 1 -n 40 --checkpoint-every 8"
ends 0 $grow -o "$dir/grow"
says '^tokens  3 new, from 300 to 302: they begin as the means of what they were$'
$grow -o "$dir/killed" >/dev/null 2>&1 &
run=$!
for i in $(seq 200); do
    [ -e "$dir/killed/step-00000008.gguf" ] && break
    sleep 0.1
done
kill -9 $run
wait $run 2>/dev/null
ends 0 $grow -o "$dir/killed" --resume
n=$((n + 1))
cmp -s "$dir/grow/step-00000040.gguf" "$dir/killed/step-00000040.gguf" || wrong "other bits after a kill"
printf '<cat>the river' | "$tern" tokenize -m "$dir/grow/step-00000040.gguf" >"$dir/ids" 2>/dev/null
same "$(tr -d '[] ,' <"$dir/ids" | tail -n 1)" "300301" "tokens of a text"
fails 1 'grown: has 3 new tokens, and an adapter has no rows for them' \
    "$tern" train --data "$dir/grown" --init "$model" --lora 4 -o "$dir/no" --seq-len 32
fails 1 "new.txt: line 1: '<cat>' is in the vocabulary already, as token 300" \
    "$tern" data build "$dir/stories.txt" --tokenizer "$dir/grow/step-00000040.gguf" \
    --add-tokens "$dir/new.txt" -o "$dir/no"
ends 0 "$tern" data build "$dir/stories.txt" --tokenizer "$dir/tok" -o "$dir/gguf"
n=$((n + 1))
[ -e "$dir/gguf/tokenizer.gguf" ] && wrong "the tokenizer of an earlier build stays"

# A float model becomes ternary. A process that is killed goes on to the same bits; what was begun is
# not mixed with something else. Seen to fail: with resume left out.
ends 0 "$tern" train --data "$dir/gguf" -o "$dir/float" $small -n 8 --recipe llama --embd 128 --ff 128
heal="--data $dir/stories.txt --valid 0.1 --seq-len 32 --batch-tokens 64 -t 1 -n 40 --checkpoint-every 8 --valid-every 20"
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/trits.gguf" $heal --plan
says '^plan    40 steps of 64 tokens (sequences of 32)'
says '^time    about [0-9:]*, as measured with 64 tokens$'
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/gptq.gguf" $heal --start gptq --plan
says '^start   before that, [0-9.]* [kM]B beside the model$'
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/rotated.gguf" $heal --rotate -n 8 --no-report
ends 0 "$tern" run -m "$dir/rotated.gguf" -p "Story" -n 4
fails 1 'rotate: files of type q2_0 do not say that their weights are rotated: expected pq2_0 or ptq1_0' \
    "$tern" ternarize "$dir/float/best.gguf" -o "$dir/no.gguf" $heal --rotate --type q2_0
n=$((n + 1))
[ ! -e "$dir/trits.gguf" ] && [ ! -e "$dir/trits.work/imatrix.gguf" ] || wrong "--plan makes a model"
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/trits.gguf" $heal
says '^stage   data, done$'
says '^model   that of --init, 1 layer of 128: .* rounded to pq2_0$'
says '^time    about [0-9:]*, as measured with 64 tokens$'
says '^step 40/40, wrote .*trits.work/heal/step-00000040.gguf$'
has '^The ternary file is [a-z]* than Q2_K ([0-9.]* and [0-9.]* MB) [a-z]* [a-z]* '
has '^| ternary, before training | [0-9.]* | [0-9.]* | [0-9.]* ± [0-9.]* | [0-9.]* ± [0-9.]* | [0-9.]*% ± [0-9.]*% | [0-9.]* |$'
has '^40 steps of 64 tokens, rate [0-9.e-]*, seed 1. [0-9.]*% of the signs and [0-9.]*% of the zeros became others.'
there "$dir/trits.work/report.json" "$dir/trits.work/loss.svg"
ends 0 "$tern" run -m "$dir/trits.gguf" -p "Story" -n 4
"$tern" ternarize "$dir/float/best.gguf" -o "$dir/again.gguf" $heal >/dev/null 2>&1 &
run=$!
for i in $(seq 200); do
    [ -e "$dir/again.work/heal/step-00000008.gguf" ] && break
    sleep 0.1
done
kill -9 $run
wait $run 2>/dev/null
fails 1 'again.work is of another run: rate is [0-9.]* there and 0.5' \
    "$tern" ternarize "$dir/float/best.gguf" -o "$dir/again.gguf" $heal --rate 0.5
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/again.gguf" $heal --no-report
n=$((n + 1))
cmp -s "$dir/trits.gguf" "$dir/again.gguf" || wrong "other bits after a kill"
[ ! -e "$dir/again.work/report.md" ] || wrong "--no-report writes one"
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/again.gguf" $heal --stage report
there "$dir/again.work/report.md"
mkdir -p "$dir/asked"
for i in 1 2 3; do
    echo '{"sentence_good": "The river ran", "sentence_bad": "ran the the"}'
done >"$dir/asked/blimp.jsonl"
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/again.gguf" $heal --compare "$dir/trits.gguf" \
    --tasks blimp --dir "$dir/asked"
has '^| trits.gguf | [0-9.]* | [0-9.]* | [0-9.]* ± [0-9.]* | [0-9.]* ± [0-9.]* | [0-9.]*% ± [0-9.]*% | [0-9.]* |$'
has '^| 0.9 and more | [0-9.]*% | [0-9.]* | [0-9.]*% | [0-9.]*% |$'
has '^| blimp | acc | 3 | [0-9.]* ± [0-9.]* | '
fails 2 'tasks goes with --dir' "$tern" ternarize "$model" -o "$dir/no.gguf" $heal --tasks blimp
fails 1 'no task .chess.' "$tern" ternarize "$dir/float/best.gguf" -o "$dir/again.gguf" $heal --tasks chess --dir "$dir"
fails 1 'no.work: stage start is not done, and stage export reads its files' \
    "$tern" ternarize "$dir/float/best.gguf" -o "$dir/no.gguf" $heal --stage export
fails 1 'a BitNet is trained ternary' "$tern" ternarize "$model" -o "$dir/no.gguf" $heal
ends 0 "$tern" ternarize "$dir/float/best.gguf" -o "$dir/own.gguf" $heal --answers 3 --stage answers
n=$((n + 1))
[ "$(wc -l <"$dir/own.work/answers.jsonl")" = 3 ] || wrong "no three answers"
fails 2 'prompts goes with --answers' "$tern" ternarize "$model" -o "$dir/no.gguf" $heal --prompts "$dir/err"
fails 2 'ternarize: MODEL, -o and --data are needed' "$tern" ternarize "$model" -o "$dir/no.gguf"

count_and_exit "data and training"
