// Speculation: which tokens to compute in advance, decided by past gains.
//
// THE TEXT STAYS THE SAME. A draft c_1 .. c_m is computed in one run after the last token, which
// gives the scores after each of them. Then the sampler continues as usual: from the scores after
// the last token it draws x. If x = c_1, the scores after x are already there; if not, x is
// appended and computed as without speculation, and the results for c_1 .. c_m are overwritten. A
// draft only decides which tokens are computed early, never which are chosen. This requires scores
// that do not depend on how many tokens were computed together, which the kernels guarantee.
//
// This is speculative sampling (Leviathan et al., arXiv:2211.17192; Chen et al., arXiv:2302.01318)
// for a draft that is certain of itself, q(c) = 1: accept c with probability min(1, p(c)/q(c)) =
// p(c), else draw from max(0, p - q), which is p without c, renormalised. Drawing x from p and
// accepting when x = c is the same: x = c has probability p(c), and given that x is not c it has
// just that distribution. With penalties, top-k, top-p, min-p and temperature, p is the
// distribution that these leave. So not only the distribution is kept but, with the same seed,
// every draw.
//
// HOW MUCH. Chains, lookup and online buckets grow one draft: each of them guesses each token, and
// the guess with the best record is taken: how often such guesses (of that drafter, after a match
// this long, this confident) were right. Records also learn from guesses that were not drafted, as
// the next token always becomes known. Guesses with chances c_1, c_2 ... yield 1 + E(m) tokens on
// average, E(m) = c_1 + c_1 c_2 + ..., and take T(1 + m) plus the time for drafting, T(k) being the
// measured time of a run of k tokens. The m with the most tokens a second wins; m = 0 is plain
// decoding. So where guesses fail, or long runs are expensive, drafting stops by itself; now and
// then it is tried again, since machines and texts change. A draft of the model or of the caller
// competes with that one.
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "formats/chains.h"
#include "session/session.h"

#define MEMORY    0.98f // decay of a record per guess: the last fifty matter
#define LEAST     0.02  // a token reached less often is not considered
#define SMOOTH    0.1   // weight of a new time in a moving mean
#define PATIENCE  8     // drafts skipped before the first new trial
#define PLAIN_GAP 64    // steps after which a run of one token is timed again

bool tern_speculation_is_on(const tern_speculation *p) {
    return p->chains || p->lookup || p->online || p->draft_model || p->draft;
}

static bool is_open(const tern_speculation *p, tern_drafter d) {
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

static bool has_drafter(const tern_speculator *sp, tern_drafter d) {
    return is_open(&sp->params, d) && !sp->limits.without[d];
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
    if (!(p->token_cost >= 0 && p->token_cost <= 100))
        return tern_fail(err, TERN_ERR_ARGUMENT, "cost of a further token %g: expected 0 to 100",
                         (double)p->token_cost);
    tern_speculator *sp = tern_alloc(TERN_MEM_SESSION, sizeof *sp);
    if (!sp) return tern_fail_memory(err, sizeof *sp);
    sp->params = *p;
    if (p->chains) tern_chains_hold(p->chains);
    sp->n_vocab = s->model->info.n_vocab;
    if (sp->params.max_length == 0) sp->params.max_length = 8;
    int32_t run_max = tern_model_same_bits(s->model);
    if (sp->params.max_length >= run_max) sp->params.max_length = run_max - 1;
    for (int i = 0; i < TERN_TRIALS; i++) sp->trials[i].patience = PATIENCE;
    tern_status status = tern_drafters_open(sp, s, err);
    if (status == TERN_OK) status = tern_device_drafts_open(sp, s, err);
    if (status == TERN_OK)
        *out = sp;
    else
        tern_speculator_close(sp);
    return status;
}

void tern_speculator_close(tern_speculator *sp) {
    if (!sp) return;
    tern_session_close(sp->model);
    tern_draft_table_close(&sp->device.table);
    tern_free(sp->buckets);
    tern_free(sp->odds);
    tern_chains_close((tern_chains *)(uintptr_t)sp->params.chains);
    tern_free(sp);
}

tern_status tern_speculator_begin(tern_speculator *sp, const tern_draft_limits *limits,
                                  tern_error *err) {
    if (limits->most < 0 || limits->least < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "drafts of %d to %d tokens: expected 0 or more",
                         (int)limits->least, (int)limits->most);
    if (!(limits->chance >= 0 && limits->chance <= 1))
        return tern_fail(err, TERN_ERR_ARGUMENT, "a drafted token's chance of %g: expected 0 to 1",
                         (double)limits->chance);
    if (!sp) return TERN_OK;
    sp->limits = *limits;
    sp->stats = (tern_draft_stats){0};
    sp->draft.n = 0;
    return TERN_OK;
}

void tern_speculator_cut(tern_speculator *sp, size_t n_tokens) {
    if (sp && sp->n_seen > n_tokens) sp->n_seen = n_tokens;
}

// ---- Gain --------------------------------------------------------------------------------------

// T(k). A length that was never tried is assumed to cost little more than the next smaller one, so
// that it gets tried.
static double run_seconds(const tern_speculator *sp, int32_t k) {
    int32_t below = k;
    if (sp->params.token_cost > 0) {
        double one = sp->params.draft_model && sp->run_seconds[1] > 0 ? sp->run_seconds[1] : 1;
        return one * (1 + (double)sp->params.token_cost * (k - 1));
    }
    while (below > 1 && sp->run_seconds[below] == 0) below--;
    double t = sp->run_seconds[below] * (1 + 0.02 * (k - below));
    for (int32_t above = k + 1; below < k && above < TERN_DRAFT_MAX + 2; above++)
        if (sp->run_seconds[above] > 0 && sp->run_seconds[above] < t) t = sp->run_seconds[above];
    return t;
}

// How likely a guess is right: its drafter's estimate, corrected by the record of its level and,
// for a chain, by its own record. One bad chain must not count against all.
static double chance_of(const tern_speculator *sp, const tern_guess *g) {
    const tern_draft_record *r = &sp->records[g->by][g->level];
    double chance = ((double)r->accepted + 4 * (double)g->stated) / ((double)r->offered + 4);
    if (g->source < 0) return chance;
    const tern_draft_record *own = &sp->odds[g->source];
    return ((double)own->accepted + 2 * chance) / ((double)own->offered + 2);
}

// The best length of a draft and the tokens a second it promises. With `always`, the longest one
// that the generation's limits allow.
static int32_t best_length(const tern_speculator *sp, const tern_draft *d, double token_seconds,
                           double *rate) {
    double reach = 1, tokens = 1, least = (double)sp->limits.chance;
    int32_t best = 0;
    *rate = 0;
    for (int32_t m = 1; m <= d->n; m++) {
        double chance = chance_of(sp, &d->guesses[m - 1]);
        if (chance < least) break;
        if (sp->params.always) best = m;
        reach *= chance;
        tokens += reach;
        double this_rate = tokens / (run_seconds(sp, 1 + m) + token_seconds * m);
        if (this_rate <= *rate) continue;
        best = m;
        *rate = this_rate;
    }
    return best;
}

// ---- A step ------------------------------------------------------------------------------------

// The likeliest guesses of chains, lookup and online buckets, token by token.
static void mix(tern_speculator *sp, const int32_t *ids, size_t n_ids, int32_t n_max,
                tern_draft *out) {
    tern_trail trails[TERN_DRAFTER_MODEL];
    double reach = 1;
    for (int d = 0; d < TERN_DRAFTER_MODEL; d++)
        trails[d] = (tern_trail){.ids = ids, .n_ids = n_ids, .draft = out};
    for (out->n = 0; out->n < n_max;) {
        tern_guess best = {.token = -1};
        double best_chance = -1;
        for (int d = 0; d < TERN_DRAFTER_MODEL; d++) {
            if (!has_drafter(sp, d)) continue;
            tern_guess g = tern_drafter_guess(sp, d, &trails[d]);
            if (g.token < 0) continue;
            if (out->n == 0) sp->first[sp->n_first++] = g;
            double chance = chance_of(sp, &g);
            if (chance > best_chance) best = g, best_chance = chance;
        }
        reach *= best_chance;
        if (best.token < 0 || (reach < LEAST && !sp->params.always)) return;
        if (best_chance < (double)sp->limits.chance) return;
        out->guesses[out->n] = best;
        out->tokens[out->n++] = best.token;
    }
}

// Tokens that come as a whole are judged by their place in the draft. At first they are trusted,
// since a guess that is never drafted is never measured.
static void by_place(tern_draft *d, tern_drafter by) {
    for (int32_t j = 0; j < d->n; j++) d->guesses[j] = (tern_guess){d->tokens[j], by, j, 0.8f, -1};
}

// Takes the draft if it promises more than the best so far. One that does not promise more than
// plain decoding gets another trial after a while.
static void consider(tern_speculator *sp, int trial, const tern_draft *draft, double token_seconds,
                     double *best_rate) {
    tern_draft_trial *t = &sp->trials[trial];
    double rate, plain = 1 / run_seconds(sp, 1);
    if (draft->n == 0) return;
    int32_t n = best_length(sp, draft, token_seconds, &rate);
    if (n == 0 || n < sp->limits.least) return;
    if (!sp->params.always && rate <= plain && ++t->n_skipped < t->patience) return;
    if (sp->draft.n > 0 && rate <= *best_rate) return;
    if (rate <= plain) { // a trial
        t->n_skipped = 0;
        if (t->patience < 1u << 10) t->patience *= 2;
    }
    sp->draft = *draft;
    sp->draft.n = n;
    *best_rate = rate;
}

// A draft model's guesses are expensive, so they are weighed before they are made.
static tern_status consider_model(tern_speculator *sp, const int32_t *ids, size_t n_ids,
                                  int32_t n_max, double *best_rate, tern_error *err) {
    tern_draft wanted = {.n = n_max};
    by_place(&wanted, TERN_DRAFTER_MODEL);
    consider(sp, TERN_TRIAL_MODEL, &wanted, sp->model_seconds, best_rate);
    if (sp->draft.n == 0 || sp->draft.guesses[0].by != TERN_DRAFTER_MODEL) return TERN_OK;
    double before = tern_seconds();
    n_max = sp->draft.n;
    TERN_TRY(tern_drafter_propose(sp, TERN_DRAFTER_MODEL, ids, n_ids, n_max, &sp->draft, err));
    by_place(&sp->draft, TERN_DRAFTER_MODEL);
    double each = (tern_seconds() - before) / (sp->draft.n ? sp->draft.n : 1);
    sp->model_seconds += (each - sp->model_seconds) * (sp->model_seconds ? SMOOTH : 1);
    return TERN_OK;
}

tern_status tern_speculator_draft(tern_speculator *sp, const int32_t *ids, size_t n_ids,
                                  int32_t n_max, tern_error *err) {
    double start = tern_seconds(), best_rate = 0;
    if (n_max > sp->params.max_length) n_max = sp->params.max_length;
    if (sp->limits.most && n_max > sp->limits.most) n_max = sp->limits.most;
    if (sp->limits.none) n_max = 0;
    bool timed = !sp->params.always && (sp->params.token_cost == 0 || sp->params.draft_model);
    bool plain = timed && (sp->run_seconds[1] == 0 || sp->since_plain >= PLAIN_GAP);
    sp->draft.n = sp->n_first = 0;
    if (n_max <= 0 || plain) return TERN_OK;
    tern_draft draft;
    mix(sp, ids, n_ids, n_max, &draft);
    consider(sp, TERN_TRIAL_MIXED, &draft, 0, &best_rate);
    if (has_drafter(sp, TERN_DRAFTER_CALLER)) {
        TERN_TRY(tern_drafter_propose(sp, TERN_DRAFTER_CALLER, ids, n_ids, n_max, &draft, err));
        by_place(&draft, TERN_DRAFTER_CALLER);
        consider(sp, TERN_TRIAL_CALLER, &draft, 0, &best_rate);
    }
    if (has_drafter(sp, TERN_DRAFTER_MODEL))
        TERN_TRY(consider_model(sp, ids, n_ids, n_max, &best_rate, err));
    if (sp->draft.n < sp->limits.least) sp->draft.n = 0; // the model's may end early
    sp->stats.draft_seconds += tern_seconds() - start;
    return TERN_OK;
}

void tern_speculator_ran(tern_speculator *sp, int32_t n_tokens, double seconds) {
    double *mean = &sp->run_seconds[n_tokens];
    // A run in which the system gave the processor to other processes says little.
    double usual = *mean > 0 && seconds > 2 * *mean ? 2 * *mean : seconds;
    if (seconds > 0) *mean += (usual - *mean) * (*mean > 0 ? SMOOTH : 1);
    sp->stats.n_steps++;
    sp->stats.n_runs[n_tokens]++;
    sp->stats.run_seconds[n_tokens] += seconds;
    sp->since_plain = n_tokens == 1 ? 0 : sp->since_plain + 1;
}

static void note(tern_draft_record *r, bool right) {
    r->offered = r->offered * MEMORY + 1;
    r->accepted = r->accepted * MEMORY + right;
}

static void learn_from(tern_speculator *sp, const tern_guess *g, bool right) {
    note(&sp->records[g->by][g->level], right);
    if (g->source >= 0) note(&sp->odds[g->source], right);
}

void tern_speculator_judge(tern_speculator *sp, int32_t n_accepted, bool ended, int32_t next) {
    const tern_draft *d = &sp->draft;
    int32_t n = d->n;
    // The examined guesses: the accepted tokens, and the one that was replaced.
    for (int32_t j = 0; j < n && j < n_accepted + !ended; j++)
        learn_from(sp, &d->guesses[j], j < n_accepted);
    for (int i = 0; i < sp->n_first; i++) {
        const tern_guess *g = &sp->first[i];
        if (n > 0 && g->by == d->guesses[0].by) continue; // judged above
        if (n_accepted > 0)
            learn_from(sp, g, g->token == d->tokens[0]);
        else if (!ended)
            learn_from(sp, g, g->token == next);
    }
    sp->n_first = 0;
    if (n == 0) return;
    int trial = d->guesses[0].by == TERN_DRAFTER_MODEL    ? TERN_TRIAL_MODEL
                : d->guesses[0].by == TERN_DRAFTER_CALLER ? TERN_TRIAL_CALLER
                                                          : TERN_TRIAL_MIXED;
    if (n_accepted > 0) sp->trials[trial].patience = PATIENCE;
    sp->stats.n_drafts++;
    sp->stats.n_drafted += (size_t)n;
    sp->stats.n_accepted += (size_t)n_accepted;
    for (int32_t j = 0; j < n; j++) {
        sp->stats.drafted_by[d->guesses[j].by]++;
        sp->stats.accepted_by[d->guesses[j].by] += j < n_accepted;
    }
    sp->stats.accepted_length[n_accepted]++;
    sp->stats.drafted_length[n]++;
    sp->stats.accepted_of[n] += (size_t)n_accepted;
    sp->draft.n = 0;
}

double tern_speculator_speedup(const tern_speculator *sp, size_t n_generated, double seconds) {
    if (seconds <= 0 || n_generated < 2) return 0;
    return (double)(n_generated - 1) * sp->run_seconds[1] / seconds;
}
