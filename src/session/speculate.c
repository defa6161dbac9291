// Speculation: what to compute in advance, decided by what it has gained so far.
//
// THE TEXT STAYS THE SAME. A draft c_1 .. c_m is computed in one run behind the last token, which
// gives the scores behind each of them. Then the sampler goes on as ever: from the scores behind
// the last token it draws x. If x = c_1, the scores behind x are already there; if not, x is
// appended and computed as without speculation, and what was computed for c_1 .. c_m is written
// over. A draft only decides what is computed early, never what is said. That needs scores that do
// not depend on how many tokens were computed together, which the kernels promise.
//
// This is speculative sampling (Leviathan et al., arXiv:2211.17192; Chen et al., arXiv:2302.01318)
// for a draft that is certain of itself, q(c) = 1: accept c with probability min(1, p(c)/q(c)) =
// p(c), else draw from max(0, p - q), which is p without c, renormalised. To draw x from p and
// accept when x = c is the same: x = c has probability p(c), and given that x is not c it has just
// that distribution. With penalties, top-k, top-p, min-p and temperature p is what these leave. So
// not only the distribution is kept but, with the same seed, every draw.
//
// HOW MUCH. Of each drafter and kind of guess we keep how often its token j was accepted when those
// before it were: a_j. A draft of m tokens yields 1 + E(m), E(m) = a_1 + a_1 a_2 + ... tokens
// on average, and takes T(1 + m) and what drafting takes, T(k) being the measured time of a run of
// k tokens. The m and the drafter with the most tokens a second win, plain decoding (m = 0) being
// one of them: where guesses fail or a run of many tokens is dear, they stop by themselves. Now and
// then they are tried again, since texts change. Of a chain's first token there is a record of its
// own, too: one bad chain shall not speak for all.
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "session/session.h"

#define MEMORY    0.97 // weight that a record keeps with each draft: the last thirty matter
#define SMOOTH    0.1  // weight of a new time in a moving mean
#define PATIENCE  8    // first number of drafts that are left out before another trial
#define PLAIN_GAP 64   // steps after which a run of one token is timed again

bool tern_speculation_is_on(const tern_speculation *p) {
    return p->chains || p->lookup || p->online || p->draft_model || p->draft;
}

static bool has_drafter(const tern_speculation *p, tern_drafter d) {
    switch (d) {
    case TERN_DRAFTER_CHAINS: return p->chains != NULL;
    case TERN_DRAFTER_LOOKUP: return p->lookup;
    case TERN_DRAFTER_ONLINE: return p->online;
    case TERN_DRAFTER_MODEL: return p->draft_model != NULL;
    case TERN_DRAFTER_CALLER: return p->draft != NULL;
    case TERN_DRAFTER_COUNT: break;
    }
    return false;
}

tern_status tern_speculator_open(tern_speculator **out, const tern_session *s, tern_error *err) {
    const tern_speculation *p = &s->desc.speculation;
    *out = NULL;
    if (p->max_length < 0 || p->max_length > TERN_DRAFT_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "drafts of %d tokens: expected 1 to %d",
                         (int)p->max_length, TERN_DRAFT_MAX);
    if (!(p->threshold >= 0 && p->threshold <= 1))
        return tern_fail(err, TERN_ERR_ARGUMENT, "acceptance threshold %g: expected 0 to 1",
                         (double)p->threshold);
    tern_speculator *sp = tern_alloc(TERN_MEM_SESSION, sizeof *sp);
    if (!sp) return tern_fail_memory(err, sizeof *sp);
    sp->params = *p;
    sp->n_vocab = s->model->info.n_vocab;
    if (sp->params.max_length == 0) sp->params.max_length = 8;
    int32_t run_max = tern_model_same_bits(s->model);
    if (sp->params.max_length >= run_max) sp->params.max_length = run_max - 1;
    for (int d = 0; d < TERN_DRAFTER_COUNT; d++)
        for (int k = 0; k < TERN_DRAFT_KINDS; k++) sp->records[d][k].patience = PATIENCE;
    tern_status status = tern_drafters_open(sp, s, err);
    if (status == TERN_OK) *out = sp;
    else tern_speculator_close(sp);
    return status;
}

void tern_speculator_close(tern_speculator *sp) {
    if (!sp) return;
    tern_session_close(sp->model);
    tern_free(sp->buckets);
    tern_free(sp->odds);
    tern_free(sp);
}

void tern_speculator_cut(tern_speculator *sp, size_t n_tokens) {
    if (sp && sp->n_seen > n_tokens) sp->n_seen = n_tokens;
}

// ---- Gain --------------------------------------------------------------------------------------

// T(k). A number of tokens that was never tried is supposed to cost little more than the next
// smaller one: that is found out by trying.
static double run_seconds(const tern_speculator *sp, int32_t k) {
    int32_t below = k;
    while (below > 1 && sp->run_seconds[below] == 0) below--;
    double t = sp->run_seconds[below] * (1 + 0.02 * (k - below));
    for (int32_t above = k + 1; below < k && above < TERN_DRAFT_MAX + 2; above++)
        if (sp->run_seconds[above] > 0 && sp->run_seconds[above] < t) t = sp->run_seconds[above];
    return t;
}

// a_1 of a draft: that of its kind, which a chain's own record corrects as it grows.
static double first_chance(const tern_speculator *sp, const tern_draft_record *r,
                           const tern_draft *d) {
    double chance = (r->accepted[0] + 1) / (r->offered[0] + 2);
    if (d->source < 0) return chance;
    const tern_draft_odds *own = &sp->odds[d->source];
    return ((double)own->accepted + 2 * chance) / ((double)own->offered + 2);
}

// The best length of a draft and the tokens a second that it promises.
static int32_t best_length(const tern_speculator *sp, const tern_draft_record *r,
                           const tern_draft *d, double token_seconds, double *rate) {
    double reach = first_chance(sp, r, d), tokens = 1;
    int32_t best = 0;
    *rate = 0;
    for (int32_t m = 1; m <= d->n; m++) {
        if (m > 1) reach *= (r->accepted[m - 1] + 1) / (r->offered[m - 1] + 2);
        tokens += reach;
        double this_rate = tokens / (run_seconds(sp, 1 + m) + token_seconds * m);
        if (this_rate > *rate) best = m, *rate = this_rate;
    }
    return best;
}

// ---- A step ------------------------------------------------------------------------------------

typedef struct choice {
    tern_draft draft;
    tern_drafter drafter;
    double rate; // to beat
} choice;

// Takes the draft of a drafter if it promises more than the best so far. One that does not promise
// more than plain decoding gets another trial after a while.
static void consider(tern_speculator *sp, choice *c, tern_drafter d, const tern_draft *draft,
                     double token_seconds) {
    tern_draft_record *r = &sp->records[d][draft->kind];
    double rate, plain = 1 / run_seconds(sp, 1);
    int32_t n = best_length(sp, r, draft, token_seconds, &rate);
    if (sp->params.always) n = draft->n;
    else if (rate <= plain && ++r->n_skipped < r->patience) return;
    if (c->draft.n > 0 && rate <= c->rate) return;
    if (rate <= plain) { // a trial
        r->n_skipped = 0;
        if (r->patience < 1u << 10) r->patience *= 2;
    }
    c->draft = *draft;
    c->draft.n = n;
    c->drafter = d;
    c->rate = rate;
}

tern_status tern_speculator_draft(tern_speculator *sp, const int32_t *ids, size_t n_ids,
                                  int32_t n_max, tern_error *err) {
    choice c = {.drafter = TERN_DRAFTER_COUNT};
    double start = tern_seconds();
    if (n_max > sp->params.max_length) n_max = sp->params.max_length;
    bool plain = !sp->params.always && (sp->run_seconds[1] == 0 || sp->since_plain >= PLAIN_GAP);
    sp->draft.n = 0;
    if (n_max <= 0 || plain) return TERN_OK;
    for (int d = 0; d < TERN_DRAFTER_COUNT; d++) {
        tern_draft draft = {.n = n_max};
        if (!has_drafter(&sp->params, d) || d == TERN_DRAFTER_MODEL) continue;
        TERN_TRY(tern_drafter_propose(sp, d, ids, n_ids, n_max, &draft, err));
        if (draft.n > 0) consider(sp, &c, d, &draft, 0);
    }
    if (sp->params.draft_model) { // its guesses are dear: judged before they are made
        tern_draft wanted = {.n = n_max, .source = -1};
        consider(sp, &c, TERN_DRAFTER_MODEL, &wanted, sp->model_seconds);
        if (c.drafter == TERN_DRAFTER_MODEL) {
            double before = tern_seconds();
            TERN_TRY(tern_drafter_propose(sp, TERN_DRAFTER_MODEL, ids, n_ids, c.draft.n, &c.draft,
                                          err));
            double each = (tern_seconds() - before) / (c.draft.n ? c.draft.n : 1);
            sp->model_seconds += (each - sp->model_seconds) * (sp->model_seconds ? SMOOTH : 1);
        }
    }
    sp->draft = c.draft;
    sp->drafter = c.drafter;
    sp->stats.draft_seconds += tern_seconds() - start;
    return TERN_OK;
}

void tern_speculator_ran(tern_speculator *sp, int32_t n_tokens, double seconds) {
    double *mean = &sp->run_seconds[n_tokens];
    // A run in which the system gave the processor to others says little.
    double usual = *mean > 0 && seconds > 2 * *mean ? 2 * *mean : seconds;
    *mean += (usual - *mean) * (*mean > 0 ? SMOOTH : 1);
    sp->stats.n_steps++;
    sp->stats.n_runs[n_tokens]++;
    sp->stats.run_seconds[n_tokens] += seconds;
    sp->since_plain = n_tokens == 1 ? 0 : sp->since_plain + 1;
}

void tern_speculator_judge(tern_speculator *sp, int32_t n_accepted, bool refused) {
    int32_t n = sp->draft.n;
    if (n == 0) return;
    tern_draft_record *r = &sp->records[sp->drafter][sp->draft.kind];
    for (int32_t j = 0; j < TERN_DRAFT_MAX; j++) {
        bool looked_at = j < n_accepted || (j == n_accepted && j < n && refused);
        if (!looked_at) break; // what was not looked at keeps its weight
        r->offered[j] = r->offered[j] * MEMORY + 1;
        r->accepted[j] = r->accepted[j] * MEMORY + (j < n_accepted);
    }
    if (n_accepted > 0) r->patience = PATIENCE;
    if (sp->draft.source >= 0) {
        tern_draft_odds *own = &sp->odds[sp->draft.source];
        own->offered = own->offered * (float)MEMORY + 1;
        own->accepted = own->accepted * (float)MEMORY + (n_accepted > 0);
    }
    sp->stats.n_drafts++;
    sp->stats.n_drafted += (size_t)n;
    sp->stats.n_accepted += (size_t)n_accepted;
    sp->stats.drafted_by[sp->drafter] += (size_t)n;
    sp->stats.accepted_by[sp->drafter] += (size_t)n_accepted;
    sp->stats.accepted_length[n_accepted]++;
    sp->stats.drafted_length[n]++;
    sp->stats.accepted_of[n] += (size_t)n_accepted;
    sp->draft.n = 0;
}

double tern_speculator_speedup(const tern_speculator *sp, size_t n_generated, double seconds) {
    if (seconds <= 0 || n_generated < 2) return 0;
    return (double)(n_generated - 1) * sp->run_seconds[1] / seconds;
}
