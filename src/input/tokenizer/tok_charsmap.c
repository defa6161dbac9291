// sentencepiece's precompiled_charsmap: replaces stretches of text before it is split.
//
//     u32 n | trie, n bytes of u32 units | texts, each ended by a 0 byte
//
// The trie is a double array (Darts-clone). From node p byte c leads to p ^ offset(unit[p]) ^ c,
// whose unit has c as its label; if that has a leaf, the unit at its own offset holds the start of
// the text that replaces the bytes so far. Nothing in the table is trusted: every index is checked,
// and a replacement that is not UTF-8 is not made.
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "input/tokenizer/tok.h"

typedef struct charsmap {
    const uint8_t *units; // little-endian
    size_t n_units;
    const char *texts;
    size_t n_texts; // bytes, the last one 0
} charsmap;

static uint32_t load_u32(const uint8_t *b) {
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static tern_status open_map(tern_str bytes, charsmap *m, tern_error *err) {
    const uint8_t *b = (const uint8_t *)bytes.ptr;
    size_t n = bytes.len >= 4 ? load_u32(b) : 0;
    bool whole =
        bytes.len > 4 && n >= 4 && n % 4 == 0 && n < bytes.len - 4 && bytes.ptr[bytes.len - 1] == 0;
    if (!whole)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tokenizer: precompiled_charsmap is not a table of texts");
    *m = (charsmap){b + 4, n / 4, bytes.ptr + 4 + n, bytes.len - 4 - n};
    return TERN_OK;
}

static uint32_t unit(const charsmap *m, size_t i) { return load_u32(m->units + 4 * i); }
static size_t offset(uint32_t u) { return (size_t)(u >> 10) << ((u & 0x200) >> 6); }

// Returns the length of the longest stretch at the beginning of the text, 0: none. *to: its
// replacement.
static size_t find(const charsmap *m, const char *text, size_t n, tern_str *to) {
    size_t at = offset(unit(m, 0)), longest = 0;
    for (size_t i = 0; i < n && text[i]; i++) {
        uint8_t c = (uint8_t)text[i];
        at ^= c;
        if (at >= m->n_units) break;
        uint32_t u = unit(m, at);
        if ((u & 0x800000FF) != c) break;
        at ^= offset(u);
        if (at >= m->n_units) break;
        if (!(u >> 8 & 1)) continue;
        size_t begin = unit(m, at) & 0x7FFFFFFF;
        bool whole = i + 1 == n || ((uint8_t)text[i + 1] & 0xC0) != 0x80;
        if (begin >= m->n_texts || !whole) continue;
        tern_str s = {m->texts + begin, strlen(m->texts + begin)};
        if (!tern_unicode_is_valid(s.ptr, s.len)) continue;
        *to = s;
        longest = i + 1;
    }
    return longest;
}

void tern_charsmap_run(const tern_norm_step *s, const char *text, size_t n, tern_strbuf *out) {
    charsmap m = {0};
    if (open_map((tern_str){s->content, s->n_content}, &m, NULL) != TERN_OK)
        return; // it was checked
    for (size_t i = 0; i < n && out->len <= TERN_TEXT_MAX;) {
        tern_str to;
        uint32_t c;
        size_t length = find(&m, text + i, n - i, &to);
        if (length) {
            tern_strbuf_append(out, to.ptr, to.len);
        } else {
            int decoded = tern_utf8_decode(text + i, n - i, &c);
            length = decoded > 0 ? (size_t)decoded : 1;
            tern_strbuf_append(out, text + i, length);
        }
        i += length;
    }
}

tern_status tern_normalizer_add_charsmap(tern_normalizer *z, tern_str bytes, tern_error *err) {
    charsmap m = {0};
    tern_norm_step *step = NULL;
    if (bytes.len == 0) return TERN_OK;
    TERN_TRY(open_map(bytes, &m, err));
    TERN_TRY(tern_normalizer_add(z, TERN_NORM_CHARSMAP, (tern_str){0}, &step, err));
    char *copy = tern_alloc(TERN_MEM_TOKENIZER, bytes.len);
    if (!copy) return tern_fail_memory(err, bytes.len);
    memcpy(copy, bytes.ptr, bytes.len);
    tern_free(step->content);
    step->content = copy;
    step->n_content = bytes.len;
    return TERN_OK;
}

tern_status tern_normalizer_add_charsmap64(tern_normalizer *z, tern_str text, tern_error *err) {
    tern_strbuf bytes = {0};
    bool ok = tern_strbuf_unbase64(&bytes, text);
    tern_status status =
        !ok ? tern_fail(err, TERN_ERR_FORMAT, "tokenizer: precompiled_charsmap is not base64")
        : bytes.failed ? tern_fail_memory(err, bytes.len)
                       : tern_normalizer_add_charsmap(z, (tern_str){bytes.ptr, bytes.len}, err);
    tern_strbuf_free(&bytes);
    return status;
}
