// Text to ids, along the path drawn in tok.h.
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/utf8.h"
#include "input/tokenizer/tok.h"

#define LOOK_EACH 4096 // tokens between two checks for cancellation

// All memory of one call.
typedef struct encoder {
    const tern_tokenizer *t;
    bool special;
    tern_ids *out;
    tern_error *err;
    tern_strbuf repaired, normal[2], spelled;
    tern_pieces pieces;
    tern_bpe bpe;
    tern_piece_scratch scratch;
    const char *word; // being merged
} encoder;

static tern_status append(encoder *e, int32_t id) {
    tern_ids *out = e->out;
    if (out->n % LOOK_EACH == 0) TERN_TRY(tern_check_cancelled("tokenizing", e->err));
    if (tern_array_reserve(TERN_MEM_MISC, &out->ids, &out->capacity, out->n, 1) != 0)
        return tern_fail_memory(e->err, out->capacity * 2 * sizeof *out->ids);
    out->ids[out->n++] = id;
    return TERN_OK;
}

// ---- Pairs --------------------------------------------------------------------------------------

static bool pair_by_merges(const void *user, const tern_symbol *left, const tern_symbol *right,
                           uint32_t *order, int32_t *id) {
    const encoder *e = user;
    if (left->id < 0 || right->id < 0) return false;
    const tern_merge *m = tern_merges_find(&e->t->merges, left->id, right->id);
    if (!m) return false;
    *order = m->order;
    *id = m->id;
    return true;
}

static bool pair_by_scores(const void *user, const tern_symbol *left, const tern_symbol *right,
                           uint32_t *order, int32_t *id) {
    const encoder *e = user;
    int32_t both = tern_vocab_find_plain(&e->t->vocab, e->word + left->at, left->n + right->n);
    if (both < 0) return false;
    *order = e->t->orders[both];
    *id = both;
    return true;
}

// ---- Words --------------------------------------------------------------------------------------

static bool push_bytes(encoder *e, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->t->byte_ids[(unsigned char)e->word[i]];
        if (!tern_bpe_push(&e->bpe, (uint32_t)i, 1, id)) return false;
    }
    return true;
}

static bool has_byte_tokens(const tern_tokenizer *t, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (t->byte_ids[(unsigned char)bytes[i]] < 0) return false;
    return true;
}

// Scores join texts, so a character that is not a token stays one symbol until the end; merges join
// tokens, so it becomes its bytes or the unknown token at once.
static bool push_chars(encoder *e, size_t n) {
    const tern_tokenizer *t = e->t;
    for (size_t i = 0, length; i < n; i += length) {
        uint32_t code;
        int decoded = tern_utf8_decode(e->word + i, n - i, &code);
        length = decoded > 0 ? (size_t)decoded : 1;
        int32_t id = tern_vocab_find_plain(&t->vocab, e->word + i, length);
        if (id < 0 && !t->orders && t->byte_fallback && has_byte_tokens(t, e->word + i, length)) {
            for (size_t k = 0; k < length; k++) {
                id = t->byte_ids[(unsigned char)e->word[i + k]];
                if (!tern_bpe_push(&e->bpe, (uint32_t)(i + k), 1, id)) return false;
            }
        } else if (!tern_bpe_push(&e->bpe, (uint32_t)i, (uint32_t)length, id))
            return false;
    }
    return true;
}

// A symbol that is not a token: its bytes, or the unknown token, one for a whole run if the model
// fuses them.
static tern_status append_unknown(encoder *e, const tern_symbol *s, bool *was_unknown) {
    const tern_tokenizer *t = e->t;
    if (t->byte_fallback && has_byte_tokens(t, e->word + s->at, s->n)) {
        *was_unknown = false;
        for (uint32_t k = 0; k < s->n; k++)
            TERN_TRY(append(e, t->byte_ids[(unsigned char)e->word[s->at + k]]));
        return TERN_OK;
    }
    bool fused = *was_unknown && t->fuse_unk;
    *was_unknown = true;
    return fused || t->unk < 0 ? TERN_OK : append(e, t->unk);
}

static tern_status encode_word(encoder *e, const char *word, size_t n) {
    const tern_tokenizer *t = e->t;
    if (t->model == TERN_TOKENS_WORDPIECE)
        return tern_wordpiece_encode(t, word, n, &e->scratch, e->out, e->err);
    if (t->model == TERN_TOKENS_UNIGRAM)
        return tern_unigram_encode(t, word, n, &e->scratch, e->out, e->err);
    if (n == 1 && t->byte_level && t->byte_ids[(unsigned char)*word] >= 0)
        return append(e, t->byte_ids[(unsigned char)*word]);
    if (t->ignore_merges) {
        const char *text = word;
        size_t n_text = n;
        if (t->byte_level) {
            tern_strbuf_clear(&e->spelled);
            tern_alphabet_spell(&e->spelled, word, n);
            text = tern_strbuf_text(&e->spelled);
            n_text = e->spelled.len;
            if (e->spelled.failed) return tern_fail_memory(e->err, n * 2);
        }
        int32_t id = tern_vocab_find_plain(&t->vocab, text, n_text);
        if (id >= 0) return append(e, id);
    }
    e->word = word;
    e->bpe.n_symbols = 0;
    if (!(t->byte_level ? push_bytes(e, n) : push_chars(e, n)) ||
        !tern_bpe_run(&e->bpe, t->orders ? pair_by_scores : pair_by_merges, e)) {
        TERN_TRY(tern_check_cancelled("tokenizing", e->err));
        return tern_fail_memory(e->err, n * (sizeof(tern_symbol) + sizeof(tern_merge_candidate)));
    }
    bool was_unknown = false;
    for (int32_t i = e->bpe.n_symbols ? 0 : -1; i >= 0; i = e->bpe.symbols[i].next) {
        const tern_symbol *s = &e->bpe.symbols[i];
        if (s->id < 0) {
            TERN_TRY(append_unknown(e, s, &was_unknown));
        } else {
            was_unknown = false;
            TERN_TRY(append(e, s->id));
        }
    }
    return TERN_OK;
}

static bool is_glued(const tern_tokenizer *t, const char *text, size_t at) {
    size_t begin = at;
    uint32_t c;
    do begin--;
    while (begin > 0 && ((unsigned char)text[begin] & 0xC0) == 0x80);
    if (tern_utf8_decode(text + begin, at - begin, &c) <= 0) return true;
    return t->glued[c % 512 / 32] >> c % 32 & 1;
}

// Encodes a piece of a character-level text, cut before space marks that no token crosses: the ids
// are the same, but from a hundred short words instead of a long one.
static tern_status encode_piece(encoder *e, const char *text, size_t n) {
    if (e->t->byte_level) return encode_word(e, text, n);
    size_t begin = 0, from = 1;
    while (from < n) {
        const char *mark = memmem(text + from, n - from, TERN_SPACE_MARK, 3);
        if (!mark) break;
        size_t at = (size_t)(mark - text);
        from = at + 3;
        if (is_glued(e->t, text, at)) continue;
        TERN_TRY(encode_word(e, text + begin, at - begin));
        begin = at;
    }
    return encode_word(e, text + begin, n - begin);
}

// ---- Texts --------------------------------------------------------------------------------------

static tern_status encode_plain(encoder *e, const char *text, size_t n, bool is_first) {
    TERN_TRY(tern_splitter_run(&e->t->splitter, text, n, is_first, &e->pieces, e->err));
    for (size_t i = 0; i < e->pieces.n; i++)
        TERN_TRY(encode_piece(e, e->pieces.text + e->pieces.list[i].at, e->pieces.list[i].n));
    return TERN_OK;
}

// stage 0: raw text, cut at the added tokens matched there, then normalized; stage 1: normalized
// text, cut at the others.
static tern_status encode_text(encoder *e, int stage, const char *text, size_t n, bool is_first) {
    for (size_t at = 0; at < n;) {
        tern_match_span found;
        const tern_added_token *token =
            tern_added_find(&e->t->added[stage], e->special, (tern_str){text, n}, at, &found);
        const char *part = text + at;
        size_t n_part = found.start - at;
        bool first = is_first && at == 0;
        if (stage == 0 && n_part > 0) {
            TERN_TRY(tern_normalizer_run(&e->t->normalizer, &e->pieces.matcher, e->normal, &part,
                                         &n_part, e->err));
            TERN_TRY(encode_text(e, 1, part, n_part, first));
        } else if (n_part > 0)
            TERN_TRY(encode_plain(e, part, n_part, first));
        if (token) TERN_TRY(append(e, token->id));
        at = found.end;
    }
    return TERN_OK;
}

tern_status tern_tokenizer_encode(const tern_tokenizer *t, const char *text, size_t n_bytes,
                                  unsigned flags, tern_ids *out, tern_error *err) {
    if (n_bytes > TERN_TEXT_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a text of %zu bytes; at most %d can be tokenized",
                         n_bytes, TERN_TEXT_MAX);
    encoder e = {.t = t, .special = flags & TERN_TOKENIZE_SPECIAL, .out = out, .err = err};
    bool framed = flags & TERN_TOKENIZE_BOS;
    tern_status status = TERN_OK;
    if (!tern_unicode_is_valid(text, n_bytes)) {
        tern_unicode_repair(&e.repaired, text, n_bytes);
        if (e.repaired.failed) status = tern_fail_memory(err, n_bytes);
        text = tern_strbuf_text(&e.repaired);
        n_bytes = e.repaired.len;
    }
    for (int i = 0; framed && i < t->n_prefix && status == TERN_OK; i++)
        status = append(&e, t->prefix[i]);
    if (status == TERN_OK) status = encode_text(&e, 0, text, n_bytes, true);
    for (int i = 0; framed && i < t->n_suffix && status == TERN_OK; i++)
        status = append(&e, t->suffix[i]);
    tern_strbuf_free(&e.repaired);
    tern_strbuf_free(&e.normal[0]);
    tern_strbuf_free(&e.normal[1]);
    tern_strbuf_free(&e.spelled);
    tern_pieces_free(&e.pieces);
    tern_bpe_free(&e.bpe);
    tern_piece_scratch_free(&e.scratch);
    return status;
}
