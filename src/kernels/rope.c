#include "kernels/rope.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"

// Fills inv_freq, returns the magnitude.
static float set_frequencies(const tern_rope_attrs *a, const float *factors, float *inv_freq) {
    double n = a->n_rot, pi = 3.14159265358979323846;
    float magnitude = 1;
    if (a->scaling == TERN_ROPE_LLAMA3) { // each factor is read before its frequency is written
        tern_rope_llama3_factors(a, inv_freq);
        factors = inv_freq;
    }
    // YaRN (arXiv:2309.00071): dimensions that turn more than beta_fast times over the trained
    // context keep their frequency, those below beta_slow are interpolated, with a ramp between.
    double low = 0, high = 0;
    if (a->scaling == TERN_ROPE_YARN) {
        double scale = n / (2 * log(a->base));
        low = fmax(0, floor(scale * log(a->n_context_orig / (a->beta_fast * 2 * pi))));
        high = fmin(n - 1, ceil(scale * log(a->n_context_orig / (a->beta_slow * 2 * pi))));
        magnitude = a->attn_factor > 0 ? a->attn_factor : (float)(0.1 * log(a->factor) + 1);
    }
    if (a->scaling == TERN_ROPE_LONG && a->attn_factor > 0) magnitude = a->attn_factor;
    for (int i = 0; i < a->n_rot / 2; i++) {
        double k = a->axes == TERN_ROPE_PLANE ? 4 * (i % (a->n_rot / 4)) : 2 * i;
        double f = 1 / (double)powf(a->base, (float)k / (float)n);
        if (a->scaling == TERN_ROPE_LINEAR) f /= a->factor;
        if (factors) f /= factors[i];
        if (a->scaling == TERN_ROPE_PROPORTIONAL && i >= (int)((float)a->n_rot * a->factor) / 2)
            f = 0; // the others stay where they are
        if (a->scaling == TERN_ROPE_YARN) {
            double ramp = (i - low) / fmax(high - low, 0.001);
            ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
            f = f / a->factor * ramp + f * (1 - ramp);
        }
        inv_freq[i] = (float)f;
    }
    return magnitude;
}

static int axis_of(const tern_rope_attrs *a, int32_t pair) {
    if (a->axes == TERN_ROPE_PLANE) return pair < a->n_rot / 4 ? 1 : 2;
    int axis = a->axes == TERN_ROPE_MIXED ? pair % 3 : 0;
    return pair < 3 * a->sections[axis] ? axis : 0;
}

void tern_rope_angles(const tern_rope *r, const int32_t place[3], bool is_long, float *cos_to,
                      float *sin_to, size_t stride) {
    const tern_rope_attrs *a = &r->attrs;
    const float *inv_freq = is_long && r->long_inv_freq ? r->long_inv_freq : r->inv_freq;
    float factor = r->magnitude;
    if (a->growth != 0)
        factor *= (float)(1 + (double)a->growth *
                                  log1p(floor((double)place[0] / (double)a->n_context_orig)));
    for (size_t i = 0; i < (size_t)a->n_rot / 2; i++) {
        float angle = (float)place[axis_of(a, (int32_t)i)] * inv_freq[i];
        cos_to[i * stride] = (float)cos(angle) * factor;
        sin_to[i * stride] = (float)sin(angle) * factor;
    }
}

tern_status tern_rope_list_find(tern_rope_list *list, const tern_node *n, const float *factors,
                                const float *long_factors, int *index, tern_error *err) {
    for (size_t i = 0; i < list->n; i++)
        if (tern_rope_same(&list->items[i].attrs, &n->rope.angles)) {
            *index = (int)i;
            return TERN_OK;
        }
    tern_rope *grown = tern_realloc(TERN_MEM_GRAPH, list->items, (list->n + 1) * sizeof *grown);
    if (!grown) return tern_fail_memory(err, sizeof *grown);
    list->items = grown;
    tern_rope *r = &list->items[list->n];
    *r = (tern_rope){.attrs = n->rope.angles};
    size_t half = (size_t)n->rope.angles.n_rot / 2, n_sets = long_factors ? 2 : 1;
    r->inv_freq = tern_alloc_array(TERN_MEM_GRAPH, n_sets * half, sizeof(float));
    if (!r->inv_freq) return tern_fail_memory(err, (size_t)n->rope.angles.n_rot);
    *index = (int)list->n++;
    r->magnitude = set_frequencies(&r->attrs, factors, r->inv_freq);
    if (!long_factors) return TERN_OK;
    r->long_inv_freq = r->inv_freq + half;
    set_frequencies(&r->attrs, long_factors, r->long_inv_freq);
    return TERN_OK;
}

void tern_rope_list_free(tern_rope_list *list) {
    for (size_t i = 0; i < list->n; i++) tern_free(list->items[i].inv_freq);
    tern_free(list->items);
    *list = (tern_rope_list){0};
}
