# Part of cli_test.sh: tern embed, with a model that embeds and a tokenizer of 48 tokens. What the numbers are is
# tests/library/embed_test.c's.
[ -d "$dir/embeddinggemma" ] || with_tokenizer embeddinggemma
embeds=$dir/embeddinggemma
printf 'the cat and the dog\nthe hen\r\nthe cat\n' >"$dir/lines"
printf '"the cat and the dog"\n\n{"id": 1, "text": "the hen"}\n{"text": "the cat"}' >"$dir/lines.jsonl"

# Seen to fail: with the end of a line kept, and with texts of JSON one place further.
ends 0 "$tern" embed "$embeds" -f "$dir/lines"
same "$(wc -l <"$dir/out")" 3 "lines of vectors"
has '^{"index": 0, "embedding": \[-\{0,1\}[0-9].*\]}$'
cp "$dir/out" "$dir/vectors"
for other in '-f lines.jsonl --jsonl' '-f lines.jsonl --jsonl --field text' '-f lines -t 3' '-f lines --device cpu'; do
    set -- $other
    what=$2
    shift 2
    ends 0 "$tern" embed "$embeds" -f "$dir/$what" "$@"
    cmp -s "$dir/out" "$dir/vectors" || wrong "tern embed $other: other vectors"
done
ends 0 "$tern" embed "$embeds" "the cat and the dog" "the hen" "the cat"
cmp -s "$dir/out" "$dir/vectors" || wrong "words are other texts than lines"
"$tern" embed "$embeds" <"$dir/lines" >"$dir/out" 2>"$dir/err"
cmp -s "$dir/out" "$dir/vectors" || wrong "standard input is other texts than a file"

# Formats: raw is the NPY without its header of 128 bytes; 32 numbers, or as many as asked for.
ends 0 "$tern" embed "$embeds" -f "$dir/lines" --format raw -o "$dir/v.raw"
same "$(wc -c <"$dir/v.raw")" 384 "bytes of three vectors"
ends 0 "$tern" embed "$embeds" -f "$dir/lines" --format npy -o "$dir/v.npy"
tail -c 384 "$dir/v.npy" | cmp -s - "$dir/v.raw" || wrong "NPY and raw vectors differ"
ends 0 "$tern" embed "$embeds" -f "$dir/lines" --format raw --dimensions 8
same "$(wc -c <"$dir/out")" 96 "bytes of short vectors"
ends 0 "$tern" embed "$embeds" -f "$dir/lines" --max-length 4
says '^note: [1-3] of 3 texts were cut'

# Similarity: of itself 1, the same by files of vectors and of texts, with and without a model. Seen to fail with
# rows and columns exchanged.
ends 0 "$tern" embed --similarity "$dir/v.npy" "$dir/v.npy"
same "$(wc -l <"$dir/out")" 3 "rows of similarities"
has '^\[1, '
cp "$dir/out" "$dir/cosines"
ends 0 "$tern" embed "$embeds" --similarity "$dir/lines" "$dir/v.npy"
cmp -s "$dir/out" "$dir/cosines" || wrong "texts are less similar than their vectors"
ends 0 "$tern" embed -m "$embeds" --similarity "$dir/lines" "$dir/lines"
cmp -s "$dir/out" "$dir/cosines" || wrong "texts are less similar than their vectors"
head -n 1 "$dir/lines" >"$dir/query"
ends 0 "$tern" embed "$embeds" --similarity "$dir/query" "$dir/lines"
same "$(cat "$dir/out")" "$(head -n 1 "$dir/cosines")" "a query's row"

echo "[1]" >"$dir/bad.jsonl"
# Reranking: the best first; as numbers in the order of the texts.
ranker=$oracles/bert_ranker
ends 0 "$tern" embed "$ranker" --rerank "w h o" "t h e f o x" "h e n" "a n d"
same "$(wc -l <"$dir/out")" 3 "lines of scores"
same "$(sed 's/.*"score": //; s/}//' "$dir/out" | sort -rg)" "$(sed 's/.*"score": //; s/}//' "$dir/out")" "falling scores"
same "$(sed 's/.*"index": \([0-9]*\).*/\1/' "$dir/out" | sort | tr -d '\n')" 012 "all documents"
ends 0 "$tern" embed "$ranker" --rerank "w h o" "t h e f o x" "h e n" "a n d" --format raw
same "$(wc -c <"$dir/out")" 12 "bytes of three scores"
fails 2 "exclude each other" "$tern" embed "$ranker" --rerank x --similarity "$dir/v.npy" "$dir/v.npy"
fails 1 "makes vectors and no scores" "$tern" embed "$embeds" --rerank x y
fails 1 "makes scores and no vectors" "$tern" embed "$ranker" x
fails 2 "two files" "$tern" embed --similarity "$dir/v.npy"
fails 2 "no model" "$tern" embed --similarity "$dir/lines" "$dir/lines"
fails 2 "as words or with -f" "$tern" embed "$embeds" words -f "$dir/lines"
fails 1 "line 1: expected a string, or an object with a string \"text\"" "$tern" embed "$embeds" -f "$dir/bad.jsonl" --jsonl
fails 1 "no prompt \"query\": it has none" "$tern" embed "$embeds" x --prompt query
fails 1 "n_dims is 99: expected 1 to 32" "$tern" embed "$embeds" x --dimensions 99
fails 1 "vectors of 32 numbers" "$tern" embed --similarity "$dir/v.npy" "$dir/l.npy"
fails 1 "do not say how it makes a vector.*: --pooling$" "$tern" embed "$dir/qwen3" x
ends 0 "$tern" embed "$dir/qwen3" x --pooling mean
