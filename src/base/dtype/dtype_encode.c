// Encoders. The layouts are described in dtype_decode.c.
//
// The K types choose scales by search: for each of some twenty candidate scales a sub-block is
// rounded, the best scale (and minimum) for that rounding is computed by weighted least squares,
// and the candidate with the least weighted error wins. Large weights matter more for the output
// than small ones, so an error counts in proportion to the weight's square (Q6_K) or to its size
// (Q4_K, Q5_K).
//
// Input may hold anything: numbers that are not finite count as zero, and scales stay in f16's
// range.
#include "base/dtype/dtype.h"
#include "base/dtype/half.h"

#include <math.h>

static void write_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

// A scale's bits, and the value that a reader gets.
static uint16_t to_f16(float d, float *read) {
    uint16_t h = tern_f32_to_f16(fminf(fmaxf(d, -65504.0f), 65504.0f));
    *read = tern_f16_to_f32(h);
    return h;
}

static float write_f16(uint8_t *p, float d) {
    float read;
    write_u16(p, to_f16(d, &read));
    return read;
}

static int round_clamp(float x, int low, int high) {
    if (!(x > (float)low)) return low;
    return x >= (float)high ? high : (int)rintf(x);
}

static float inverse(float x) { return x != 0 ? 1 / x : 0; }

// The value of greatest magnitude, with its sign.
static float extreme(const float *x, int n) {
    float e = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(e)) e = x[i];
    }
    return e;
}

static void encode_q8_0(const float *x, uint8_t *b) {
    float inv = inverse(write_f16(b, fabsf(extreme(x, 32)) / 127));
    for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)round_clamp(x[i] * inv, -127, 127);
}

// The extreme weight becomes -8 exactly: that side has one level more.
static void encode_q4_0(const float *x, uint8_t *b) {
    float inv = inverse(write_f16(b, extreme(x, 32) / -8));
    for (int i = 0; i < 16; i++) {
        int low = round_clamp(x[i] * inv, -8, 7) + 8;
        int high = round_clamp(x[16 + i] * inv, -8, 7) + 8;
        b[2 + i] = (uint8_t)(low | high << 4);
    }
}

// The scale s that minimises sum x^2 (x - s q)^2 over q in -32..31. For given q the best s is
// sum(w x q) / sum(w q^2) and leaves an error of sum(w x^2) - sum(w x q)^2 / sum(w q^2).
static float fit_scale(const float *x, int n) {
    float e = extreme(x, n), best = 0, best_gain = 0;
    if (e == 0) return 0;
    for (int step = -9; step <= 9; step++) {
        float inv = -(32 + 0.1f * (float)step) / e;
        float xq = 0, qq = 0;
        for (int i = 0; i < n; i++) {
            float q = (float)round_clamp(x[i] * inv, -32, 31), w = x[i] / e * (x[i] / e);
            xq += w * (x[i] / e) * q;
            qq += w * q * q;
        }
        if (qq > 0 && xq * xq > best_gain * qq) {
            best_gain = xq * xq / qq;
            best = xq / qq * e;
        }
    }
    return best;
}

static void encode_q6_k(const float *x, uint8_t *b) {
    float scale[16], read;
    uint8_t codes[256];
    int8_t steps[16];
    for (int s = 0; s < 16; s++) scale[s] = fit_scale(x + 16 * s, 16);
    uint16_t d = to_f16(extreme(scale, 16) / -128, &read);
    float inv = inverse(read);
    for (int s = 0; s < 16; s++) steps[s] = (int8_t)round_clamp(scale[s] * inv, -128, 127);
    for (int i = 0; i < 256; i++) {
        float each = inverse(read * (float)steps[i / 16]);
        codes[i] = (uint8_t)(round_clamp(x[i] * each, -32, 31) + 32);
    }
    tern_dtype_encode_codes(
        TERN_DTYPE_Q6_K, &(tern_dtype_codes){.codes = codes, .scales = &d, .sub_scales = steps}, b);
}

// The scale s and the minimum m, both >= 0, of 32 weights x = s q - m with q in 0..levels.
static void fit_scale_min(const float *x, int levels, float *scale, float *min) {
    float low = 0, high = 0, squares = 0, best_error = INFINITY;
    for (int i = 0; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
        squares += x[i] * x[i];
    }
    *scale = *min = 0;
    if (!(high - low > 0) || !isfinite(squares)) {
        *scale = (high - low) / (float)levels;
        *min = -low;
        return;
    }
    float base = sqrtf(squares / 32);
    for (int step = -10; step <= 10; step++) {
        float inv = ((float)levels + 0.1f * (float)step) / (high - low);
        // Weighted normal equations of x ~ s q - m.
        float w1 = 0, wq = 0, wqq = 0, wx = 0, wqx = 0;
        float q[32], w[32];
        for (int i = 0; i < 32; i++) {
            q[i] = (float)round_clamp((x[i] - low) * inv, 0, levels);
            w[i] = base + fabsf(x[i]);
            w1 += w[i];
            wq += w[i] * q[i];
            wqq += w[i] * q[i] * q[i];
            wx += w[i] * x[i];
            wqx += w[i] * q[i] * x[i];
        }
        float det = w1 * wqq - wq * wq;
        if (!(det > 0)) continue;
        float s = (w1 * wqx - wq * wx) / det, m = (wq * wqx - wqq * wx) / det;
        if (m < 0) { // the line must pass through zero then
            m = 0;
            s = wqx / wqq;
        }
        float error = 0;
        for (int i = 0; i < 32; i++) {
            float miss = s * q[i] - m - x[i];
            error += w[i] * miss * miss;
        }
        if (s > 0 && error < best_error) {
            best_error = error;
            *scale = s;
            *min = m;
        }
    }
}

static void encode_q45_k(tern_dtype type, const float *x, int levels, uint8_t *b) {
    float scale[8], min[8], d, d_min;
    uint8_t codes[256];
    int8_t steps[8], min_steps[8];
    uint16_t d_bits, min_bits;
    for (int s = 0; s < 8; s++) fit_scale_min(x + 32 * s, levels, &scale[s], &min[s]);
    d_bits = to_f16(extreme(scale, 8) / 63, &d);
    min_bits = to_f16(extreme(min, 8) / 63, &d_min);
    for (int s = 0; s < 8; s++) {
        steps[s] = (int8_t)round_clamp(scale[s] * inverse(d), 0, 63);
        min_steps[s] = (int8_t)round_clamp(min[s] * inverse(d_min), 0, 63);
        float inv = inverse(d * (float)steps[s]), m = d_min * (float)min_steps[s];
        for (int i = 32 * s; i < 32 * s + 32; i++)
            codes[i] = (uint8_t)round_clamp((x[i] + m) * inv, 0, levels);
    }
    tern_dtype_encode_codes(type, &(tern_dtype_codes){codes, &d_bits, &min_bits, steps, min_steps},
                            b);
}

static void encode_q4_k(const float *x, uint8_t *b) { encode_q45_k(TERN_DTYPE_Q4_K, x, 15, b); }
static void encode_q5_k(const float *x, uint8_t *b) { encode_q45_k(TERN_DTYPE_Q5_K, x, 31, b); }

bool tern_dtype_encode(tern_dtype type, const float *x, size_t n, void *out) {
    static void (*const encoders[TERN_DTYPE_COUNT])(const float *, uint8_t *) = {
        [TERN_DTYPE_Q4_0] = encode_q4_0, [TERN_DTYPE_Q8_0] = encode_q8_0,
        [TERN_DTYPE_Q4_K] = encode_q4_k, [TERN_DTYPE_Q5_K] = encode_q5_k,
        [TERN_DTYPE_Q6_K] = encode_q6_k,
    };
    uint8_t *b = out;
    if (type == TERN_DTYPE_F32) {
        memcpy(out, x, n * sizeof *x);
    } else if (type == TERN_DTYPE_F16) {
        for (size_t i = 0; i < n; i++) write_u16(b + 2 * i, tern_f32_to_f16(x[i]));
    } else if (type == TERN_DTYPE_BF16) {
        for (size_t i = 0; i < n; i++) write_u16(b + 2 * i, tern_f32_to_bf16(x[i]));
    } else if (encoders[type]) {
        size_t block_n = tern_dtype_block_n(type), block_bytes = tern_dtype_block_bytes(type);
        for (size_t i = 0; i + block_n <= n; i += block_n, b += block_bytes) {
            float finite[256];
            for (size_t j = 0; j < block_n; j++) finite[j] = isfinite(x[i + j]) ? x[i + j] : 0;
            encoders[type](finite, b);
        }
    } else {
        return tern_dtype_encode_groups(type, x, n, out);
    }
    return true;
}

// ---- Ternary -----------------------------------------------------------------------------------

static uint8_t pack_trits(const int8_t *q, int stride, int n_trits) {
    int v = 0;
    for (int t = 0; t < 5; t++) v = v * 3 + (t < n_trits ? q[t * stride] + 1 : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

static void encode_tq1_0(const int8_t *q, uint8_t *b) {
    for (int i = 0; i < 32; i++) b[i] = pack_trits(q + i, 32, 5);
    for (int i = 0; i < 16; i++) b[32 + i] = pack_trits(q + 160 + i, 16, 5);
    for (int i = 0; i < 4; i++) b[48 + i] = pack_trits(q + 240 + i, 4, 4);
}

static void encode_tq2_0(const int8_t *q, uint8_t *b) {
    for (int i = 0; i < 64; i++) {
        const int8_t *p = q + i / 32 * 128 + i % 32;
        b[i] = (uint8_t)((p[0] + 1) | (p[32] + 1) << 2 | (p[64] + 1) << 4 | (p[96] + 1) << 6);
    }
}

static void encode_i2_s(const int8_t *q, uint8_t *b) {
    for (int i = 0; i < 32; i++) {
        b[i] = (uint8_t)((q[i] + 1) << 6 | (q[32 + i] + 1) << 4 | (q[64 + i] + 1) << 2 |
                         (q[96 + i] + 1));
    }
}

// Types with a form hold ternary weights exactly too, unless a table lacks these numbers: one step
// is the scale. (Fitted encoders put the greatest weight at the end of the range, where -s, 0 and s
// do not all have a code.) With minima they are scale * code - minimum with scale = minimum and
// codes 0, 1, 2.
static void encode_form(tern_dtype type, const int8_t *q, uint16_t scale, uint8_t *b) {
    const tern_dtype_form *f = tern_dtype_form_of(type);
    uint8_t codes[256];
    int8_t ones[16];
    int zero = f->has_minima ? 1 : f->zero;
    memset(ones, 1, sizeof ones);
    for (size_t i = 0; i < tern_dtype_block_n(type); i++) codes[i] = (uint8_t)(q[i] + zero);
    tern_dtype_encode_codes(type, &(tern_dtype_codes){codes, &scale, &scale, ones, ones}, b);
}

bool tern_dtype_holds_ternary(tern_dtype type) {
    const tern_dtype_form *f = tern_dtype_form_of(type);
    bool one_bit = type == TERN_DTYPE_Q1_0 || type == TERN_DTYPE_Q1_0_32;
    bool groups = tern_dtype_group_n(type) > 0 && !one_bit && type != TERN_DTYPE_STQ1_0;
    return type == TERN_DTYPE_I2_S || groups || (f && !f->has_table);
}

void tern_dtype_encode_ternary(tern_dtype type, const int8_t *q, size_t n, float scale, void *out) {
    uint8_t *b = out;
    size_t block_n = tern_dtype_block_n(type), block_bytes = tern_dtype_block_bytes(type);
    float read;
    tern_dtype_encode_group_codes(type, q, n, scale, out);
    for (size_t i = 0; i + block_n <= n; i += block_n, b += block_bytes) {
        if (type == TERN_DTYPE_I2_S)
            encode_i2_s(q + i, b);
        else if (type == TERN_DTYPE_TQ2_0)
            encode_tq2_0(q + i, b);
        else if (type == TERN_DTYPE_TQ1_0)
            encode_tq1_0(q + i, b);
        else if (tern_dtype_form_of(type))
            encode_form(type, q + i, to_f16(scale, &read), b);
        else
            return;
        bool ternary = type == TERN_DTYPE_TQ1_0 || type == TERN_DTYPE_TQ2_0;
        if (ternary) write_f16(b + block_bytes - 2, scale);
    }
}
