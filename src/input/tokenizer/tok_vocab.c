// The vocabulary: texts by id, ids by text, and GPT-2's alphabet.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "input/tokenizer/tok.h"

// Texts are short, but there are a quarter of a million, and each merge looks up three: so eight
// bytes are hashed at once, and texts are compared only if 32 bits of the hash are equal.
uint32_t tern_vocab_hash(const char *s, size_t n) {
    uint64_t h = n * 0x9E3779B97F4A7C15u, word;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&word, s, 8);
        h = (h ^ word) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    word = 0;
    for (size_t i = 0; i < n; i++) word = word << 8 | (unsigned char)s[i];
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h = (h ^ h >> 32) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

static bool is_at(const tern_vocab *v, const tern_vocab_slot *slot, uint32_t hash, const char *text,
                  size_t n) {
    if (slot->hash != hash) return false;
    tern_str have = tern_vocab_text(v, (int32_t)slot->id_1 - 1);
    return have.len == n && memcmp(have.ptr, text, n) == 0;
}

#define PROBES_MAX 1024 // only a hostile vocabulary needs more

static bool insert(tern_vocab *v, int32_t id) {
    tern_str text = tern_vocab_text(v, id);
    uint32_t hash = tern_vocab_hash(text.ptr, text.len);
    size_t i = hash & (v->n_slots - 1);
    for (int probes = 0; v->slots[i].id_1; i = (i + 1) & (v->n_slots - 1)) {
        if (is_at(v, &v->slots[i], hash, text.ptr, text.len)) break;
        if (++probes > PROBES_MAX) return false;
    }
    v->slots[i] = (tern_vocab_slot){hash, (uint32_t)id + 1};
    return true;
}

static tern_status allocate(tern_vocab *v, size_t n_bytes, tern_error *err) {
    size_t n = (size_t)v->n;
    v->n_slots = 16;
    while (v->n_slots < 2 * n) v->n_slots *= 2;
    v->text = tern_alloc(TERN_MEM_TOKENIZER, n_bytes + 1);
    v->offsets = tern_alloc_array(TERN_MEM_TOKENIZER, n + 1, sizeof *v->offsets);
    v->types = tern_alloc_array(TERN_MEM_TOKENIZER, n + 1, sizeof *v->types);
    v->slots = tern_alloc_array(TERN_MEM_TOKENIZER, v->n_slots, sizeof *v->slots);
    if (v->text && v->offsets && v->types && v->slots) return TERN_OK;
    return tern_fail_memory(err, n_bytes + n * 5 + v->n_slots * sizeof *v->slots);
}

tern_status tern_vocab_init(tern_vocab *v, const tern_str *texts, const uint8_t *types, int32_t n,
                            tern_error *err) {
    size_t n_bytes = 0;
    for (int32_t i = 0; i < n; i++) n_bytes += texts[i].len;
    if (n > TERN_VOCAB_MAX || n_bytes > INT32_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tokenizer: %d tokens of %zu bytes are more than any vocabulary has", n,
                         n_bytes);
    v->n = n;
    TERN_TRY(allocate(v, n_bytes, err));
    uint32_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        v->offsets[i] = at;
        v->types[i] = types[i];
        if (texts[i].len) memcpy(v->text + at, texts[i].ptr, texts[i].len);
        at += (uint32_t)texts[i].len;
    }
    v->offsets[n] = at;
    for (int32_t i = 0; i < n; i++)
        if (texts[i].len && !insert(v, i))
            return tern_fail(err, TERN_ERR_FORMAT,
                             "tokenizer: the vocabulary is made to be slow (at token %d)", i);
    return TERN_OK;
}

void tern_vocab_deinit(tern_vocab *v) {
    tern_free(v->text);
    tern_free(v->offsets);
    tern_free(v->types);
    tern_free(v->slots);
    *v = (tern_vocab){0};
}

int32_t tern_vocab_find_hashed(const tern_vocab *v, uint32_t hash, const char *text, size_t n) {
    size_t i = hash & (v->n_slots - 1);
    for (; v->slots[i].id_1; i = (i + 1) & (v->n_slots - 1))
        if (is_at(v, &v->slots[i], hash, text, n)) return (int32_t)v->slots[i].id_1 - 1;
    return -1;
}

int32_t tern_vocab_find(const tern_vocab *v, const char *text, size_t n) {
    return tern_vocab_find_hashed(v, tern_vocab_hash(text, n), text, n);
}

int32_t tern_vocab_find_plain(const tern_vocab *v, const char *text, size_t n) {
    int32_t id = tern_vocab_find(v, text, n);
    if (id < 0) return -1;
    tern_token_type type = v->types[id];
    return type == TERN_TOKEN_NORMAL || type == TERN_TOKEN_USER || type == TERN_TOKEN_UNUSED ? id
                                                                                             : -1;
}

// ---- Alphabet -----------------------------------------------------------------------------------
//
// Bytes 0x21..0x7E, 0xA1..0xAC and 0xAE..0xFF are printable. The others, 0x00..0x20, 0x7F..0xA0 and
// 0xAD, are U+0100..U+0120, U+0121..U+0142 and U+0143.

uint32_t tern_alphabet_char(uint8_t byte) {
    if (byte <= 0x20) return 0x100u + byte;
    if (byte >= 0x7F && byte <= 0xA0) return 0x121u + byte - 0x7F;
    return byte == 0xAD ? 0x143 : byte;
}

int tern_alphabet_byte(uint32_t code) {
    if (code >= 0x100 && code <= 0x120) return (int)code - 0x100;
    if (code >= 0x121 && code <= 0x142) return (int)code - 0x121 + 0x7F;
    if (code == 0x143) return 0xAD;
    return code < 0x100 && tern_alphabet_char((uint8_t)code) == code ? (int)code : -1;
}

void tern_alphabet_spell(tern_strbuf *out, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        uint32_t code = tern_alphabet_char((uint8_t)bytes[i]);
        tern_strbuf_append(out, utf8, (size_t)tern_utf8_encode(code, utf8));
    }
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tern_byte_token_value(tern_str text) {
    if (text.len != 6 || memcmp(text.ptr, "<0x", 3) != 0 || text.ptr[5] != '>') return -1;
    int high = hex_digit(text.ptr[3]), low = hex_digit(text.ptr[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

// ---- What a tokenizer derives from it -----------------------------------------------------------

// Sets the bits of characters that precede a space mark.
static void note_glued(tern_tokenizer *t, tern_str text) {
    for (size_t at = 0; at < text.len;) {
        const char *mark = memmem(text.ptr + at, text.len - at, TERN_SPACE_MARK, 3);
        if (!mark) return;
        size_t here = (size_t)(mark - text.ptr), before = here;
        at = here + 3;
        if (here == 0) continue;
        do before--;
        while (before > 0 && ((unsigned char)text.ptr[before] & 0xC0) == 0x80);
        uint32_t c;
        if (tern_utf8_decode(text.ptr + before, here - before, &c) <= 0) continue;
        t->glued[c % 512 / 32] |= 1u << c % 32;
    }
}

void tern_tokenizer_index_bytes(tern_tokenizer *t) {
    const tern_vocab *v = &t->vocab;
    for (int b = 0; b < 256; b++) {
        char utf8[8];
        int n = t->byte_level ? tern_utf8_encode(tern_alphabet_char((uint8_t)b), utf8)
                              : snprintf(utf8, sizeof utf8, "<0x%02X>", (unsigned)b);
        t->byte_ids[b] = tern_vocab_find(v, utf8, (size_t)n);
    }
    if (t->byte_level) return;
    for (int32_t id = 0; id < v->n; id++) note_glued(t, tern_vocab_text(v, id));
}
