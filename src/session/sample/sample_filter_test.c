// The samplers against a second implementation of each, written for clarity: probabilities of a
// whole vocabulary in double precision, sorted by comparison, repetitions found by comparing every
// pair of positions. The definitions are llama.cpp's.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"
#include "tests/support/harness.h"

#define N 3000 // tokens of a vocabulary

typedef struct model { // the remaining candidates, by token
    double logit[N], p[N];
    bool has[N];
    int32_t order[N]; // the remaining tokens, by falling probability
    size_t n;
} model;

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static const model *compared;
static int by_chance(const void *a, const void *b) {
    const int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    const double x = compared->logit[i], y = compared->logit[k];
    return x > y ? -1 : x < y ? 1 : i < k ? -1 : 1;
}

static void settle(model *m) {
    double max = -DBL_MAX, sum = 0;
    m->n = 0;
    for (int32_t i = 0; i < N; i++)
        if (m->has[i]) m->order[m->n++] = i, max = fmax(max, m->logit[i]);
    for (int32_t i = 0; i < N; i++) sum += m->p[i] = m->has[i] ? exp(m->logit[i] - max) : 0;
    for (int32_t i = 0; i < N; i++) m->p[i] /= sum;
    compared = m;
    qsort(m->order, m->n, sizeof *m->order, by_chance);
}

static double entropy(const model *m) {
    double h = 0;
    for (int i = 0; i < N; i++) h -= m->p[i] > 0 ? m->p[i] * log(m->p[i]) : 0;
    return h;
}

static void drop_after(model *m, size_t n) {
    for (size_t i = n; i < m->n; i++) m->has[m->order[i]] = false;
}

static const double *distance;
static int by_distance(const void *a, const void *b) {
    const double x = distance[*(const int32_t *)a], y = distance[*(const int32_t *)b];
    return x < y ? -1 : x > y;
}

static void typical(model *m, double p) {
    static double d[N];
    const double h = entropy(m);
    double sum = 0;
    size_t n = 0;
    for (int i = 0; i < N; i++) d[i] = m->has[i] ? fabs(-log(m->p[i]) - h) : 0;
    distance = d;
    qsort(m->order, m->n, sizeof *m->order, by_distance);
    while (n < m->n && sum <= p) sum += m->p[m->order[n++]];
    drop_after(m, n);
}

static void sigma(model *m, double n_sigma) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < m->n; i++) mean += m->logit[m->order[i]] / (double)m->n;
    for (size_t i = 0; i < m->n; i++)
        variance += pow(m->logit[m->order[i]] - mean, 2) / (double)m->n;
    const double least = m->logit[m->order[0]] - n_sigma * sqrt(variance);
    for (int i = 0; i < N; i++) m->has[i] &= m->logit[i] >= least;
}

static void nucleus(model *m, double p) {
    double sum = 0;
    size_t n = 0;
    while (n < m->n && (n == 0 || sum < p)) sum += m->p[m->order[n++]];
    drop_after(m, n);
}

static void exclude_top(model *m, double threshold) {
    size_t n = 0;
    while (n < m->n && m->p[m->order[n]] >= threshold) n++;
    for (size_t i = 0; i + 1 < n; i++) m->has[m->order[i]] = false;
}

static void penalties(model *m, const tern_sampling *p, const int32_t *recent, size_t n) {
    for (int32_t id = 0; id < N; id++) {
        int count = 0;
        for (size_t i = n > (size_t)p->penalty_window ? n - (size_t)p->penalty_window : 0; i < n;
             i++)
            count += recent[i] == id;
        double *l = &m->logit[id];
        if (!count) continue;
        *l = *l > 0 ? *l / (double)p->repeat_penalty : *l * (double)p->repeat_penalty;
        *l -= count * (double)p->frequency_penalty + (double)p->presence_penalty;
    }
}

// breaker: a token at which repetitions end.
static void dry(model *m, const tern_sampling *p, const int32_t *recent, size_t n,
                int32_t breaker) {
    static int longest[N];
    size_t limit = n;
    if (p->dry_penalty_last_n >= 0 && n > (size_t)p->dry_penalty_last_n)
        recent += n - (size_t)p->dry_penalty_last_n, n = limit = (size_t)p->dry_penalty_last_n;
    for (size_t i = 0; i < n && limit == n; i++)
        if (recent[n - 1 - i] == breaker) limit = i;
    memset(longest, 255, sizeof longest);
    for (size_t at = 1; at < n; at++) { // recent[at] came after ... recent[at - 1]
        size_t same = 0;
        while (same < at && recent[at - 1 - same] == recent[n - 1 - same]) same++;
        const int length = (int)(same < limit ? same : limit);
        if (length > longest[recent[at]]) longest[recent[at]] = length;
    }
    if (n <= (size_t)p->dry_allowed_length || limit < (size_t)p->dry_allowed_length) return;
    for (int id = 0; id < N; id++)
        if (id != breaker && longest[id] >= p->dry_allowed_length)
            m->logit[id] -= (double)p->dry_multiplier *
                            pow((double)p->dry_base, longest[id] - p->dry_allowed_length);
}

static void temper(model *m, const tern_sampling *p) {
    double t = (double)p->temperature, range = (double)p->dynatemp_range;
    if (range > 0 && m->n < 2) return;
    if (range > 0)
        t = fmax(0, t - range) +
            (t + range - fmax(0, t - range)) *
                pow(entropy(m) / log((double)m->n), (double)p->dynatemp_exponent);
    if (t <= 0) drop_after(m, 1);
    for (int i = 0; i < N && t > 0; i++) m->logit[i] /= t;
}

// XTC's first random number decides whether it acts.
static void run_model(model *m, const tern_sampling *p, const int32_t *recent, size_t n,
                      int32_t breaker, double chance) {
    for (const char *at = p->samplers; *at; at++) {
        settle(m);
        if (*at == 'e') penalties(m, p, recent, n);
        if (*at == 'd' && p->dry_multiplier > 0) dry(m, p, recent, n, breaker);
        if (*at == 's' && p->top_n_sigma > 0) sigma(m, (double)p->top_n_sigma);
        if (*at == 'k' && p->top_k > 0) drop_after(m, (size_t)p->top_k);
        if (*at == 'y' && p->typical_p > 0 && p->typical_p < 1) typical(m, (double)p->typical_p);
        if (*at == 'p' && p->top_p < 1) nucleus(m, (double)p->top_p);
        if (*at == 'm') // relative to the greatest probability
            for (int i = N - 1; i >= 0; i--)
                m->has[i] &= m->p[i] >= (double)p->min_p * m->p[m->order[0]];
        if (*at == 'x' && m->n > 1 && p->xtc_threshold <= 0.5f && p->xtc_probability > 0 &&
            chance <= (double)p->xtc_probability)
            exclude_top(m, (double)p->xtc_threshold);
        if (*at == 't') temper(m, p);
    }
    settle(m);
}

static float any(uint64_t *random, float least, float most) {
    return least + (most - least) * (float)next(random) / 2147483648.0f;
}

static tern_sampling any_sampling(uint64_t *r) {
    tern_sampling p = tern_sampling_default();
    char order[] = TERN_SAMPLERS;
    p.temperature = next(r) % 4 ? any(r, 0.2f, 2) : 0;
    p.top_k = next(r) % 2 ? 0 : (int32_t)(next(r) % 400);
    p.top_p = next(r) % 3 ? 1 : any(r, 0, 1);
    p.min_p = next(r) % 3 ? 0 : any(r, 0, 0.3f);
    p.repeat_penalty = next(r) % 2 ? 1 : any(r, 0.7f, 1.8f);
    p.frequency_penalty = next(r) % 2 ? 0 : any(r, -1, 1);
    p.penalty_window = 1 + (int32_t)(next(r) % 80);
    p.top_n_sigma = next(r) % 3 ? 0 : any(r, 0.2f, 4);
    p.typical_p = next(r) % 3 ? 1 : any(r, 0.05f, 1);
    p.xtc_probability = next(r) % 2 ? 0 : any(r, 0, 1);
    p.xtc_threshold = any(r, 0.001f, 0.6f);
    p.dynatemp_range = next(r) % 3 ? 0 : any(r, 0, 1);
    p.dynatemp_exponent = any(r, 0.3f, 2);
    p.dry_multiplier = next(r) % 2 ? 0 : any(r, 0.1f, 2);
    p.dry_base = any(r, 1, 2);
    p.dry_allowed_length = (int32_t)(next(r) % 4);
    p.dry_penalty_last_n = next(r) % 2 ? -1 : (int32_t)(next(r) % 90);
    p.seed = 1 + next(r);
    for (size_t i = sizeof order - 2; i > 0 && next(r) % 2; i--) { // shuffled, or fewer
        const size_t k = next(r) % (i + 1);
        const char c = order[i];
        order[i] = order[k], order[k] = c;
    }
    if (next(r) % 4 == 0) order[1 + next(r) % (sizeof order - 2)] = 0;
    memcpy(p.samplers, order, sizeof order);
    return p;
}

static void open_sampler(tern_sampler *s, const tern_sampling *p, int32_t breaker) {
    const tern_model_info info = {.n_vocab = N,
                                  .temperature = -1,
                                  .top_k = -1,
                                  .top_p = -1,
                                  .min_p = -1,
                                  .repeat_penalty = -1};
    tern_model none = {.info = info};
    tern_error err = {0};
    tern_status status = tern_sampler_prepare(s, p, &info, &err);
    if (status == TERN_OK)
        status = tern_sampler_reserve(s, &none, &(tern_generate_params){0}, 100, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    if (s->has_dry) s->breakers.whole[breaker / 64] |= (uint64_t)1 << (breaker % 64);
}

// Seen to fail if typical_p takes one token too few, if XTC drops the least likely of the likely
// tokens, too, if DRY's repetitions go beyond a breaker, and if a sampler is left out of the order.
TEST(samplers_leave_what_they_should) {
    static model m;
    static tern_candidate c[N];
    for (uint64_t seed = 1; seed <= 150; seed++) {
        uint64_t r = seed * 7919;
        int32_t recent[100], breaker = (int32_t)(next(&r) % 20);
        const tern_sampling p = any_sampling(&r);
        tern_sampler s = {0};
        size_t n_right = 0, n_near = 0;
        for (int i = 0; i < 100; i++) recent[i] = (int32_t)(next(&r) % (i % 40 < 20 ? 4 : 20));
        for (int32_t i = 0; i < N; i++) {
            const float logit = any(&r, -4, 4) + (next(&r) % 50 ? 0 : any(&r, 0, 8));
            c[i] = (tern_candidate){logit, i};
            m.logit[i] = (double)logit, m.has[i] = true;
        }
        open_sampler(&s, &p, breaker);
        tern_sampler same = s;
        run_model(&m, &s.params, recent, 100, breaker, tern_sampler_uniform(&same));
        tern_candidates_left left = tern_sampler_filter(&s, c, N, recent, 100);
        double total = 0, max = -DBL_MAX;
        for (size_t i = 0; i < left.n; i++) max = fmax(max, (double)left.c[i].logit);
        for (size_t i = 0; i < left.n; i++)
            total += exp(((double)left.c[i].logit - max) * left.scale);
        for (size_t i = 0; i < left.n; i++) {
            const double chance = exp(((double)left.c[i].logit - max) * left.scale) / total;
            n_right += m.has[left.c[i].id];
            n_near += fabs(chance - m.p[left.c[i].id]) < 1e-5 + 1e-3 * chance;
        }
        CHECK_MSG(left.n > 0 && n_right == left.n && left.n == m.n && n_near == left.n,
                  "%llu: %s left %zu, not %zu; %zu of them right, %zu as likely as they are",
                  (unsigned long long)seed, s.params.samplers, left.n, m.n, n_right, n_near);
        for (int i = 0; i < N && s.counts; i++) CHECK(s.counts[i] == 0);
        tern_sampler_free(&s);
    }
}

// The two ways to the same choice: the samplers are not used where the plain sampler suffices.
TEST(plain_choices_are_those_of_the_filter) {
    static tern_candidate c[N], d[N];
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t r = seed * 104729;
        int32_t recent[100];
        tern_sampling p = tern_sampling_default();
        tern_sampler s = {0};
        p.temperature = next(&r) % 5 ? any(&r, 0.2f, 2) : 0;
        p.top_k = next(&r) % 2 ? 0 : (int32_t)(next(&r) % 400);
        p.top_p = next(&r) % 5 ? any(&r, 0, 1) : (float)(next(&r) % 2);
        p.repeat_penalty = any(&r, 0.8f, 1.5f);
        p.seed = seed;
        for (int i = 0; i < 100; i++) recent[i] = (int32_t)(next(&r) % N);
        for (int32_t i = 0; i < N; i++) c[i] = d[i] = (tern_candidate){any(&r, -4, 9), i};
        open_sampler(&s, &p, 0);
        tern_sampler other = s;
        CHECK(s.is_plain);
        const int32_t id = tern_sampler_choose(&s, c, N, recent, 100);
        other.is_plain = false;
        const int32_t id_of_all = tern_sampler_choose(&other, d, N, recent, 100);
        CHECK_MSG(id == id_of_all, "%llu: %d, not %d", (unsigned long long)seed, (int)id_of_all,
                  (int)id);
        tern_sampler_free(&s);
    }
}

// Mirostat: for a constant distribution the mean surprise converges to tau. Seen to fail if the
// sign of the correction is flipped, and if version 2 keeps the tokens that are more surprising
// than mu.
TEST(mirostat_keeps_the_surprise) {
    static tern_candidate c[N];
    static double chance[N];
    for (int version = 1; version <= 2; version++)
        for (int tau = 2; tau <= 5; tau++) {
            tern_sampling p = tern_sampling_default();
            tern_sampler s = {0};
            double total = 0, surprise = 0;
            p.temperature = 1;
            p.mirostat = version;
            p.mirostat_tau = (float)tau;
            p.seed = 3;
            for (int i = 0; i < N; i++) total += chance[i] = 1 / pow(i + 1, 1.1);
            open_sampler(&s, &p, 0);
            for (int step = 0; step < 350; step++) {
                for (int32_t i = 0; i < N; i++)
                    c[i] = (tern_candidate){(float)log(chance[i] / total), i};
                const double mu = s.mu;
                tern_sampler_choose(&s, c, N, NULL, 0);
                // The surprise among the remaining tokens: mu fell by eta times (surprise - tau).
                if (step >= 100) surprise += (mu - s.mu) / (double)s.params.mirostat_eta + tau;
            }
            CHECK_MSG(fabs(surprise / 250 - tau) < 0.1, "mirostat %d, tau %d: %g", version, tau,
                      surprise / 250);
            tern_sampler_free(&s);
        }
}
