// Drafts that the device makes and judges itself, if it can: greedy text from a table of chains.
//
// Among runs of 1, 2, 4 and 8 tokens, choose the length with the most tokens a second. Let c_j be
// the chance that drafted token j + 1 is right, given that the first j were; then a run of n tokens
// yields E(n) = 1 + c_0 + c_0 c_1 + ... (n - 1 products) on average. The longest runs measure this
// for all n, so only the time T(n) of a run has to be measured. And since T(1) <= T(n), E(n) / T(1)
// bounds what n can promise: most lengths are never tried.
#include "formats/chains.h"
#include "session/session.h"

#define MEMORY      0.95 // weight of older measurements, per request
#define RETRY_FIRST 16   // requests after which another length is timed again, doubled
#define RETRY_LAST  512  // each time, up to this: a GPU that was idle is slow at first
#define TRIAL_RUNS  6    // runs that suffice to time a length
#define TRIAL_STEPS 16   // or single steps, whose times are uneven
#define IDLE_RUNS   1    // the device is idle after a change, so the first run says nothing
#define IDLE_STEPS  4
static const int32_t arm_tokens[TERN_DEVICE_ARMS] = {1, 2, 4, 8};

static tern_status fill_table(tern_draft_table *t, const tern_chains *chains, tern_error *err) {
    size_t n_chains, n, longest = 0, n_prefixes = 0, chain;
    const tern_chain *e = tern_chains_entries(chains, &n_chains);
    for (size_t i = 0; i < n_chains; i++)
        if ((size_t)e[i].n_tokens > longest) longest = (size_t)e[i].n_tokens;
    for (size_t at = 0; tern_chains_next_prefix(chains, &at, &chain, &n);) n_prefixes++;
    TERN_TRY(tern_draft_table_open(t, n_prefixes, n_chains, longest, err));
    for (size_t i = 0; i < n_chains; i++)
        tern_draft_table_set_run(t, i, e[i].tokens, (size_t)e[i].n_tokens);
    for (size_t at = 0; tern_chains_next_prefix(chains, &at, &chain, &n);)
        tern_draft_table_add_prefix(t, chain, n);
    return TERN_OK;
}

static void begin(tern_device_drafts *d, int arm) {
    d->n_trial_runs = arm == 0 ? TRIAL_STEPS : TRIAL_RUNS;
    d->n_idle = arm == 0 ? IDLE_STEPS : IDLE_RUNS;
    d->arms[arm] = (tern_device_arm){0}; // time it anew: the machine may have changed
    d->now = arm;
}

void tern_device_drafts_begin(tern_device_drafts *d) {
    d->patience = RETRY_FIRST;
    begin(d, d->n_arms - 1);
}

tern_status tern_device_drafts_open(tern_speculator *sp, const tern_session *s, tern_error *err) {
    const tern_speculation *p = &sp->params;
    tern_device_drafts *d = &sp->device;
    bool only_chains = p->chains && !p->lookup && !p->online && !p->draft_model && !p->draft;
    if (!only_chains || p->threshold > 0 || p->token_cost > 0 || sp->params.max_length < 1 ||
        !tern_lease_can_draft(s->lease))
        return TERN_OK;
    TERN_TRY(fill_table(&d->table, p->chains, err));
    TERN_TRY(tern_lease_open_drafts(s->lease, &d->table, err));
    while (d->n_arms < TERN_DEVICE_ARMS && arm_tokens[d->n_arms] <= 1 + sp->params.max_length)
        d->n_arms++;
    tern_device_drafts_begin(d);
    return TERN_OK;
}

// ---- Choosing ----------------------------------------------------------------------------------

static double seconds_of(const tern_device_arm *a) {
    return a->runs > 0 ? a->seconds / a->runs : 0;
}

static double tokens_of(const tern_device_drafts *d, int32_t n_tokens) {
    double reach = 1, tokens = 1;
    for (int32_t j = 0; j + 1 < n_tokens && d->chances[j].offered > 0; j++) {
        reach *= (double)(d->chances[j].accepted / d->chances[j].offered);
        tokens += reach;
    }
    return tokens;
}

// An upper bound on the tokens a second of a length.
static double bound_of(const tern_device_drafts *d, int arm) {
    return tokens_of(d, arm_tokens[arm]) / seconds_of(&d->arms[0]);
}

// Tokens a second; for a length that has not been timed, an upper bound.
static double rate_of(const tern_device_drafts *d, int arm) {
    double seconds = seconds_of(&d->arms[arm]);
    return seconds > 0 ? tokens_of(d, arm_tokens[arm]) / seconds : bound_of(d, arm);
}

static int best_arm(const tern_device_drafts *d) {
    int best = d->n_arms - 1;
    if (seconds_of(&d->arms[best]) == 0) return best; // first, as it measures what drafts gain
    if (seconds_of(&d->arms[0]) == 0) return 0;
    for (int arm = d->n_arms - 1; arm >= 0; arm--)
        if (rate_of(d, arm) > rate_of(d, best)) best = arm;
    return best;
}

// Another length that may be better, in turn; now and then single steps, whose time bounds all
// others.
static int next_to_try(tern_device_drafts *d, int best) {
    double rate = rate_of(d, best);
    for (int i = 0; i < d->n_arms; i++) {
        d->retried = (d->retried + 1) % d->n_arms;
        bool may = d->retried ? bound_of(d, d->retried) > rate : d->patience == RETRY_LAST;
        if (d->retried != best && may) return d->retried;
    }
    return best;
}

int32_t tern_device_drafts_choose(tern_speculator *sp) {
    tern_device_drafts *d = &sp->device;
    const tern_draft_limits *l = &sp->limits;
    const bool is_limited = l->most || l->least || l->chance > 0 || l->without[TERN_DRAFTER_CHAINS];
    if (d->n_arms == 0 || l->none || is_limited) return 0;
    if (sp->params.always) return arm_tokens[d->n_arms - 1];
    if (d->n_trial_runs <= 0) {
        int arm = best_arm(d);
        if (arm == d->now && ++d->n_settled >= d->patience) {
            d->n_settled = 0;
            if (d->patience < RETRY_LAST) d->patience *= 2;
            arm = next_to_try(d, arm);
        }
        if (arm != d->now) begin(d, arm);
    }
    return arm_tokens[d->now];
}

// ---- Learning ----------------------------------------------------------------------------------

static void note_chances(tern_device_drafts *d, const tern_drafting *q) {
    for (int j = 0; j + 1 < TERN_DRAFTING_MAX; j++) {
        uint32_t offered = 0, accepted = 0;
        for (int drafted = 0; drafted < TERN_DRAFTING_MAX; drafted++)
            for (int n = 0; n < TERN_DRAFTING_MAX; n++) {
                if (n >= j) offered += q->counts[drafted][n];
                if (n > j) accepted += q->counts[drafted][n];
            }
        tern_draft_record *r = &d->chances[j];
        r->offered = r->offered * (float)MEMORY + (float)offered;
        r->accepted = r->accepted * (float)MEMORY + (float)accepted;
    }
}

static void add_stats(tern_draft_stats *st, const tern_drafting *q) {
    for (size_t i = 1; i < TERN_DRAFTING_MAX; i++)
        for (size_t k = 0; k < TERN_DRAFTING_MAX; k++) {
            size_t n = q->counts[i][k];
            st->n_drafts += n;
            st->n_drafted += n * i;
            st->n_accepted += n * k;
            st->drafted_by[TERN_DRAFTER_CHAINS] += n * i;
            st->accepted_by[TERN_DRAFTER_CHAINS] += n * k;
            st->drafted_length[i] += n;
            st->accepted_length[k] += n;
            st->accepted_of[i] += n * k;
        }
}

void tern_device_drafts_ran(tern_speculator *sp, const tern_drafting *q, double seconds) {
    tern_device_drafts *d = &sp->device;
    tern_device_arm *a = &d->arms[d->now];
    size_t n_each = (size_t)q->n_each;
    if (d->n_idle > 0)
        d->n_idle--;
    else {
        a->seconds = a->seconds * MEMORY + seconds;
        a->runs = a->runs * MEMORY + q->n_runs;
        d->n_trial_runs -= q->n_runs;
        sp->run_seconds[n_each] = seconds_of(a);
    }
    if (n_each == (size_t)arm_tokens[d->n_arms - 1]) note_chances(d, q);
    add_stats(&sp->stats, q);
    sp->stats.n_runs[n_each] += (size_t)q->n_runs;
    sp->stats.run_seconds[n_each] += seconds;
}
