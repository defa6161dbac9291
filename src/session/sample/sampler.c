// Sampling as most answers need it: biases, penalties, top-k, top-p, min-p, temperature, a draw.
// sample_filter.c has all samplers in any order, sampling.c the meaning of their parameters.
//
// The candidates are either the k greatest logits or all of them. They are kept in a heap by
// falling logit and popped only as far as the filters reach, so nothing is sorted without need.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"

// ---- Random numbers: xoshiro256** (Blackman, Vigna) ---------------------------------------------

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

double tern_sampler_uniform(tern_sampler *sampler) {
    uint64_t *s = sampler->rng, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

// ---- What it needs -----------------------------------------------------------------------------

// Returns how many of the greatest logits the samplers need, 0: all. It needs all if a sampler
// before top-k does; temperature alone does not change the order.
static int64_t need_of_samplers(const tern_sampler *s) {
    const tern_sampling *p = &s->params;
    if (p->mirostat) return p->temperature == 0 ? 1 : 0;
    for (const char *at = p->samplers; *at; at++) {
        switch (*at) {
        case 's':
            if (p->top_n_sigma > 0) return 0;
            break;
        case 'y':
            if (p->typical_p > 0 && p->typical_p < 1) return 0;
            break;
        case 'x':
            if (p->xtc_probability > 0 && p->xtc_threshold <= 0.5f) return 0;
            break;
        case 'p':
            if (p->top_p < 1) return 0;
            break;
        case 't':
            if (p->dynatemp_range > 0) return 0;
            break;
        case 'k':
            if (p->top_k > 0) return p->top_k;
            break;
        case 'm': // commutes with top-k
        default: break;
        }
    }
    return 0;
}

// The same if temperature 0 or top_p 0 leaves only the greatest.
static bool is_greedy(const tern_sampler *s) {
    const tern_sampling *p = &s->params;
    if (p->mirostat) return p->temperature == 0;
    for (const char *at = p->samplers; *at; at++) {
        if (*at == 'y' && p->typical_p > 0 && p->typical_p < 1) return false;
        if (*at == 'x' && p->xtc_probability > 0 && p->xtc_threshold <= 0.5f) return false;
        if (*at == 't' && p->temperature == 0 && p->dynatemp_range == 0) return true;
        if (*at == 'p' && p->top_p == 0) return true;
        if (*at == 'k' && p->top_k == 1) return true;
    }
    return false;
}

static int32_t find_need(const tern_sampler *s, int32_t n_context) {
    const tern_sampling *p = &s->params;
    int64_t k = is_greedy(s) ? 1 : need_of_samplers(s);
    if (k == 0 || s->n_excluded > TERN_TOP_K_MAX) return 0;
    k += (int64_t)s->n_excluded;
    for (size_t i = 0; i < s->n_biases; i++) // as with penalties: a raised one may be any token
        if (s->biases[i].bias > 0) return 0;
    k += (int64_t)s->n_biases;
    if (s->has_penalties) {
        // Penalties that only lower a logit promote at most as many other tokens as they hit.
        if (p->repeat_penalty < 1 || p->frequency_penalty < 0 || p->presence_penalty < 0) return 0;
        k += p->penalty_window;
    }
    if (s->has_dry)
        k += p->dry_penalty_last_n < 0 || p->dry_penalty_last_n > n_context ? n_context
                                                                            : p->dry_penalty_last_n;
    if (k > s->n_vocab) k = s->n_vocab;
    return k <= TERN_TOP_K_MAX ? (int32_t)k : 0;
}

int32_t tern_sampler_need(const tern_sampler *s) { return s->need; }

tern_status tern_sampler_reserve(tern_sampler *s, const tern_model *m,
                                 const tern_generate_params *params, int32_t n_context,
                                 tern_error *err) {
    const size_t n_vocab = (size_t)s->n_vocab, n = (size_t)n_context;
    s->need = find_need(s, n_context);
    if (s->has_penalties || s->has_dry) {
        if (tern_array_reserve(TERN_MEM_SESSION, &s->counts, &s->counts_capacity, 0, n_vocab) != 0)
            return tern_fail_memory(err, n_vocab * sizeof *s->counts);
        memset(s->counts, 0, n_vocab * sizeof *s->counts);
    }
    if (!s->has_dry) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &s->repeats, &s->repeats_capacity, 0, n + 1) != 0)
        return tern_fail_memory(err, n * sizeof *s->repeats);
    return tern_breakers_open(&s->breakers, m, params, err);
}

void tern_sampler_free(tern_sampler *s) {
    tern_free(s->counts);
    tern_free(s->repeats);
    tern_breakers_free(&s->breakers);
}

// ---- Choosing ----------------------------------------------------------------------------------

static void sift_down(tern_candidate *heap, size_t n, size_t at) {
    tern_candidate moving = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && tern_candidate_above(heap[child + 1], heap[child])) child++;
        if (!tern_candidate_above(heap[child], moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

void tern_candidates_heap(tern_candidate *c, size_t n) {
    for (size_t i = n / 2; i-- > 0;) sift_down(c, n, i);
}

tern_candidate tern_candidates_pop(tern_candidate *heap, size_t n) {
    tern_candidate top = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    sift_down(heap, n - 1, 0);
    return top;
}

// The candidate of a token among n; NULL: none. If there are more than a top-k gives, they are all
// allowed tokens, by id.
static tern_candidate *find(const tern_sampler *s, tern_candidate *c, size_t n, int32_t id) {
    if (n == (size_t)s->n_vocab && c[0].id == 0) return &c[id];
    size_t first = 0, end = n;
    while (n > TERN_TOP_K_MAX && end - first > 1) {
        const size_t middle = first + (end - first) / 2;
        if (c[middle].id <= id)
            first = middle;
        else
            end = middle;
    }
    while (first < end && c[first].id != id) first++;
    return first < end ? &c[first] : NULL;
}

static void apply_biases(const tern_sampler *s, tern_candidate *c, size_t n) {
    for (size_t i = 0; i < s->n_biases; i++) {
        tern_candidate *hit = find(s, c, n, s->biases[i].id);
        if (hit) hit->logit += s->biases[i].bias;
    }
}

void tern_sampler_penalize(tern_sampler *s, tern_candidate *c, size_t n, const int32_t *recent,
                           size_t n_recent) {
    const tern_sampling *p = &s->params;
    size_t window = (size_t)p->penalty_window;
    if (n_recent > window) {
        recent += n_recent - window;
        n_recent = window;
    }
    for (size_t i = 0; i < n_recent; i++) // rows of images have ids beyond the vocabulary
        if (recent[i] < s->n_vocab) s->counts[recent[i]]++;
    for (size_t i = 0; i < n; i++) {
        const int32_t count = s->counts[c[i].id];
        if (count == 0) continue;
        float *logit = &c[i].logit;
        *logit = *logit > 0 ? *logit / p->repeat_penalty : *logit * p->repeat_penalty;
        *logit -= (float)count * p->frequency_penalty + p->presence_penalty;
    }
    for (size_t i = 0; i < n_recent; i++)
        if (recent[i] < s->n_vocab) s->counts[recent[i]] = 0;
}

static int32_t greatest(const tern_candidate *c, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (tern_candidate_above(c[i], c[best])) best = i;
    return c[best].id;
}

static int32_t choose_plainly(tern_sampler *s, tern_candidate *c, size_t n) {
    const tern_sampling *p = &s->params;
    if (p->temperature == 0 || p->top_p == 0) return greatest(c, n);
    tern_candidates_heap(c, n);
    size_t limit = p->top_k > 0 && (size_t)p->top_k < n ? (size_t)p->top_k : n;
    float max = c[0].logit;
    // Top-p and min-p use probabilities over the candidates that top-k left.
    double sum = 0;
    bool filter_p = p->top_p < 1;
    if (limit == n)
        for (size_t i = 0; filter_p && i < n; i++) sum += exp((double)(c[i].logit - max));
    double reached = 0;
    size_t n_taken = 0;
    if (limit < n && filter_p) { // pop all of them first: the sum is over these
        for (; n_taken < limit; n_taken++)
            sum += exp((double)(tern_candidates_pop(c, n - n_taken).logit - max));
        size_t kept = 0;
        while (kept < n_taken && (kept == 0 || reached < (double)p->top_p * sum))
            reached += exp((double)(c[n - 1 - kept++].logit - max));
        n_taken = kept;
    } else {
        while (n_taken < limit && (n_taken == 0 || !filter_p || reached < (double)p->top_p * sum)) {
            if (n_taken > 0 && exp((double)(c[0].logit - max)) < (double)p->min_p) break;
            reached += exp((double)(tern_candidates_pop(c, n - n_taken++).logit - max));
        }
    }
    while (n_taken > 1 && exp((double)(c[n - n_taken].logit - max)) < (double)p->min_p) n_taken--;
    double total = 0, inverse = 1 / (double)p->temperature;
    for (size_t i = 0; i < n_taken; i++) total += exp((double)(c[n - 1 - i].logit - max) * inverse);
    double draw = tern_sampler_uniform(s) * total;
    for (size_t i = 0; i < n_taken; i++) {
        draw -= exp((double)(c[n - 1 - i].logit - max) * inverse);
        if (draw < 0) return c[n - 1 - i].id;
    }
    return c[n - n_taken].id;
}

int32_t tern_sampler_choose(tern_sampler *s, tern_candidate *c, size_t n, const int32_t *recent,
                            size_t n_recent) {
    apply_biases(s, c, n);
    if (!s->is_plain) {
        tern_candidates_left left = tern_sampler_filter(s, c, n, recent, n_recent);
        return tern_sampler_draw(s, &left);
    }
    if (s->has_penalties) tern_sampler_penalize(s, c, n, recent, n_recent);
    return choose_plainly(s, c, n);
}
