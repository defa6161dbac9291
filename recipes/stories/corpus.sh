#!/bin/sh
# The corpus of the story model: permissively licensed text to a vocabulary of 4096 tokens and to
# shards.
#
#     recipes/stories/corpus.sh TEXT OUT [build/tern]
#
# TEXT is a folder with
#     snakes_synthetic/{stories,textbook}.{train,val}.txt   synthetic stories and explanations, MIT:
#                                                           "PROMPT<start>TEXT<end>" again and again
#     tinystories/tiny_stories_944k.txt                     a sample of TinyStories, CDLA-Sharing-1.0:
#                                                           stories one behind the other
#     english_novels_100/*.txt                              novels in the public domain (optional)
# OUT gets
#     text/     what was made of it
#     tok/      the vocabulary, learnt from the stories
#     stories/  shards of stories and short explanations, one document in fifty held out
#     mixed/    the same, and the novels to train on (if they are there); the held-out part is the same
#
# Of the synthetic texts, every second one is a chat (the prompt asks, the text answers), the others
# are the text alone, so that the model both goes on with a story and tells one that is asked for.
# Explanations of more than 8000 bytes, which are whole textbooks, are left out. Curly quotes become
# straight ones, for a small vocabulary, and quotes that were decoded wrongly once are put right.
set -eu
[ $# -ge 2 ] || { sed -n '5p' "$0" >&2; exit 2; }
text=$1 out=$2 tern=${3:-build/tern}
export LC_ALL=C
mkdir -p "$out/text" "$out/tok"

straight() { # the first line: what was UTF-8 and was read as Windows-1252
    sed -e "s/â€™/'/g; s/â€˜/'/g; s/â€œ/\"/g; s/â€¦/.../g; s/â€”/-/g; s/â€“/-/g; s/â€\xC2*\x9D*/\"/g" \
        -e "s/’/'/g; s/‘/'/g; s/“/\"/g; s/”/\"/g; s/^\xEF\xBB\xBF//; s/\r//g" "$@"
}

# "PROMPT<start>TEXT<end>" to a line of JSON each.
synthetic() { # MOST_BYTES FILE...
    most=$1
    shift
    straight "$@" | awk -v most="$most" '
        function trim(s) { sub(/^[ \t\n]+/, "", s); sub(/[ \t\n]+$/, "", s); return s }
        function json(s) {
            gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); gsub(/\n/, "\\n", s); gsub(/\t/, "\\t", s)
            gsub(/[\001-\037]/, " ", s)
            return "\"" s "\""
        }
        BEGIN { RS = "<end>" }
        (at = index($0, "<start>")) {
            prompt = trim(substr($0, 1, at - 1)); story = trim(substr($0, at + 7))
            if (story == "" || prompt == "" || length(story) > most) next
            if (++n % 2) print "{\"messages\": [{\"role\": \"user\", \"content\": " json(prompt) \
                "}, {\"role\": \"assistant\", \"content\": " json(story) "}]}"
            else print "{\"text\": " json(story) "}"
        }'
}

# Paragraphs of a story have a blank line between them, stories have none.
one_by_one() {
    straight "$1" | awk '
        NF && n && !blank { print "<|endoftext|>" }
        { print; n++; blank = !NF }'
}

synthetic 100000 "$text"/snakes_synthetic/stories.*.txt >"$out/text/stories.jsonl"
synthetic 8000 "$text"/snakes_synthetic/textbook.*.txt >"$out/text/explanations.jsonl"
one_by_one "$text/tinystories/tiny_stories_944k.txt" >"$out/text/tinystories.txt"

"$tern" data tokenizer "$out/text" -o "$out/tok" --vocab 4096
"$tern" data build "$out/text" --tokenizer "$out/tok" -o "$out/stories" --valid 0.02 --seed 1 \
    --dedup exact,near --licence "MIT (synthetic stories, explanations); CDLA-Sharing-1.0 (TinyStories)"

[ -d "$text/english_novels_100" ] || exit 0
mkdir -p "$out/novels-text"
for novel in "$text"/english_novels_100/*.txt; do
    straight "$novel" >"$out/novels-text/${novel##*/}"
done
"$tern" data build "$out/novels-text" --tokenizer "$out/tok" -o "$out/mixed" --valid 0 \
    --dedup exact --separator '' --licence "public domain"
n=0 # the stories' shards behind the novels', in one folder
while [ -e "$out/mixed/$(printf 'train-%05d.tern' $n)" ]; do n=$((n + 1)); done
for shard in "$out"/stories/train-*.tern; do
    cp "$shard" "$out/mixed/$(printf 'train-%05d.tern' $n)"
    n=$((n + 1))
done
cp "$out"/stories/valid-*.tern "$out/mixed/"
cp "$out/stories/manifest.json" "$out/mixed/manifest-stories.json"
