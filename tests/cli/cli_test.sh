#!/bin/sh
# The command line from outside: what it prints, where, and how it ends.
#     tests/cli/cli_test.sh build/tern build/tiny.gguf
set -u
tern=$1 model=$2
. "$(dirname "$0")/cli_checks.sh"

# Help and usage.
ends 0 "$tern" --version
has '^tern [0-9]*\.[0-9]*\.[0-9]* (ABI [0-9]*)$'
ends 0 "$tern" help
for command in run chat inspect graph compute embed classify transcribe speak tokenize detokenize logits convert imatrix datagen \
    ternarize mine bench ask 'memory add' 'memory recall' 'memory list' 'memory import' 'data tokenizer' \
    'data build' 'data inspect' 'eval ppl' 'eval compare' 'eval run' 'eval choice' 'eval significance' \
    'eval table' 'eval paper'; do
    ends 0 "$tern" help
    has "^  ${command%% *} "
    ends 0 "$tern" $command --help
    has "^usage: tern $command "
    fails 2 "unknown option '--zork'" "$tern" $command --zork
done
ends 2 "$tern"
fails 2 "no command 'zork'" "$tern" zork
fails 2 "no model" "$tern" run -p x
fails 2 "one of -p and -f" "$tern" run -m "$model" -p x -f x
fails 2 "standard input is empty" "$tern" run -m "$model"
fails 2 "expected a whole number" "$tern" run -m "$model" -p x -n -3
fails 2 "expected a number" "$tern" run -m "$model" -p x --temp hot
fails 2 "expected auto|f32|f16|q8_0|q4_0" "$tern" run -m "$model" -p x --kv-type q2
fails 2 "needs" "$tern" run -m
fails 2 "unexpected argument 'b'" "$tern" inspect a b
fails 2 "two names" "$tern" convert a
fails 2 "expected f32" "$tern" convert a b --type zork
fails 1 "$dir/none.gguf: " "$tern" run -m "$dir/none.gguf" -p x
echo "no model" >"$dir/text.gguf"
fails 1 "$dir/text.gguf: " "$tern" inspect "$dir/text.gguf"
fails 1 "$dir/none.txt: " "$tern" run -m "$model" -f "$dir/none.txt"

# A NaN as the last number of the file, which is output_norm's: no JSON has nan or inf in it.
cp "$model" "$dir/nan.gguf"
printf '\000\000\300\177' |
    dd of="$dir/nan.gguf" bs=1 seek=$(($(wc -c <"$model") - 4)) conv=notrunc 2>/dev/null
for command in "run -p x --json" "bench -p 8 -n 4 -t 1 -r 1 --no-limits -o json" \
    "eval ppl -f $dir/text.gguf -o json"; do
    fails 1 "output_norm.weight: some of its numbers are not numbers" \
        "$tern" $command -m "$dir/nan.gguf"
done
ends 0 "$tern" inspect "$dir/nan.gguf" --json --tensors --histogram
grep -qiE '[:,[](-?nan|-?inf)' "$dir/out" && wrong "inspect --json has nan or inf in it"

# Completion: the same whichever way the prompt is given, and by seed.
run="$tern run -m $model -n 12 --seed 7"
a=$($run -p "Once upon a time" 2>/dev/null | od -An -c)
printf 'Once upon a time' >"$dir/prompt"
same "$($run -f "$dir/prompt" 2>/dev/null | od -An -c)" "$a" "a prompt from a file"
same "$($run -p - 2>/dev/null <"$dir/prompt" | od -An -c)" "$a" "a prompt from standard input"
same "$($run --prompt="Once upon a time" -n12 -t 2 2>/dev/null | od -An -c)" "$a" "two threads"
ends 0 $run -p "Once upon a time" --json --temp 0
has '^{"text":".*","ids":\[[0-9,]*\],"prompt_tokens":[0-9]*,"generated_tokens":12,'
has '"stop_reason":"length","seed":7,"model":".*","device":"cpu'
[ -s "$dir/err" ] && wrong "--json says something on standard error: $(cat "$dir/err")"
greedy=$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$dir/out")
ends 0 $run -p "Once upon a time" --json --temp 0 --kv-type f32 --ternary 1.6bit -b 3
same "$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$dir/out")" "$greedy" "another layout and batch"
printf nonsense >"$dir/chain-buckets.bin"
fails 1 "chain-buckets.bin: 8 bytes" $run -p "Once" --enable-chains "$dir/chain-buckets.bin"
fails 1 "absent.bin" $run -p "Once" --enable-chains="$dir/absent.bin"
fails 2 "from 1 to 16" $run -p "Once" --lookup --chain-max-length 17
ends 0 $run -p "Once upon a time" --json --temp 0 --lookup --online-chains --draft-model "$model" \
    --chain-max-length 3 --visualize --enable-chains
same "$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$dir/out")" "$greedy" "speculation"
grep -q '"speculation":{"steps":[0-9]*,' "$dir/out" || wrong "no statistics of speculation in JSON"
grep -q 'there is no .*chain-buckets.bin: no chains' "$dir/err" || wrong "no word on missing chains"
ends 0 $run -p "Once" --chat --system "Be kind" --verbose
grep -q 'stopped by' "$dir/err" || wrong "--verbose prints no statistics"
printf '{{ raise_exception("no such talk") }}' >"$dir/no.jinja"
fails 1 "no such talk" $run -p "Once" --chat --chat-template "$dir/no.jinja"
fails 1 "context" "$tern" run -m "$model" -p "Once upon a time there was" -c 4

# Tokens.
text='Hello world, tern & "tea" äöü'
ids=$(printf %s "$text" | "$tern" tokenize -m "$model" 2>/dev/null)
same "$(echo "$ids" | "$tern" detokenize -m "$model" 2>/dev/null)" "$text" "tokens back to text"
same "$(printf %s "$text" | "$tern" tokenize -m "$model" --pieces 2>/dev/null | cut -f1 | xargs)" \
    "$ids" "pieces and ids"
echo 'x y' | "$tern" detokenize -m "$model" >"$dir/out" 2>"$dir/err" && wrong "ids 'x y' accepted"
grep -q "'x' is not a token id" "$dir/err" || wrong "no reason for ids 'x y'"

# Scores: one row of the vocabulary for each id, the same through a pipe.
printf '\001\000\000\000\002\000\000\000\003\000\000\000' >"$dir/ids"
ends 0 "$tern" logits -m "$model" --ids "$dir/ids" -o "$dir/logits"
vocabulary=$(($(wc -c <"$dir/logits") / 12))
ends 0 "$tern" inspect "$model" --tensors
has " x $vocabulary .*token_embd.weight"
"$tern" logits -m "$model" --ids - -o - <"$dir/ids" 2>/dev/null | cmp -s - "$dir/logits" ||
    wrong "logits through a pipe differ"
printf 'abc' >"$dir/three"
fails 1 "three: 3 bytes" "$tern" logits -m "$model" --ids "$dir/three" -o "$dir/none"
[ -e "$dir/none" ] && wrong "logits leaves a file behind when it fails"

# Reports and conversion.
ends 0 "$tern" graph "$model" --format json
has '^\['
ends 0 "$tern" graph "$model" --graph decoder --format dot
fails 1 'the model has no graph "vision": it has decoder' "$tern" graph "$model" --graph vision
ends 0 "$tern" compute "$model"
same "$(grep -c '^  in  ids  *i32\[tokens, 1\]$' "$dir/out")" 1 "the input that tern compute lists"
ends 0 "$tern" compute "$model" --json
echo 'no array' >"$dir/wrong.npy"
printf '\223NUMPY\001\000\070\000%s\n\005\000\000\000\006\000\000\000' \
    "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}" >"$dir/ids.npy"
ends 0 "$tern" compute "$model" --in ids="$dir/ids.npy" --out hidden.1="$dir/h.npy" --out logits="$dir/l.npy"
same "$(head -c 6 "$dir/h.npy" | tail -c 5)" NUMPY "tern compute writes NPY"
same "$(head -n 1 "$dir/l.npy" | grep -a -c "'<f4', 'fortran_order': False, 'shape': (2, [0-9]*), }")" 1 "its header"
fails 2 "expected NAME=FILE.npy" "$tern" compute "$model" --in "$dir/ids.npy" --out logits="$dir/l.npy"
fails 2 "in without --out" "$tern" compute "$model" --in ids="$dir/ids.npy"
fails 1 "$dir/wrong.npy: " "$tern" compute "$model" --in ids="$dir/wrong.npy" --out logits="$dir/l.npy"
fails 1 "$dir/none.npy: " "$tern" compute "$model" --in ids="$dir/none.npy" --out logits="$dir/l.npy"
ends 0 "$tern" inspect "$model" --json --histogram
has '{'
ends 0 "$tern" bench -m "$model" -p 8,16 -n 4 -t 1 -r 2 -o csv --no-limits
same "$(grep -c '^[pt][pg],' "$dir/out")" 3 "rows of bench"
ends 0 "$tern" diagnose -m "$model" --no-limits
has "^ok .*hidden values and logits"
has " 0 failed$"
ends 0 "$tern" diagnose --no-limits --json
has '"ok":true'
fails 2 "expected cpu|webgpu|auto" "$tern" diagnose --device gpu
fails 1 "the WebGPU library: /no/lib.so" env TERN_WEBGPU_LIB=/no/lib.so \
    "$tern" diagnose --device webgpu
ends 0 "$tern" convert "$model" "$dir/tq.gguf" --type tq2_0
quiet=$(grep -c 'rounded again' "$dir/err")
same "$quiet" 0 "notes about ternary weights"
ends 0 "$tern" run -m "$dir/tq.gguf" -n 12 -p "Once upon a time" --json --temp 0
same "$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$dir/out")" "$greedy" "the converted model"
# Text to shards.
for i in 1 2 3 4 5 6 7 8 9; do
    printf 'Story %s: the cat and the dog went to the river.<|endoftext|>' $i $i
done >"$dir/stories.txt"
ends 0 "$tern" data tokenizer "$dir/stories.txt" -o "$dir/tok/" --vocab 280
has '280 tokens from 18 documents'
ends 0 "$tern" tokenize -m "$dir/tok/tokenizer.json" --pieces
ends 0 "$tern" data build "$dir/stories.txt" --tokenizer "$dir/tok" -o "$dir/shards" --valid 0.3
has '18 documents read, 9 the same as others'
ends 0 "$tern" data inspect "$dir/shards/train-00000.tern"
has 'begins      "Story 1: '
ends 0 "$tern" data inspect "$dir/shards/train-00000.tern" --json
has '"documents": [1-9]'
# Shards of the model's own vocabulary to chains, and the same text with them as without.
tr 'S' 's' <"$dir/stories.txt" >"$dir/lower.txt"
ends 0 "$tern" data build "$dir/lower.txt" --tokenizer "$model" -o "$dir/own" --valid 0
ends 0 "$tern" mine -m "$model" "$dir/own" -o "$dir/mined.bin" --min-probability 0.001 --memory 1M
has '[1-9][0-9]* chains of '
ends 0 $run -p "Once upon a time" --json --temp 0 --enable-chains "$dir/mined.bin"
same "$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$dir/out")" "$greedy" "mined chains"
ends 0 "$tern" bench -m "$model" --chains "$dir/mined.bin" --lookup -f "$dir/lower.txt" -n 24 -t 1 \
    -r 1 --n-prompts 4 -o json
has '"prompts":4,"same":4,"tokens":92,'
has '"run_seconds":\[[0-9][0-9,.]*\],"speculation":{"steps":'
fails 2 "prints md or json" "$tern" bench -m "$model" --lookup -o csv
fails 2 "no shards" "$tern" mine -m "$model"
fails 1 "no shards train-" "$tern" mine -m "$model" "$dir/tok"
fails 1 "tok/tokenizer.json" "$tern" mine -m "$model" "$dir/tok/tokenizer.json"
fails 2 "'70000': expected a whole number from 1 to 65535" "$tern" mine -m "$model" "$dir/own" --buckets 70000
# The same from the model's own writing, which needs no shards.
ends 0 "$tern" mine -m "$model" --generate 2000 --buckets 1000 -o "$dir/own.bin"
has '[1-9][0-9]* chains of '
ends 0 "$tern" mine -m "$model" --generate 2000 -o "$dir/own.bin" "$dir/own"
ends 0 $run -p "Once upon a time" --json --temp 0 --enable-chains "$dir/own.bin"
same "$(sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$dir/out")" "$greedy" "chains of its own text"
printf 'x' | dd of="$dir/shards/train-00000.tern" bs=1 seek=70 conv=notrunc 2>/dev/null
fails 1 "train-00000.tern: block 0 of 1 .* is damaged" \
    "$tern" data inspect "$dir/shards/train-00000.tern"
fails 2 "no job 'zork'" "$tern" data zork
fails 2 "which job" "$tern" data
fails 2 "are needed" "$tern" data build "$dir/stories.txt"
fails 1 "none.txt: cannot be opened" "$tern" data tokenizer "$dir/none.txt" -o "$dir/x.json"
fails 2 "'100': expected a whole number from 257" "$tern" data tokenizer "$dir/stories.txt" -o "$dir/x.json" --vocab 100

# Adapters: trained, resumed, used; other tests check what they compute.
lora_train="$tern train --data $dir/own -o $dir/lora --init $model --seq-len 32 --batch-tokens 64 -t 1"
ends 0 $lora_train --lora 4,8 --lora-targets q,down -n 2
ends 0 $lora_train --lora 4,8 --lora-targets q,down -n 2 --resume
fails 1 "lora is 4 there and 8 here" $lora_train --lora 8 -n 2 --resume
ends 0 $run -p "Once" -n 4 --lora "$dir/lora/step-00000002.gguf"
plain=$($run -p "Once" -n 8 2>/dev/null)
same "$($run -p "Once" -n 8 --lora "$dir/lora/step-00000002.gguf=0" 2>/dev/null)" "$plain" \
    "the text with none of an adapter"
fails 1 "no LoRA adapter" $run -p "Once" --lora "$model=0"
fails 2 "such as 16,32" $lora_train --lora 16,
fails 2 "needs --init" "$tern" train --data "$dir/own" -o "$dir/lora" --lora 16
fails 2 "go with --lora" $lora_train --lora-targets q
fails 1 "some of q,k,v" $lora_train --lora 4 --lora-targets q,x --resume
fails 2 "go with --lora" $lora_train --dora
dora_train="$tern train --data $dir/own -o $dir/dora --init $model --seq-len 32 --batch-tokens 64 -t 1 --lora 4"
ends 0 $dora_train --dora --peft -n 2
ends 0 $run -p "Once" -n 4 --lora "$dir/dora/peft"
fails 1 "dora is true there and unknown here" $dora_train -n 4 --resume
fails 1 "no magnitudes (dora)" $dora_train --dora --device webgpu -n 4 --resume
fails 1 "none.gguf: cannot be opened" $run -p "Once" --lora "$dir/none.gguf=0.5"
fails 1 "an adapter, not a model" "$tern" convert "$dir/lora/step-00000002.gguf" "$dir/merged.gguf"
fails 1 "no LoRA adapter" "$tern" convert "$model" "$dir/merged.gguf" --lora "$model"

# Evaluation: a table and JSON, resumed from what an interrupted run left.
printf 'Once upon a time there was a hen. She sang on and on, and the sun went down.' >"$dir/story"
ends 0 "$tern" imatrix "$model" -f "$dir/story" -o "$dir/imatrix.gguf" --window 16 --limit 2
grep -q 'imatrix.gguf: 28 matrices, 32 tokens in 2 windows of 16$' "$dir/out" || wrong "what imatrix says"
# Data that a model writes: the same records whether there was an interruption or not.
printf '"a hen"\n{"text":"a fox"}\n' >"$dir/seeds.jsonl"
set -- "$model" -p 'On {{ text }}:' --raw --seeds "$dir/seeds.jsonl" --count 3 -n 8 --keep-cut --max-repetition 1 --seed 4
ends 0 "$tern" datagen "$@" --rejected "$dir/rejected"
cp "$dir/out" "$dir/printed"
ends 0 "$tern" datagen "$@" -o "$dir/records.jsonl"
{ head -n 1 "$dir/printed"; head -c 40 "$dir/printed"; } >"$dir/half.jsonl"
ends 0 "$tern" datagen "$@" -o "$dir/half.jsonl" --parallel 1
cmp -s "$dir/printed" "$dir/records.jsonl" && cmp -s "$dir/printed" "$dir/half.jsonl" ||
    wrong "datagen's records depend on how they were come by"
grep -q '"prompt":"On a fox:","text":"On a fox:.*"seed":{"text":"a fox"}.*"seed_line":2' "$dir/printed" || wrong "a record"
fails 1 "records.jsonl:1: made with other settings" "$tern" datagen "$@" -o "$dir/records.jsonl" --min-tokens 2
fails 1 "3 prompts gave 0 of 3 records .*not kept: 3 short" "$tern" datagen "$@" --min-tokens 100 --items 3
fails 1 "seeds: line 1: .*'txt' is undefined" "$tern" datagen "$@" -p '{{ txt }}'
fails 2 "exclude each other" "$tern" datagen "$@" --system x
fails 2 "one of -p and -f" "$tern" datagen "$model"
fails 2 "imatrix: no text" "$tern" imatrix "$model"
fails 1 "says how to round" "$tern" convert "$model" "$dir/o.gguf" --imatrix "$dir/imatrix.gguf"
fails 2 "q4_k_m" "$tern" convert "$model" "$dir/o.gguf" --type q4_k_x
ends 0 "$tern" eval ppl -m "$model" -f "$dir/story" --window 16
has '^| perplexity | [0-9.]* ± [0-9.]* |$'
ends 0 "$tern" eval ppl -m "$model" -f "$dir/story" --convention transformers --stride 8 --window 16 -o json
has '"convention":"transformers","window":16,"stride":8'
ends 0 "$tern" eval compare "$model" "$model" "$dir/story" --window 16
ends 0 "$tern" eval compare "$model" "$model" -f "$dir/story" --window 16 -o json
fails 2 "eval compare: no reference" "$tern" eval compare "$model" -f "$dir/story"
fails 1 "a stride is of the convention" "$tern" eval ppl -m "$model" -f "$dir/story" --window 16 --stride 8
mkdir -p "$dir/tasks/blimp/data"
echo '{"sentence_good":"He is.","sentence_bad":"He are."}' >"$dir/tasks/blimp/data/a.jsonl"
echo '{"sentence_good":"It is.","sentence_bad":"It are."}' >"$dir/tasks/blimp/data/b.jsonl"
echo '{"goal":"To rest","sol1":"sit","sol2":"eat","label":0}' >"$dir/tasks/piqa.jsonl"
ends 0 "$tern" eval choice -m "$model" --task all -d "$dir/tasks" --results "$dir/results"
has '^| blimp/b | 0 | 1 | acc | [01].0000 |'
has '^| blimp | 0 | 2 | acc | '
has '^| piqa | 0 | 1 | acc_norm | '
ends 0 "$tern" eval choice -m "$model" --task all -d "$dir/tasks" --results "$dir/results" -o json
has '"task":"blimp","n_items":2,"n_resumed":2'
ends 0 "$tern" eval significance "$dir/results" "$dir/results"
has '^| piqa | acc | 1 | [01].0000 | [01].0000 | +0.0000 | 0 : 0 | 1 | McNemar |'
ends 0 "$tern" eval table "$dir/results" "$dir/results" -o csv
has '^piqa,acc_norm,1,.*/results,[01],,false$'
fails 2 "two results files" "$tern" eval significance "$dir/results"
fails 2 "no results files" "$tern" eval table
fails 1 'not a file of --results' "$tern" eval table "$dir/tasks/piqa.jsonl"
cat >"$dir/own.json" <<'end'
{"task":"own","output_type":"generate_until","doc_to_text":"{{goal}} is","doc_to_target":"sol1",
 "generation_kwargs":{"max_gen_toks":4}}
end
cp "$dir/tasks/piqa.jsonl" "$dir/tasks/own.jsonl"
ends 0 "$tern" eval run "$model" --tasks "$dir/own.json,piqa" -d "$dir/tasks" --parallel 2
has '^| own.json | 0 | 1 | exact_match | [01].0000 |'
has '^| piqa | 0 | 1 | acc | '
fails 2 "no task 'zork'" "$tern" eval run "$model" --tasks piqa,zork -d "$dir/tasks"
fails 2 'for one task' "$tern" eval run "$model" --tasks "piqa,$dir/own.json" -f "$dir/tasks/piqa.jsonl"
fails 1 'gsm8k: 5 examples' "$tern" eval run "$model" --tasks gsm8k -f "$dir/tasks/piqa.jsonl"
echo '{"task":1}' >"$dir/own.json"
fails 1 'own.json:1: task: expected 1 to 127 bytes' "$tern" eval run "$model" --tasks "$dir/own.json" -d "$dir/tasks"
mkdir "$dir/tasks/mmlu"
for answer in 0 1 2; do # three items in one file, one in another: the mean is over items
    echo '{"question":"1+1","choices":["1","2","3","4"],"answer":'$answer'}'
done >"$dir/tasks/mmlu/three.jsonl"
head -1 "$dir/tasks/mmlu/three.jsonl" >"$dir/tasks/mmlu/one.jsonl"
ends 0 "$tern" eval choice -m "$model" --task MMLU -d "$dir/tasks" -o json
has '"task":"mmlu","n_items":4,'
awk -F '"acc":' '/"task":/ { split($2, a, ","); v[++k] = a[1] }
    END { exit !(k == 3 && (v[3] - (v[1] + 3 * v[2]) / 4) ^ 2 < 1e-12) }' "$dir/out" ||
    wrong "MMLU's mean is not that of its items: $(cat "$dir/out")"
ends 0 "$tern" eval choice -m "$model" --task Blimp -d "$dir/tasks"
fails 2 "no task 'chess'" "$tern" eval choice -m "$model" --task chess -d "$dir/tasks"
fails 2 "needs --shots-file" "$tern" eval choice -m "$model" --task piqa -d "$dir/tasks" --shots 1
fails 1 "there is no file for boolq" "$tern" eval choice -m "$model" --task boolq -d "$dir/tasks"
echo '{"goal":' >"$dir/tasks/piqa.jsonl"
fails 1 "piqa.jsonl:1: " "$tern" eval choice -m "$model" --task piqa -d "$dir/tasks"
ends 0 "$tern" eval paper "$model"
has '^| BitLinear layers .*| yes'
fails 2 "which job" "$tern" eval

# A GPU whose driver took the process along when everything was one submission: the start finds what
# the last one was about to try, and goes on with less. Skipped without an adapter.
XDG_CACHE_HOME=$dir/cache
icd=/usr/lib/chromium/vk_swiftshader_icd.json
[ -z "${VK_DRIVER_FILES:-}" ] && [ -r $icd ] && export VK_DRIVER_FILES=$icd
export XDG_CACHE_HOME
mkdir "$dir/cache"
on_gpu() { "$tern" run -m "$model" -p x -n 3 --temp 0 --ignore-eos --device webgpu; }
if on_gpu >"$dir/plain" 2>"$dir/err"; then
    state=$(echo "$dir"/cache/tern/webgpu-*)
    same "$(cat "$state")" "works 0" "what is remembered of a sound GPU"
    echo "trying 64" >"$state"
    on_gpu >"$dir/out" 2>"$dir/err" || wrong "no start after a crash"
    same "$(cat "$state")" "works 16" "what a weak GPU can take"
    cmp -s "$dir/out" "$dir/plain" || wrong "another text with few dispatches a submission"
    rm "$state"
    TERN_WEBGPU_GROUP=1 on_gpu >"$dir/out" 2>"$dir/err" || wrong "no start with one dispatch a submission"
    [ -e "$state" ] && wrong "TERN_WEBGPU_GROUP leaves a file"
    cmp -s "$dir/out" "$dir/plain" || wrong "another text with one dispatch a submission"
    (unset XDG_CACHE_HOME && HOME=$dir/home on_gpu) >"$dir/out" 2>"$dir/err" || wrong "no start from a home"
    [ -e "$dir"/home/.cache/tern/webgpu-* ] || wrong "nothing is remembered in ~/.cache"
    HOME=$dir/other XDG_CACHE_HOME=not/absolute on_gpu >"$dir/out" 2>"$dir/err"
    [ -e not ] && wrong "a cache that is not absolute is used"
    [ -e "$dir"/other/.cache/tern/webgpu-* ] || wrong "no home in place of a relative cache"
    # Once: on a GPU in software it takes minutes.
    ends 0 env TERN_WEBGPU_CHECK=1 "$tern" diagnose --device webgpu
    has "^features used"
    has "all checks on"
    has "^ok .*300 dependent dispatches"
    has "^verdict .* computes what it should$"
    has " 0 failed$"
else
    echo "command line: skipped what needs a GPU: $(head -n 1 "$dir/err")"
fi

. "$(dirname "$0")/cli_options.sh"
. "$(dirname "$0")/cli_messages.sh"
. "$(dirname "$0")/cli_chat.sh"
. "$(dirname "$0")/cli_families.sh"
. "$(dirname "$0")/cli_embed.sh"
. "$(dirname "$0")/cli_images.sh"

count_and_exit "command line"
