// Drafters: four ways to guess how a text continues. Guesses may be wrong.
//
// - chains: a table that was mined from a corpus (formats/chains.h)
// - lookup: the tokens that followed the last ones at an earlier occurrence in this text (prompt
//   lookup decoding: quotations, names, code)
// - online: the same for texts that are no longer in the session: a hash table from the last two or
//   three tokens to the next, learnt from all tokens of the session
// - model: a smaller model (Leviathan et al., arXiv:2211.17192), greedy
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/chains.h"
#include "session/session.h"

// Token i of the text followed by the draft.
static int32_t token_at(const tern_trail *t, size_t i) {
    return i < t->n_ids ? t->ids[i] : t->draft->tokens[i - t->n_ids];
}

static size_t trail_length(const tern_trail *t) { return t->n_ids + (size_t)t->draft->n; }

// The last tokens, oldest first; returns how many there are, at most n.
static size_t copy_end(const tern_trail *t, int32_t *to, size_t n) {
    size_t length = trail_length(t);
    if (n > length) n = length;
    for (size_t i = 0; i < n; i++) to[i] = token_at(t, length - n + i);
    return n;
}

// ---- Chains ------------------------------------------------------------------------------------

// Eight levels by the table's confidence, each divided into four by the number of matching tokens.
static int chain_level(float stated, size_t n_matched) {
    int band = stated >= 1 ? 7 : (int)(stated * 8);
    return band * 4 + (n_matched > 4 ? 3 : (int)n_matched - 1);
}

// Continues a chain that the draft has followed so far. (No other chain can match more of the last
// tokens: it would have matched more one token earlier.)
static tern_guess guess_chain(const tern_speculator *sp, tern_trail *t) {
    int32_t end[TERN_CHAINS_MATCH_MAX];
    size_t n_end = copy_end(t, end, TERN_CHAINS_MATCH_MAX), n = t->n_chain, n_entries;
    const tern_chain *c = t->chain;
    bool goes_on =
        c && t->draft->n > 0 && c->tokens[n - 1] == end[n_end - 1] && (int32_t)n < c->n_tokens;
    if (!goes_on) c = tern_chains_find(sp->params.chains, end, n_end, &n);
    t->chain = c;
    t->n_chain = n + 1;
    if (!c) return (tern_guess){.token = -1};
    float stated = c->chances ? (float)c->chances[n] / 255 : c->confidence;
    size_t index = (size_t)(c - tern_chains_entries(sp->params.chains, &n_entries));
    bool has_odds = sp->odds && n <= TERN_CHAINS_MATCH_MAX;
    return (tern_guess){.token = c->tokens[n],
                        .by = TERN_DRAFTER_CHAINS,
                        .level = chain_level(stated, n),
                        .stated = stated < 1 ? stated : 1,
                        .source = has_odds ? (int32_t)(index * TERN_CHAINS_MATCH_MAX + n - 1) : -1};
}

// ---- Lookup ------------------------------------------------------------------------------------

#define LOOKUP_MATCH 8 // longer matches are not better

// The earlier position with the longest match; of equals the latest.
static void find_match(tern_trail *t) {
    size_t n = trail_length(t);
    t->found = t->n_match = 0;
    for (size_t at = n - 1; at-- > 0 && t->n_match < LOOKUP_MATCH;) {
        size_t length = 0;
        while (length < LOOKUP_MATCH && length <= at &&
               token_at(t, at - length) == token_at(t, n - 1 - length))
            length++;
        if (length > t->n_match) t->found = at + 1, t->n_match = length;
    }
}

// In a text that repeats itself, the copy reaches the end of the text; it then continues in the
// draft.
static tern_guess guess_lookup(tern_trail *t) {
    size_t n = trail_length(t);
    if (t->draft->n > 0 && t->found && token_at(t, t->found) == token_at(t, n - 1))
        t->found++, t->n_match++;
    else
        find_match(t);
    if (!t->found) return (tern_guess){.token = -1};
    size_t level = t->n_match <= 2 * LOOKUP_MATCH ? t->n_match - 1 : 2 * LOOKUP_MATCH - 1;
    return (tern_guess){.token = token_at(t, t->found),
                        .by = TERN_DRAFTER_LOOKUP,
                        .level = (int)level,
                        .stated = 0.5f,
                        .source = -1};
}

// ---- Online buckets ----------------------------------------------------------------------------

enum { BUCKETS = 1 << 15, WEIGHT_MAX = 7, ORDERS = 2, LEAST_ORDER = 2 };

static tern_bucket *bucket_of(const tern_speculator *sp, const int32_t *end, size_t order,
                              uint32_t *key) {
    uint64_t h = tern_hash64(order, end - order, order * sizeof *end);
    *key = (uint32_t)(h >> 32) | 1;
    return &sp->buckets[h % BUCKETS];
}

// A bucket keeps its entry until it has been wrong as often as right.
static void learn_one(const tern_speculator *sp, const int32_t *end, size_t order, int32_t next) {
    uint32_t key;
    tern_bucket *b = bucket_of(sp, end, order, &key);
    if (b->key == key && b->next == next) {
        if (b->weight < WEIGHT_MAX) b->weight++;
    } else if (--b->weight <= 0) {
        *b = (tern_bucket){key, next, 1};
    }
}

static void learn(tern_speculator *sp, const int32_t *ids, size_t n_ids) {
    for (; sp->n_seen < n_ids; sp->n_seen++)
        for (size_t order = LEAST_ORDER; order < LEAST_ORDER + ORDERS; order++)
            if (sp->n_seen >= order) learn_one(sp, ids + sp->n_seen, order, ids[sp->n_seen]);
}

static tern_guess guess_online(tern_speculator *sp, const tern_trail *t) {
    enum { TAIL = LEAST_ORDER + ORDERS - 1 };
    int32_t end[TAIL];
    if (t->draft->n == 0) learn(sp, t->ids, t->n_ids);
    size_t n = copy_end(t, end, TAIL);
    for (size_t order = n; order >= LEAST_ORDER; order--) {
        uint32_t key;
        const tern_bucket *b = bucket_of(sp, end + n, order, &key);
        if (b->key == key) // by how many tokens match, and how often it was right
            return (tern_guess){.token = b->next,
                                .by = TERN_DRAFTER_ONLINE,
                                .level = (order == TAIL ? WEIGHT_MAX + 1 : 0) + b->weight,
                                .stated = 0.5f,
                                .source = -1};
    }
    return (tern_guess){.token = -1};
}

// ---- A draft model -----------------------------------------------------------------------------

// A model with another vocabulary would guess noise; a different padding of the table is allowed.
static tern_status check_vocabulary(const tern_model *m, const tern_model *draft, tern_error *err) {
    int32_t n = m->info.n_vocab < draft->info.n_vocab ? m->info.n_vocab : draft->info.n_vocab;
    for (int32_t id = 0; id < n; id++) {
        size_t n_a, n_b;
        const char *a = tern_token_text(m, id, &n_a), *b = tern_token_text(draft, id, &n_b);
        if (!a && !b) continue;
        if (!a || !b || n_a != n_b || memcmp(a, b, n_a) != 0)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s: cannot draft for %s: token %d is another one there", draft->path,
                             m->path, (int)id);
    }
    return TERN_OK;
}

static tern_status propose_model(tern_speculator *sp, const int32_t *ids, size_t n_ids,
                                 int32_t n_max, tern_draft *out, tern_error *err) {
    if (n_ids + (size_t)n_max > (size_t)sp->model->n_context) return TERN_OK;
    TERN_TRY(tern_session_greedy(sp->model, ids, n_ids, out->tokens, n_max, err));
    out->n = n_max;
    return TERN_OK;
}

// ---- All ---------------------------------------------------------------------------------------

tern_status tern_drafters_open(tern_speculator *sp, const tern_session *s, tern_error *err) {
    const tern_speculation *p = &sp->params;
    size_t n_entries = 0;
    const tern_chain *e = p->chains ? tern_chains_entries(p->chains, &n_entries) : NULL;
    for (size_t i = 0; i < n_entries; i++)
        for (int32_t k = 0; k < e[i].n_tokens; k++)
            if (e[i].tokens[k] >= sp->n_vocab)
                return tern_fail(err, TERN_ERR_ARGUMENT,
                                 "chain %zu has token %d, but %s has only %d: the table was mined "
                                 "for another model",
                                 i, (int)e[i].tokens[k], s->model->path, (int)sp->n_vocab);
    if (p->chains && tern_chains_version(p->chains) == 1) {
        sp->odds =
            tern_alloc_array(TERN_MEM_SESSION, n_entries * TERN_CHAINS_MATCH_MAX, sizeof *sp->odds);
        if (!sp->odds) return tern_fail_memory(err, n_entries * sizeof *sp->odds);
    }
    if (p->online) {
        sp->buckets = tern_alloc_array(TERN_MEM_SESSION, BUCKETS, sizeof *sp->buckets);
        if (!sp->buckets) return tern_fail_memory(err, BUCKETS * sizeof *sp->buckets);
    }
    if (!p->draft_model) return TERN_OK;
    TERN_TRY(check_vocabulary(s->model, p->draft_model, err));
    const tern_session_desc desc = {.n_context = s->n_context};
    return tern_session_open(&sp->model, p->draft_model, &desc, err);
}

tern_guess tern_drafter_guess(tern_speculator *sp, tern_drafter drafter, tern_trail *t) {
    tern_guess g = drafter == TERN_DRAFTER_CHAINS   ? guess_chain(sp, t)
                   : drafter == TERN_DRAFTER_LOOKUP ? guess_lookup(t)
                                                    : guess_online(sp, t);
    if (g.token >= sp->n_vocab) g.token = -1;
    return g;
}

// A guess of the caller, or of a model with a longer table, may be outside this vocabulary.
tern_status tern_drafter_propose(tern_speculator *sp, tern_drafter drafter, const int32_t *ids,
                                 size_t n_ids, int32_t n_max, tern_draft *out, tern_error *err) {
    out->n = 0;
    if (drafter == TERN_DRAFTER_MODEL)
        TERN_TRY(propose_model(sp, ids, n_ids, n_max, out, err));
    else
        out->n = sp->params.draft(sp->params.draft_user, ids, n_ids, out->tokens, n_max);
    int32_t n = 0, most = out->n < n_max ? out->n : n_max;
    while (n < most && out->tokens[n] >= 0 && out->tokens[n] < sp->n_vocab) n++;
    out->n = n;
    return TERN_OK;
}
