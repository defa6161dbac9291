// Attention and the cache that it reads: every variant against the scalar one, bit for bit; the
// scalar one against arithmetic in double; and a row's bits against those that it has beside other
// rows.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "kernels/cpu/float/checks/float_check.h"

enum { MAX_POS = 720, MAX_HD = 512, PAGE = TERN_PAGE_POSITIONS };

typedef struct attention_case {
    size_t head_dim, n_heads, n_tokens, first_pos;
    int32_t window, ahead;
    bool both_ways; // not causal
    size_t n_after; // then: positions after the last token
    float soft_cap;
    int32_t spans[3][2]; // images: the first position and the one after the last; ends with 0
} attention_case;

static const tern_dtype kv_types[] = {TERN_DTYPE_F32, TERN_DTYPE_F16, TERN_DTYPE_Q8_0,
                                      TERN_DTYPE_Q4_0};
enum { N_TYPES = sizeof kv_types / sizeof *kv_types };

static bool has_type(size_t head_dim, int type) {
    return kv_types[type] != TERN_DTYPE_Q4_0 || (TERN_HAS_Q4_CACHE && head_dim % 32 == 0);
}

// Plain causal attention with the hash of its output for each type, as it was when a head's blocks
// lay in one piece of memory and there were no windows: models were checked with these bits. Those
// of Q4_0 are as they were at first.
static const struct {
    attention_case c;
    uint64_t hash[N_TYPES];
} old_cases[] = {
    {{.head_dim = 64, .n_heads = 4, .n_tokens = 1, .first_pos = 0},
     {0x00f2f8bed522f341, 0x22e991fe7a140511, 0xd27cf34839ca1c81, 0xff24184212f7e1f1}},
    {{.head_dim = 64, .n_heads = 4, .n_tokens = 19, .first_pos = 0},
     {0x81f8b66806364adc, 0x9f11a721d1822030, 0x27323b72e9ac5de2, 0x2772085a4059a6ff}},
    {{.head_dim = 128, .n_heads = 4, .n_tokens = 7, .first_pos = 57},
     {0x21efd7f5f26b9779, 0x1e00fc31f0e1c8bb, 0x788c964b4deb75d8, 0xccbe67535b16d1ee}},
    {{.head_dim = 128, .n_heads = 4, .n_tokens = 1, .first_pos = 129},
     {0xe695c17e2765b40e, 0x42059b6bf7f114eb, 0x427a36d0a703c5fd, 0xfe6929059a2bc228}},
    {{.head_dim = 128, .n_heads = 1, .n_tokens = 14, .first_pos = 60},
     {0x1bf4b7d328038476, 0xe116f5e43e800dfe, 0x7c9312e351379fb4, 0x80f70f3c98bcaf29}},
    {{.head_dim = 16, .n_heads = 5, .n_tokens = 3, .first_pos = 15},
     {0xbe1d60dadc6238d1, 0x517f0be546956a3b, 0x2be7b31892c58f3a}},
    {{.head_dim = 20, .n_heads = 3, .n_tokens = 5, .first_pos = 62},
     {0x739c774a736f5a9a, 0xa7f087d50a2798a7, 0x4ae1526022ca05bc}},
    {{.head_dim = 80, .n_heads = 2, .n_tokens = 9, .first_pos = 31},
     {0xc462456275b595ec, 0xfed85722aa20e49e, 0x11c9b06de0b40c19}},
    {{.head_dim = 256, .n_heads = 1, .n_tokens = 5, .first_pos = 11},
     {0x2e95004b2ecfb44d, 0x0297069170dbb075, 0x7f7e274db30c23d3, 0x14eacd6bb73aa57f}},
    {{.head_dim = 272, .n_heads = 2, .n_tokens = 3, .first_pos = 64},
     {0x258932ab941333d4, 0x7d4edd43de14d3eb, 0x5194df41a34e25cc}},
    {{.head_dim = 34, .n_heads = 1, .n_tokens = 17, .first_pos = 17},
     {0xbbeb0de3e3dcf2be, 0x687cc4df04ea8ae9, 0x871e077a4bafc4fd}},
    {{.head_dim = 96, .n_heads = 4, .n_tokens = 3, .first_pos = 126},
     {0x0539bb55ff0a6f44, 0xc042f52d572c9dbf, 0x4c1b9a356c4d1a68, 0x994b7e1003eb47d0}},
    {{.head_dim = 2, .n_heads = 1, .n_tokens = 3, .first_pos = 0},
     {0x344bf22c857512ca, 0x9097769b279ac3b2, 0xcc86979695b19c45}},
    {{.head_dim = 128, .n_heads = 4, .n_tokens = 1, .first_pos = 700},
     {0xa8c48bd1d22ca94b, 0x89f2c12175a9a8a2, 0x0be1de9f02d55165, 0xf1314f4c1b6a455b}},
    {{.head_dim = 128, .n_heads = 5, .n_tokens = 24, .first_pos = 300},
     {0x919609f9d3529970, 0xf13688e259e55e2d, 0x438b176e4439a9cb, 0x4d6df0cfd0450b9c}},
    {{.head_dim = 64, .n_heads = 8, .n_tokens = 3, .first_pos = 511},
     {0xd81ab4ab7445f736, 0xb640703fcb7aaac8, 0xd9659e488a18b4d4, 0x89d1bf9465620085}},
    {{.head_dim = 256, .n_heads = 4, .n_tokens = 13, .first_pos = 190},
     {0x227411f80786f1ba, 0x8f74a63e7886cc7f, 0xe03032184797e0ca, 0x1accee2bad85a607}},
    {{.head_dim = 512, .n_heads = 2, .n_tokens = 5, .first_pos = 65},
     {0xec2a080daef75e6d, 0xf742cbc68cf934b9, 0x44a93d129bdaf811, 0x70154776b8c7efcc}},
    {{.head_dim = 510, .n_heads = 3, .n_tokens = 4, .first_pos = 126},
     {0x094bc2fa0b5cd8ad, 0xbf9f3c4a06e69ead, 0xb4f3ab6ac3023bb5}},
    {{.head_dim = 6, .n_heads = 3, .n_tokens = 40, .first_pos = 40},
     {0x5b383cd61b9b8992, 0x6ad10cbbad536d88, 0x38d0bdc019e4b27a}},
};

static const attention_case new_cases[] = {
    // Windows: of one position, less and more than a span, more than there is.
    {.head_dim = 64, .n_heads = 2, .n_tokens = 9, .first_pos = 60, .window = 1},
    {.head_dim = 32, .n_heads = 4, .n_tokens = 40, .first_pos = 0, .window = 5},
    {.head_dim = 16, .n_heads = 1, .n_tokens = 30, .first_pos = 170, .window = 9},
    {.head_dim = 128, .n_heads = 1, .n_tokens = 1, .first_pos = 640, .window = 128},
    {.head_dim = 64, .n_heads = 3, .n_tokens = 26, .first_pos = 300, .window = 100},
    {.head_dim = 256, .n_heads = 4, .n_tokens = 5, .first_pos = 190, .window = 64},
    {.head_dim = 20, .n_heads = 5, .n_tokens = 19, .first_pos = 121, .window = 63},
    {.head_dim = 48, .n_heads = 2, .n_tokens = 7, .first_pos = 30, .window = 1000},
    // Both ways, without a window and with one.
    {.head_dim = 64, .n_heads = 1, .n_tokens = 37, .both_ways = true},
    {.head_dim = 64, .n_heads = 1, .n_tokens = 24, .both_ways = true, .n_after = 90},
    {.head_dim = 32,
     .n_heads = 3,
     .n_tokens = 13,
     .first_pos = 77,
     .both_ways = true,
     .n_after = 1},
    {.head_dim = 64,
     .n_heads = 1,
     .n_tokens = 24,
     .first_pos = 130,
     .window = 33,
     .both_ways = true,
     .n_after = 100},
    {.head_dim = 96,
     .n_heads = 2,
     .n_tokens = 9,
     .first_pos = 10,
     .window = 7,
     .both_ways = true,
     .n_after = 20},
    {.head_dim = 34,
     .n_heads = 5,
     .n_tokens = 8,
     .first_pos = 200,
     .window = 128,
     .both_ways = true,
     .n_after = 8},
    // Not as far ahead as back.
    {.head_dim = 16,
     .n_heads = 4,
     .n_tokens = 40,
     .window = 16,
     .ahead = 4,
     .both_ways = true,
     .n_after = 9},
    {.head_dim = 40,
     .n_heads = 2,
     .n_tokens = 23,
     .first_pos = 70,
     .window = 5,
     .ahead = 9,
     .both_ways = true,
     .n_after = 30},
    // Caps, in the steep part of tanh and in the flat ones.
    {.head_dim = 256, .n_heads = 2, .n_tokens = 9, .first_pos = 120, .soft_cap = 50},
    {.head_dim = 64, .n_heads = 4, .n_tokens = 5, .first_pos = 31, .soft_cap = 2},
    {.head_dim = 128, .n_heads = 1, .n_tokens = 14, .first_pos = 90, .window = 40, .soft_cap = 10},
    {.head_dim = 22,
     .n_heads = 1,
     .n_tokens = 14,
     .first_pos = 3,
     .both_ways = true,
     .n_after = 50,
     .soft_cap = 0.5f},
    // Images: longer and shorter than tiles and windows, side by side, begun before the first
    // token, and to the last.
    {.head_dim = 64, .n_heads = 2, .n_tokens = 75, .spans = {{3, 70}}},
    {.head_dim = 32,
     .n_heads = 2,
     .n_tokens = 60,
     .first_pos = 50,
     .window = 7,
     .spans = {{53, 80}, {80, 83}, {90, 110}}},
    {.head_dim = 96,
     .n_heads = 1,
     .n_tokens = 40,
     .first_pos = 120,
     .window = 30,
     .spans = {{121, 140}, {144, 160}}},
    {.head_dim = 20,
     .n_heads = 8,
     .n_tokens = 20,
     .first_pos = 6,
     .window = 3,
     .soft_cap = 5,
     .spans = {{6, 15}, {17, 26}}},
};
enum {
    N_OLD = sizeof old_cases / sizeof *old_cases,
    N_CASES = N_OLD + sizeof new_cases / sizeof *new_cases
};

static const attention_case *case_of(size_t i) {
    return i < N_OLD ? &old_cases[i].c : &new_cases[i - N_OLD];
}

// ---- A problem and its cache -------------------------------------------------------------------

typedef struct attention_data {
    const attention_case *c;
    tern_dtype type;
    float *q, *out, *scratch, *keys, *values;
    int32_t *ends; // of the tokens' images, or NULL
    tern_page *pages;
    size_t k_offset, v_offset, page_bytes;
} attention_data;

// The heads of a token form one longer row, as they do in a model's activations.
static size_t query_stride(const attention_case *c) { return c->n_heads * c->head_dim + 8; }
static size_t n_positions(const attention_case *c) {
    return c->first_pos + c->n_tokens + (c->both_ways ? c->n_after : 0);
}
static size_t n_pages(const attention_case *c) { return (n_positions(c) + PAGE - 1) / PAGE; }

// The image that a position is in; NULL: none.
static const int32_t *span_of(const attention_case *c, size_t p) {
    for (int i = 0; i < 3 && c->spans[i][1] > 0; i++)
        if (p >= (size_t)c->spans[i][0] && p < (size_t)c->spans[i][1]) return c->spans[i];
    return NULL;
}

static bool sees(const attention_case *c, size_t p, size_t q) {
    bool ahead = c->both_ways || (span_of(c, p) && q < (size_t)span_of(c, p)[1]);
    size_t apart = p > q ? p - q : q - p;
    size_t window = (size_t)(q > p && c->ahead ? c->ahead : c->window);
    if (q > p && !c->both_ways) window = 0; // to an image's end
    return q < n_positions(c) && (ahead || q <= p) && (window == 0 || apart < window);
}

static bool sees_any(const attention_case *c, size_t first, size_t n_tokens, size_t q) {
    for (size_t t = 0; t < n_tokens; t++)
        if (sees(c, first + t, q)) return true;
    return false;
}

static tern_attention_args attention_args(const attention_data *d) {
    const attention_case *c = d->c;
    return (tern_attention_args){.out = d->out,
                                 .q = d->q,
                                 .row_stride = query_stride(c),
                                 .n_tokens = c->n_tokens,
                                 .n_heads = c->n_heads,
                                 .head_dim = c->head_dim,
                                 .first_pos = c->first_pos,
                                 .pages = d->pages,
                                 .k_offset = d->k_offset,
                                 .v_offset = d->v_offset,
                                 .kv_type = d->type,
                                 .causal = !c->both_ways,
                                 .window = c->window,
                                 .ahead = c->ahead,
                                 .ends = d->ends,
                                 .n_positions = c->both_ways ? n_positions(c) : 0,
                                 .soft_cap = c->soft_cap,
                                 .scale = 1 / sqrtf((float)c->head_dim),
                                 .scratch = d->scratch};
}

// Everything is allocated to its exact size, so that sanitizers see reads and writes outside; the
// scratch is full of NaNs, which must not matter.
static bool attention_open(const attention_case *c, tern_dtype type, attention_data *d) {
    size_t head_bytes = tern_kv_head_bytes(type, c->head_dim, PAGE);
    *d = (attention_data){.c = c, .type = type};
    d->v_offset = 64; // other states come first, and keys may well come after values
    d->k_offset = d->v_offset + head_bytes;
    d->page_bytes = d->k_offset + head_bytes;
    tern_attention_args args = attention_args(d);
    size_t scratch_bytes = tern_attention_scratch_floats(&args) * sizeof(float);
    size_t q_floats = c->n_tokens * query_stride(c), n_pos = n_positions(c);
    d->q = tern_alloc(TERN_MEM_MISC, q_floats * sizeof(float));
    d->out = tern_alloc(TERN_MEM_MISC, q_floats * sizeof(float));
    d->scratch = tern_alloc(TERN_MEM_MISC, scratch_bytes);
    d->keys = tern_alloc(TERN_MEM_MISC, n_pos * c->head_dim * sizeof(float));
    d->values = tern_alloc(TERN_MEM_MISC, n_pos * c->head_dim * sizeof(float));
    d->pages = tern_alloc_array(TERN_MEM_MISC, n_pages(c), sizeof *d->pages);
    if (!d->q || !d->out || !d->scratch || !d->keys || !d->values || !d->pages) return false;
    memset(d->scratch, 0xFF, scratch_bytes);
    if (c->spans[0][1] > 0) d->ends = tern_alloc_array(TERN_MEM_MISC, c->n_tokens, 4);
    for (size_t t = 0; d->ends && t < c->n_tokens; t++) {
        const int32_t *span = span_of(c, c->first_pos + t);
        d->ends[t] = span ? span[1] : 0;
    }
    fill(d->q, q_floats, KIND_PLAIN, 1);
    fill(d->keys, n_pos * c->head_dim, KIND_PLAIN, 2);
    fill(d->values, n_pos * c->head_dim, KIND_PLAIN, 3);
    fill(d->out, q_floats, KIND_PLAIN, 9); // the gaps between rows must stay as they are
    return true;
}

static void drop_pages(attention_data *d) {
    for (size_t b = 0; d->pages && b < n_pages(d->c); b++) {
        tern_free(d->pages[b].memory);
        d->pages[b].memory = NULL;
    }
}

static void attention_close(attention_data *d) {
    if (d->pages) drop_pages(d);
    void *all[] = {d->q, d->out, d->scratch, d->keys, d->values, d->pages, d->ends};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tern_free(all[i]);
}

// A fresh cache with the positions that any of n_tokens tokens from first_pos on sees. All else is
// missing, or NaN where it shares a page with a position that is seen. Pages are in no particular
// order.
static void store_seen(const tern_float_kernels *k, attention_data *d, size_t first_pos,
                       size_t n_tokens) {
    size_t hd = d->c->head_dim;
    drop_pages(d);
    for (size_t q = n_positions(d->c); q-- > 0;) {
        if (!sees_any(d->c, first_pos, n_tokens, q)) continue;
        tern_page *page = &d->pages[q / PAGE];
        if (!page->memory) {
            page->memory = tern_alloc(TERN_MEM_KV, d->page_bytes);
            REQUIRE(page->memory);
            memset(page->memory, 0xFF, d->page_bytes);
        }
        k->kv_store(&(tern_kv_store_args){page->memory + d->k_offset, page->memory + d->v_offset,
                                          d->keys + q * hd, d->values + q * hd, d->type, q % PAGE,
                                          hd});
    }
}

// The keys or values that Q4_0 holds, by its layout, where there is a page.
static void read_rotated(const tern_float_kernels *k, const attention_data *d, bool is_key,
                         float *x) {
    const size_t hd = d->c->head_dim;
    for (size_t q = 0; q < n_positions(d->c); q++, x += hd) {
        const uint8_t *block = d->pages[q / PAGE].memory, *codes;
        const size_t lane = q % PAGE;
        if (!sees_any(d->c, d->c->first_pos, d->c->n_tokens, q)) continue; // it is not there
        block += is_key ? d->k_offset : d->v_offset;
        codes = block + hd;
        for (size_t i = 0; i < hd; i++) {
            const size_t at = is_key ? i / 8 * 64 + lane * 4 + i % 4
                                     : i / 32 * 256 + lane / 4 * 64 + i % 16 * 4 + lane % 4;
            const bool high = is_key ? i / 4 % 2 : i / 16 % 2;
            uint16_t scale;
            memcpy(&scale, block + (i / 32 * PAGE + lane) * 2, 2);
            x[i] = tern_f16_to_f32(scale) * (float)((high ? codes[at] >> 4 : codes[at] & 15) - 8);
        }
        k->hadamard(x, x, NULL, hd, hd & (~hd + 1));
    }
}

// A query as it meets Q4_0: rotated, times the factor of scores, int8 in groups of 32.
static void round_query(const tern_float_kernels *k, float *q, size_t hd, float factor) {
    k->hadamard(q, q, NULL, hd, hd & (~hd + 1));
    for (size_t g = 0; g < hd; g += 32) {
        float largest = 0;
        for (size_t i = g; i < g + 32; i++) {
            q[i] *= factor;
            largest = fmaxf(largest, fabsf(q[i]));
        }
        for (size_t i = g; largest > 0 && i < g + 32; i++)
            q[i] = nearbyintf(q[i] * (127 / largest)) * (largest / 127) / factor;
    }
    k->hadamard(q, q, NULL, hd, hd & (~hd + 1));
}

static double relative_error(const float *x, const float *y, size_t n) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)x[i] * x[i];
    }
    return sqrt(error / norm);
}

// ---- Checks ------------------------------------------------------------------------------------

static double score_in_double(const attention_data *d, const float *query, size_t pos) {
    const attention_case *c = d->c;
    double s = 0;
    for (size_t i = 0; i < c->head_dim; i++) s += (double)query[i] * d->keys[pos * c->head_dim + i];
    s /= sqrt((double)c->head_dim);
    return c->soft_cap > 0 ? c->soft_cap * tanh(s / c->soft_cap) : s;
}

// Greatest difference from softmax in double, over all rows.
static double attention_error(const attention_data *d) {
    static double weight[MAX_POS];
    const attention_case *c = d->c;
    double worst = 0;
    for (size_t row = 0; row < c->n_tokens * c->n_heads; row++) {
        size_t token = row / c->n_heads, p = c->first_pos + token;
        size_t at = token * query_stride(c) + row % c->n_heads * c->head_dim;
        double top = -INFINITY, sum = 0;
        for (size_t q = 0; q < n_positions(c); q++) {
            weight[q] = sees(c, p, q) ? score_in_double(d, d->q + at, q) : -INFINITY;
            top = fmax(top, weight[q]);
        }
        for (size_t q = 0; q < n_positions(c); q++) sum += weight[q] = exp(weight[q] - top);
        for (size_t i = 0; i < c->head_dim; i++) {
            double o = 0;
            for (size_t q = 0; q < n_positions(c); q++)
                o += weight[q] * d->values[q * c->head_dim + i];
            double miss = fabs(o / sum - d->out[at + i]);
            if (!(miss <= worst)) worst = miss;
        }
    }
    return worst;
}

// Q4_0: the difference from softmax over the numbers in the cache and rounded queries. They are
// near to the ones that were stored: a step is 1/8 of a group's largest number, some 2.1
// deviations, and rounding leaves 1 / sqrt(12) of a step.
static double rotated_error(const tern_float_kernels *k, attention_data *d) {
    const size_t n = n_positions(d->c) * d->c->head_dim;
    const size_t n_q = d->c->n_tokens * query_stride(d->c);
    float *keys = d->keys, *values = d->values, *q = d->q;
    d->keys = tern_alloc(TERN_MEM_MISC, n * sizeof *keys);
    d->values = tern_alloc(TERN_MEM_MISC, n * sizeof *values);
    d->q = tern_alloc(TERN_MEM_MISC, n_q * sizeof *q);
    if (!d->keys || !d->values || !d->q) return INFINITY;
    memcpy(d->q, q, n_q * sizeof *q);
    for (size_t t = 0; t < d->c->n_tokens; t++)
        for (size_t h = 0; h < d->c->n_heads; h++)
            round_query(k, d->q + t * query_stride(d->c) + h * d->c->head_dim, d->c->head_dim,
                        attention_args(d).scale);
    memcpy(d->keys, keys, n * sizeof *keys);
    memcpy(d->values, values, n * sizeof *values);
    read_rotated(k, d, true, d->keys);
    read_rotated(k, d, false, d->values);
    double off_keys = relative_error(keys, d->keys, n);
    double off_values = relative_error(values, d->values, n), miss = attention_error(d);
    CHECK_MSG(off_keys < 0.1 && off_values < 0.1, "keys are off by %g, values by %g", off_keys,
              off_values);
    tern_free(d->keys);
    tern_free(d->values);
    tern_free(d->q);
    d->keys = keys, d->values = values, d->q = q;
    return miss;
}

// Computing `n` tokens from token t on apart from the others, with a cache that holds only what
// they see, gives the same rows as computing all tokens.
static void check_part(const tern_float_kernels *k, attention_data *d, size_t t, size_t n) {
    const attention_case *c = d->c;
    tern_attention_args args = attention_args(d);
    size_t stride = query_stride(c);
    float *part = tern_alloc(TERN_MEM_MISC, n * stride * sizeof(float));
    REQUIRE(part);
    store_seen(k, d, c->first_pos + t, n);
    args.out = part;
    args.q = d->q + t * stride;
    if (args.ends) args.ends += t;
    args.first_pos = c->first_pos + t;
    args.n_tokens = n;
    k->attention(&args);
    for (size_t i = 0; i < n; i++)
        CHECK_MSG(same_bits(part + i * stride, d->out + (t + i) * stride, c->n_heads * c->head_dim),
                  "%s %s head_dim %zu window %d: token %zu computed with %zu others", k->name,
                  tern_dtype_name(d->type), c->head_dim, (int)c->window, t + i, n - 1);
    tern_free(part);
}

// Infinities at position q, which become NaNs times a weight of 0, change only rows that see it.
// (In Q4_0, where they become large numbers, not all of these: small weights are rounded to 0.)
static void check_poisoned(const tern_float_kernels *k, attention_data *d, size_t q) {
    const attention_case *c = d->c;
    size_t stride = query_stride(c), n = c->n_tokens * stride, hd = c->head_dim;
    tern_attention_args args = attention_args(d);
    uint8_t *page = d->pages[q / PAGE].memory;
    float *poison = tern_alloc(TERN_MEM_MISC, hd * sizeof(float));
    args.out = tern_alloc(TERN_MEM_MISC, n * sizeof(float));
    REQUIRE(page && poison && args.out);
    for (size_t i = 0; i < hd; i++) poison[i] = INFINITY;
    tern_kv_store_args a = {
        page + d->k_offset, page + d->v_offset, poison, poison, d->type, q % PAGE, hd};
    k->kv_store(&a);
    k->attention(&args);
    for (size_t t = 0; t < c->n_tokens; t++) {
        bool same = same_bits(args.out + t * stride, d->out + t * stride, c->n_heads * hd);
        const bool sees_it = sees(c, c->first_pos + t, q);
        CHECK_MSG(same != sees_it || (same && d->type == TERN_DTYPE_Q4_0),
                  "%s %s head_dim %zu window %d: token %zu and position %zu", k->name,
                  tern_dtype_name(d->type), hd, (int)c->window, t, q);
    }
    a.key = d->keys + q * hd, a.value = d->values + q * hd;
    k->kv_store(&a);
    tern_free(poison);
    tern_free(args.out);
}

// For a few tokens, the first position that they see and their own.
static void check_unseen(const tern_float_kernels *k, attention_data *d, uint32_t *seed) {
    for (int i = 0; i < 3; i++) {
        size_t pos = d->c->first_pos + next_random(seed) % d->c->n_tokens, first = 0;
        while (!sees(d->c, pos, first)) first++;
        check_poisoned(k, d, first);
        check_poisoned(k, d, pos);
    }
}

static uint64_t hash_of(const float *x, size_t n) { // FNV-1a
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * sizeof *x; i++)
        hash = (hash ^ ((const uint8_t *)x)[i]) * 0x100000001b3u;
    return hash;
}

// Seen to fail with a coefficient of vec_tanh off by 6e-5 of itself, with windows one position too
// short on either side, with images that a window does not cut or that end one position early,
// with reading of pages before the window (which are not there), and with Q4_0's queries or outputs
// not rotated.
TEST(float_attention_is_right_and_the_same_everywhere) {
    static const double tolerance[] = {1e-5, 4e-3, 0.06, 1e-3};
    variants v = all_variants();
    for (size_t i = 0; i < N_CASES; i++) {
        const attention_case *c = case_of(i);
        for (int type = 0; type < N_TYPES; type++) {
            if (!has_type(c->head_dim, type)) continue;
            attention_data d;
            size_t n_out = c->n_tokens * query_stride(c);
            float *first_out = tern_alloc(TERN_MEM_MISC, n_out * sizeof(float));
            REQUIRE(attention_open(c, kv_types[type], &d) && first_out);
            for (size_t j = 0; j < v.n; j++) {
                tern_attention_args args = attention_args(&d);
                store_seen(v.k[j], &d, c->first_pos, c->n_tokens);
                v.k[j]->attention(&args);
                if (j == 0) {
                    memcpy(first_out, d.out, n_out * sizeof(float));
                    const bool rotated = kv_types[type] == TERN_DTYPE_Q4_0;
                    double miss = rotated ? rotated_error(v.k[j], &d) : attention_error(&d);
                    CHECK_MSG(miss <= tolerance[type], "case %zu %s head_dim %zu: off by %g", i,
                              tern_dtype_name(kv_types[type]), c->head_dim, miss);
                }
                CHECK_MSG(same_bits(first_out, d.out, n_out), "%s case %zu %s head_dim %zu",
                          v.k[j]->name, i, tern_dtype_name(kv_types[type]), c->head_dim);
            }
            tern_free(first_out);
            attention_close(&d);
        }
    }
}

// Seen to fail with spans that begin at the window's first page, and with values of all positions
// of a tile added to all of its rows.
TEST(float_attention_does_not_depend_on_company) {
    variants v = all_variants();
    uint32_t seed = 5;
    for (size_t i = 0; i < N_CASES; i++) {
        const attention_case *c = case_of(i);
        for (int type = 0; type < N_TYPES; type++) {
            for (size_t j = has_type(c->head_dim, type) ? 0 : v.n;
                 j<v.n; j += v.n> 1 ? v.n - 1 : 1) {
                attention_data d;
                REQUIRE(attention_open(c, kv_types[type], &d));
                tern_attention_args args = attention_args(&d);
                store_seen(v.k[j], &d, c->first_pos, c->n_tokens);
                v.k[j]->attention(&args);
                check_unseen(v.k[j], &d, &seed);
                for (size_t t = 0; t < c->n_tokens; t++) check_part(v.k[j], &d, t, 1);
                for (size_t t = 0, n; t < c->n_tokens; t += n) {
                    n = 1 + next_random(&seed) % (c->n_tokens - t);
                    check_part(v.k[j], &d, t, n);
                }
                attention_close(&d);
            }
        }
    }
}

// Seen to fail with spans of 32 positions, and with queries scaled by 1 + 1e-7.
TEST(float_attention_keeps_its_bits) {
    variants v = all_variants();
    for (size_t i = 0; i < N_OLD; i++) {
        const attention_case *c = &old_cases[i].c;
        for (int type = 0; type < N_TYPES; type++) {
            if (!has_type(c->head_dim, type)) continue;
            attention_data d;
            REQUIRE(attention_open(c, kv_types[type], &d));
            tern_attention_args args = attention_args(&d);
            store_seen(v.k[v.n - 1], &d, c->first_pos, c->n_tokens);
            v.k[v.n - 1]->attention(&args);
            uint64_t hash = hash_of(d.out, c->n_tokens * query_stride(c));
            CHECK_MSG(hash == old_cases[i].hash[type], "case %zu %s: 0x%016llx", i,
                      tern_dtype_name(kv_types[type]), (unsigned long long)hash);
            attention_close(&d);
        }
    }
}

TEST(float_kv_store_has_the_same_bits_everywhere) {
    variants v = all_variants();
    static uint8_t k[2][4 * PAGE * MAX_HD], values[2][4 * PAGE * MAX_HD];
    static float key[MAX_HD], value[MAX_HD];
    for (size_t n = 2; n <= MAX_HD; n += 18) {
        for (int type = 0; type < N_TYPES; type++) {
            const size_t head_dim = kv_types[type] == TERN_DTYPE_Q4_0 ? (n + 31) / 32 * 32 : n;
            if (!has_type(head_dim, type)) continue;
            for (int kind = 0; kind < KIND_MIXED; kind++) { // bits of NaNs may differ
                memset(k, 0, sizeof k);
                memset(values, 0, sizeof values);
                for (size_t j = 0; j < v.n; j++) {
                    for (size_t lane = 0; lane < PAGE; lane += 3) {
                        fill(key, head_dim, kind, (uint32_t)lane);
                        fill(value, head_dim, kind, (uint32_t)lane + 1);
                        v.k[j]->kv_store(&(tern_kv_store_args){k[j > 0], values[j > 0], key, value,
                                                               kv_types[type], lane, head_dim});
                    }
                    if (j == 0) continue;
                    CHECK_MSG(!memcmp(k[0], k[1], sizeof k[0]) &&
                                  !memcmp(values[0], values[1], sizeof values[0]),
                              "%s %s head_dim %zu", v.k[j]->name, tern_dtype_name(kv_types[type]),
                              head_dim);
                }
            }
        }
    }
}
