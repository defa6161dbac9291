// The two products of attention over a cache of 4-bit codes, and storing them: kernels.h has the
// layout and the definition. Included by attention.inl.
//
// Codes meet numbers of 8 bits, four to a lane and instruction, so that unpacking is cheap, which
// decides how fast this is: floats would need as many instructions as for F16. A query becomes int8
// with a scale for each 32 dimensions. Weights are 15 bits, since many small ones beside a great
// one must not be lost: a high and a low byte, each with sums of its own.

typedef struct q4_query {
    int8_t q[32];
    float scale;
    int32_t minus; // 8 times the numbers' sum, as codes are 8 too great
} q4_query;

typedef struct q4_weights {
    int8_t high[SPAN], low[SPAN]; // a weight is scale * (256 high + low)
    float scale;
    int32_t minus;
} q4_weights;

static q4_query *q4_queries(const attention_tile *t, size_t g) {
    return (q4_query *)(void *)t->q + g * TILE_ROWS;
}

static q4_weights *q4_weights_of(const attention_tile *t, size_t g) {
    return (q4_weights *)(void *)t->w + g * TILE_ROWS;
}

// A query's row r, rotated, times a->scale.
static void q4_set_query(const attention_tile *t, size_t r, const float *q) {
    const size_t head_dim = t->a->head_dim;
    const v16 scale = v16_set1(t->a->scale);
    float x[32];
    hadamard(t->acc, q, NULL, head_dim, kv_rotation(head_dim)); // acc is free until the end
    for (size_t g = 0; g < kv_groups(head_dim); g++) {
        q4_query *to = q4_queries(t, g) + r;
        v16_store(x, v16_mul(v16_load(t->acc + 32 * g), scale));
        v16_store(x + 16, v16_mul(v16_load(t->acc + 32 * g + 16), scale));
        to->scale = quantize_group(to->q, x, 32);
        to->minus = 0;
        for (size_t i = 0; i < 32; i++) to->minus += 8 * to->q[i];
    }
}

// Scores of a block's 16 positions with group g of all rows.
VEC_INLINE void q4_score_group(const attention_tile *t, size_t c, size_t g) {
    const uint8_t *codes = q4_codes(t->k[c], t->a->head_dim) + 256 * g;
    const v16 scale = v16_from_f16(t->k[c] + 32 * g);
    const q4_query *query = q4_queries(t, g);
    vec_codes low[4], high[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        low[i] = vec_codes_load(codes + 64 * i, false);
        high[i] = vec_codes_load(codes + 64 * i, true);
        __builtin_prefetch(t->v[c] + 288 * g + 72 * i, 0, 2); // all of the block, but for gaps
    }
    for (size_t r = 0; r < t->n_rows; r++) {
        const q4_query *q = query + r;
        float *s = t->s + r * SPAN + 16 * c;
        vec_sums a = vec_sums_set1(-q->minus), b = vec_sums_set1(0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            a = vec_sums_dot(a, low[i], q->q + 8 * i);
            b = vec_sums_dot(b, high[i], q->q + 8 * i + 4);
        }
        v16 before = g ? v16_load(s) : v16_set1(0);
        v16 factor = v16_mul(scale, v16_set1(q->scale));
        v16_store(s, v16_fma(v16_from_sums(vec_sums_add(a, b)), factor, before));
    }
}

static void q4_scores(const attention_tile *t) {
    for (size_t c = t->first_block; c < t->end_block; c++)
        for (size_t g = 0; g < kv_groups(t->a->head_dim); g++) q4_score_group(t, c, g);
}

// p times the scales of values of group g; what the row does not see has p = 0, whatever its scale.
VEC_INLINE v16 q4_weight(v16 p, const uint8_t *block, size_t g) {
    const v16 zero = v16_set1(0);
    return v16_if_less(zero, p, v16_mul(p, v16_from_f16(block + 32 * g)), zero);
}

// Row r's weights in the span.
static void q4_set_weights(const attention_tile *t, size_t r) {
    const size_t groups = kv_groups(t->a->head_dim);
    const float *p = t->s + r * SPAN, most = 127 * 256;
    v16 top = v16_set1(0);
    for (size_t b = t->first_block; b < t->end_block; b++)
        for (size_t g = 0; g < groups; g++)
            top = v16_max(v16_abs(q4_weight(v16_load(p + 16 * b), t->v[b], g)), top);
    const float largest = v16_top(top);
    const v16 inv = v16_set1(largest > 1e-30f ? most / largest : 0);
    for (size_t g = 0; g < groups; g++) {
        q4_weights *to = q4_weights_of(t, g) + r;
        v16 sum = v16_set1(0);
        for (size_t b = t->first_block; b < t->end_block; b++) {
            v16 n = vec_rint(v16_mul(q4_weight(v16_load(p + 16 * b), t->v[b], g), inv));
            v16_store_bytes(to->high + 16 * b, to->low + 16 * b, n);
            sum = v16_add(sum, n);
        }
        to->scale = largest / most;
        to->minus = 8 * (int32_t)v16_sum(sum); // whole numbers below 2^24
    }
}

// The 32 dimensions of group g of n rows, a constant, from r on.
VEC_INLINE void q4_value_rows(const attention_tile *t, size_t g, size_t r, int n) {
    const q4_weights *w = q4_weights_of(t, g) + r;
    const size_t codes_at = 32 * kv_groups(t->a->head_dim) + 256 * g;
    vec_sums high[VEC_Q4_ROWS][2], low[VEC_Q4_ROWS][2];
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
        high[i][0] = high[i][1] = low[i][0] = low[i][1] = vec_sums_set1(0);
    for (size_t b = t->first_block; b < t->end_block; b++) {
        const uint8_t *codes = t->v[b] + codes_at;
#pragma GCC unroll 1
        for (size_t j = 16 * b; j < 16 * b + 16; j += 4, codes += 64) {
            const vec_codes c[2] = {vec_codes_load(codes, false), vec_codes_load(codes, true)};
            __builtin_prefetch(t->next_k[b] + 288 * g + j % 16 * 18, 0, 2);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
#pragma GCC unroll 2
                for (int half = 0; half < 2; half++) {
                    high[i][half] = vec_sums_dot(high[i][half], c[half], w[i].high + j);
                    low[i][half] = vec_sums_dot(low[i][half], c[half], w[i].low + j);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        float *acc = t->acc + (r + (size_t)i) * t->hd16 + 32 * g;
        const v16 scale = v16_set1(w[i].scale);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            vec_sums sum = vec_sums_add(vec_sums_set1(-w[i].minus), low[i][half]);
            sum = vec_sums_add(vec_sums_shift_8(high[i][half]), sum);
            v16_store(acc + 16 * half,
                      v16_fma(v16_from_sums(sum), scale, v16_load(acc + 16 * half)));
        }
    }
}

static bool sees_nothing(const attention_tile *t, size_t r) {
    attention_range sees = sees_in_span(t, r);
    return sees.begin >= sees.end;
}

// Rows that see nothing of the span are left as they are; they are the first or the last ones.
static void q4_values(const attention_tile *t) {
    size_t first = 0, last = t->n_rows;
    while (first < last && sees_nothing(t, first)) first++;
    while (last > first && sees_nothing(t, last - 1)) last--;
    for (size_t r = first; r < last; r++) q4_set_weights(t, r);
    for (size_t g = 0; g < kv_groups(t->a->head_dim); g++)
        for (size_t r = first, n; r < last; r += n) {
            n = last - r < VEC_Q4_ROWS ? last - r : VEC_Q4_ROWS;
            switch (n) {
#define ROWS(n)                                                                                    \
    case n: q4_value_rows(t, g, r, (n) <= VEC_Q4_ROWS ? (n) : 1); break;
                ROWS(1)
                ROWS(2)
                ROWS(3)
                ROWS(4)
#undef ROWS
            }
        }
}

// ---- Storing -----------------------------------------------------------------------------------

// 32 numbers as codes 0 .. 15 around 8, and the scale: -1/8 of the one farthest from 0, which gets
// the code 0, as the range reaches farther down than up.
static void quantize_group_4(uint8_t q[32], uint16_t *scale, const float *x) {
    v16 a = v16_load(x), b = v16_load(x + 16), zero = v16_set1(0);
    float up = v16_top(v16_max(a, v16_max(b, zero)));
    float down = v16_top(v16_max(v16_sub(zero, a), v16_max(v16_sub(zero, b), zero)));
    float farthest = (up > down ? up : down) / 8, most = 65504; // of F16
    if (farthest > most) farthest = most;
    *scale = tern_f32_to_f16(up > down ? -farthest : farthest);
    float rounded = tern_f16_to_f32(*scale);
    v16 inv = v16_set1(rounded != 0 ? 1 / rounded : 0);
    v16 low = v16_set1(-8), high = v16_set1(7), middle = v16_set1(8);
    int8_t *codes = (int8_t *)q;
    a = v16_max(v16_min(vec_rint(v16_mul(a, inv)), high), low);
    b = v16_max(v16_min(vec_rint(v16_mul(b, inv)), high), low);
    v16_store_i8(codes, v16_add(a, middle));
    v16_store_i8(codes + 16, v16_add(b, middle));
}

// A byte has two codes of one position, so that threads may store others of the block meanwhile.
static void kv_store_q4_0(const tern_kv_store_args *a) {
    const size_t head_dim = a->head_dim, groups = kv_groups(head_dim), lane = a->lane;
    const size_t block = kv_rotation(head_dim);
    uint16_t *k_scale = a->k, *v_scale = a->v;
    uint8_t *k_q = (uint8_t *)a->k + 32 * groups, *v_q = (uint8_t *)a->v + 32 * groups, q[32];
    float x[KV_ROTATION_MAX];
    for (size_t d = 0; d < head_dim; d += block) {
        hadamard(x, a->key + d, NULL, block, block);
        for (size_t i = 0; i < block; i += 32) {
            uint8_t *to = k_q + (d + i) * 8 + lane * 4;
            quantize_group_4(q, &k_scale[(d + i) / 32 * 16 + lane], x + i);
            for (size_t j = 0; j < 4; j++)
                for (size_t n = 0; n < 4; n++)
                    to[64 * j + n] = (uint8_t)(q[8 * j + n] | q[8 * j + 4 + n] << 4);
        }
        hadamard(x, a->value + d, NULL, block, block);
        for (size_t i = 0; i < block; i += 32) {
            uint8_t *to = v_q + (d + i) * 8 + lane / 4 * 64 + lane % 4;
            quantize_group_4(q, &v_scale[(d + i) / 32 * 16 + lane], x + i);
            for (size_t j = 0; j < 16; j++) to[4 * j] = (uint8_t)(q[j] | q[16 + j] << 4);
        }
    }
}
