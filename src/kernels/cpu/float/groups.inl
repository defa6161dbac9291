// The inputs of products with codes in groups (grouped/grouped.h): int8 activations with a scale
// for each 64, and Walsh-Hadamard transforms.

VEC_INLINE float largest_of_64(const float *x) {
    v16 top = v16_set1(0); // a NaN never gets into it: the second operand of max wins
    for (size_t i = 0; i < 64; i += 16) top = v16_max(v16_abs(v16_load(x + i)), top);
    return v16_top(top);
}

VEC_INLINE v16 code_of_group(v16 x, float inverse) {
    v16 a = vec_rint(v16_mul(x, v16_set1(inverse)));
    return v16_max(v16_min(a, v16_set1(127)), v16_set1(-127)); // NaN is 127
}

static void quantize_64(int8_t *q, float *scale, int32_t *minus, const float *x) {
    float largest = largest_of_64(x), inverse = largest > 1e-30f ? 127 / largest : 0;
    for (size_t i = 0; i < 64; i += 16) {
        v16 a = code_of_group(v16_load(x + i), inverse);
        v16_store_i8(q + i, a);
        minus[i / 16] = -(int32_t)v16_sum(a); // exact
    }
    minus[4] = minus[0] + minus[1];
    minus[5] = minus[2] + minus[3];
    minus[6] = minus[4] + minus[5];
    *scale = largest > 1e-30f ? largest / 127 : 0;
}

static void quantize_groups(int8_t *q, float *scale, int32_t *minus, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += 64, minus += 7) quantize_64(q + i, scale++, minus, x + i);
}

#if !defined(TERN_NO_TRAINING)
static void fake_quantize_groups(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += 64) {
        float largest = largest_of_64(x + i), inverse = largest > 1e-30f ? 127 / largest : 0;
        v16 scale = v16_set1(largest > 1e-30f ? largest / 127 : 0);
        for (size_t k = i; k < i + 64; k += 16)
            v16_store(y + k, v16_mul(code_of_group(v16_load(x + k), inverse), scale));
    }
}
#endif

// ---- Walsh-Hadamard ----------------------------------------------------------------------------

// The stages of strides from `stride` on, both in vectors.
VEC_INLINE void butterflies(float *y, size_t n_vectors, size_t stride) {
    for (; stride < n_vectors; stride *= 2)
        for (size_t i = 0; i < n_vectors; i += 2 * stride)
            for (size_t j = i; j < i + stride; j++) {
                v16 a = v16_load(y + 16 * j), b = v16_load(y + 16 * (j + stride));
                v16_store(y + 16 * j, v16_add(a, b));
                v16_store(y + 16 * (j + stride), v16_sub(a, b));
            }
}

static void butterflies_scalar(float *y, size_t n, size_t stride, size_t end) {
    for (; stride < end; stride *= 2)
        for (size_t i = 0; i < n; i++)
            if (!(i & stride)) {
                float a = y[i], b = y[i + stride];
                y[i] = a + b;
                y[i + stride] = a - b;
            }
}

// Turns 16 rows of 16.
VEC_INLINE void turn_tile(float *to, const float *from) {
    v16 rows[VEC_TURN_ROWS];
    for (size_t r = 0; r < 16; r += VEC_TURN_ROWS) {
        for (size_t i = 0; i < VEC_TURN_ROWS; i++) rows[i] = v16_load(from + 16 * (r + i));
        v16_turn(to + r, 16, rows);
    }
}

// The strides inside of a vector become strides of vectors in a turned tile. A block that does not
// fill one is beside zeros there.
static void hadamard_block(float *y, size_t n, float factor) {
    _Alignas(64) float tile[256], part[256];
    float *rows = n < 256 ? part : y;
    butterflies(y, n / 16, 1);
    if (n < 256) {
        memcpy(part, y, n * sizeof *y);
        memset(part + n, 0, (256 - n) * sizeof *y);
    }
    for (size_t at = 0; n >= 16 && at < n; at += 256) {
        turn_tile(tile, rows + at);
        butterflies(tile, 16, 1);
        turn_tile(rows + at, tile);
    }
    if (n < 256) memcpy(y, part, n * sizeof *y);
    if (n < 16) butterflies_scalar(y, n, 1, n);
    for (size_t i = 0; i < n; i += 16)
        store_some(y + i, v16_mul(load_some(y + i, n - i), v16_set1(factor)), n - i);
}

static void hadamard(float *y, const float *x, const float *sign, size_t n, size_t block) {
    const float factor = 1 / sqrtf((float)block);
    for (size_t i = 0; i < n; i += 16) {
        v16 a = load_some(x + i, n - i);
        store_some(y + i, sign ? v16_mul(a, load_some(sign + i, n - i)) : a, n - i);
    }
    for (size_t i = 0; i < n; i += block) hadamard_block(y + i, block, factor);
}
