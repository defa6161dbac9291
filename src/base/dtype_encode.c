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
#include "base/dtype.h"
#include "base/half.h"

#include <math.h>

static void write_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

// Writes a scale and returns what a reader will see.
static float write_f16(uint8_t *p, float d) {
    d = fminf(fmaxf(d, -65504.0f), 65504.0f);
    uint16_t h = tern_f32_to_f16(d);
    write_u16(p, h);
    return tern_f16_to_f32(h);
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
    float scale[16];
    for (int s = 0; s < 16; s++) scale[s] = fit_scale(x + 16 * s, 16);
    memset(b, 0, 210);
    float d = write_f16(b + 208, extreme(scale, 16) / -128), inv = inverse(d);
    for (int i = 0; i < 256; i++) {
        int s = round_clamp(scale[i / 16] * inv, -128, 127);
        int q = round_clamp(x[i] * inverse(d * (float)s), -32, 31) + 32;
        int half = i / 128, part = i % 128 / 32, at = i % 32;
        b[192 + i / 16] = (uint8_t)s;
        b[half * 64 + part % 2 * 32 + at] |= (uint8_t)((q & 15) << part / 2 * 4);
        b[128 + half * 32 + at] |= (uint8_t)(q >> 4 << part * 2);
    }
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

// high: the fifth bits of Q5_K, or NULL
static void encode_q45_k(const float *x, uint8_t *b, uint8_t *high, uint8_t *low, size_t bytes) {
    float scale[8], min[8];
    int levels = high ? 31 : 15;
    for (int s = 0; s < 8; s++) fit_scale_min(x + 32 * s, levels, &scale[s], &min[s]);
    memset(b, 0, bytes);
    float d = write_f16(b, extreme(scale, 8) / 63), d_min = write_f16(b + 2, extreme(min, 8) / 63);
    for (int s = 0; s < 8; s++) {
        int sc = round_clamp(scale[s] * inverse(d), 0, 63);
        int mi = round_clamp(min[s] * inverse(d_min), 0, 63);
        uint8_t *packed = b + 4;
        if (s < 4) {
            packed[s] |= (uint8_t)sc;
            packed[4 + s] |= (uint8_t)mi;
        } else {
            packed[4 + s] = (uint8_t)((sc & 15) | (mi & 15) << 4);
            packed[s - 4] |= (uint8_t)(sc >> 4 << 6);
            packed[s] |= (uint8_t)(mi >> 4 << 6);
        }
        float inv = inverse(d * (float)sc), m = d_min * (float)mi;
        for (int i = 0; i < 32; i++) {
            int q = round_clamp((x[32 * s + i] + m) * inv, 0, levels);
            low[s / 2 * 32 + i] |= (uint8_t)((q & 15) << s % 2 * 4);
            if (high) high[i] |= (uint8_t)(q >> 4 << s);
        }
    }
}

static void encode_q4_k(const float *x, uint8_t *b) { encode_q45_k(x, b, NULL, b + 16, 144); }
static void encode_q5_k(const float *x, uint8_t *b) { encode_q45_k(x, b, b + 16, b + 48, 176); }

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

// The other block types hold ternary weights exactly, too: a step is the scale. (The encoders above
// fit the greatest weight to the end of their range, where -s, 0 and s do not all have a code.)
static void ternary_q8_0(const int8_t *q, float scale, uint8_t *b) {
    write_f16(b, scale);
    for (int i = 0; i < 32; i++) b[2 + i] = (uint8_t)q[i];
}

static void ternary_q4_0(const int8_t *q, float scale, uint8_t *b) {
    write_f16(b, scale);
    for (int i = 0; i < 16; i++) b[2 + i] = (uint8_t)((q[i] + 8) | (q[16 + i] + 8) << 4);
}

static void ternary_q6_k(const int8_t *q, float scale, uint8_t *b) {
    memset(b, 0, 192);
    memset(b + 192, 1, 16);
    write_f16(b + 208, scale);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, part = i % 128 / 32, at = i % 32, code = q[i] + 32;
        b[half * 64 + part % 2 * 32 + at] |= (uint8_t)((code & 15) << part / 2 * 4);
        b[128 + half * 32 + at] |= (uint8_t)(code >> 4 << part * 2);
    }
}

// Weights are scale * 1 * code - minimum * 1 with scale = minimum and codes 0, 1, 2.
static void ternary_q45_k(const int8_t *q, float scale, uint8_t *b, uint8_t *low, size_t bytes) {
    memset(b, 0, bytes);
    write_f16(b, scale);
    write_f16(b + 2, scale);
    memset(b + 4, 1, 8);
    memset(b + 12, 0x11, 4);
    for (int i = 0; i < 256; i++)
        low[i / 64 * 32 + i % 32] |= (uint8_t)((q[i] + 1) << i / 32 % 2 * 4);
}

static void ternary_q4_k(const int8_t *q, float scale, uint8_t *b) {
    ternary_q45_k(q, scale, b, b + 16, 144);
}
static void ternary_q5_k(const int8_t *q, float scale, uint8_t *b) {
    ternary_q45_k(q, scale, b, b + 48, 176);
}

void tern_dtype_encode_ternary(tern_dtype type, const int8_t *q, size_t n, float scale, void *out) {
    static void (*const others[TERN_DTYPE_COUNT])(const int8_t *, float, uint8_t *) = {
        [TERN_DTYPE_Q4_0] = ternary_q4_0, [TERN_DTYPE_Q8_0] = ternary_q8_0,
        [TERN_DTYPE_Q4_K] = ternary_q4_k, [TERN_DTYPE_Q5_K] = ternary_q5_k,
        [TERN_DTYPE_Q6_K] = ternary_q6_k,
    };
    uint8_t *b = out;
    size_t block_n = tern_dtype_block_n(type), block_bytes = tern_dtype_block_bytes(type);
    tern_dtype_encode_group_codes(type, q, n, scale, out);
    for (size_t i = 0; i + block_n <= n; i += block_n, b += block_bytes) {
        if (type == TERN_DTYPE_I2_S) encode_i2_s(q + i, b);
        else if (type == TERN_DTYPE_TQ2_0) encode_tq2_0(q + i, b);
        else if (type == TERN_DTYPE_TQ1_0) encode_tq1_0(q + i, b);
        else if (others[type]) others[type](q + i, scale, b);
        else return;
        bool ternary = type == TERN_DTYPE_TQ1_0 || type == TERN_DTYPE_TQ2_0;
        if (ternary) write_f16(b + block_bytes - 2, scale);
    }
}
