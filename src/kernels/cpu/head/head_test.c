#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/head/head.h"
#include "kernels/cpu/head/head_kernels.h"
#include "kernels/cpu/head/head_noise.h"
#include "tests/support/harness.h"

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
