// Drafters: four ways to guess how a text goes on. None of them has to be right.
//
// - chains: a table that was mined from a corpus (formats/chains.h)
// - lookup: where the last tokens stood before in this very text, what followed them
//   (prompt lookup decoding: quotations, names, code)
// - online: the same for texts that the session has forgotten: a hash table from the last two or
//   three tokens to the next, learnt from all that passes through the session
// - model: a smaller model (Leviathan et al., arXiv:2211.17192), greedy
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/chains.h"
#include "session/session.h"

// ---- Chains ------------------------------------------------------------------------------------

static void propose_chain(const tern_speculator *sp, const int32_t *ids, size_t n_ids,
                          int32_t n_max, tern_draft *out) {
    size_t n_matched, n_entries;
    const tern_chain *c = tern_chains_find(sp->params.chains, ids, n_ids, &n_matched);
    if (!c) return;
    int32_t n = c->n_tokens - (int32_t)n_matched;
    out->n = n < n_max ? n : n_max;
    memcpy(out->tokens, c->tokens + n_matched, (size_t)out->n * sizeof *out->tokens);
    out->kind = (int)n_matched - 1;
    out->source = (int32_t)(c - tern_chains_entries(sp->params.chains, &n_entries)) *
                      TERN_CHAINS_MATCH_MAX +
                  out->kind;
}

// ---- Lookup ------------------------------------------------------------------------------------

#define LOOKUP_MATCH 8 // a longer match says no more

// The earlier place with the longest match, the latest of equals. A text that repeats itself runs
// into its own end: then it is copied on from the draft.
static void propose_lookup(const int32_t *ids, size_t n_ids, int32_t n_max, tern_draft *out) {
    size_t best = 0, best_length = 0;
    for (size_t at = n_ids - 1; at-- > 0 && best_length < LOOKUP_MATCH;) {
        if (ids[at] != ids[n_ids - 1]) continue;
        size_t length = 1;
        while (length < LOOKUP_MATCH && length <= at &&
               ids[at - length] == ids[n_ids - 1 - length])
            length++;
        if (length > best_length) best = at + 1, best_length = length;
    }
    if (best_length == 0) return;
    for (out->n = 0; out->n < n_max; out->n++) {
        size_t from = best + (size_t)out->n;
        out->tokens[out->n] = from < n_ids ? ids[from] : out->tokens[from - n_ids];
    }
    out->kind = best_length >= 4 ? 3 : (int)best_length - 1;
}

// ---- Online buckets ----------------------------------------------------------------------------

enum { BUCKETS = 1 << 15, WEIGHT_MAX = 7, ORDERS = 2, LEAST_ORDER = 2 };

static tern_bucket *bucket_of(const tern_speculator *sp, const int32_t *end, size_t order,
                              uint32_t *key) {
    uint64_t h = tern_hash64(order, end - order, order * sizeof *end);
    *key = (uint32_t)(h >> 32) | 1;
    return &sp->buckets[h % BUCKETS];
}

// A bucket keeps what it has until it was wrong as often as right.
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
            if (sp->n_seen >= order)
                learn_one(sp, ids + sp->n_seen, order, ids[sp->n_seen]);
}

static void propose_online(tern_speculator *sp, const int32_t *ids, size_t n_ids, int32_t n_max,
                           tern_draft *out) {
    enum { TAIL = LEAST_ORDER + ORDERS - 1 };
    learn(sp, ids, n_ids);
    if (n_ids < TAIL) return;
    int32_t text[TAIL + TERN_DRAFT_MAX];
    memcpy(text, ids + n_ids - TAIL, TAIL * sizeof *text);
    while (out->n < n_max) {
        const int32_t *end = text + TAIL + out->n;
        const tern_bucket *hit = NULL;
        for (size_t order = TAIL; order >= LEAST_ORDER && !hit; order--) {
            uint32_t key;
            const tern_bucket *b = bucket_of(sp, end, order, &key);
            if (b->key != key) continue;
            hit = b;
            if (out->n == 0) // 0..3: by how much of the past agrees, and how often it was so
                out->kind = (order == TAIL ? 2 : 0) + (b->weight > 1);
        }
        if (!hit) return;
        text[TAIL + out->n] = out->tokens[out->n] = hit->next;
        out->n++;
    }
}

// ---- A draft model -----------------------------------------------------------------------------

// Guesses of a model for another vocabulary would be noise. Tables may be padded differently.
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
    if (p->chains) {
        sp->odds = tern_alloc_array(TERN_MEM_SESSION, n_entries * TERN_CHAINS_MATCH_MAX,
                                    sizeof *sp->odds);
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

tern_status tern_drafter_propose(tern_speculator *sp, tern_drafter drafter, const int32_t *ids,
                                 size_t n_ids, int32_t n_max, tern_draft *out, tern_error *err) {
    out->n = out->kind = 0;
    out->source = -1;
    switch (drafter) {
    case TERN_DRAFTER_CHAINS: propose_chain(sp, ids, n_ids, n_max, out); break;
    case TERN_DRAFTER_LOOKUP: propose_lookup(ids, n_ids, n_max, out); break;
    case TERN_DRAFTER_ONLINE: propose_online(sp, ids, n_ids, n_max, out); break;
    case TERN_DRAFTER_MODEL: TERN_TRY(propose_model(sp, ids, n_ids, n_max, out, err)); break;
    case TERN_DRAFTER_CALLER:
        out->n = sp->params.draft(sp->params.draft_user, ids, n_ids, out->tokens, n_max);
        break;
    case TERN_DRAFTER_COUNT: break;
    }
    // A stranger's guess, and that of a model with a longer table, may be no token here.
    int32_t n = 0, most = out->n < n_max ? out->n : n_max;
    while (n < most && out->tokens[n] >= 0 && out->tokens[n] < sp->n_vocab) n++;
    out->n = n;
    return TERN_OK;
}
