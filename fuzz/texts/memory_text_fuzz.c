// A text for a memory, after two bytes that choose its format and the size of chunks: chunks cover
// it and fit; redaction ends, and leaves what it does not change.
#include <stdlib.h>
#include "base/alloc.h"
#include "input/unicode.h"
#include "memory/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static tern_status count_bytes(void *user, const char *text, size_t n, size_t *n_tokens,
                               tern_error *err) {
    (void)user, (void)text, (void)err;
    *n_tokens = (n + 3) / 4;
    return TERN_OK;
}

static void cut(const char *text, size_t n, uint8_t format, uint8_t size) {
    const tern_chunking how = {(tern_memory_format)(1 + format % 3),
                               1u + size % 64,
                               size % 7 % (1u + size % 64),
                               {count_bytes, NULL}};
    tern_text_chunks c = {0};
    tern_status status = tern_chunk_text(&c, text, n, &how, NULL);
    if (status != TERN_OK && status != TERN_ERR_MEMORY) abort();
    size_t at = 0;
    for (size_t i = 0; status == TERN_OK && i < c.n; at = c.list[i++].end) {
        if (c.list[i].begin > at || c.list[i].end <= at || c.list[i].end > n) abort();
        // A character of four bytes is one token, so nothing is too large.
        if (c.list[i].n_tokens > how.max_tokens) abort();
    }
    if (status == TERN_OK && c.n && at != n) abort();
    tern_text_chunks_free(&c);
}

static void redact(const char *text, size_t n) {
    tern_redactor *r;
    tern_strbuf out = {0};
    size_t n_found = 0;
    if (tern_redactor_open(&r, false, NULL, 0, NULL) != TERN_OK) return;
    tern_status status = tern_redact(r, text, n, &out, &n_found, NULL);
    if (status == TERN_OK && n_found == 0 && out.len != n) abort();
    tern_strbuf_free(&out);
    tern_redactor_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    tern_strbuf text = {0};
    if (n < 2) return 0;
    tern_unicode_repair(&text, (const char *)data + 2, n - 2);
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] == 0) text.ptr[i] = '0'; // texts with zeros are refused before
    if (!text.failed) {
        cut(tern_strbuf_text(&text), text.len, data[0], data[1]);
        redact(tern_strbuf_text(&text), text.len);
    }
    tern_strbuf_free(&text);
    return 0;
}
