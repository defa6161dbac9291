// All samplers, in any order; and mirostat, which replaces them. Each is defined as in llama.cpp,
// with one difference: candidates that a sampler excludes are gone for those after it.
//
// Sorting is lazy: a sampler that needs the greatest sorts as many as it reaches. Temperature is
// kept as a factor, so that probabilities are always proportional to exp(scale * (logit -
// greatest)).
#include <math.h>
#include <string.h>
#include "session/session.h"

typedef tern_candidates_left candidates;

// In bits. (log2() would bring pages another table.)
static double surprise(double chance) { return -1.4426950408889634 * log(chance); }

// ---- Order -------------------------------------------------------------------------------------

// Makes at least the first k (or all) the greatest, in falling order.
static void sort(candidates *h, size_t k) {
    if (k > h->n) k = h->n;
    if (k <= h->n_sorted) return;
    if (k < 256)
        k = 256; // more are usually needed soon
    else if (k < h->n)
        k *= 8;
    if (k > h->n) k = h->n;
    tern_candidates_heap(h->c, h->n);
    for (size_t i = 0; i < k; i++) tern_candidates_pop(h->c, h->n - i);
    for (size_t i = 0; i < h->n / 2; i++) {
        const tern_candidate c = h->c[i];
        h->c[i] = h->c[h->n - 1 - i];
        h->c[h->n - 1 - i] = c;
    }
    h->n_sorted = k;
}

static float greatest(const candidates *h) {
    float max = h->c[0].logit;
    for (size_t i = 1; i < h->n && !h->n_sorted; i++)
        max = h->c[i].logit > max ? h->c[i].logit : max;
    return max;
}

static double weight(const candidates *h, size_t i, float max) {
    return h->c[i].logit == max ? 1 : exp((double)(h->c[i].logit - max) * h->scale);
}

static double total_of(const candidates *h, float max) {
    double total = 0;
    for (size_t i = 0; i < h->n; i++) total += weight(h, i, max);
    return total;
}

static double entropy_of(const candidates *h, float max, double total) {
    double entropy = 0;
    for (size_t i = 0; i < h->n; i++) {
        const double p = weight(h, i, max) / total;
        if (p > 0) entropy -= p * log(p);
    }
    return entropy;
}

// Keeps those whose logit is at least this.
static void keep_from(candidates *h, double least) {
    size_t n = 0, n_sorted = 0;
    for (size_t i = 0; i < h->n; i++) {
        if ((double)h->c[i].logit < least) continue;
        n_sorted += i < h->n_sorted;
        h->c[n++] = h->c[i];
    }
    h->n = n;
    h->n_sorted = n_sorted;
}

static void keep_first(candidates *h, size_t n) {
    h->n = n;
    if (h->n_sorted > n) h->n_sorted = n;
}

static void leave_first(candidates *h, size_t n) {
    h->c += n;
    h->n -= n;
    h->n_sorted = h->n_sorted > n ? h->n_sorted - n : 0;
}

// ---- Samplers ----------------------------------------------------------------------------------

static void top_n_sigma(candidates *h, double n_sigma) {
    double sum = 0, squares = 0;
    size_t n = 0;
    if (n_sigma <= 0 || h->n < 2) return;
    for (size_t i = 0; i < h->n; i++)
        if (h->c[i].logit > -INFINITY) sum += (double)h->c[i].logit, n++;
    const double mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < h->n; i++) {
        const double d = (double)h->c[i].logit - mean;
        if (h->c[i].logit > -INFINITY) squares += d * d;
    }
    keep_from(h, (double)greatest(h) - n_sigma * (n ? sqrt(squares / (double)n) : 0));
}

static void top_k(candidates *h, size_t k) {
    if (k == 0 || k >= h->n) return;
    sort(h, k);
    keep_first(h, k);
}

// The surprise rises along the sorted list, so the tokens nearest to the expected surprise are
// adjacent: a range that grows on the nearer side, or on the likelier one if both are equally near.
static void typical_p(candidates *h, double p) {
    if (p <= 0 || p >= 1) return;
    sort(h, h->n);
    const float max = h->c[0].logit;
    const double total = total_of(h, max), expected = entropy_of(h, max, total);
    size_t high = 0, low; // [low, high) are taken
    while (high < h->n && -log(weight(h, high, max) / total) < expected) high++;
    low = high;
    for (double sum = 0; sum <= p && (low > 0 || high < h->n);) {
        double above = INFINITY, below = INFINITY;
        if (low > 0) above = fabs(-log(weight(h, low - 1, max) / total) - expected);
        if (high < h->n) below = fabs(-log(weight(h, high, max) / total) - expected);
        const size_t next = low > 0 && !(below < above) ? --low : high++;
        sum += weight(h, next, max) / total;
    }
    keep_first(h, high);
    leave_first(h, low);
}

static void top_p(candidates *h, double p) {
    if (p >= 1) return;
    sort(h, 1);
    const float max = h->c[0].logit;
    const double most = p * total_of(h, max);
    size_t n = 0;
    for (double reached = 0; n < h->n && (n == 0 || reached < most);) {
        sort(h, n + 1);
        reached += weight(h, n++, max);
    }
    keep_first(h, n);
}

static void min_p(candidates *h, double p) {
    if (p > 0) keep_from(h, (double)greatest(h) + log(p) / h->scale);
}

static void xtc(tern_sampler *s, candidates *h) {
    const double probability = (double)s->params.xtc_probability;
    const double threshold = (double)s->params.xtc_threshold;
    if (probability <= 0 || threshold > 0.5 || h->n < 2) return;
    if (tern_sampler_uniform(s) > probability) return;
    const float max = greatest(h);
    const double least = threshold * total_of(h, max);
    size_t n = 0;
    for (sort(h, 1); n < h->n && weight(h, n, max) >= least; n++) sort(h, n + 2);
    if (n > 1) leave_first(h, n - 1);
}

static void temperature(candidates *h, const tern_sampling *p) {
    double t = (double)p->temperature;
    const double range = (double)p->dynatemp_range;
    if (range > 0) {
        if (h->n < 2) return;
        const double least = t > range ? t - range : 0, most = t + range;
        const float max = greatest(h);
        const double entropy = entropy_of(h, max, total_of(h, max)) / log((double)h->n);
        t = least + (most - least) * pow(entropy, (double)p->dynatemp_exponent);
    }
    if (t > 0 && isfinite(h->scale / t)) {
        h->scale /= t;
        return;
    }
    sort(h, 1);
    keep_first(h, 1);
}

// These work on the logits.
static void scale_logits(candidates *h) {
    for (size_t i = 0; i < h->n && h->scale != 1; i++) h->c[i].logit *= (float)h->scale;
    h->scale = 1;
}

candidates tern_sampler_filter(tern_sampler *s, tern_candidate *c, size_t n, const int32_t *recent,
                               size_t n_recent) {
    const tern_sampling *p = &s->params;
    candidates h = {.c = c, .n = n, .scale = 1};
    for (const char *at = p->mirostat ? "t" : p->samplers; *at; at++) {
        switch (*at) {
        case 'e':
            if (!s->has_penalties) break;
            scale_logits(&h);
            tern_sampler_penalize(s, h.c, h.n, recent, n_recent);
            h.n_sorted = 0;
            break;
        case 'd':
            if (!s->has_dry) break;
            scale_logits(&h);
            tern_sampler_dry(s, h.c, h.n, recent, n_recent);
            h.n_sorted = 0;
            break;
        case 's': top_n_sigma(&h, (double)p->top_n_sigma); break;
        case 'k': top_k(&h, (size_t)p->top_k); break;
        case 'y': typical_p(&h, (double)p->typical_p); break;
        case 'p': top_p(&h, (double)p->top_p); break;
        case 'm': min_p(&h, (double)p->min_p); break;
        case 'x': xtc(s, &h); break;
        default: temperature(&h, p);
        }
    }
    return h;
}

// ---- Drawing -----------------------------------------------------------------------------------

static size_t draw(tern_sampler *s, const candidates *h, double *chance) {
    const float max = greatest(h);
    const double total = total_of(h, max);
    double left = tern_sampler_uniform(s) * total;
    size_t i = 0;
    for (; i + 1 < h->n; i++) {
        left -= weight(h, i, max);
        if (left < 0) break;
    }
    *chance = weight(h, i, max) / total;
    return i;
}

// How many tokens mirostat 1 draws from: the number whose surprise is mu in a Zipf distribution
// with the exponent estimated from the likeliest tokens.
static size_t zipf_tokens(const tern_sampler *s, const candidates *h) {
    double products = 0, squares = 0;
    for (size_t i = 0; i + 1 < h->n && i < 99; i++) {
        const double t = log((double)(i + 2) / (double)(i + 1));
        products += t * (double)(h->c[i].logit - h->c[i + 1].logit) * h->scale;
        squares += t * t;
    }
    const double exponent = products / squares, e = exponent - 1;
    const double k = pow(e * exp2(s->mu) / (1 - pow((double)s->n_vocab, -e)), 1 / exponent);
    return !(k >= 1) ? 1 : k < (double)h->n ? (size_t)k : h->n;
}

static void keep_unsurprising(const tern_sampler *s, candidates *h) {
    if (s->params.mirostat == 1) {
        keep_first(h, zipf_tokens(s, h));
        return;
    }
    const float max = h->c[0].logit;
    const double total = total_of(h, max);
    size_t n = 1;
    while (n < h->n && surprise(weight(h, n, max) / total) <= s->mu) n++;
    keep_first(h, n);
}

int32_t tern_sampler_draw(tern_sampler *s, candidates *h) {
    double chance;
    sort(h, h->n); // draws go from the likeliest on, as in the plain sampler
    if (s->params.mirostat && h->n > 1) keep_unsurprising(s, h);
    const size_t i = draw(s, h, &chance);
    if (s->params.mirostat)
        s->mu -=
            (double)s->params.mirostat_eta * (surprise(chance) - (double)s->params.mirostat_tau);
    return h->c[i].id;
}
