// Fuzzing of tokenizers in GGUF: opened or refused; if opened used for everything, and its
// tokenizer.json is valid JSON.
#include "formats/file_private.h"
#include "fuzz/support.h"
#include "input/input.h"

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    return fuzz_mutate_gguf(bytes, n, room, seed);
}

static void use(tern_tokenizer *t) {
    static const char text[] = "The the  word\t\xC3\xA9 123456 don't<s></s><|end|>\n\n "
                               "\xE2\x96\x81 \xF0\x9F\x98\x80 \xFF aaaaaaaaaaaaaaab";
    tern_error err;
    fuzz_use_tokenizer(t, text, sizeof text - 1);
    tern_strbuf json = {0}, config = {0};
    if (tern_tokenizer_write_json(t, (tern_str){0}, &json, &config, &err) == TERN_OK)
        fuzz_require(fuzz_is_json(json.ptr, json.len) && fuzz_is_json(config.ptr, config.len));
    tern_strbuf_free(&json);
    tern_strbuf_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_file *f;
    tern_gguf_split split;
    tern_tokenizer *t = NULL;
    tern_error err = {0};
    if (tern_file_new(&f, "fuzz", &err) != TERN_OK) return 0;
    const tern_blob all = tern_blob_of(bytes, n);
    if (tern_gguf_parse(f, 0, &all, &split, &err) == TERN_OK &&
        tern_file_index_tensors(f, &err) == TERN_OK && tern_tokenizer_open(&t, f, &err) == TERN_OK)
        use(t);
    tern_tokenizer_free(t);
    tern_file_close(f);
    return 0;
}
