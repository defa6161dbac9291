// Ternary decode kernels for AVX-512 with VNNI and VBMI, and the packers.
//
// vpdpbusd multiplies 64 unsigned bytes (codes 0..2) with 64 signed ones (activations) and adds
// four neighbouring products to each of 16 int32 sums, all exact. A single token is bound by
// memory, so what matters is to spend few instructions on a byte of weights:
// - 2-bit fields are not shifted down. A field k places up holds 4^k times its code, which still
//   fits a byte, and goes to an accumulator of its own that is divided by 4^k at the end.
//   (|acc| <= n_in / 16 * 192 * 128 < 2^31 for n_in <= 2^22, even for the invalid code 3.)
// - a 1.6-bit byte becomes four such fields by one table look-up; what the look-up does not see is
//   85 times the first code, in binary 01010101 or 10101010, and two of its bits are a field too.
// Where unpacking takes time, two rows are worked on at once to load activations once for both.
//
// A core waits for only some twenty cache lines at a time, too few for the memory's speed unless
// lines are brought into the second-level cache long before: by one prefetch a line, in memory
// order, TERN_AHEAD bytes ahead. No line may be skipped, and none prefetched to the first level.
#include "kernels/cpu/ternary/ternary_avx512.h"

#include <string.h>

// ---- Tables of the 1.6-bit packing -------------------------------------------------------------

#define BYTES4(f, b)  f(b), f((b) + 1), f((b) + 2), f((b) + 3)
#define BYTES16(f, b) BYTES4(f, b), BYTES4(f, (b) + 4), BYTES4(f, (b) + 8), BYTES4(f, (b) + 12)
#define BYTES64(f, b)                                                                              \
    BYTES16(f, b), BYTES16(f, (b) + 16), BYTES16(f, (b) + 32), BYTES16(f, (b) + 48)
#define BYTES128(f) BYTES64(f, 0), BYTES64(f, 64)

// m and the byte g = floor(256 (m + 1) / 243) - 1 that stands for it.
#define LOW_PART(m)      (256 * ((m) + 1) / 243 - 1)
#define NUMBER(g)        ((243 * ((g) + 1) - 1) / 256)
#define FIELDS(m)        ((m) / 27 % 3 | (m) / 9 % 3 << 2 | (m) / 3 % 3 << 4 | (m) % 3 << 6)
#define FIELDS_OF_LOW(g) FIELDS(NUMBER(g))

static const _Alignas(64) uint8_t fields_of_low[128] = {BYTES128(FIELDS_OF_LOW)};
static const _Alignas(64) uint8_t low_part[128] = {BYTES128(LOW_PART)};

static tern_t5_table load_table(const uint8_t bytes[128]) {
    return (tern_t5_table){_mm512_load_si512(bytes), _mm512_load_si512(bytes + 64)};
}

tern_t5_table tern_t5_load_table(void) { return load_table(fields_of_low); }

// ---- Packing -----------------------------------------------------------------------------------

// Codes of the 64 elements from i on (a multiple of 64) of a 2-bit row: two fields of a block.
TERN_INLINE __m512i codes_2bit(const uint8_t *row, size_t i) {
    __m512i block = _mm512_broadcast_i64x4(
        _mm256_loadu_si256((const __m256i *)(row + i / TERN_I2S_WEIGHTS * TERN_I2S_BYTES)));
    const __m512i first = _mm512_inserti64x4(_mm512_set1_epi16(6), _mm256_set1_epi16(4), 1);
    const __m512i second = _mm512_inserti64x4(_mm512_set1_epi16(2), _mm256_setzero_si256(), 1);
    return _mm512_and_si512(_mm512_srlv_epi16(block, i & 64 ? second : first), _mm512_set1_epi8(3));
}

// n <= TERN_I8_PAD codes to one or two 1.6-bit pieces. The codes after n are 1.
static void pack_codes(const uint8_t *codes, size_t n, uint8_t *row) {
    const tern_t5_table table = load_table(low_part);
    for (size_t base = 0, m; base < n; base += 5 * m, row += m) {
        m = n - base >= TERN_T5_WEIGHTS ? TERN_T5_BYTES : tern_t5_tail_bytes(n);
        __m512i number = _mm512_loadu_si512(codes + base + m);
        for (size_t k = 2; k < 5; k++) {
            __m512i twice = _mm512_add_epi8(number, number);
            __m512i code = _mm512_loadu_si512(codes + base + k * m);
            number = _mm512_add_epi8(_mm512_add_epi8(twice, number), code);
        }
        __m512i c0 = _mm512_loadu_si512(codes + base);
        __m512i five = _mm512_add_epi8(c0, _mm512_slli_epi16(c0, 2)); // times 5, 17: times 85
        __m512i first = _mm512_add_epi8(five, _mm512_slli_epi16(five, 4));
        _mm512_mask_storeu_epi8(row, ~(__mmask64)0 >> (64 - m),
                                _mm512_add_epi8(first, tern_t5_look_up(&table, number)));
    }
}

static void repack_row(uint8_t *dst, const uint8_t *src, size_t n_in) {
    _Alignas(64) uint8_t codes[TERN_I8_PAD];
    for (size_t base = 0; base < n_in; base += TERN_I8_PAD, src += 160, dst += 128) {
        size_t n = tern_min_size(n_in - base, TERN_I8_PAD);
        for (size_t i = 0; i < n; i += 64) _mm512_store_si512(codes + i, codes_2bit(src, i));
        if (n < TERN_I8_PAD) memset(codes + n, 1, TERN_I8_PAD - n);
        pack_codes(codes, n, dst);
    }
}

static void pack_row(tern_packing packing, const int8_t *q, size_t n_in, uint8_t *row) {
    _Alignas(64) uint8_t codes[TERN_I8_PAD];
    const __m512i one = _mm512_set1_epi8(1), three = _mm512_set1_epi8(3);
    for (size_t base = 0; base < n_in; base += TERN_I8_PAD) {
        size_t n = tern_min_size(n_in - base, TERN_I8_PAD);
        for (size_t i = 0; i < TERN_I8_PAD; i += 64) { // zeros after n: codes 1
            __mmask64 mask = i >= n ? 0 : ~(__mmask64)0 >> (n - i < 64 ? 64 - (n - i) : 0);
            __m512i w = _mm512_maskz_loadu_epi8(mask, q + base + i);
            _mm512_store_si512(codes + i, _mm512_and_si512(_mm512_add_epi8(w, one), three));
        }
        if (packing == TERN_PACK_1_6BIT) {
            pack_codes(codes, n, row + base / 5);
            continue;
        }
        for (size_t i = 0; i < n; i += TERN_I2S_WEIGHTS) {
            const __m256i *c = (const __m256i *)(codes + i);
            __m256i b = _mm256_or_si256(_mm256_slli_epi16(c[0], 6), _mm256_slli_epi16(c[1], 4));
            b = _mm256_or_si256(b, _mm256_or_si256(_mm256_slli_epi16(c[2], 2), c[3]));
            _mm256_storeu_si256((__m256i *)(row + (base + i) / 4), b);
        }
    }
}

// ---- Decode ------------------------------------------------------------------------------------

enum { ROWS = 4, TOKENS = 11 }; // TOKENS: multiplied at once

// 2-bit rows are read by 64 bytes, two blocks: a field then holds 32 elements of the first and 32
// of the second. The same order of activations: for each 256 of them, [field][block][32].
static size_t prepared_stride(size_t n_in) { return (n_in + 255) / 256 * 256; }

static size_t prepared_bytes(tern_packing packing, size_t n_in, size_t n_tokens) {
    return packing == TERN_PACK_2BIT ? prepared_stride(n_in) * n_tokens : 0;
}

static void prepare(tern_packing packing, void *prepared, const tern_i8_rows *x, size_t n_in,
                    size_t first_token, size_t last_token) {
    if (packing != TERN_PACK_2BIT) return;
    int8_t *dst = (int8_t *)prepared + first_token * prepared_stride(n_in);
    for (size_t t = first_token; t < last_token; t++)
        for (size_t i = 0; i < n_in; i += 256, dst += 256)
            for (size_t f = 0; f < 4; f++) {
                const int8_t *src = x->q + t * x->stride + i + f * 32;
                memcpy(dst + f * 64, src, 32);
                if (i + TERN_I2S_WEIGHTS < n_in)
                    memcpy(dst + f * 64 + 32, src + 128, 32);
                else
                    memset(dst + f * 64 + 32, 0, 32);
            }
}

// Lane r of the result is the sum of all 16 lanes of acc[r].
TERN_INLINE __m128i sum_rows(const __m512i acc[ROWS]) {
    __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(acc[0], acc[1]),
                                  _mm512_unpackhi_epi32(acc[0], acc[1]));
    __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(acc[2], acc[3]),
                                  _mm512_unpackhi_epi32(acc[2], acc[3]));
    __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

TERN_INLINE void put_rows(float *out, __m128i acc, int32_t sum, float scale, size_t n_rows,
                          bool accumulate) {
    __mmask8 mask = (__mmask8)((1u << n_rows) - 1);
    __m128 y =
        _mm_mul_ps(_mm_cvtepi32_ps(_mm_sub_epi32(acc, _mm_set1_epi32(sum))), _mm_set1_ps(scale));
    if (accumulate) y = _mm_add_ps(_mm_maskz_loadu_ps(mask, out), y);
    _mm_mask_storeu_ps(out, mask, y);
}

// The kernels below multiply one row, or two rows a and b, with one token or several. They leave
// 16 partial sums of row r and token t in sums[t * ROWS + r]. Accumulators are members of structs
// and not of arrays, since gcc 12 keeps arrays that are walked by unrolled loops in memory.

#define DP(acc, codes, q) ((acc) = tern_dot_add(acc, codes, q))

// One row and one token: sums that are 1, 4, 16 and 64 times too great.
typedef struct fields {
    __m512i x1, x4, x16, x64;
} fields;

TERN_INLINE __m512i join_fields(fields f) {
    __m512i low = _mm512_add_epi32(f.x1, _mm512_srai_epi32(f.x4, 2));
    __m512i high = _mm512_add_epi32(_mm512_srai_epi32(f.x16, 4), _mm512_srai_epi32(f.x64, 6));
    return _mm512_add_epi32(low, high);
}

TERN_INLINE __m512i field_mask(int k) { return _mm512_set1_epi8((char)(3 << 2 * k)); }

TERN_INLINE __m512i load(const void *p) { return _mm512_loadu_si512(p); }

TERN_INLINE void prefetch(const uint8_t *p) {
    _mm_prefetch((const char *)p + TERN_AHEAD, _MM_HINT_T1);
}

TERN_INLINE void add_2bit(fields *acc, __m512i w, const int8_t *x) {
    DP(acc->x64, _mm512_and_si512(w, field_mask(3)), load(x));
    DP(acc->x16, _mm512_and_si512(w, field_mask(2)), load(x + 64));
    DP(acc->x4, _mm512_and_si512(w, field_mask(1)), load(x + 128));
    DP(acc->x1, _mm512_and_si512(w, field_mask(0)), load(x + 192));
}

TERN_INLINE __m512i dot_2bit_1(const uint8_t *row, size_t n_bytes, const int8_t *x) {
    fields sum = {0};
    for (; n_bytes >= 64; n_bytes -= 64, row += 64, x += 256) {
        prefetch(row);
        add_2bit(&sum, load(row), x);
    }
    prefetch(row);
    if (n_bytes) add_2bit(&sum, tern_load_part(row, n_bytes), x);
    return join_fields(sum);
}

// A piece of m packed bytes.
TERN_INLINE void add_t5(fields *acc, __m512i b, size_t m, const tern_t5_table *table,
                        const int8_t *x) {
    __m512i low = tern_t5_low(b), four = tern_t5_look_up(table, low);
    DP(acc->x64, _mm512_and_si512(_mm512_sub_epi8(b, low), field_mask(3)), load(x));
    DP(acc->x1, _mm512_and_si512(four, field_mask(0)), load(x + m));
    DP(acc->x4, _mm512_and_si512(four, field_mask(1)), load(x + 2 * m));
    DP(acc->x16, _mm512_and_si512(four, field_mask(2)), load(x + 3 * m));
    DP(acc->x64, _mm512_and_si512(four, field_mask(3)), load(x + 4 * m));
}

TERN_INLINE void dot_t5_1(__m512i *sums, const uint8_t *a, const uint8_t *b, size_t n_bytes,
                          const tern_t5_table *table, const int8_t *x) {
    fields sum_a = {0}, sum_b = {0};
    const uint8_t *next = a;
    for (; n_bytes >= 64; n_bytes -= 64, a += 64, b += 64, next += 128, x += TERN_T5_WEIGHTS) {
        prefetch(next), prefetch(next + 64);
        add_t5(&sum_a, load(a), 64, table, x);
        add_t5(&sum_b, load(b), 64, table, x);
    }
    prefetch(next), prefetch(next + 64);
    if (n_bytes) {
        add_t5(&sum_a, tern_load_part(a, n_bytes), n_bytes, table, x);
        add_t5(&sum_b, tern_load_part(b, n_bytes), n_bytes, table, x);
    }
    sums[0] = join_fields(sum_a);
    sums[1] = join_fields(sum_b);
}

// With several tokens the products take most of the time: fields are shifted down once, and one
// accumulator serves all of them.
typedef struct pair_sums { // row a or b, token 0..10
    __m512i a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10;
    __m512i b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10;
} pair_sums;

#define EACH_TOKEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10)

// Codes of both rows times n tokens (a constant), whose activations are `stride` bytes apart.
TERN_INLINE void add_codes(pair_sums *acc, __m512i a, __m512i b, const int8_t *x, size_t stride,
                           int n) {
#define ADD(t)                                                                                     \
    if ((t) < n) {                                                                                 \
        __m512i q = load(x + (t)*stride);                                                          \
        DP(acc->a##t, a, q), DP(acc->b##t, b, q);                                                  \
    }
    EACH_TOKEN(ADD)
#undef ADD
}

// The sums of the previous stretch; the first one begins with zeros.
TERN_INLINE pair_sums load_sums(const __m512i *sums, int n, bool is_first) {
    pair_sums acc = {0};
    if (is_first) return acc;
#define LOAD(t)                                                                                    \
    if ((t) < n) acc.a##t = sums[(t)*ROWS], acc.b##t = sums[(t)*ROWS + 1];
    EACH_TOKEN(LOAD)
#undef LOAD
    return acc;
}

TERN_INLINE void store_sums(__m512i *sums, const pair_sums *acc, int n) {
#define STORE(t)                                                                                   \
    if ((t) < n) sums[(t)*ROWS] = acc->a##t, sums[(t)*ROWS + 1] = acc->b##t;
    EACH_TOKEN(STORE)
#undef STORE
}

TERN_INLINE void add_2bit_n(pair_sums *acc, __m512i a, __m512i b, const int8_t *x, size_t stride,
                            int n) {
    const __m512i three = _mm512_set1_epi8(3);
#define CODES(w, shift) _mm512_and_si512(_mm512_srli_epi16(w, shift), three)
    add_codes(acc, CODES(a, 6), CODES(b, 6), x, stride, n);
    add_codes(acc, CODES(a, 4), CODES(b, 4), x + 64, stride, n);
    add_codes(acc, CODES(a, 2), CODES(b, 2), x + 128, stride, n);
    add_codes(acc, _mm512_and_si512(a, three), _mm512_and_si512(b, three), x + 192, stride, n);
#undef CODES
}

// A stretch of rows a and b, of n_bytes each; `next` is what to prefetch meanwhile.
typedef struct stretch {
    const uint8_t *a, *b, *next;
    size_t n_bytes;
    const int8_t *x; // the first token's activations, `stride` apart
    size_t stride;
    bool is_first; // of the rows
} stretch;

TERN_INLINE void dot_2bit_n(__m512i *sums, const stretch s, int n) {
    const uint8_t *a = s.a, *b = s.b, *next = s.next;
    const int8_t *x = s.x;
    const size_t stride = s.stride;
    size_t n_bytes = s.n_bytes;
    pair_sums acc = load_sums(sums, n, s.is_first);
    for (; n_bytes >= 64; n_bytes -= 64, a += 64, b += 64, next += 128, x += 256) {
        prefetch(next), prefetch(next + 64);
        add_2bit_n(&acc, load(a), load(b), x, stride, n);
    }
    prefetch(next), prefetch(next + 64);
    if (n_bytes)
        add_2bit_n(&acc, tern_load_part(a, n_bytes), tern_load_part(b, n_bytes), x, stride, n);
    store_sums(sums, &acc, n);
}

// Pieces of m packed bytes of both rows.
typedef struct pair_codes {
    tern_t5_codes a, b;
} pair_codes;

TERN_INLINE pair_codes unpack_pair(const tern_t5_table *table, __m512i a, __m512i b) {
    return (pair_codes){tern_t5_unpack(table, a), tern_t5_unpack(table, b)};
}

TERN_INLINE void add_t5_n(pair_sums *acc, const pair_codes c, size_t m, const int8_t *x,
                          size_t stride, int n) {
    add_codes(acc, c.a.c0, c.b.c0, x, stride, n);
    add_codes(acc, c.a.c1, c.b.c1, x + m, stride, n);
    add_codes(acc, c.a.c2, c.b.c2, x + 2 * m, stride, n);
    add_codes(acc, c.a.c3, c.b.c3, x + 3 * m, stride, n);
    add_codes(acc, c.a.c4, c.b.c4, x + 4 * m, stride, n);
}

TERN_INLINE void dot_t5_n(__m512i *sums, const stretch s, const tern_t5_table *table, int n) {
    const uint8_t *a = s.a, *b = s.b, *next = s.next;
    const int8_t *x = s.x;
    const size_t stride = s.stride;
    size_t n_bytes = s.n_bytes;
    pair_sums acc = load_sums(sums, n, s.is_first);
    for (; n_bytes >= 64; n_bytes -= 64, a += 64, b += 64, next += 128, x += TERN_T5_WEIGHTS) {
        prefetch(next), prefetch(next + 64);
        add_t5_n(&acc, unpack_pair(table, load(a), load(b)), 64, x, stride, n);
    }
    prefetch(next), prefetch(next + 64);
    if (n_bytes)
        add_t5_n(&acc, unpack_pair(table, tern_load_part(a, n_bytes), tern_load_part(b, n_bytes)),
                 n_bytes, x, stride, n);
    store_sums(sums, &acc, n);
}

typedef struct gemv_args {
    const tern_ternary_matrix *w;
    const tern_i8_rows *x;
    const int8_t *q; // activations in the order of the codes, `stride` apart
    size_t stride, n_bytes;
    tern_product to;
    tern_t5_table table;
} gemv_args;

// The activations of eight long rows do not fit into the first-level cache, so a stretch of STRETCH
// columns goes over a whole group of rows before the next stretch begins; sums wait in memory
// meanwhile.
enum { GROUP = 16, STRETCH = 2560 };

// n_rows <= GROUP times the tokens from `token` on, n of them (a constant).
TERN_INLINE void gemv_group(const gemv_args *g, size_t row, size_t n_rows, size_t token,
                            bool is_2bit, int n) {
    const tern_ternary_matrix *w = g->w;
    const size_t step = n > 4 ? STRETCH / (is_2bit ? 4 : 5) : g->n_bytes;
    const int8_t *q = g->q + token * g->stride;
    __m512i sums[GROUP / ROWS][TOKENS * ROWS];
    if (n_rows % ROWS) // missing rows
        for (int t = 0; t < n * ROWS; t++) sums[n_rows / ROWS][t] = _mm512_setzero_si512();
    for (size_t at = 0; at < g->n_bytes; at += step, q += STRETCH) {
        size_t bytes = tern_min_size(step, g->n_bytes - at);
        for (size_t r = 0; r < n_rows; r += 2) { // past the end, repeat the last row
            const uint8_t *front = w->data + (row + r) * w->row_bytes, *a = front + at;
            const uint8_t *b = r + 1 < n_rows ? a + w->row_bytes : a;
            __m512i *to = sums[r / ROWS] + r % ROWS;
            const stretch s = {a, b, front + 2 * at, bytes, q, g->stride, at == 0};
            if (n == 1 && is_2bit)
                to[0] = dot_2bit_1(a, bytes, q), to[1] = dot_2bit_1(b, bytes, q);
            else if (n == 1)
                dot_t5_1(to, a, b, bytes, &g->table, q);
            else if (is_2bit)
                dot_2bit_n(to, s, n);
            else
                dot_t5_n(to, s, &g->table, n);
        }
    }
    for (size_t r = 0; r < n_rows; r += ROWS)
        for (int t = 0; t < n; t++)
            put_rows(g->to.out + (token + (size_t)t) * g->to.stride + row + r,
                     sum_rows(sums[r / ROWS] + t * ROWS), g->x->sum[token + (size_t)t],
                     w->scale * g->x->inv_scale[token + (size_t)t], tern_min_size(n_rows - r, ROWS),
                     g->to.accumulate);
}

// One function for each number of tokens, so that each is compiled by itself, over all groups of
// some rows: a call for each group, and what it must read again, is a tenth of a small matrix's
// time. For one token whole groups have a number of rows that the compiler knows.
#define GROUP_OF(name, is_2bit, n)                                                                 \
    static void name##_##n(const gemv_args *shared, size_t first, size_t last, size_t group,       \
                           size_t token) {                                                         \
        const gemv_args g = *shared; /* which the results cannot overlap */                        \
        size_t row = first;                                                                        \
        for (; n == 1 && row + GROUP / 2 <= last; row += GROUP / 2)                                \
            gemv_group(&g, row, GROUP / 2, token, is_2bit, n);                                     \
        for (; row < last; row += group)                                                           \
            gemv_group(&g, row, tern_min_size(last - row, group), token, is_2bit, n);              \
    }
#define EACH_COUNT(X, name, is_2bit)                                                               \
    X(name, is_2bit, 1)                                                                            \
    X(name, is_2bit, 2)                                                                            \
    X(name, is_2bit, 3)                                                                            \
    X(name, is_2bit, 4)                                                                            \
    X(name, is_2bit, 5)                                                                            \
    X(name, is_2bit, 6)                                                                            \
    X(name, is_2bit, 7)                                                                            \
    X(name, is_2bit, 8)                                                                            \
    X(name, is_2bit, 9)                                                                            \
    X(name, is_2bit, 10)                                                                           \
    X(name, is_2bit, 11)
EACH_COUNT(GROUP_OF, group_2bit, true)
EACH_COUNT(GROUP_OF, group_t5, false)
#define POINTER(name, is_2bit, n) name##_##n,
typedef void (*group_fn)(const gemv_args *g, size_t first, size_t last, size_t group, size_t token);
static const group_fn groups[2][TOKENS] = {{EACH_COUNT(POINTER, group_2bit, true)},
                                           {EACH_COUNT(POINTER, group_t5, false)}};

// A group of rows comes from memory once; all tokens meet it, in parts as equal as can be.
static void gemv(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *prepared,
                 const tern_product *to) {
    const bool is_2bit = w->packing == TERN_PACK_2BIT;
    const gemv_args g = {.w = w,
                         .x = x,
                         .q = is_2bit ? prepared : x->q,
                         .stride = is_2bit ? prepared_stride(w->n_in) : x->stride,
                         .n_bytes = tern_ternary_row_bytes(w->packing, w->n_in),
                         .to = *to,
                         .table = tern_t5_load_table()};
    const size_t most = is_2bit ? TOKENS : TOKENS - 1; // one more of 1.6 bits spills registers
    const size_t n_parts = (x->n_tokens + most - 1) / most;
    // Several parts take turns in the first-level cache, less often with more rows.
    const size_t group = n_parts > 1 ? GROUP : GROUP / 2;
    const size_t each = n_parts > 1 ? group : to->last - to->first;
    for (size_t row = to->first; row < to->last; row += each)
        for (size_t i = 0; i < n_parts; i++) {
            size_t token = x->n_tokens * i / n_parts, end = x->n_tokens * (i + 1) / n_parts;
            groups[w->packing][end - token - 1](&g, row, row + tern_min_size(to->last - row, each),
                                                group, token);
        }
}

const tern_ternary_kernels tern_ternary_kernels_avx512 = {
    .name = "avx512",
    .pack_row = pack_row,
    .repack_row = repack_row,
    .gemv_tokens = {20, 20},
    .prepared_bytes = prepared_bytes,
    .prepare = prepare,
    .gemv = gemv,
    .gemm_row_block = TERN_GEMM_ROWS_AVX512,
    .panels_bytes = tern_ternary_panels_bytes_avx512,
    .make_panels = tern_ternary_make_panels_avx512,
    .gemm_token_block = tern_ternary_gemm_token_block_avx512,
    .gemm_scratch_bytes = tern_ternary_gemm_scratch_bytes_avx512,
    .gemm = tern_ternary_gemm_avx512,
    .peak_loop = tern_ternary_peak_loop_avx512,
};

// Few tokens are multiplied alike.
const tern_ternary_kernels tern_ternary_kernels_amx = {
    .name = "amx",
    .pack_row = pack_row,
    .repack_row = repack_row,
    .gemv_tokens = {7, 7},
    .prepared_bytes = prepared_bytes,
    .prepare = prepare,
    .gemv = gemv,
    .gemm_row_block = TERN_GEMM_ROWS_AVX512,
    .panels_bytes = tern_ternary_panels_bytes_amx,
    .make_panels = tern_ternary_make_panels_amx,
    .gemm_token_block = tern_ternary_gemm_token_block_amx,
    .gemm_scratch_bytes = tern_ternary_gemm_scratch_bytes_amx,
    .gemm = tern_ternary_gemm_amx,
    .peak_loop = tern_ternary_peak_loop_amx,
};
