// Encoders of the types with a scale for each group of small numbers (tern_dtype_group_n). They
// write weights that the type holds exactly, and refuse all others: such weights come from
// training, and rounding other weights to them makes another model. The layouts are described in
// dtype_decode.c.
#include <math.h>
#include <string.h>
#include "base/dtype/dtype.h"
#include "base/dtype/half.h"

static bool is_one_bit(tern_dtype type) {
    return type == TERN_DTYPE_Q1_0 || type == TERN_DTYPE_Q1_0_32;
}

// The numbers that a type has, in the order in which they are tried.
static const int8_t *numbers_of(tern_dtype type, int *n) {
    static const int8_t one_bit[] = {1, -1}, others[] = {0, 1, -1, 2};
    bool two_bits = type == TERN_DTYPE_Q2_0 || type == TERN_DTYPE_PQ2_0;
    *n = is_one_bit(type) ? 2 : two_bits ? 4 : 3;
    return is_one_bit(type) ? one_bit : others;
}

// Numbers q with x = q * d. False: there are none.
static bool find_numbers(tern_dtype type, const float *x, size_t n, float d, int8_t *q) {
    int n_numbers, k = 0;
    const int8_t *numbers = numbers_of(type, &n_numbers);
    for (size_t i = 0; i < n && k < n_numbers; i++) {
        for (k = 0; k < n_numbers && (float)numbers[k] * d != x[i];) k++;
        if (k < n_numbers) q[i] = numbers[k];
    }
    return k < n_numbers;
}

// The scale of a group and its numbers; if both signs fit, plus is taken.
static bool find_group(tern_dtype type, const float *x, size_t n, float *d, int8_t *q) {
    *d = 0;
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        if (a > 0 && (*d == 0 || a < *d)) *d = a;
    }
    if (tern_f16_to_f32(tern_f32_to_f16(*d)) != *d) return false;
    if (find_numbers(type, x, n, *d, q)) return true;
    *d = -*d;
    return find_numbers(type, x, n, *d, q);
}

// Bytes of five numbers in base 3, the first the most significant; the value is scaled by 256 /
// 243, rounded up.
static void put_trits(const int8_t *q, size_t n_bytes, int n_trits, uint8_t *b) {
    for (size_t i = 0; i < n_bytes; i++) {
        int v = 0;
        for (int t = 0; t < 5; t++) v = v * 3 + (t < n_trits ? q[(size_t)t * n_bytes + i] + 1 : 0);
        b[i] = (uint8_t)((v * 256 + 242) / 243);
    }
}

static void put_group(tern_dtype type, const int8_t *q, float d, uint8_t *b) {
    size_t n = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    bool at_end = type == TERN_DTYPE_PTQ1_0 || type == TERN_DTYPE_TQ1_0 || type == TERN_DTYPE_TQ2_0;
    uint16_t scale = tern_f32_to_f16(d);
    uint8_t *codes = at_end ? b : b + 2, *to = at_end ? b + bytes - 2 : b;
    memset(b, 0, bytes);
    to[0] = (uint8_t)scale;
    to[1] = (uint8_t)(scale >> 8);
    if (type == TERN_DTYPE_PTQ1_0) {
        put_trits(q, 16, 5, codes);
        put_trits(q + 80, 8, 5, codes + 16);
        put_trits(q + 120, 2, 4, codes + 24);
    } else if (is_one_bit(type)) {
        for (size_t i = 0; i < n; i++) codes[i / 8] |= (uint8_t)((q[i] > 0) << i % 8);
    } else {
        for (size_t i = 0; i < n; i++) codes[i / 4] |= (uint8_t)((q[i] + 1) << i % 4 * 2);
    }
}

// TQ1_0 and TQ2_0 are written by tern_dtype_encode_ternary, STQ1_0 not at all.
static bool is_written(tern_dtype type) {
    return tern_dtype_group_n(type) && !tern_dtype_is_ternary(type) && type != TERN_DTYPE_STQ1_0;
}

bool tern_dtype_encode_groups(tern_dtype type, const float *x, size_t n, void *out) {
    size_t group = tern_dtype_group_n(type), bytes = tern_dtype_block_bytes(type);
    if (!is_written(type)) return false;
    for (size_t i = 0; i + group <= n; i += group) {
        int8_t q[256];
        float d;
        if (!find_group(type, x + i, group, &d, q)) return false;
        put_group(type, q, d, (uint8_t *)out + i / group * bytes);
    }
    return true;
}

void tern_dtype_encode_group_codes(tern_dtype type, const int8_t *q, size_t n, float scale,
                                   void *out) {
    size_t group = tern_dtype_group_n(type), bytes = tern_dtype_block_bytes(type);
    for (size_t i = 0; is_written(type) && i + group <= n; i += group)
        put_group(type, q + i, scale, (uint8_t *)out + i / group * bytes);
}
