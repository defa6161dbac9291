#!/bin/sh
# The carried embedding model, from the carried language model: a short run for each of SETTINGS, rate and
# temperature, by which they are chosen, then the run itself, as many steps as fit into SECONDS_ALL.
#
#     recipes/embed/train.sh PAIRS OUT [build/tern]
#
# PAIRS is a folder of pairs.py. OUT gets embed.gguf, log.jsonl, and the logs of the short runs.
#     DEVICE=webgpu|cpu   SECONDS_ALL=520   SETTINGS="1.5e-3:0.05 ..."   PROBE=60 (steps of a short run)
#     BATCH=512 (pairs of a step)   INIT=models/stories.gguf   MORE="options of tern train"
set -eu
[ $# -ge 2 ] || { sed -n '5p' "$0" >&2; exit 2; }
pairs=$1 out=$2 tern=${3:-build/tern}
device=${DEVICE:-webgpu} all=${SECONDS_ALL:-520} probe=${PROBE:-60} batch=${BATCH:-512}
begun=$(date +%s)
mkdir -p "$out"

# train FOLDER PAIRS STEPS RATE:TEMPERATURE SECONDS. What takes longer stops with a checkpoint.
train() {
    rm -rf "$1"
    timeout -s INT "$5" "$tern" train --contrastive "$2" --held-out "$pairs/valid.jsonl" --in-order \
        --init "${INIT:-models/stories.gguf}" -o "$1" -n "$3" --rate "${4%:*}" --temperature "${4#*:}" \
        --device "$device" --bf16 --batch-pairs "$batch" --valid-pairs "${VALID:-2000}" --valid-every 200 \
        --log-every 20 --checkpoint-every 100000 --keep 1 --seq-len 192 --matryoshka 64,128,256 ${MORE:-} ||
        ls "$1"/step-*.gguf >&2
}
# The last number of that name in a log.
last() { sed -n "s/.*\"$2\":\([0-9.e+-]*\).*/\1/p" "$1" | tail -n 1; }

best=0 chosen=
head -n "$((probe * batch))" "$pairs/train.jsonl" > "$out/probe.jsonl"
for s in ${SETTINGS:-1.5e-3:0.05 1.5e-3:0.03 2.5e-3:0.05}; do
    log=$out/log-${s%:*}-${s#*:}.jsonl
    train "$out/probe" "$out/probe.jsonl" "$probe" "$s" 150
    cp "$out/probe/log.jsonl" "$log"
    recall=$(last "$log" recall_10) speed=$(last "$log" pairs_per_second)
    echo "rate and temperature $s: recall@10 $recall after $probe steps, $speed pairs/s"
    if [ "$(echo "$recall $best" | awk '{ print ($1 > $2) }')" = 1 ]; then best=$recall chosen=$s; fi
done
left=$((all - $(date +%s) + begun))
steps=$(echo "$speed $left $batch" | awk '{ n = int($1 * ($2 - 65) * 0.97 / $3); print (n < 1 ? 1 : n) }')
echo "$chosen, $steps steps in the remaining $left seconds"
train "$out/run" "$pairs/train.jsonl" "$steps" "$chosen" "$((left > 60 ? left : 60))"
cp "$out/run/log.jsonl" "$out/log.jsonl"
"$tern" convert "$out/run"/step-*.gguf "$out/embed.gguf" --type tq1_0 --head-type q6_k
rm -rf "$out/probe" "$out/probe.jsonl" "$out/run"
ls -l "$out/embed.gguf"
