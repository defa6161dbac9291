// Any bytes as a tokenizer.json: opened or refused, and if opened used once for everything.
#include "base/alloc.h"
#include "input/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char text[] = "The the  word\t\xC3\xA9 e\xCC\x81 123456 don't<s></s><|end|>\n\n "
                               "\xE2\x96\x81 \xF0\x9F\x98\x80 \xFF aaaaaaaaaaaaaaaaaaaaaaaaab";
    tern_file file = {.kind = TERN_FILE_HF, .path = "fuzz",
                      .tokenizer_json = {(const char *)data, n}};
    tern_tokenizer *t = NULL;
    tern_error err = {0};
    if (tern_tokenizer_open(&t, &file, &err) != TERN_OK) return 0;
    for (unsigned flags = 0; flags < 4; flags += 3) {
        tern_ids ids = {0};
        tern_strbuf out = {0};
        tern_decoder d = {.with_special = flags != 0};
        if (tern_tokenizer_encode(t, text, sizeof text - 1, flags, &ids, &err) == TERN_OK)
            for (size_t i = 0; i < ids.n; i++) tern_tokenizer_decode(t, &d, ids.ids[i], &out);
        tern_tokenizer_decode_end(&d, &out);
        tern_strbuf_free(&out);
        tern_free(ids.ids);
    }
    tern_tokenizer_export e;
    (void)tern_tokenizer_export_gguf(t, &e, &err);
    tern_tokenizer_free(t);
    return 0;
}
