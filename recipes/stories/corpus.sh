#!/bin/sh
# The corpus of the carried model: permissively licensed text to a vocabulary of 4096 tokens and to
# shards.
#
#     recipes/stories/corpus.sh TEXT OUT [build/tern]
#
# TEXT is a folder as corpus.py wants it. OUT gets
#     text/     what corpus.py made of it: stories in several forms, questions, summaries, explanations
#     tok/      the vocabulary
#     stories/  shards; all forms of one story in fifty are held out
set -eu
[ $# -ge 2 ] || { sed -n '5p' "$0" >&2; exit 2; }
text=$1 out=$2 tern=${3:-build/tern}
python3 "$(dirname "$0")/corpus.py" "$text" "$out/text"
"$tern" data tokenizer "$out/text/vocabulary.jsonl" -o "$out/tok" --vocab 4096
"$tern" data build "$out/text/train.jsonl" --held-out "$out/text/valid.jsonl" --tokenizer "$out/tok" \
    -o "$out/stories" --licence "MIT (synthetic stories, explanations); CDLA-Sharing-1.0 (TinyStories)"
