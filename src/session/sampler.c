// Sampling, in the field's usual order: biases, penalties, top-k, top-p, min-p, temperature, draw.
//
// The candidates are either the k greatest logits or all of them. They are kept in a heap by
// falling logit and popped only as far as the filters reach, so nothing is sorted without need.
#include <math.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/os_time.h"
#include "session/session.h"

tern_sampling tern_sampling_default(void) {
    return (tern_sampling){
        .temperature = -1, .top_k = -1, .top_p = -1, .min_p = -1, .repeat_penalty = -1};
}

// ---- Random numbers: xoshiro256** seeded by splitmix64 (Blackman, Vigna) ------------------------

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t rotl(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

static double uniform(uint64_t s[4]) { // [0, 1)
    uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

// ---- Preparing ---------------------------------------------------------------------------------

static float pick(float asked, float files, float usual) {
    return asked >= 0 ? asked : files >= 0 ? files : usual;
}

// A NaN compares as nothing, so it would pass for the default.
static tern_status refuse_nan(const tern_sampling *p, tern_error *err) {
    const struct {
        const char *name;
        float value;
    } all[] = {{"temperature", p->temperature},
               {"top_p", p->top_p},
               {"min_p", p->min_p},
               {"repeat_penalty", p->repeat_penalty},
               {"frequency_penalty", p->frequency_penalty},
               {"presence_penalty", p->presence_penalty}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (isnan(all[i].value))
            return tern_fail(err, TERN_ERR_ARGUMENT, "sampling: %s is not a number", all[i].name);
    return TERN_OK;
}

tern_status tern_sampler_prepare(tern_sampler *s, const tern_sampling *params,
                                 const tern_model_info *info, tern_error *err) {
    tern_sampling p = params ? *params : tern_sampling_default();
    TERN_TRY(refuse_nan(&p, err));
    p.temperature = pick(p.temperature, info->temperature, 0.8f);
    p.top_k = p.top_k >= 0 ? p.top_k : info->top_k >= 0 ? info->top_k : 40;
    p.top_p = pick(p.top_p, info->top_p, 0.95f);
    p.min_p = pick(p.min_p, info->min_p, 0.05f);
    p.repeat_penalty = pick(p.repeat_penalty, info->repeat_penalty, 1);
    if (p.repeat_penalty == 0) p.repeat_penalty = 1;
    if (p.penalty_window <= 0) p.penalty_window = 64;
    if (!(p.temperature < 1e6f) || !(p.top_p <= 1) || !(p.min_p <= 1) ||
        !isfinite(p.repeat_penalty) || !isfinite(p.frequency_penalty) ||
        !isfinite(p.presence_penalty))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "sampling: temperature %g, top-p %g, min-p %g make no sense",
                         (double)p.temperature, (double)p.top_p, (double)p.min_p);
    if (p.seed == 0) {
        p.seed = tern_random_seed() >> 32; // short enough to type
        if (p.seed == 0) p.seed = 1;
    }
    uint64_t state = p.seed;
    for (int i = 0; i < 4; i++) s->rng[i] = splitmix(&state);
    s->params = p;
    s->n_vocab = info->n_vocab;
    s->has_penalties = p.repeat_penalty != 1 || p.frequency_penalty != 0 || p.presence_penalty != 0;
    return TERN_OK;
}

int32_t tern_sampler_need(const tern_sampler *s) {
    const tern_sampling *p = &s->params;
    int64_t k = p->temperature == 0 ? 1 : p->top_k;
    if (k == 0) return 0;
    for (size_t i = 0; i < s->n_biases; i++) // as with penalties: a raised one may be any token
        if (s->biases[i].bias > 0) return 0;
    k += (int64_t)s->n_biases;
    if (s->has_penalties) {
        // Penalties that only lower a logit promote at most as many other tokens as they hit.
        if (p->repeat_penalty < 1 || p->frequency_penalty < 0 || p->presence_penalty < 0) return 0;
        k += p->penalty_window;
    }
    if (k > s->n_vocab) k = s->n_vocab;
    return k <= TERN_TOP_K_MAX ? (int32_t)k : 0;
}

// ---- Choosing ----------------------------------------------------------------------------------

static bool above(tern_candidate a, tern_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(tern_candidate *heap, size_t n, size_t at) {
    tern_candidate moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && above(heap[child + 1], heap[child])) child++;
        if (!above(heap[child], moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

// Takes the greatest off the heap of n and puts it at its end: after m calls the last m elements
// are the m greatest, the greatest last.
static tern_candidate pop(tern_candidate *heap, size_t n) {
    tern_candidate top = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    sift_down(heap, n - 1, 0);
    return top;
}

// The candidate of a token among n, by its place if these are all of the vocabulary; NULL: none.
static tern_candidate *find(const tern_sampler *s, tern_candidate *c, size_t n, int32_t id) {
    bool by_index = n == (size_t)s->n_vocab && c[0].id == 0;
    size_t at = by_index ? (size_t)id : 0;
    while (at < n && c[at].id != id) at++;
    return at < n ? &c[at] : NULL;
}

static void apply_biases(const tern_sampler *s, tern_candidate *c, size_t n) {
    for (size_t i = 0; i < s->n_biases; i++) {
        tern_candidate *hit = find(s, c, n, s->biases[i].id);
        if (hit) hit->logit += s->biases[i].bias;
    }
}

static void apply_penalties(const tern_sampler *s, tern_candidate *c, size_t n,
                            const int32_t *recent, size_t n_recent) {
    const tern_sampling *p = &s->params;
    size_t window = (size_t)p->penalty_window;
    if (n_recent > window) {
        recent += n_recent - window;
        n_recent = window;
    }
    for (size_t i = 0; i < n_recent; i++) {
        int count = 0; // of this token; counted at its first occurrence only
        for (size_t j = 0; j < n_recent; j++) {
            if (recent[j] != recent[i]) continue;
            if (j < i) break;
            count++;
        }
        if (count == 0) continue;
        tern_candidate *hit = find(s, c, n, recent[i]);
        if (!hit) continue;
        float *logit = &hit->logit;
        *logit = *logit > 0 ? *logit / p->repeat_penalty : *logit * p->repeat_penalty;
        *logit -= (float)count * p->frequency_penalty + p->presence_penalty;
    }
}

static int32_t greatest(const tern_candidate *c, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (above(c[i], c[best])) best = i;
    return c[best].id;
}

int32_t tern_sampler_choose(tern_sampler *s, tern_candidate *c, size_t n, const int32_t *recent,
                            size_t n_recent) {
    const tern_sampling *p = &s->params;
    apply_biases(s, c, n);
    if (s->has_penalties) apply_penalties(s, c, n, recent, n_recent);
    if (p->temperature == 0) return greatest(c, n);
    for (size_t i = n / 2; i-- > 0;) sift_down(c, n, i);
    size_t limit = p->top_k > 0 && (size_t)p->top_k < n ? (size_t)p->top_k : n;
    float max = c[0].logit;
    // Top-p and min-p look at probabilities over what top-k left.
    double sum = 0;
    bool filter_p = p->top_p > 0 && p->top_p < 1;
    if (limit == n)
        for (size_t i = 0; filter_p && i < n; i++) sum += exp((double)(c[i].logit - max));
    double reached = 0;
    size_t n_taken = 0;
    if (limit < n && filter_p) { // pop all of them first: the sum is over these
        for (; n_taken < limit; n_taken++) sum += exp((double)(pop(c, n - n_taken).logit - max));
        size_t kept = 0;
        while (kept < n_taken && (kept == 0 || reached < (double)p->top_p * sum))
            reached += exp((double)(c[n - 1 - kept++].logit - max));
        n_taken = kept;
    } else {
        while (n_taken < limit && (n_taken == 0 || !filter_p || reached < (double)p->top_p * sum)) {
            if (n_taken > 0 && exp((double)(c[0].logit - max)) < (double)p->min_p) break;
            reached += exp((double)(pop(c, n - n_taken++).logit - max));
        }
    }
    while (n_taken > 1 && exp((double)(c[n - n_taken].logit - max)) < (double)p->min_p) n_taken--;
    double total = 0, inverse = 1 / (double)p->temperature;
    for (size_t i = 0; i < n_taken; i++) total += exp((double)(c[n - 1 - i].logit - max) * inverse);
    double draw = uniform(s->rng) * total;
    for (size_t i = 0; i < n_taken; i++) {
        draw -= exp((double)(c[n - 1 - i].logit - max) * inverse);
        if (draw < 0) return c[n - 1 - i].id;
    }
    return c[n - n_taken].id;
}
