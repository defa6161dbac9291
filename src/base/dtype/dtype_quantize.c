// Slow encoders of the types with a form (dtype_codes.c), for files that are made once: they
// minimise
//     sum over a block of weight * (x - what a reader sees)^2.
//
// A group's scale is searched for: for each of some candidates its numbers are rounded, the best
// scale (and minimum) for that rounding is computed by weighted least squares, and the candidate
// that leaves the least error wins. The block's shared numbers come last: the scales (and minima)
// of groups are rounded to steps, each step is compared with its neighbours by the resulting error,
// and the block's scale is fitted to all its numbers again.
//
// The weight is the column's importance from the caller (the mean square of its inputs), times
// sqrt(mean x^2 + x^2) so that equally important columns prefer large numbers; without importances
// it is the root of the mean square plus |x|: large numbers matter more for the output than small
// ones, though not by their square (perplexities of small models, docs/formats.md).
//
// Numbers of a block are divided by its greatest first, so that no square overflows.
#include "base/dtype/dtype.h"
#include "base/dtype/half.h"

#include <math.h>

#define BLOCK_MAX  256
#define GROUP_MAX  128
#define GROUPS_MAX 16

// The numbers of a table's codes, ascending, and the midpoints to the next.
typedef struct number_table {
    int n;
    float numbers[16], halves[15];
    uint8_t codes[16];
} number_table;

typedef struct fit {
    tern_dtype type;
    const tern_dtype_form *form;
    int n, group;                        // elements
    float low, high;                     // limits of q: codes minus the zero
    int sub_low, sub_high, sub_min_high; // steps of scales and minima, if the form has them
    bool min_is_step;
    const number_table *table; // or NULL
    number_table room;
} fit;

// A block being encoded: x = numbers / unit.
typedef struct block {
    float x[BLOCK_MAX], w[BLOCK_MAX], q[BLOCK_MAX];
    float unit;
    float scale[GROUPS_MAX], min[GROUPS_MAX]; // of groups; for types without steps, as read
    int step[GROUPS_MAX], min_step[GROUPS_MAX];
    uint16_t d_bits, m_bits;
    float d, m; // the block's scale and minimum as read, divided by unit
} block;

// ---- Types -------------------------------------------------------------------------------------

static void make_table(fit *t) {
    number_table *o = &t->room;
    const tern_dtype_form *f = t->form;
    for (int v = 0; v < 256; v++) {
        int code = -1;
        for (int c = 15; c >= 0; c--) code = f->table[c] == v ? c : code; // 0 rather than -0
        if (code < 0) continue;
        o->codes[o->n] = (uint8_t)code;
        o->numbers[o->n++] = (float)(v - f->zero);
    }
    for (int i = 0; i + 1 < o->n; i++) o->halves[i] = (o->numbers[i] + o->numbers[i + 1]) / 2;
    t->low = o->numbers[0];
    t->high = o->numbers[o->n - 1];
    t->table = o;
}

static bool fit_of(tern_dtype type, fit *t) {
    const tern_dtype_form *f = tern_dtype_form_of(type);
    *t = (fit){.type = type, .form = f};
    if (!f) return false;
    int bits = type == TERN_DTYPE_Q2_K ? 2 : type == TERN_DTYPE_Q3_K ? 3 : f->bits;
    t->n = (int)tern_dtype_block_n(type);
    t->group = f->group;
    t->low = (float)-f->zero;
    t->high = (float)((1 << bits) - 1 - f->zero);
    if (type == TERN_DTYPE_Q8_0) t->low = -127; // symmetric, as in all writers
    t->sub_low = f->has_minima ? 0 : type == TERN_DTYPE_Q6_K ? -128 : -32;
    t->sub_high = type == TERN_DTYPE_Q6_K ? 127 : type == TERN_DTYPE_Q2_K ? 15 : 31;
    if (type == TERN_DTYPE_Q4_K || type == TERN_DTYPE_Q5_K) t->sub_high = 63;
    t->sub_min_high = t->sub_high;
    t->min_is_step = f->has_minima && f->super;
    if (f->has_table) make_table(t);
    return true;
}

// ---- Rounding ----------------------------------------------------------------------------------

// To the nearest whole number, for magnitudes below 2^22: the sum has no bits for a fraction.
static inline float round_whole(float v) { return v + 0x1.8p23f - 0x1.8p23f; }

static inline float clamp(float v, float low, float high) {
    v = v > low ? v : low;
    return v < high ? v : high;
}

static float nearest_in(const number_table *t, float v) {
    int i = 0;
    for (int k = 0; k < t->n - 1; k++) i += v > t->halves[k];
    return t->numbers[i];
}

// The numbers nearest to (x + min) * inv.
static void round_all(const fit *t, const float *x, int n, float inv, float min, float *q) {
    if (t->table)
        for (int i = 0; i < n; i++) q[i] = nearest_in(t->table, x[i] * inv);
    else
        for (int i = 0; i < n; i++) q[i] = round_whole(clamp((x[i] + min) * inv, t->low, t->high));
}

static float inverse(float x) { return fabsf(x) > 1e-30f ? 1 / x : 0; }

// The error of a group with this scale and minimum, and its numbers in q.
static float error_of(const fit *t, const float *x, const float *w, float scale, float min,
                      float *q) {
    float error = 0;
    round_all(t, x, t->group, inverse(scale), min, q);
    for (int i = 0; i < t->group; i++) {
        float miss = scale * q[i] - min - x[i];
        error += w[i] * miss * miss;
    }
    return error;
}

// The number of greatest magnitude, with its sign.
static float extreme(const float *x, int n) {
    float e = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(e)) e = x[i];
    return e;
}

// ---- Groups ------------------------------------------------------------------------------------

// For given q the best scale is sum(w x q) / sum(w q^2), and leaves an error of sum(w x^2) less
// this gain.
static float gain_of(const fit *t, const float *x, const float *w, float inv, float *scale) {
    float q[GROUP_MAX], xq = 0, qq = 0;
    round_all(t, x, t->group, inv, 0, q);
    for (int i = 0; i < t->group; i++) {
        xq += w[i] * x[i] * q[i];
        qq += w[i] * q[i] * q[i];
    }
    *scale = qq > 0 ? xq / qq : 0;
    return qq > 0 ? xq * (xq / qq) : 0;
}

#define N_CANDIDATES 18

// The greatest number goes to one end of the range, or a little inside, or beyond it: then it is
// clipped, and the others have finer steps.
static float fit_scale(const fit *t, const float *x, const float *w) {
    float e = extreme(x, t->group), best = 0, best_gain = 0, scale;
    const float ends[2] = {t->low, t->high};
    if (fabsf(e) < 1e-20f) return 0;
    for (int side = 0; side < 2; side++) {
        float step = t->table ? ends[side] / 128 : ends[side] > 0 ? 0.1f : -0.1f;
        for (int k = -N_CANDIDATES / 2; k <= N_CANDIDATES; k++) {
            float gain = gain_of(t, x, w, (ends[side] + step * (float)k) / e, &scale);
            if (gain <= best_gain) continue;
            best_gain = gain;
            best = scale;
        }
    }
    for (int i = 0; i < 3; i++) { // the rounding to the scale found may be better still
        float gain = gain_of(t, x, w, inverse(best), &scale);
        if (gain <= best_gain) break;
        best_gain = gain;
        best = scale;
    }
    return best;
}

// The best scale and minimum for given q: normal equations of x = scale * q - min. False: none.
static bool solve(const fit *t, const float *x, const float *w, const float *q, float *scale,
                  float *min) {
    float w1 = 0, wq = 0, wqq = 0, wx = 0, wqx = 0;
    for (int i = 0; i < t->group; i++) {
        w1 += w[i];
        wq += w[i] * q[i];
        wqq += w[i] * q[i] * q[i];
        wx += w[i] * x[i];
        wqx += w[i] * q[i] * x[i];
    }
    float det = w1 * wqq - wq * wq;
    if (!(det > 0)) return false;
    *scale = (w1 * wqx - wq * wx) / det;
    *min = (wq * wqx - wqq * wx) / det;
    if (*min < 0 && t->min_is_step) { // steps of minima have no sign: the line goes through zero
        *min = 0;
        *scale = wqx / wqq;
    }
    return *scale > 0;
}

static void fit_scale_min(const fit *t, const float *x, const float *w, float *scale, float *min) {
    float low = x[0], high = x[0], q[GROUP_MAX], again[GROUP_MAX], s, m;
    for (int i = 1; i < t->group; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (t->min_is_step && low > 0) low = 0;
    *scale = (high > low ? high - low : 0) / t->high;
    *min = -low;
    float best = error_of(t, x, w, *scale, *min, q);
    if (!(high - low > 1e-20f)) return;
    for (int k = -N_CANDIDATES / 2; k <= N_CANDIDATES; k++) {
        round_all(t, x, t->group, (t->high + 0.1f * (float)k) / (high - low), -low, q);
        for (int i = 0; i < 2 && solve(t, x, w, q, &s, &m); i++) {
            float error = error_of(t, x, w, s, m, again);
            if (error >= best) break;
            best = error;
            *scale = s;
            *min = m;
            for (int j = 0; j < t->group; j++) q[j] = again[j];
        }
    }
}

// ---- Blocks ------------------------------------------------------------------------------------

// A 16-bit number, and the value that a reader gets.
static uint16_t put_half(const block *b, float v, float *read) {
    uint16_t h = tern_f32_to_f16(clamp(v * b->unit, -65504, 65504));
    *read = tern_f16_to_f32(h) / b->unit;
    return h;
}

static float round_group(const fit *t, block *b, int g) {
    int at = g * t->group;
    return error_of(t, b->x + at, b->w + at, b->scale[g], b->min[g], b->q + at);
}

static void read_steps(const fit *t, block *b, int g) {
    b->scale[g] = b->d * (float)b->step[g];
    b->min[g] = t->form->has_minima ? b->m * (float)b->min_step[g] : 0;
}

static int step_near(float v, float inv, int low, int high) {
    return (int)round_whole(clamp(v * inv, (float)low, (float)high));
}

// Steps beside the nearest ones may leave less error, since numbers are rounded again.
static float choose_steps(const fit *t, block *b, int g) {
    bool has_minima = t->form->has_minima;
    int s = b->step[g], m = b->min_step[g], best_s = s, best_m = m;
    float best = INFINITY;
    for (int i = -1; i <= 1; i++) {
        for (int j = has_minima ? -1 : 0; j <= has_minima; j++) {
            bool is_step = s + i >= t->sub_low && s + i <= t->sub_high && m + j >= 0 &&
                           m + j <= t->sub_min_high;
            if (!is_step) continue;
            b->step[g] = s + i;
            b->min_step[g] = m + j;
            read_steps(t, b, g);
            float error = round_group(t, b, g);
            if (error >= best) continue;
            best = error;
            best_s = s + i;
            best_m = m + j;
        }
    }
    b->step[g] = best_s;
    b->min_step[g] = best_m;
    read_steps(t, b, g);
    return round_group(t, b, g);
}

// The block's scales are fitted to its numbers: x = d * (step * q) - m * min_step.
static void fit_block(const fit *t, const block *b, float *d, float *m) {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < t->n; i++) {
        int g = i / t->group;
        double w = (double)b->w[i], x = (double)b->x[i];
        double a = (double)b->step[g] * (double)b->q[i], c = -(double)b->min_step[g];
        aa += w * a * a;
        ab += w * a * c;
        bb += w * c * c;
        ax += w * a * x;
        bx += w * c * x;
    }
    double det = aa * bb - ab * ab;
    *d = b->d;
    *m = b->m;
    if (t->form->has_minima && det > 1e-12 * aa * bb) {
        *d = (float)((bb * ax - ab * bx) / det);
        *m = (float)((aa * bx - ab * ax) / det);
    } else if (aa > 0) {
        *d = (float)((ax - ab * (double)b->m) / aa);
    }
    if (!(*d * b->d > 0)) *d = b->d; // a step never has the other sign
    if (!(*m > 0)) *m = b->m;
}

static float take_block_scales(const fit *t, block *b, float d, float m) {
    float error = 0;
    int n_groups = t->n / t->group;
    b->d_bits = put_half(b, d, &b->d);
    b->m_bits = put_half(b, m, &b->m);
    for (int g = 0; g < n_groups; g++) error += choose_steps(t, b, g);
    return error;
}

static void quantize_steps(const fit *t, block *b) {
    int n_groups = t->n / t->group;
    float d = extreme(b->scale, n_groups), m = extreme(b->min, n_groups);
    // If scales have both signs, the greatest in magnitude goes to the side that has one step more.
    d /= (float)(t->sub_low ? t->sub_low : t->sub_high);
    m /= (float)t->sub_min_high;
    b->d_bits = put_half(b, d, &b->d);
    b->m_bits = put_half(b, m, &b->m);
    for (int g = 0; g < n_groups; g++) {
        b->step[g] = step_near(b->scale[g], inverse(b->d), t->sub_low, t->sub_high);
        b->min_step[g] = step_near(b->min[g], inverse(b->m), 0, t->sub_min_high);
    }
    float best = take_block_scales(t, b, b->d, b->m);
    for (int i = 0; i < 2; i++) {
        block next = *b;
        fit_block(t, b, &d, &m);
        float error = take_block_scales(t, &next, d, m);
        if (!(error < best)) break;
        best = error;
        *b = next;
    }
}

// MXFP4's scale is a power of two: here for a form with doubled numbers.
static void quantize_power(const fit *t, block *b) {
    float e = fabsf(extreme(b->x, t->n)) * b->unit, best = INFINITY, q[32];
    int exponent, chosen = 0;
    frexpf(e, &exponent); // e < 2^exponent; the greatest number is 12, finite when times 2^124
    for (int k = exponent - 5; k <= exponent - 2; k++) {
        if (e == 0 || k < -128 || k > 124) continue;
        float error = error_of(t, b->x, b->w, ldexpf(1, k) / b->unit, 0, q);
        if (error >= best) continue;
        best = error;
        chosen = k + 128;
    }
    b->d = ldexpf(1, chosen - 128) / b->unit;
    b->d_bits = (uint16_t)(chosen < 2 ? 0x20 << chosen : (chosen - 1) << 7);
}

static void quantize_block(const fit *t, block *b) {
    const tern_dtype_form *f = t->form;
    for (int g = 0; g < t->n / t->group; g++) {
        int at = g * t->group;
        b->min[g] = 0;
        b->min_step[g] = 0;
        if (t->type == TERN_DTYPE_MXFP4) continue;
        if (f->has_minima)
            fit_scale_min(t, b->x + at, b->w + at, &b->scale[g], &b->min[g]);
        else
            b->scale[g] = fit_scale(t, b->x + at, b->w + at);
    }
    if (f->super) {
        quantize_steps(t, b);
        return;
    }
    if (t->type == TERN_DTYPE_MXFP4)
        quantize_power(t, b);
    else
        b->d_bits = put_half(b, b->scale[0], &b->d);
    b->m_bits = put_half(b, b->min[0], &b->m);
    b->scale[0] = b->d;
    b->min[0] = b->m;
    round_group(t, b, 0);
}

static uint8_t code_of(const fit *t, float q) {
    if (!t->table) return (uint8_t)((int)q + t->form->zero);
    for (int i = 0; i < t->table->n; i++)
        if (t->table->numbers[i] == q) return t->table->codes[i];
    return 0;
}

static void put_block(const fit *t, const block *b, uint8_t *out) {
    uint8_t codes[BLOCK_MAX];
    int8_t steps[GROUPS_MAX], min_steps[GROUPS_MAX];
    uint16_t d = b->d_bits, m = b->m_bits;
    for (int i = 0; i < t->n; i++) codes[i] = code_of(t, b->q[i]);
    for (int g = 0; g < t->n / t->group; g++) {
        steps[g] = (int8_t)b->step[g];
        min_steps[g] = (int8_t)b->min_step[g];
    }
    tern_dtype_encode_codes(t->type, &(tern_dtype_codes){codes, &d, &m, steps, min_steps}, out);
}

// ---- Rows --------------------------------------------------------------------------------------

static void weigh(const fit *t, const float *importance, block *b) {
    int each = importance ? t->n : t->group;
    for (int at = 0; at < t->n; at += each) {
        float squares = 0;
        for (int i = at; i < at + each; i++) squares += b->x[i] * b->x[i];
        float mean = squares / (float)each, root = sqrtf(mean);
        for (int i = at; i < at + each; i++) {
            float x = b->x[i];
            if (importance)
                b->w[i] = importance[i] * sqrtf(mean + x * x);
            else
                b->w[i] = root + fabsf(x);
        }
    }
}

static void take_block(const fit *t, const float *x, const float *importance, block *b) {
    float unit = 0;
    for (int i = 0; i < t->n; i++) {
        b->x[i] = isfinite(x[i]) ? x[i] : 0;
        unit = fmaxf(unit, fabsf(b->x[i]));
    }
    b->unit = unit > 1e-37f ? unit : 1;
    for (int i = 0; i < t->n; i++) b->x[i] = unit > 1e-37f ? b->x[i] / unit : 0;
    weigh(t, importance, b);
}

// Importance of a block, the greatest being 1: columns never seen still count a little.
static const float *scale_importance(const float *from, int n, float *to) {
    float most = 0;
    if (!from) return NULL;
    for (int i = 0; i < n; i++)
        if (isfinite(from[i]) && from[i] > most) most = from[i];
    if (most == 0) return NULL;
    for (int i = 0; i < n; i++)
        to[i] = isfinite(from[i]) && from[i] > 1e-6f * most ? from[i] / most : 1e-6f;
    return to;
}

// ---- Groups with a scale and an offset of 16 bits ----------------------------------------------

static uint16_t to_16(bool is_bf16, float v, float *read) {
    uint16_t bits = is_bf16 ? tern_f32_to_bf16(v) : tern_f32_to_f16(clamp(v, -65504, 65504));
    *read = is_bf16 ? tern_bf16_to_f32(bits) : tern_f16_to_f32(bits);
    return bits;
}

// The best offset for the given numbers and scale.
static float fit_offset(const fit *t, const block *b, float scale) {
    float w1 = 0, miss = 0;
    for (int i = 0; i < t->n; i++) {
        w1 += b->w[i];
        miss += b->w[i] * (b->x[i] - scale * b->q[i]);
    }
    return w1 > 0 ? miss / w1 : 0;
}

void tern_dtype_quantize_affine(const tern_dtype_affine *a, const float *x, size_t n,
                                uint8_t *codes, uint16_t *scales, uint16_t *offsets) {
    fit t = {.n = a->group, .group = a->group, .high = a->bits == 8 ? 255 : 15};
    block b;
    for (size_t i = 0; i + (size_t)t.n <= n; i += (size_t)t.n, codes += t.n) {
        float scale, offset;
        take_block(&t, x + i, NULL, &b);
        fit_scale_min(&t, b.x, b.w, &b.scale[0], &b.min[0]);
        *scales++ = to_16(a->is_bf16, b.scale[0] * b.unit, &scale);
        b.scale[0] = scale / b.unit; // as it is read; the offset compensates the rounding
        round_group(&t, &b, 0);
        *offsets++ = to_16(a->is_bf16, fit_offset(&t, &b, b.scale[0]) * b.unit, &offset);
        b.min[0] = -offset / b.unit;
        round_group(&t, &b, 0);
        for (int k = 0; k < t.n; k++) codes[k] = (uint8_t)b.q[k];
    }
}

// ---- Types -------------------------------------------------------------------------------------

bool tern_dtype_quantize(tern_dtype type, const float *x, const float *importance, size_t n,
                         void *out) {
    fit t;
    block b;
    float room[BLOCK_MAX];
    if (!fit_of(type, &t)) return tern_dtype_encode(type, x, n, out);
    if (type == TERN_DTYPE_Q8_0) return tern_dtype_encode(type, x, n, out); // no search helps it
    size_t bytes = tern_dtype_block_bytes(type);
    uint8_t *to = out;
    for (size_t i = 0; i + (size_t)t.n <= n; i += (size_t)t.n, to += bytes) {
        take_block(&t, x + i, scale_importance(importance ? importance + i : NULL, t.n, room), &b);
        quantize_block(&t, &b);
        put_block(&t, &b, to);
    }
    return true;
}
