// Any bytes as sentencepiece's .model: opened or refused, and if opened used once for everything.
#include "fuzz/support.h"
#include "input/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char text[] = "The the  ab\t\xC3\xA9 e\xCC\x81 xyx <tag></s>\n\n "
                               "\xE2\x96\x81 \xF0\x9F\x98\x80 \xFF AAaaaaaaaaaaaab";
    tern_file file = {
        .kind = TERN_FILE_HF, .path = "fuzz", .tokenizer_model = {(const char *)data, n}};
    tern_tokenizer *t = NULL;
    tern_error err = {0};
    if (n == 0 || tern_tokenizer_open(&t, &file, &err) != TERN_OK) return 0;
    fuzz_use_tokenizer(t, text, sizeof text - 1);
    tern_tokenizer_free(t);
    return 0;
}
