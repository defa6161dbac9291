#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/head/head.h"
#include "kernels/cpu/head/head_kernels.h"
#include "tests/support/harness.h"

static uint32_t noise(uint32_t *state) {
    uint32_t z = *state += 0x9E3779B9u;
    z = (z ^ z >> 16) * 0x85EBCA6Bu;
    z = (z ^ z >> 13) * 0xC2B2AE35u;
    return z ^ z >> 16;
}

static float gauss(uint32_t *state) {
    float u = ((float)(noise(state) >> 8) + 1) * 0x1p-24f,
          v = (float)(noise(state) >> 8) * 0x1p-24f;
    return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

// ---- The kernels alone -------------------------------------------------------------------------

enum { K_IN = 1200, K_VECTORS = 10, K_GROUPS = 3 }; // the last group has two vectors, one not full

// One tile of random rows, quantized, and a random X.
typedef struct tile {
    _Alignas(64) uint8_t codes[TERN_HEAD_CODE_STEP * K_VECTORS];
    _Alignas(64) uint8_t scales[TERN_HEAD_SCALE_STEP * K_GROUPS];
    _Alignas(64) uint8_t bits[TERN_HEAD_TILE][2][64 * K_GROUPS];
    float rho[TERN_HEAD_TILE], norms[TERN_HEAD_TILE][1 + TERN_HEAD_PLANES];
} tile;

static void quantize_tile(const tern_head_kernels *k, const float *w, tile *t) {
    static _Alignas(64) float row[(TERN_HEAD_GROUP + TERN_HEAD_LANES) * K_GROUPS];
    memset(t, 0, sizeof *t);
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
        tern_head_row to = {t->codes + 64 * r,
                            t->scales + TERN_HEAD_LANES * r,
                            {t->bits[r][0], t->bits[r][1]},
                            0,
                            0,
                            {0}};
        memset(row, 0, sizeof row);
        memcpy(row, w + r * K_IN, K_IN * sizeof *row);
        k->quantize(&to, row, K_IN);
        t->rho[r] = to.rho;
        t->norms[r][0] = to.norm_w;
        memcpy(t->norms[r] + 1, to.norm_r, sizeof to.norm_r);
    }
}

// Where element i lies: byte of its quarter's 64, lane, quarter.
typedef struct place {
    size_t group, quarter, byte, lane;
} place;

static place place_of(size_t i) {
    size_t t = i % TERN_HEAD_GROUP / TERN_HEAD_LANES, lane = i % TERN_HEAD_LANES;
    return (place){i / TERN_HEAD_GROUP, t / 4, 4 * lane + t % 4, lane};
}

// Twice, four and eight times the multiplier of a scale, by planes; see head.c.
static void planes_of(const tile *t, size_t r, size_t i, int planes[TERN_HEAD_PLANES], int *c) {
    place p = place_of(i);
    uint8_t pair = t->codes[TERN_HEAD_CODE_STEP * (4 * p.group + p.quarter / 2) + 64 * r + p.byte];
    int code = p.quarter % 2 ? pair >> 4 : pair & 15;
    planes[0] = 2 * code - 15;
    for (int b = 0; b < 2; b++) {
        code = 2 * code + (t->bits[r][b][64 * p.group + p.byte] >> p.quarter & 1);
        planes[1 + b] = 2 * code - (32 << b) + 1;
    }
    *c = t->scales[TERN_HEAD_SCALE_STEP * p.group + TERN_HEAD_LANES * r + p.lane];
}

static void check_planes(const tile *t, const float *w) {
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
        double squares[TERN_HEAD_PLANES] = {0};
        for (size_t i = 0; i < K_IN; i++) {
            int planes[TERN_HEAD_PLANES], c;
            planes_of(t, r, i, planes, &c);
            for (int p = 0; p < TERN_HEAD_PLANES; p++) {
                double e = w[r * K_IN + i] - (double)t->rho[r] * c * planes[p] / (2 << p);
                CHECK(fabs(e) <= (double)t->rho[r] * c / (2 << p) * 1.02);
                squares[p] += e * e;
            }
        }
        for (int p = 0; p < TERN_HEAD_PLANES; p++)
            CHECK(fabs(t->norms[r][1 + p] / sqrt(squares[p]) - 1) < 1e-5);
    }
}

typedef struct x_codes {
    _Alignas(64) int8_t hi[TERN_HEAD_GROUP * K_GROUPS], lo[TERN_HEAD_GROUP * K_GROUPS];
    _Alignas(64) int32_t sum_x[TERN_HEAD_LANES * K_GROUPS], sum_hi[TERN_HEAD_LANES * K_GROUPS];
} x_codes;

// Row r of all bits at once, for one to n vectors. Seen to fail: a plane's bit moved one place.
static void check_deep(const tern_head_kernels *k, const tile *t, const tern_head_vector *const *x,
                       size_t n, size_t r, double want, double size) {
    float sums[8][TERN_HEAD_TILE];
    float *outs[8];
    _Alignas(64) uint8_t bits[2][TERN_HEAD_TILE][64 * K_GROUPS];
    if (!k->screen_deep) return;
    for (size_t row = 0; row < TERN_HEAD_TILE; row++)
        for (int p = 0; p < 2; p++) memcpy(bits[p][row], t->bits[row][p], sizeof bits[p][row]);
    for (size_t i = 0; i < n; i++) outs[i] = sums[i];
    for (size_t many = 1; many <= n; many++) {
        memset(sums, 0, sizeof sums);
        k->screen_deep(outs, &(tern_head_screen){.codes = t->codes,
                                                 .scales = t->scales,
                                                 .bits = {bits[0][0], bits[1][0]},
                                                 .x = x,
                                                 .n_x = many,
                                                 .n_tiles = 1,
                                                 .n_vectors = K_VECTORS});
        for (size_t i = 0; i < many; i++)
            CHECK_MSG(fabs(sums[i][r] - want) <= 1e-6 * size, "%s: %zu vectors", k->name, many);
    }
}

static void check_sums(const tern_head_kernels *k, const tile *t, x_codes *x) {
    enum { N = 7 }; // more than share the unpacking
    float screened[TERN_HEAD_TILE], hi_only[TERN_HEAD_SHARED][TERN_HEAD_TILE], refined[N];
    float *const outs[TERN_HEAD_SHARED] = {hi_only[0], hi_only[1], hi_only[2], hi_only[3]};
    tern_head_vector v = {x->hi, x->lo, x->sum_x, x->sum_hi};
    const tern_head_vector *const vs[N] = {&v, &v, &v, &v, &v, &v, &v};
    k->screen(screened, t->codes, t->scales, &v, 1, K_VECTORS);
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
        double want[TERN_HEAD_PLANES] = {0}, size[TERN_HEAD_PLANES] = {0}, want_hi = 0, size_hi = 0;
        for (size_t i = 0; i < K_IN; i++) {
            place at = place_of(i);
            int planes[TERN_HEAD_PLANES], c;
            planes_of(t, r, i, planes, &c);
            int hi = x->hi[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte];
            int lo = x->lo[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte];
            double terms[] = {(double)c * planes[0] * (128 * hi + lo),
                              (double)c * (planes[1] - 2 * planes[0]) * hi,
                              (double)c * (planes[2] - 2 * planes[1]) * hi};
            want_hi += (double)c * planes[0] * hi;
            size_hi += fabs((double)c * planes[0] * hi);
            for (int p = 0; p < TERN_HEAD_PLANES; p++) {
                want[p] += terms[p];
                size[p] += fabs(terms[p]);
            }
        }
        CHECK_MSG(fabs(screened[r] - want[0]) <= 1e-6 * size[0], "%s", k->name);
        const uint8_t *scales = t->scales + TERN_HEAD_LANES * r;
        for (int b = 0; b < 2; b++) {
            for (size_t n = 1; n <= N; n++) {
                k->refine(refined, t->bits[r][b], scales, vs, n, K_GROUPS);
                for (size_t i = 0; i < n; i++)
                    CHECK_MSG(fabs(refined[i] - want[1 + b]) <= 1e-6 * size[1 + b], "%s", k->name);
            }
        }
        check_deep(k, t, vs, N, r, 4 * want_hi + 2 * want[1] + want[2],
                   4 * size_hi + 2 * size[1] + size[2]);
        for (size_t n = 1; n <= TERN_HEAD_SHARED; n++) {
            memset(hi_only, 0, sizeof hi_only);
            k->screen_hi(outs, &(tern_head_screen){.codes = t->codes,
                                                   .scales = t->scales,
                                                   .x = vs,
                                                   .n_x = n,
                                                   .n_tiles = 1,
                                                   .n_vectors = K_VECTORS});
            for (size_t i = 0; i < n; i++)
                CHECK_MSG(fabs(hi_only[i][r] - want_hi) <= 1e-6 * size_hi, "%s", k->name);
        }
    }
}

TEST(head_kernels_are_right_and_quantize_alike) {
    static float w[TERN_HEAD_TILE * K_IN];
    static tile first;
    static x_codes x;
    const char *names[8];
    size_t n_names = tern_cpu_kernels_list(names);
    uint32_t seed = 1;
    for (size_t i = 0; i < TERN_HEAD_TILE * K_IN; i++) w[i] = gauss(&seed);
    for (size_t i = 0; i < K_IN; i++) {
        place at = place_of(i);
        int X = i % 3 ? (int)(noise(&seed) % 32513) - 16256 : i % 2 ? 16256 : -16256; // extremes
        int hi = (X + 64 + 16384) / 128 - 128;
        x.hi[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte] = (int8_t)hi;
        x.lo[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte] = (int8_t)(X - 128 * hi);
        x.sum_x[TERN_HEAD_LANES * at.group + at.lane] += 15 * X;
        x.sum_hi[TERN_HEAD_LANES * at.group + at.lane] += hi;
    }
    quantize_tile(&tern_head_kernels_scalar, w, &first);
    check_planes(&first, w);
    check_sums(&tern_head_kernels_scalar, &first, &x);
    for (size_t i = 1; i < n_names; i++) {
        static tile t;
        tern_cpu_kernels kernels;
        REQUIRE(tern_cpu_kernels_select(names[i], &kernels));
        if (kernels.h == &tern_head_kernels_scalar) continue;
        quantize_tile(kernels.h, w, &t);
        CHECK_MSG(!memcmp(&first, &t, sizeof t), "%s", kernels.h->name);
        check_sums(kernels.h, &t, &x);
    }
}

// ---- All of it --------------------------------------------------------------------------------

// One matrix of a type and a vector.
typedef struct head_case {
    tern_dtype type;
    size_t n_rows, n_in;
    uint64_t row_bytes;
    float *w, *x; // floats before encoding
    uint8_t *data;
} head_case;

static bool case_open(head_case *c, tern_dtype type, size_t n_rows, size_t n_in, uint32_t seed) {
    *c = (head_case){.type = type, .n_rows = n_rows, .n_in = n_in};
    if (!tern_dtype_bytes(type, n_in, n_in, &c->row_bytes)) return false;
    c->w = tern_alloc_array(TERN_MEM_MISC, n_rows * n_in, sizeof(float));
    c->x = tern_alloc_array(TERN_MEM_MISC, n_in, sizeof(float));
    c->data = tern_alloc_array(TERN_MEM_MISC, n_rows, (size_t)c->row_bytes);
    if (!c->w || !c->x || !c->data) return false;
    for (size_t i = 0; i < n_rows * n_in; i++) c->w[i] = 0.7f * gauss(&seed);
    for (size_t i = 0; i < n_in; i++) c->x[i] = gauss(&seed);
    return true;
}

static void case_encode(head_case *c) {
    for (size_t r = 0; r < c->n_rows; r++)
        tern_dtype_encode(c->type, c->w + r * c->n_in, c->n_in, c->data + r * c->row_bytes);
}

static void case_close(head_case *c) {
    tern_free(c->w);
    tern_free(c->x);
    tern_free(c->data);
}

static const float *sort_by;

static int by_value_then_id(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_by[i] != sort_by[j]) return sort_by[i] > sort_by[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

// All rows by matvec, sorted.
static void brute_force(const head_case *c, const tern_float_kernels *f, int32_t k,
                        const uint64_t *allowed, int32_t *ids, float *values) {
    float *y = tern_alloc_array(TERN_MEM_MISC, c->n_rows + 1, sizeof *y);
    int32_t *order = tern_alloc_array(TERN_MEM_MISC, c->n_rows + 1, sizeof *order), n = 0;
    f->matvec(
        &(tern_matvec_args){y, c->x, c->data, c->type, c->row_bytes, c->n_rows, c->n_in, 1, false});
    for (size_t r = 0; r < c->n_rows; r++)
        if (!isnan(y[r]) && (!allowed || allowed[r / 64] >> r % 64 & 1)) order[n++] = (int32_t)r;
    sort_by = y;
    qsort(order, (size_t)n, sizeof *order, by_value_then_id);
    for (int32_t i = 0; i < k; i++) {
        ids[i] = i < n ? order[i] : INT32_MAX;
        values[i] = i < n ? y[order[i]] : -INFINITY;
    }
    tern_free(y);
    tern_free(order);
}

// Goes through the rounds as a team would, range_blocks blocks at a time, in a shuffled order.
static void run_query(tern_head_query *q, const float *x, size_t n_x, int32_t k,
                      const uint64_t *const *allowed, size_t range_blocks, int32_t *ids,
                      float *values) {
    tern_head_begin(q, x, n_x, k, allowed);
    do {
        size_t n = tern_head_n_items(q), step = tern_head_block(q) * range_blocks;
        size_t n_ranges = (n + step - 1) / step;
        for (size_t i = 0; i < n_ranges; i++) {
            size_t first = (n_ranges - 1 - i) * step;
            tern_head_work(q, first, first + step < n ? first + step : n);
        }
    } while (tern_head_next(q, ids, values));
}

enum { MAX_K = 300 };

// Several vectors at a time give the same answers as each alone; the fourth has an outlier, so that
// one byte describes it badly. Three times, as how a query goes depends on the one before. Seen to
// fail: a lane's bit lost between two planes; the bound of six bits without the residual.
enum { SEVERAL = 12 };
static void check_several(const head_case *c, tern_head_query *q, const tern_float_kernels *f,
                          const char *what) {
    enum { K = 7 };
    int32_t ids[SEVERAL * K], want_ids[SEVERAL][K];
    float values[SEVERAL * K], want[SEVERAL][K];
    float *x = tern_alloc_array(TERN_MEM_MISC, SEVERAL * c->n_in, sizeof *x);
    for (size_t v = 0; v < SEVERAL; v++) {
        head_case one = *c;
        one.x = x + v * c->n_in;
        for (size_t i = 0; i < c->n_in; i++) one.x[i] = c->x[(i + 5 * v) % c->n_in];
        for (size_t i = 0; v == 1 && i < c->n_in; i++) one.x[i] = c->x[c->n_in - 1 - i];
        for (size_t i = 0; v == 2 && i < c->n_in; i++) one.x[i] = -2 * c->x[i];
        if (v == 3) one.x[c->n_in / 2] *= 300;
        brute_force(&one, f, K, NULL, want_ids[v], want[v]);
    }
    for (int round = 0; round < 3; round++) {
        run_query(q, x, SEVERAL, K, NULL, 2, ids, values);
        for (size_t v = 0; v < SEVERAL; v++)
            CHECK_MSG(!memcmp(ids + v * K, want_ids[v], sizeof want_ids[v]) &&
                          !memcmp(values + v * K, want[v], sizeof want[v]),
                      "%s: vector %zu of several, round %d, %zu x %zu", what, v, round, c->n_rows,
                      c->n_in);
    }
    tern_free(x);
}

// Sets of rows: none, few, most but not the greatest, those of one block, every other one.
static void make_set(const head_case *c, size_t kind, int32_t greatest, uint64_t *set) {
    uint32_t seed = (uint32_t)kind;
    for (size_t r = 0; r < c->n_rows; r++) {
        const bool is_in = kind == 0   ? false
                           : kind == 1 ? noise(&seed) % 61 == 0
                           : kind == 2 ? (int32_t)r != greatest && noise(&seed) % 50 != 0
                           : kind == 3 ? r / 256 == c->n_rows / 512
                                       : r % 2 == 0;
        if (is_in) set[r / 64] |= (uint64_t)1 << r % 64;
    }
}

// The greatest of the rows that are allowed, for one vector and for several, some with a set each
// and some without. Seen to fail: survivors or seeds that are not allowed; a block passed over that
// only the second vector wants; few rows listed for the first vector alone.
static void check_sets(const head_case *c, tern_head_query *q, const tern_float_kernels *f,
                       const char *what) {
    enum { K = 7, KINDS = 5, N = KINDS + 1 };
    const size_t n_words = (c->n_rows + 63) / 64;
    int32_t ids[N * K], want_ids[N][K];
    float values[N * K], want[N][K];
    uint64_t *sets = tern_alloc_array(TERN_MEM_MISC, KINDS * n_words, sizeof *sets);
    const uint64_t *allowed[N] = {NULL};
    float *x = tern_alloc_array(TERN_MEM_MISC, N * c->n_in, sizeof *x);
    brute_force(c, f, K, NULL, want_ids[0], want[0]);
    const int32_t greatest = want_ids[0][0];
    for (size_t i = 0; i < N; i++) {
        memcpy(x + i * c->n_in, c->x, c->n_in * sizeof *x);
        if (i) make_set(c, i - 1, greatest, sets + (i - 1) * n_words);
        if (i) allowed[i] = sets + (i - 1) * n_words;
        brute_force(c, f, K, allowed[i], want_ids[i], want[i]);
        run_query(q, c->x, 1, K, allowed + i, 1, ids, values);
        CHECK_MSG(!memcmp(ids, want_ids[i], sizeof want_ids[i]) &&
                      !memcmp(values, want[i], sizeof want[i]),
                  "%s: set %zu, %zu x %zu", what, i, c->n_rows, c->n_in);
    }
    for (size_t first = 0; first < 3; first++) { // with all, without, and two that are few
        const size_t n = first < 2 ? N - first : 2;
        const size_t from = first < 2 ? first : 1;
        run_query(q, x, n, K, allowed + from, 2, ids, values);
        for (size_t i = 0; i < n; i++)
            CHECK_MSG(!memcmp(ids + i * K, want_ids[from + i], sizeof want_ids[0]) &&
                          !memcmp(values + i * K, want[from + i], sizeof want[0]),
                      "%s: set %zu of several, %zu x %zu", what, from + i, c->n_rows, c->n_in);
    }
    tern_free(sets);
    tern_free(x);
}

// Every variant, several k, against brute force (whose bits are every variant's). Returns the rows
// read in full for k = 1.
static size_t check_case(const head_case *c, const char *what) {
    static int32_t ids[MAX_K], want_ids[MAX_K];
    static float values[MAX_K], want[MAX_K];
    static const int32_t ks[] = {300, 40, 5, 1};
    const char *names[8];
    size_t n_names = tern_cpu_kernels_list(names), n_exact = 0;
    tern_cpu_kernels kernels;
    tern_cpu_kernels_select(NULL, &kernels);
    brute_force(c, kernels.f, MAX_K, NULL, want_ids, want);
    for (size_t v = 0; v < n_names; v++) {
        tern_error err = {0};
        tern_head *h;
        tern_head_query *q;
        tern_cpu_kernels_select(names[v], &kernels);
        tern_head_matrix w = {c->type, c->data, (size_t)c->row_bytes, c->n_rows, c->n_in, 1};
        if (tern_head_create(&h, &w, &kernels, &err) != TERN_OK) {
            CHECK_MSG(false, "%s: %s", what, err.message);
            continue;
        }
        void *scratch = tern_alloc(TERN_MEM_MISC, tern_head_build_scratch_bytes(h));
        tern_head_build(h, c->n_rows / 3, c->n_rows, scratch);
        tern_head_build(h, 0, c->n_rows / 3, scratch);
        bool opened = tern_head_query_create(&q, h, SEVERAL, &err) == TERN_OK;
        for (size_t i = 0; opened && i < sizeof ks / sizeof *ks; i++) {
            run_query(q, c->x, 1, ks[i], NULL, 1 + 7 * (i % 2), ids, values);
            CHECK_MSG(!memcmp(ids, want_ids, (size_t)ks[i] * sizeof *ids) &&
                          !memcmp(values, want, (size_t)ks[i] * sizeof *values),
                      "%s: %s %s %zu x %zu, k = %d: got %d %a, not %d %a", what, names[v],
                      tern_dtype_name(c->type), c->n_rows, c->n_in, ks[i], ids[0], values[0],
                      want_ids[0], want[0]);
        }
        n_exact = tern_head_query_stats(q, 0).n_exact;
        if (opened) check_several(c, q, kernels.f, what);
        if (opened) check_sets(c, q, kernels.f, what);
        tern_head_query_free(q);
        tern_head_free(h);
        tern_free(scratch);
    }
    return n_exact;
}

TEST(head_is_exact_for_gaussian_rows_of_every_type) {
    static const tern_dtype types[] = {TERN_DTYPE_F32, TERN_DTYPE_F16, TERN_DTYPE_BF16,
                                       TERN_DTYPE_Q8_0, TERN_DTYPE_Q6_K};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        head_case c;
        REQUIRE(case_open(&c, types[t], 3001, 768, (uint32_t)t));
        case_encode(&c);
        size_t n_exact = check_case(&c, "gaussian");
        CHECK_MSG(n_exact < 100, "%zu rows in full", n_exact);
        case_close(&c);
    }
}

TEST(head_is_exact_for_every_shape) {
    static const size_t shapes[][2] = {{1, 1},   {2, 31},    {63, 33},   {64, 128},  {65, 129},
                                       {300, 7}, {257, 511}, {128, 512}, {299, 897}, {400, 1664}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        head_case c;
        REQUIRE(case_open(&c, i % 2 ? TERN_DTYPE_F16 : TERN_DTYPE_F32, shapes[i][0], shapes[i][1],
                          (uint32_t)i));
        case_encode(&c);
        check_case(&c, "shape");
        case_close(&c);
    }
}

// ---- Hard rows -------------------------------------------------------------------------------

static void all_rows_equal(head_case *c) {
    for (size_t r = 1; r < c->n_rows; r++)
        memcpy(c->w + r * c->n_in, c->w, c->n_in * sizeof(float));
}

static void one_unit_apart(head_case *c) { // logits that differ in their last bits, or not at all
    all_rows_equal(c);
    for (size_t r = 0; r < c->n_rows; r++) {
        float *v = c->w + r * c->n_in + r * 7 % c->n_in;
        *v = nextafterf(*v, r % 3 ? INFINITY : -INFINITY);
    }
}

static void outliers(head_case *c) {
    for (size_t r = 0; r < c->n_rows; r++) c->w[r * c->n_in + r % c->n_in] *= r % 5 ? 1e4f : 1e15f;
    c->x[3] = 1e6f;
}

static void zeros(head_case *c) {
    for (size_t r = 0; r < c->n_rows; r += 2)
        memset(c->w + r * c->n_in, 0, c->n_in * sizeof(float));
    for (size_t i = 0; i < c->n_in; i++) c->x[i] = -fabsf(c->x[i]);
    for (size_t i = c->n_in; i < 2 * c->n_in; i++) c->w[i] = -fabsf(c->w[i]);
}

static void zero_x(head_case *c) { memset(c->x, 0, c->n_in * sizeof(float)); }

static void tiny_rows(head_case *c) {
    for (size_t i = 0; i < c->n_rows * c->n_in; i++) c->w[i] *= 1e-41f;
}
static void tiny_x(head_case *c) {
    for (size_t i = 0; i < c->n_in; i++) c->x[i] *= 1e-40f;
    for (size_t i = 0; i < c->n_rows * c->n_in; i++) c->w[i] *= 1e15f;
}
static void tiny_products(head_case *c) {
    for (size_t i = 0; i < c->n_in; i++) c->x[i] *= 1e-22f;
    for (size_t i = 0; i < c->n_rows * c->n_in; i++) c->w[i] *= 1e-22f;
}
static void huge_rows(head_case *c) {
    for (size_t i = 0; i < c->n_rows * c->n_in; i++) c->w[i] *= 1e37f;
}
static void huge_x(head_case *c) {
    for (size_t i = 0; i < c->n_in; i++) c->x[i] *= 2e37f;
    for (size_t i = 0; i < c->n_rows * c->n_in; i++) c->w[i] *= 10;
}

static void on_the_grid(head_case *c) { // |r_1| = 0 < |r_2|
    uint32_t seed = 1;
    for (size_t i = 0; i < c->n_rows * c->n_in; i++) {
        uint32_t z = noise(&seed);
        c->w[i] = i % 64 < 16 ? 8.0f : (float)(int)(z % 16) - 7.5f;
    }
}

static void cancelling(head_case *c) { // great terms, small sums: rounding decides the order
    for (size_t r = 0; r < c->n_rows; r++)
        for (size_t i = 0; i + 1 < c->n_in; i += 2)
            c->w[r * c->n_in + i] = -c->w[r * c->n_in + i + 1] * 1000;
    for (size_t i = 0; i + 1 < c->n_in; i += 2) c->x[i] = c->x[i + 1] / 1000;
}

static void not_numbers_in_rows(head_case *c) {
    c->w[5] = NAN;
    c->w[2 * c->n_in] = INFINITY;
    c->w[3 * c->n_in + 7] = -INFINITY;
    c->w[4 * c->n_in + 8] = INFINITY;
    c->w[4 * c->n_in + 9] = -INFINITY;
    c->w[5 * c->n_in] = FLT_MAX;
}
static void nan_rows(head_case *c) {
    for (size_t r = 0; r < c->n_rows; r++)
        if (r % 97) c->w[r * c->n_in + r % c->n_in] = NAN;
}
static void nan_in_x(head_case *c) { c->x[9] = NAN; }
static void infinite_x(head_case *c) { c->x[2] = INFINITY; }
static void infinite_x_zero_rows(head_case *c) {
    infinite_x(c);
    zeros(c);
}

TEST(head_is_exact_for_rows_that_lie_in_wait) {
    static const struct {
        const char *name;
        void (*make)(head_case *c);
    } traps[] = {
        {"equal rows", all_rows_equal},
        {"one unit apart", one_unit_apart},
        {"outliers", outliers},
        {"zeros", zeros},
        {"zero x", zero_x},
        {"tiny rows", tiny_rows},
        {"tiny x", tiny_x},
        {"tiny products", tiny_products},
        {"huge rows", huge_rows},
        {"huge x", huge_x},
        {"on the grid", on_the_grid},
        {"cancelling", cancelling},
        {"NaN in rows", not_numbers_in_rows},
        {"NaN in most rows", nan_rows},
        {"NaN in x", nan_in_x},
        {"infinite x", infinite_x},
        {"infinite x, zero rows", infinite_x_zero_rows},
    };
    for (size_t i = 0; i < sizeof traps / sizeof *traps; i++) {
        for (int type = 0; type < 2; type++) {
            head_case c;
            REQUIRE(case_open(&c, type ? TERN_DTYPE_F16 : TERN_DTYPE_F32, 513, 160, (uint32_t)i));
            traps[i].make(&c);
            case_encode(&c);
            check_case(&c, traps[i].name);
            case_close(&c);
        }
    }
}

// Weights an eighth of a step from the grid, but for one of a block, so that planes 1 and 2 are
// equally near; and an x whose error as single bytes is as great as is allowed and has the best
// row's signs. That row looks no better than the others. Seen to fail with the error of two bytes
// in the bound of a_1 of one.
TEST(head_is_exact_when_the_error_of_one_byte_decides) {
    enum { ROWS = 300, COLS = 512, LARGE = 28, FLIPS = 8 };
    head_case c;
    uint32_t seed = 1;
    REQUIRE(case_open(&c, TERN_DTYPE_F32, ROWS, COLS, 1));
    for (size_t i = 0; i < COLS; i++) c.x[i] = i < LARGE ? 127 * 128 : 60;
    for (size_t r = 0; r < ROWS; r++) {
        float *w = c.w + r * COLS;
        for (size_t i = 0; i < COLS; i++) w[i] = i < 16 ? 8.0f : 7.625f;
        for (size_t i = 0; i < FLIPS && r < ROWS - 1; i++)
            w[LARGE + noise(&seed) % (COLS - LARGE)] = -7.625f;
    }
    case_encode(&c);
    check_case(&c, "one byte's error");
    case_close(&c);
}

TEST(head_reads_little_when_one_row_stands_out) {
    head_case c;
    REQUIRE(case_open(&c, TERN_DTYPE_F16, 2000, 1024, 1));
    for (size_t i = 0; i < c.n_in; i++) c.w[1234 * c.n_in + i] += 0.3f * c.x[i];
    case_encode(&c);
    CHECK(check_case(&c, "stands out") == 1);
    case_close(&c);
}

// Goes through `n` queries of SEVERAL vectors near x; says of each whether all bits were read.
static void depths(const head_case *c, int n, bool is_deep[]) {
    static int32_t ids[SEVERAL];
    static float values[SEVERAL];
    tern_cpu_kernels kernels;
    tern_error err = {0};
    tern_head *h;
    tern_head_query *q;
    REQUIRE(tern_cpu_kernels_select("scalar", &kernels));
    tern_head_matrix w = {c->type, c->data, (size_t)c->row_bytes, c->n_rows, c->n_in, 1};
    REQUIRE_OK(tern_head_create(&h, &w, &kernels, &err), err);
    void *scratch = tern_alloc(TERN_MEM_MISC, tern_head_build_scratch_bytes(h));
    tern_head_build(h, 0, c->n_rows, scratch);
    REQUIRE_OK(tern_head_query_create(&q, h, SEVERAL, &err), err);
    float *x = tern_alloc_array(TERN_MEM_MISC, SEVERAL * c->n_in, sizeof *x);
    for (size_t i = 0; i < SEVERAL * c->n_in; i++) x[i] = c->x[i % c->n_in];
    for (int i = 0; i < n; i++) {
        run_query(q, x, SEVERAL, 1, NULL, 2, ids, values);
        tern_head_stats stats = tern_head_query_stats(q, 1);
        is_deep[i] = stats.is_deep;
        CHECK_MSG(stats.n_exact < 60, "%zu rows in full", stats.n_exact);
        for (size_t k = 0; i % 2 && k < SEVERAL * c->n_in; k++) x[k] = c->w[k % c->n_in]; // row 0
    }
    tern_head_query_free(q);
    tern_head_free(h);
    tern_free(scratch);
    tern_free(x);
}

// Many vectors take all bits at once after a query whose first plane decided little, and four again
// after one in which a row stood out. Seen to fail: without the count of a deep query's open rows;
// with its sums twice as great.
TEST(head_reads_all_bits_where_four_decide_little) {
    bool is_deep[5];
    head_case c;
    REQUIRE(case_open(&c, TERN_DTYPE_F16, 1000, 2048, 1));
    case_encode(&c);
    depths(&c, 5, is_deep); // x at random, twice; then row 0
    CHECK(!is_deep[0] && is_deep[1] && is_deep[2] && !is_deep[3] && !is_deep[4]);
    case_close(&c);
}

TEST(head_says_when_memory_is_out) {
    tern_cpu_kernels kernels;
    tern_error err = {0};
    static float floats[64];
    tern_head_matrix w = {TERN_DTYPE_F32, floats, 64, 4, 16, 1};
    tern_head *h = NULL;
    tern_head_query *q = NULL;
    REQUIRE(tern_cpu_kernels_select(NULL, &kernels));
    for (uint64_t i = 1; i <= 2; i++) {
        tern_mem_fail_at(i);
        CHECK(tern_head_create(&h, &w, &kernels, &err) == TERN_ERR_MEMORY && !h);
    }
    tern_mem_fail_at(0);
    REQUIRE_OK(tern_head_create(&h, &w, &kernels, &err), err);
    for (uint64_t i = 1; i <= 2; i++) {
        tern_mem_fail_at(i);
        CHECK(tern_head_query_create(&q, h, 3, &err) == TERN_ERR_MEMORY && !q);
    }
    tern_mem_fail_at(0);
    tern_head_free(h);
    w.n_in = (size_t)1 << 21;
    CHECK(tern_head_create(&h, &w, &kernels, &err) == TERN_ERR_UNSUPPORTED && !h);
}
