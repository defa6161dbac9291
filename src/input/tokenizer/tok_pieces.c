// Models without merges: WordPiece, which repeatedly takes the longest token, and Unigram, which
// takes the tokens with the greatest sum of scores.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "input/tokenizer/tok.h"

void tern_piece_scratch_free(tern_piece_scratch *s) {
    tern_strbuf_free(&s->text);
    tern_free(s->places);
    *s = (tern_piece_scratch){0};
}

static tern_status append(tern_ids *out, int32_t id, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &out->ids, &out->capacity, out->n, 1) != 0)
        return tern_fail_memory(err, out->capacity * 2 * sizeof *out->ids);
    out->ids[out->n++] = id;
    return TERN_OK;
}

// ---- WordPiece ----------------------------------------------------------------------------------

#define WORD_MAX 4096 // most characters of a word, even if a file says more

tern_status tern_wordpiece_init(tern_wordpiece *w, tern_str first, tern_str rest, int64_t max_chars,
                                tern_error *err) {
    if (first.len > TERN_AFFIX_MAX || rest.len > TERN_AFFIX_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tokenizer: a prefix of %zu bytes; at most %d are supported",
                         first.len > rest.len ? first.len : rest.len, TERN_AFFIX_MAX);
    if (first.len) memcpy(w->first, first.ptr, first.len);
    if (rest.len) memcpy(w->rest, rest.ptr, rest.len);
    w->n_first = first.len;
    w->n_rest = rest.len;
    w->max_chars = max_chars > 0 && max_chars < WORD_MAX ? (size_t)max_chars : WORD_MAX;
    return TERN_OK;
}

static size_t count_chars(const char *text, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    return chars;
}

// Returns how many bytes the longest token at the start of a word's rest takes there, 0: none.
static size_t longest_token(const tern_tokenizer *t, const char *rest, size_t n, bool is_first,
                            tern_strbuf *text, int32_t *id) {
    const tern_wordpiece *w = &t->wordpiece;
    size_t n_affix = is_first ? w->n_first : w->n_rest;
    tern_strbuf_clear(text);
    tern_strbuf_append(text, is_first ? w->first : w->rest, n_affix);
    tern_strbuf_append(text, rest, n);
    for (; n > 0 && !text->failed; n--) {
        bool whole = n == text->len - n_affix || ((unsigned char)rest[n] & 0xC0) != 0x80;
        if (!whole) continue;
        *id = tern_vocab_find_plain(&t->vocab, tern_strbuf_text(text), n_affix + n);
        if (*id >= 0) return n;
    }
    return 0;
}

tern_status tern_wordpiece_encode(const tern_tokenizer *t, const char *word, size_t n,
                                  tern_piece_scratch *scratch, tern_ids *out, tern_error *err) {
    size_t before = out->n;
    bool known = count_chars(word, n) <= t->wordpiece.max_chars;
    for (size_t at = 0; known && at < n;) {
        int32_t id;
        size_t length = longest_token(t, word + at, n - at, at == 0, &scratch->text, &id);
        if (scratch->text.failed) return tern_fail_memory(err, n);
        known = length > 0;
        at += length;
        if (known) TERN_TRY(append(out, id, err));
    }
    if (known) return TERN_OK;
    out->n = before;
    return t->unk >= 0 ? append(out, t->unk, err) : TERN_OK;
}

// ---- Unigram ------------------------------------------------------------------------------------

void tern_unigram_free(tern_unigram *u) {
    tern_free(u->scores);
    tern_free(u->sorted);
    *u = (tern_unigram){0};
}

static int compare_texts(const void *a, const void *b) {
    const tern_str *x = a, *y = b;
    int order = memcmp(x->ptr, y->ptr, x->len < y->len ? x->len : y->len);
    if (order) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return (x->ptr > y->ptr) - (x->ptr < y->ptr); // of the same text: by id
}

// Sorts the tokens that text may become by their bytes; of tokens with the same text, keeps the one
// that the vocabulary finds.
static tern_status sort_tokens(tern_tokenizer *t, tern_error *err) {
    tern_unigram *u = &t->unigram;
    size_t n_all = (size_t)t->vocab.n, n = 0;
    tern_str *texts = tern_alloc_array(TERN_MEM_MISC, n_all + 1, sizeof *texts);
    u->sorted = tern_alloc_array(TERN_MEM_TOKENIZER, n_all + 1, sizeof *u->sorted);
    tern_status status =
        texts && u->sorted ? TERN_OK : tern_fail_memory(err, n_all * sizeof *texts);
    for (int32_t i = 0; status == TERN_OK && i < t->vocab.n; i++) {
        tern_str text = tern_vocab_text(&t->vocab, i);
        bool usual = t->vocab.types[i] == TERN_TOKEN_NORMAL || t->vocab.types[i] == TERN_TOKEN_USER;
        if (!usual || text.len == 0) continue;
        if (text.len > TERN_UNIGRAM_MAX)
            status = tern_fail(
                err, TERN_ERR_UNSUPPORTED,
                "tokenizer: token %d has %zu bytes; of a Unigram at most %d are supported", (int)i,
                text.len, TERN_UNIGRAM_MAX);
        texts[n++] = text;
    }
    if (status == TERN_OK) {
        qsort(texts, n, sizeof *texts, compare_texts);
        for (size_t i = 0; i < n; i++) {
            int32_t id = tern_vocab_find_plain(&t->vocab, texts[i].ptr, texts[i].len);
            bool again = i > 0 && tern_str_eq(texts[i], texts[i - 1]);
            if (id >= 0 && !again) u->sorted[u->n_sorted++] = id;
        }
    }
    tern_free(texts);
    return status;
}

tern_status tern_unigram_init(tern_tokenizer *t, tern_error *err) {
    tern_unigram *u = &t->unigram;
    double least = INFINITY;
    TERN_TRY(sort_tokens(t, err));
    for (int32_t i = 0, byte = 0; byte <= 256; byte++) {
        while (i < u->n_sorted &&
               (unsigned char)*tern_vocab_text(&t->vocab, u->sorted[i]).ptr < byte)
            i++;
        u->starts[byte] = i;
    }
    for (int32_t i = 0; i < t->vocab.n; i++)
        if (t->vocab.types[i] == TERN_TOKEN_NORMAL && u->scores[i] < least) least = u->scores[i];
    u->unknown = (isfinite(least) ? least : 0) - 10;
    t->model = TERN_TOKENS_UNIGRAM;
    t->fuse_unk = true;
    return TERN_OK;
}

// Narrows sorted[*first .. *last), tokens that agree in `depth` bytes, to those whose next byte is
// c.
static void narrow(const tern_tokenizer *t, int32_t *first, int32_t *last, size_t depth, int c) {
    const tern_unigram *u = &t->unigram;
    int32_t ends[2];
    for (int k = 0; k < 2; k++) { // the first with a byte >= c, and with one > c
        int32_t low = *first, high = *last;
        while (low < high) {
            int32_t middle = low + (high - low) / 2;
            tern_str text = tern_vocab_text(&t->vocab, u->sorted[middle]);
            int byte = text.len > depth ? (unsigned char)text.ptr[depth] : -1;
            if (byte < c + k)
                low = middle + 1;
            else
                high = middle;
        }
        ends[k] = low;
    }
    *first = ends[0];
    *last = ends[1];
}

static void offer(tern_lattice *places, size_t from, size_t to, double score, int32_t id) {
    tern_lattice *p = &places[to];
    double sum = places[from].score + score;
    if (p->from != UINT32_MAX && sum <= p->score) return; // ties: the first start wins
    *p = (tern_lattice){sum, (uint32_t)from, id};
}

// Offers all tokens of the text at `at`, and the unknown one if none is a single character.
static void offer_tokens(const tern_tokenizer *t, const char *text, size_t n, size_t at,
                         tern_lattice *places) {
    const tern_unigram *u = &t->unigram;
    uint32_t c;
    int decoded = tern_utf8_decode(text + at, n - at, &c);
    size_t one = decoded > 0 ? (size_t)decoded : 1;
    bool any_one = false;
    int byte = (unsigned char)text[at];
    int32_t first = u->starts[byte], last = u->starts[byte + 1];
    for (size_t depth = 1; first < last; depth++) {
        int32_t id = u->sorted[first]; // the shortest of them stands first
        if (tern_vocab_text(&t->vocab, id).len == depth) {
            offer(places, at, at + depth, u->scores[id], id);
            any_one |= depth == one;
        }
        if (at + depth >= n) break;
        narrow(t, &first, &last, depth, (unsigned char)text[at + depth]);
    }
    if (!any_one) offer(places, at, at + one, u->unknown, -1);
}

static tern_status append_token(const tern_tokenizer *t, tern_str piece, int32_t id,
                                bool *was_unknown, tern_ids *out, tern_error *err) {
    const char *text = piece.ptr;
    const size_t n = piece.len;
    bool unknown = id < 0, bytes = unknown && t->byte_fallback;
    for (size_t i = 0; bytes && i < n; i++) bytes = t->byte_ids[(unsigned char)text[i]] >= 0;
    for (size_t i = 0; bytes && i < n; i++)
        TERN_TRY(append(out, t->byte_ids[(unsigned char)text[i]], err));
    bool again = unknown && !bytes && *was_unknown;
    *was_unknown = unknown && !bytes;
    if (bytes || again || (unknown && t->unk < 0)) return TERN_OK;
    return append(out, unknown ? t->unk : id, err);
}

tern_status tern_unigram_encode(const tern_tokenizer *t, const char *text, size_t n,
                                tern_piece_scratch *s, tern_ids *out, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &s->places, &s->capacity, 0, n + 1) != 0)
        return tern_fail_memory(err, n * sizeof *s->places);
    for (size_t i = 0; i <= n; i++) s->places[i].from = UINT32_MAX;
    s->places[0].score = 0;
    for (size_t at = 0; at < n; at++)
        if (at == 0 || s->places[at].from != UINT32_MAX) offer_tokens(t, text, n, at, s->places);
    // Backwards, each place gets the end of its token; then forwards.
    uint32_t end = (uint32_t)n;
    for (size_t at = n; at > 0;) {
        uint32_t from = s->places[at].from;
        s->places[at].from = end;
        end = (uint32_t)at;
        at = from;
    }
    bool was_unknown = false;
    for (size_t at = 0, to = n ? end : 0; at < n; at = to, to = s->places[at].from)
        TERN_TRY(append_token(t, (tern_str){text + at, to - at}, s->places[to].id, &was_unknown,
                              out, err));
    return TERN_OK;
}
