// Products with codes in groups for AVX-512 with VNNI.
//
// One token is bound by memory: fields are not shifted down. A field k places up holds 2^k times
// its code, which still fits a byte, and goes to a sum of its own that is divided by 2^k at the end
// of the group. A few tokens share the unpacking, 32 rows at a time: a step of four columns takes
// two registers of codes and broadcasts four activations of each of up to 9 tokens to 18 sums.
// (With 24 sums gcc 12 moves some to memory and back in each step: 12 tokens were slower.) Sums
// begin with minus the group's activations, since a code is the number plus one; codes of one bit
// are taken twice. For more tokens codes are unpacked once: see grouped_wide_avx512.c.
//
// Codes and scales are fetched to the second-level cache AHEAD bytes ahead, no line left out: see
// ternary/ternary_avx512.c.
#include "kernels/cpu/grouped/grouped_avx512.h"

enum { TOKENS = 9 };

GROUPED_INLINE __m512 load_scales(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

// ---- One token ---------------------------------------------------------------------------------

// Codes of 64 columns of 16 rows times activations.
GROUPED_INLINE __m512i group_2bit(const uint8_t *codes, const int8_t *x, int32_t minus_sum) {
    __m512i x1 = _mm512_set1_epi32(minus_sum), x4 = _mm512_setzero_si512(), x16 = x4, x64 = x4;
#define FIELD(k) _mm512_and_si512(v, _mm512_set1_epi8((char)(3 << 2 * (k))))
    for (int i = 0; i < 4; i++, codes += 64, x += 16) {
        __m512i v = _mm512_loadu_si512(codes);
        fetch_line(codes);
        x1 = dot_add(x1, FIELD(0), broadcast4(x));
        x4 = dot_add(x4, FIELD(1), broadcast4(x + 4));
        x16 = dot_add(x16, FIELD(2), broadcast4(x + 8));
        x64 = dot_add(x64, FIELD(3), broadcast4(x + 12));
    }
#undef FIELD
    __m512i low = _mm512_add_epi32(x1, _mm512_srai_epi32(x4, 2));
    return _mm512_add_epi32(low,
                            _mm512_add_epi32(_mm512_srai_epi32(x16, 4), _mm512_srai_epi32(x64, 6)));
}

GROUPED_INLINE __m512i group_1bit(const uint8_t *codes, const int8_t *x, int32_t minus_sum) {
    __m512i zero = _mm512_setzero_si512(), a0 = zero, a1 = _mm512_set1_epi32(minus_sum);
    __m512i a2 = zero, a3 = zero, a4 = zero, a5 = zero, a6 = zero, a7 = zero;
#define FIELD(k) _mm512_and_si512(v, _mm512_set1_epi8((char)(1 << (k))))
#define ADD(k)   a##k = dot_add(a##k, FIELD(k), broadcast4(x + 4 * (k)));
    for (int i = 0; i < 2; i++, codes += 64, x += 32) {
        __m512i v = _mm512_loadu_si512(codes);
        fetch_line(codes);
        ADD(0) ADD(1) ADD(2) ADD(3) ADD(4) ADD(5) ADD(6) ADD(7)
    }
#undef ADD
#undef FIELD
    a0 = _mm512_add_epi32(_mm512_add_epi32(a0, a0), a1); // twice the code, as in two bits
    a2 = _mm512_add_epi32(_mm512_srai_epi32(a2, 1), _mm512_srai_epi32(a3, 2));
    a4 = _mm512_add_epi32(_mm512_srai_epi32(a4, 3), _mm512_srai_epi32(a5, 4));
    a6 = _mm512_add_epi32(_mm512_srai_epi32(a6, 5), _mm512_srai_epi32(a7, 6));
    return _mm512_add_epi32(_mm512_add_epi32(a0, a2), _mm512_add_epi32(a4, a6));
}

GROUPED_INLINE __m512 block_times_one(const tern_grouped_matrix *w, const uint8_t *block,
                                      const tern_grouped_rows *x, bool two_bits, size_t group) {
    const size_t bytes = two_bits ? 256 : 128;
    const uint8_t *scales = block + tern_grouped_code_bytes(w);
    __m512 sum = _mm512_setzero_ps(), scale = sum;
    for (size_t g = 0; g < w->n_in / TERN_GROUP; g++, block += bytes) {
        if (group == TERN_GROUP || g % 2 == 0) {
            fetch_line(scales);
            scale = load_scales(scales);
            scales += 32;
        }
        const int8_t *q = x->q + g * TERN_GROUP;
        __m512i acc = two_bits ? group_2bit(block, q, x->minus[g * TERN_GROUP_PARTS + 6])
                               : group_1bit(block, q, x->minus[g * TERN_GROUP_PARTS + 6]);
        __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), _mm512_set1_ps(x->scale[g]));
        sum = _mm512_add_ps(sum, _mm512_mul_ps(scale, product));
    }
    return sum;
}

static void multiply_one(const tern_grouped_matrix *w, const tern_grouped_rows *x,
                         const tern_product *to) {
    for (size_t row = to->first; row < to->last; row += TERN_GROUPED_ROWS) {
        const uint8_t *block = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
        __m512 sum = w->bits == 1             ? block_times_one(w, block, x, false, w->group)
                     : w->group == TERN_GROUP ? block_times_one(w, block, x, true, TERN_GROUP)
                                              : block_times_one(w, block, x, true, 128);
        put_16(to->out + row, sum, rows_left(row, to->last), to->accumulate);
    }
}

// ---- A few tokens ------------------------------------------------------------------------------

#define EACH_TOKEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

typedef struct tile_args {
    const tern_grouped_matrix *w;
    const uint8_t *a, *b; // blocks of rows
    __mmask16 mask_a, mask_b;
    const int8_t *q;
    const float *scale;
    const int32_t *minus; // of the first 64
    float *out;           // of the first row and token
    size_t out_stride;
    bool accumulate;
} tile_args;

// Codes of step `s` of 64 bytes: a number of two bits, also of one-bit codes.
GROUPED_INLINE __m512i field_codes(__m512i v, int s, bool two_bits) {
    if (two_bits)
        return _mm512_and_si512(_mm512_srli_epi16(v, 2 * (unsigned)s), _mm512_set1_epi8(3));
    __m512i twice = s == 0 ? _mm512_add_epi8(v, v) : _mm512_srli_epi16(v, (unsigned)s - 1);
    return _mm512_and_si512(twice, _mm512_set1_epi8(2));
}

// All n (a constant) tokens times 32 rows. Every sum has a name, since gcc 12 keeps arrays in
// memory.
GROUPED_INLINE void tile(const tile_args *g, int n, bool two_bits) {
    const size_t n_groups = g->w->n_in / TERN_GROUP, bytes = two_bits ? 256 : 128;
    const uint8_t *a = g->a, *b = g->b, *scales_a = a + tern_grouped_code_bytes(g->w);
    const uint8_t *scales_b = b + tern_grouped_code_bytes(g->w);
    const int8_t *x = g->q;
    const int n_steps = two_bits ? 4 : 8;
    _Alignas(64) float sums[TOKENS][32];
    memset(sums, 0, sizeof sums[0] * (size_t)n);
    for (size_t k = 0; k < n_groups; k++) {
        const float *scale = g->scale + k * (size_t)n;
        const int32_t *minus = g->minus + k * TERN_GROUP_PARTS * (size_t)n;
        size_t at = k * TERN_GROUP / g->w->group * 32;
#define DECLARE(t) __m512i a##t = _mm512_set1_epi32(minus[(t) < n ? (t) : 0]), b##t = a##t;
#define MULTIPLY(t)                                                                                \
    if ((t) < n) {                                                                                 \
        __m512i q = broadcast4(x + (t)*4);                                                         \
        a##t = dot_add(a##t, wa, q);                                                               \
        b##t = dot_add(b##t, wb, q);                                                               \
    }
#define ADD_UP(t)                                                                                  \
    if ((t) < n) {                                                                                 \
        __m512 s = _mm512_set1_ps(scale[t]);                                                       \
        __m512 pa = _mm512_mul_ps(scale_a, _mm512_mul_ps(_mm512_cvtepi32_ps(a##t), s));            \
        __m512 pb = _mm512_mul_ps(scale_b, _mm512_mul_ps(_mm512_cvtepi32_ps(b##t), s));            \
        _mm512_store_ps(sums[t], _mm512_add_ps(_mm512_load_ps(sums[t]), pa));                      \
        _mm512_store_ps(sums[t] + 16, _mm512_add_ps(_mm512_load_ps(sums[t] + 16), pb));            \
    }
        EACH_TOKEN(DECLARE)
        for (size_t v = 0; v < bytes; v += 64, a += 64, b += 64) {
            __m512i va = _mm512_loadu_si512(a), vb = _mm512_loadu_si512(b);
            fetch_line(a), fetch_line(b);
#pragma GCC unroll 8
            for (int s = 0; s < n_steps; s++, x += n * 4) {
                __m512i wa = field_codes(va, s, two_bits), wb = field_codes(vb, s, two_bits);
                EACH_TOKEN(MULTIPLY)
            }
        }
        __m512 scale_a = load_scales(scales_a + at), scale_b = load_scales(scales_b + at);
        fetch_line(scales_a + at), fetch_line(scales_b + at);
        EACH_TOKEN(ADD_UP)
    }
    for (int t = 0; t < n; t++) {
        float *y = g->out + (size_t)t * g->out_stride;
        put_16(y, _mm512_load_ps(sums[t]), g->mask_a, g->accumulate);
        if (g->mask_b) put_16(y + 16, _mm512_load_ps(sums[t] + 16), g->mask_b, g->accumulate);
    }
}

#define TILE_OF(name, two_bits, n)                                                                 \
    static void name##_##n(const tile_args *g) { tile(g, n, two_bits); }
#define EACH_COUNT(X, name, two_bits)                                                              \
    X(name, two_bits, 1)                                                                           \
    X(name, two_bits, 2)                                                                           \
    X(name, two_bits, 3)                                                                           \
    X(name, two_bits, 4)                                                                           \
    X(name, two_bits, 5)                                                                           \
    X(name, two_bits, 6)                                                                           \
    X(name, two_bits, 7)                                                                           \
    X(name, two_bits, 8)                                                                           \
    X(name, two_bits, 9)
EACH_COUNT(TILE_OF, tile_2bit, true)
EACH_COUNT(TILE_OF, tile_1bit, false)
#define POINTER(name, two_bits, n) name##_##n,
typedef void (*tile_fn)(const tile_args *g);
static const tile_fn tiles[2][TOKENS] = {{EACH_COUNT(POINTER, tile_1bit, false)},
                                         {EACH_COUNT(POINTER, tile_2bit, true)}};

static void multiply_few(const tern_grouped_matrix *w, const tern_grouped_rows *x,
                         const tern_product *to) {
    for (size_t row = to->first; row < to->last; row += 32) {
        const uint8_t *a = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
        const bool both = row + 16 < to->last;
        tile_args g = {.w = w,
                       .a = a,
                       .b = both ? a + w->block_bytes : a,
                       .mask_a = rows_left(row, to->last),
                       .mask_b = rows_left(row + 16, to->last),
                       .q = x->q,
                       .scale = x->scale,
                       .minus = x->minus + 6 * x->n_tokens,
                       .out = to->out + row,
                       .out_stride = to->stride,
                       .accumulate = to->accumulate};
        tiles[w->bits - 1][x->n_tokens - 1](&g);
    }
}

static void multiply(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                     const tern_product *to) {
    if (tern_grouped_is_wide(w) || x->n_tokens > x->block)
        tern_grouped_wide_avx512(w, x, scratch, to);
    else if (x->n_tokens == 1)
        multiply_one(w, x, to);
    else
        multiply_few(w, x, to);
}

const tern_grouped_kernels tern_grouped_kernels_avx512 = {
    .name = "avx512", .block_tokens = 6, .few_tokens = TOKENS, .multiply = multiply};
