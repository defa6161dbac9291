// Any bytes as text for two small tokenizers: valid UTF-8 must come back unchanged (for
// SentencePiece, a U+2581 comes back as the space it stands for), and no text may become a control
// token unasked. Only a lack of memory may make it fail.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "input/input.h"
#include "input/tokenizer/tok_small.h"
#include "input/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static tern_tokenizer *open_small(bool sentencepiece) {
    tern_strbuf json = {0};
    if (sentencepiece)
        small_sentencepiece(&json);
    else
        small_byte_level(&json, SMALL_LLAMA3, false);
    tern_file file = {.kind = TERN_FILE_HF, .path = "fuzz", .tokenizer_json = {json.ptr, json.len}};
    tern_tokenizer *t = NULL;
    tern_status status = json.failed ? TERN_ERR_MEMORY : tern_tokenizer_open(&t, &file, NULL);
    if (status != TERN_OK && status != TERN_ERR_MEMORY) abort();
    tern_strbuf_free(&json);
    return t;
}

static bool encode(const tern_tokenizer *t, const char *text, size_t n, unsigned flags,
                   tern_ids *ids) {
    ids->n = 0;
    tern_status status = tern_tokenizer_encode(t, text, n, flags, ids, NULL);
    if (status != TERN_OK && status != TERN_ERR_MEMORY) abort();
    return status == TERN_OK;
}

static void check(const tern_tokenizer *t, const char *text, size_t n, const char *expected,
                  size_t n_expected) {
    tern_ids ids = {0};
    tern_strbuf out = {0};
    tern_decoder d = {0};
    encode(t, text, n, TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS, &ids);
    bool ok = encode(t, text, n, TERN_TOKENIZE_PLAIN, &ids);
    for (size_t i = 0; ok && i < ids.n; i++) {
        if (tern_tokenizer_is_control(t, ids.ids[i])) abort();
        tern_tokenizer_decode(t, &d, ids.ids[i], &out);
    }
    tern_tokenizer_decode_end(&d, &out);
    ok = ok && !out.failed;
    if (ok && (out.len != n_expected || memcmp(tern_strbuf_text(&out), expected, out.len))) abort();
    tern_strbuf_free(&out);
    tern_free(ids.ids);
}

// Added tokens that swallow the space next to them do not give it back.
static bool has_stripping_token(const tern_strbuf *text) {
    return strstr(tern_strbuf_text(text), "<l>") || strstr(tern_strbuf_text(text), "<r>");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *raw = (const char *)data;
    tern_strbuf whole = {0}, spaced = {0};
    tern_unicode_repair(&whole, raw, n);
    for (size_t i = 0; i < whole.len; i++) {
        bool mark = whole.len - i >= 3 && memcmp(whole.ptr + i, TERN_SPACE_MARK, 3) == 0;
        if (whole.ptr[i] == 0) whole.ptr[i] = '0'; // for strstr
        tern_strbuf_putc(&spaced, mark ? ' ' : whole.ptr[i]);
        if (mark) i += 2;
    }
    tern_tokenizer *bytes = open_small(false), *chars = open_small(true);
    const char *text = tern_strbuf_text(&whole);
    tern_ids ids = {0};
    bool ok = !whole.failed && !spaced.failed;
    if (ok && bytes && !has_stripping_token(&whole)) check(bytes, text, whole.len, text, whole.len);
    if (ok && chars) check(chars, text, whole.len, tern_strbuf_text(&spaced), spaced.len);
    if (bytes) encode(bytes, raw, n, TERN_TOKENIZE_BOS, &ids); // the unchanged bytes, too
    tern_free(ids.ids);
    tern_tokenizer_free(bytes);
    tern_tokenizer_free(chars);
    tern_strbuf_free(&whole);
    tern_strbuf_free(&spaced);
    return 0;
}
