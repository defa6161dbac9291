# Part of cli_test.sh: what people read who have named the wrong thing. Each line was seen to fail with the words
# before it: another fault was named, a C function, or "1 chunks".
fails 1 "models: a folder of GGUF files; name the one that is meant: models/embed.gguf, models/stories.gguf$" "$tern" run models hi
for command in chat show tokenize graph; do
    fails 1 "name the one that is meant: models/embed.gguf" "$tern" $command models
done
fails 1 "name the one that is meant: models/embed.gguf" "$tern" convert models "$dir/x.gguf"
mkdir "$dir/only" "$dir/mixed"
echo '{"model_type":"llama"}' >"$dir/only/config.json"
fails 1 "only: no weights here, only config.json: neither model.safetensors nor model.safetensors.index.json$" "$tern" run "$dir/only" hi
fails 1 "only: no weights here" "$tern" convert "$dir/only" "$dir/x.gguf"
ends 0 "$tern" inspect "$dir/only"
has 'cannot be run: no weights here'
cp "$dir/only/config.json" "$model" "$dir/mixed/"
fails 1 "name the one that is meant: $dir/mixed/tiny.gguf$" "$tern" run "$dir/mixed" hi
fails 1 "do not say how it makes a vector of a text; a pooling (mean, last or cls) .*: --pooling$" \
    "$tern" embed "$model" hi
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' >"$dir/lfs.gguf"
fails 1 "lfs.gguf: a Git LFS pointer" "$tern" run "$dir/lfs.gguf" hi
mkdir "$dir/lfs" && cp "$dir/lfs.gguf" "$dir/lfs/model.safetensors" && echo '{}' >"$dir/lfs/config.json"
fails 1 "model.safetensors: a Git LFS pointer" "$tern" run "$dir/lfs" hi
fails 2 "no model: a file, a folder or a name" "$tern" chat
cp -r tests/oracles/qwen3 "$dir/fp8"
sed '0,/{/s//{"quantization_config": {"quant_method": "fp8"},/' tests/oracles/qwen3/config.json >"$dir/fp8/config.json"
fails 1 'quant_method is "fp8", but no tensor is stored in a way of fp8 that is read here' "$tern" run "$dir/fp8" hi
if "$tern" memory add "$dir/one" --text "The fox and the hen" >"$dir/out" 2>/dev/null; then
    same "$(cut -d ' ' -f 3- "$dir/out")" "1 chunk  -" "one chunk"
    ends 0 "$tern" memory stats "$dir/one"
    has '^1 record in 1 chunk of'
    ends 0 "$tern" memory forget "$dir/one" 1
    has '^1 record forgotten$'
fi
ends 0 "$tern" run "$model" x -n 1 --verbose --seed 1
says 'answer: 1 token,'
