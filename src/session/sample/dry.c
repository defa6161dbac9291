// DRY: a penalty for tokens that would continue a repetition of the text's end, the greater the
// longer it is (p-e-w, text-generation-webui). What is written between breakers is not compared
// beyond them: lists and dialogues repeat their marks.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"

#define TAIL_MAX 20 // tokens after the first one of a breaker that is cut

// ---- Breakers ----------------------------------------------------------------------------------

typedef struct opening { // breakers while they are looked for in a vocabulary
    tern_breakers *b;
    const tern_model *m;
    tern_str texts[TERN_BREAKERS_MAX];
    size_t n;
    bool begins[256]; // one of them with this byte
    // Where the rest of texts[i] from each byte on lies in the tails; UINT32_MAX: not yet known.
    uint32_t tails[TERN_BREAKERS_MAX][TERN_BREAKER_BYTES],
        n_tails[TERN_BREAKERS_MAX][TERN_BREAKER_BYTES];
} opening;

static tern_status add_tail(opening *o, size_t text, size_t from, tern_error *err) {
    tern_ids ids = {0};
    tern_breakers *b = o->b;
    const tern_str all = o->texts[text];
    TERN_TRY(tern_tokenizer_encode(o->m->tokenizer, all.ptr + from, all.len - from,
                                   TERN_TOKENIZE_PLAIN, &ids, err));
    const size_t n = ids.n < TAIL_MAX ? ids.n : TAIL_MAX;
    tern_status status = TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &b->tails, &b->tails_capacity, b->n_tails, n) != 0)
        status = tern_fail_memory(err, n * sizeof *b->tails);
    if (status == TERN_OK && n) memcpy(b->tails + b->n_tails, ids.ids, n * sizeof *b->tails);
    o->tails[text][from] = (uint32_t)b->n_tails;
    o->n_tails[text][from] = (uint32_t)n;
    if (status == TERN_OK) b->n_tails += n;
    tern_free(ids.ids);
    return status;
}

static tern_status add_head(opening *o, int32_t id, size_t text, size_t from, tern_error *err) {
    tern_breakers *b = o->b;
    if (o->tails[text][from] == UINT32_MAX) TERN_TRY(add_tail(o, text, from, err));
    if (tern_array_reserve(TERN_MEM_SESSION, &b->heads, &b->heads_capacity, b->n_heads, 1) != 0)
        return tern_fail_memory(err, sizeof *b->heads);
    b->heads[b->n_heads++] =
        (struct tern_breaker_head){id, o->tails[text][from], o->n_tails[text][from]};
    return TERN_OK;
}

// Whether the token contains a breaker, or ends in the beginning of one.
static tern_status look_at(opening *o, int32_t id, tern_str word, tern_error *err) {
    for (size_t at = 0; at < word.len; at++) {
        const size_t n = word.len - at;
        if (!o->begins[(unsigned char)word.ptr[at]]) continue;
        for (size_t i = 0; i < o->n; i++) {
            const tern_str text = o->texts[i];
            if (memcmp(word.ptr + at, text.ptr, n < text.len ? n : text.len) != 0) continue;
            if (n >= text.len) {
                o->b->whole[id / 64] |= (uint64_t)1 << (id % 64);
                return TERN_OK;
            }
            TERN_TRY(add_head(o, id, i, n, err));
        }
    }
    return TERN_OK;
}

static tern_status take_texts(opening *o, const tern_generate_params *p, tern_error *err) {
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const char *const *texts = p->dry_sequence_breakers ? p->dry_sequence_breakers : usual;
    const size_t n = p->dry_sequence_breakers ? p->n_dry_sequence_breakers : 4;
    if (n > TERN_BREAKERS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "dry_sequence_breakers: %zu, more than %d", n,
                         TERN_BREAKERS_MAX);
    for (size_t i = 0; i < n; i++) {
        const size_t length = strnlen(texts[i], TERN_BREAKER_BYTES);
        if (length == 0) continue;
        o->texts[o->n++] = (tern_str){texts[i], length};
        o->begins[(unsigned char)texts[i][0]] = true;
    }
    return TERN_OK;
}

tern_status tern_breakers_open(tern_breakers *b, const tern_model *m,
                               const tern_generate_params *params, tern_error *err) {
    const size_t n_vocab = (size_t)m->info.n_vocab, n_words = (n_vocab + 63) / 64;
    opening *o = tern_alloc(TERN_MEM_SESSION, sizeof *o);
    if (!o) return tern_fail_memory(err, sizeof *o);
    o->b = b;
    o->m = m;
    memset(o->tails, 255, sizeof o->tails);
    b->n_heads = b->n_tails = 0;
    tern_strbuf word = {0};
    tern_status status = take_texts(o, params, err);
    if (status == TERN_OK &&
        tern_array_reserve(TERN_MEM_SESSION, &b->whole, &b->whole_capacity, 0, n_words) != 0)
        status = tern_fail_memory(err, n_words * sizeof *b->whole);
    if (status == TERN_OK) memset(b->whole, 0, n_words * sizeof *b->whole);
    for (int32_t id = 0; status == TERN_OK && o->n && m->tokenizer && id < (int32_t)n_vocab; id++) {
        tern_decoder d = {.with_special = true, .started = true, .raw = true};
        tern_strbuf_clear(&word);
        tern_tokenizer_decode(m->tokenizer, &d, id, &word);
        status = look_at(o, id, (tern_str){word.ptr, word.len}, err);
    }
    if (status == TERN_OK && word.failed) status = tern_fail_memory(err, word.len);
    tern_strbuf_free(&word);
    tern_free(o);
    return status;
}

void tern_breakers_free(tern_breakers *b) {
    tern_free(b->whole);
    tern_free(b->heads);
    tern_free(b->tails);
}

static bool is_whole(const tern_breakers *b, int32_t id) {
    return b->whole[id / 64] >> (id % 64) & 1;
}

// Tokens of the longest breaker that begins with end[-1 - i], after that one; -1: none does.
static int64_t breaker_at(const tern_breakers *b, const int32_t *end, size_t i) {
    const int32_t *at = end - 1 - i;
    int64_t longest = is_whole(b, *at) ? 0 : -1;
    size_t first = 0, last = b->n_heads;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (b->heads[middle].id < *at)
            first = middle + 1;
        else
            last = middle;
    }
    for (; first < b->n_heads && b->heads[first].id == *at; first++) {
        const struct tern_breaker_head *h = &b->heads[first];
        if ((int64_t)h->n_tail > longest && h->n_tail <= i &&
            !memcmp(at + 1, b->tails + h->tail, h->n_tail * sizeof *at))
            longest = h->n_tail;
    }
    return longest;
}

// ---- Repetitions -------------------------------------------------------------------------------

// repeats[k] of the last n tokens: how many of the last ones also stand before the k last (the Z
// function of the reversed text), which takes time in proportion to n.
static void find_repeats(const int32_t *end, size_t n, int32_t *repeats) {
    size_t from = 0, to = 0; // the known repetition that reaches farthest: [from, to)
    for (size_t k = 1; k < n; k++) {
        size_t length = k < to ? (size_t)repeats[k - from] : 0;
        if (k < to && length > to - k) length = to - k;
        while (k + length < n && end[-1 - (ptrdiff_t)length] == end[-1 - (ptrdiff_t)(k + length)])
            length++;
        repeats[k] = (int32_t)length;
        if (k + length > to) from = k, to = k + length;
    }
}

static double penalty_of(const tern_sampling *p, int64_t length) {
    const double base = (double)p->dry_base, most = log((double)p->dry_multiplier + 1) + 88;
    double exponent = (double)(length - p->dry_allowed_length);
    if (exponent * log(base) > most) exponent = most / log(base); // stays a float
    return (double)p->dry_multiplier * pow(base, exponent);
}

void tern_sampler_dry(tern_sampler *s, tern_candidate *c, size_t n, const int32_t *recent,
                      size_t n_recent) {
    const tern_sampling *p = &s->params;
    const int32_t *end = recent + n_recent;
    const size_t allowed = (size_t)p->dry_allowed_length;
    size_t window = n_recent, limit;
    if (p->dry_penalty_last_n >= 0 && window > (size_t)p->dry_penalty_last_n)
        window = (size_t)p->dry_penalty_last_n;
    if (window > s->repeats_capacity) window = s->repeats_capacity;
    if (window <= allowed) return;
    limit = window;
    for (size_t i = 0; i < window; i++) {
        const int32_t id = end[-1 - (ptrdiff_t)i];
        const int64_t more = id < s->n_vocab ? breaker_at(&s->breakers, end, i) : -1;
        if (more < 0) continue;
        limit = i - (size_t)more;
        break;
    }
    if (limit < allowed) return;
    find_repeats(end, window, s->repeats);
    for (size_t k = 1; k < window; k++) { // of each token that followed a repetition, the longest
        const size_t length = (size_t)s->repeats[k] < limit ? (size_t)s->repeats[k] : limit;
        const int32_t next = end[-(ptrdiff_t)k];
        if (length < allowed || next >= s->n_vocab || is_whole(&s->breakers, next)) continue;
        if (s->counts[next] < (int32_t)length + 1) s->counts[next] = (int32_t)length + 1;
    }
    for (size_t i = 0; i < n; i++)
        if (s->counts[c[i].id]) c[i].logit -= (float)penalty_of(p, (int64_t)s->counts[c[i].id] - 1);
    for (size_t k = 1; k < window; k++)
        if (end[-(ptrdiff_t)k] < s->n_vocab) s->counts[end[-(ptrdiff_t)k]] = 0;
}
