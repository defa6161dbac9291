// Every variant against sums written out here, exactly: ordinary and worst cases, odd sizes, ranges
// of rows that begin anywhere.
#include "kernels/cpu/ternary/ternary_kernels.h"
#include "base/alloc.h"
#include "kernels/cpu/grouped/grouped.h"
#include "kernels/cpu/head/head_kernels.h"
#include "kernels/cpu/check_random.h"
#include "kernels/cpu/check_table.h"
#include "tests/support/harness.h"

#include <stdlib.h>
#include <string.h>

static size_t variants(const tern_ternary_kernels *list[8]) {
    const char *names[8];
    size_t n = tern_cpu_kernels_list(names);
    for (size_t i = 0; i < n; i++) {
        tern_cpu_kernels kernels;
        CHECK(tern_cpu_kernels_select(names[i], &kernels));
        list[i] = kernels.t;
    }
    return n;
}

typedef enum pattern { RANDOM, ALL_PLUS, ALL_MINUS, N_PATTERNS } pattern;

typedef struct problem {
    size_t n_in, n_rows, n_tokens;
    int8_t *weights; // [n_rows][n_in]
    tern_i8_rows x;
    tern_ternary_matrix w[2]; // by packing; data not aligned
    uint8_t *data[2];
    float *expected, *out; // [n_tokens][n_rows + 3]
    size_t out_stride;
} problem;

static int8_t *array(size_t n, size_t size) {
    void *block = tern_alloc_array(TERN_MEM_MISC, n, size);
    if (!block) abort();
    return block;
}

static void fill(problem *p, pattern kind) {
    for (size_t i = 0; i < p->n_rows * p->n_in; i++)
        p->weights[i] = kind == RANDOM      ? (int8_t)(random_u32() % 3 - 1)
                        : kind == ALL_MINUS ? -1
                                            : 1;
    for (size_t t = 0; t < p->n_tokens; t++) {
        int8_t *q = p->x.q + t * p->x.stride;
        p->x.sum[t] = 0;
        p->x.inv_scale[t] = 0.01f + (float)(random_u32() % 1000) * 1e-5f;
        for (size_t i = 0; i < p->n_in; i++) {
            q[i] = kind == RANDOM ? (int8_t)(random_u32() & 255) : (t & 1) ? -128 : 127;
            p->x.sum[t] += q[i];
        }
    }
    for (int k = 0; k < 2; k++)
        for (size_t r = 0; r < p->n_rows; r++)
            tern_ternary_pack_row((tern_packing)k, p->weights + r * p->n_in, p->n_in,
                                  p->data[k] + 1 + r * p->w[k].row_bytes);
    for (size_t t = 0; t < p->n_tokens; t++)
        for (size_t r = 0; r < p->n_rows; r++) {
            int32_t acc = 0;
            for (size_t i = 0; i < p->n_in; i++)
                acc += p->weights[r * p->n_in + i] * p->x.q[t * p->x.stride + i];
            p->expected[t * p->out_stride + r] = (float)acc * (p->w[0].scale * p->x.inv_scale[t]);
        }
}

static problem problem_new(size_t n_in, size_t n_rows, size_t n_tokens) {
    problem p = {.n_in = n_in, .n_rows = n_rows, .n_tokens = n_tokens, .out_stride = n_rows + 3};
    p.weights = array(n_rows, n_in);
    p.x.n_tokens = n_tokens;
    p.x.stride = (n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD;
    p.x.q = array(n_tokens, p.x.stride);
    p.x.sum = (int32_t *)array(n_tokens, 4);
    p.x.inv_scale = (float *)array(n_tokens, 4);
    p.expected = (float *)array(n_tokens * p.out_stride, 4);
    p.out = (float *)array(n_tokens * p.out_stride, 4);
    for (int k = 0; k < 2; k++) {
        p.w[k] = (tern_ternary_matrix){.packing = (tern_packing)k, .n_in = n_in, .n_rows = n_rows};
        p.w[k].row_bytes = tern_ternary_row_bytes((tern_packing)k, n_in);
        p.w[k].scale = 0.037f;
        // From malloc, and one byte too low, so that a sanitizer finds reads outside.
        p.data[k] = malloc(n_rows * p.w[k].row_bytes + 1);
        if (!p.data[k]) abort();
        p.w[k].data = p.data[k] + 1;
    }
    return p;
}

static void problem_free(problem *p) {
    tern_free(p->weights), tern_free(p->x.q), tern_free(p->x.sum), tern_free(p->x.inv_scale);
    tern_free(p->expected), tern_free(p->out);
    free(p->data[0]), free(p->data[1]);
}

// out must be `expected` (twice it, if accumulated onto itself) in the rows, untouched elsewhere.
static void compare(const problem *p, const char *what, size_t first, size_t last, bool twice) {
    for (size_t t = 0; t < p->n_tokens; t++)
        for (size_t r = 0; r < p->out_stride; r++) {
            float got = p->out[t * p->out_stride + r], want = p->expected[t * p->out_stride + r];
            want = r < first || r >= last ? -7 : twice ? want + want : want;
            if (memcmp(&got, &want, 4) == 0) continue;
            RIGHT(false, "%s: n_in %zu, rows %zu..%zu of %zu: [%zu, %zu] is %g, not %g", what,
                  p->n_in, first, last, p->n_rows, t, r, (double)got, (double)want);
            return;
        }
}

static void clear(problem *p) {
    for (size_t i = 0; i < p->n_tokens * p->out_stride; i++) p->out[i] = -7;
}

// Memory of n bytes, and behind it a guard: who needs more than was said writes there.
enum { GUARD = 4096 };
static void *guarded(size_t n) {
    int8_t *block = array(2, n + GUARD); // where half of the size is said, that is found too
    memset(block + n, 0x5A, GUARD);
    return block;
}
static bool guard_is_whole(const void *block, size_t n) {
    for (size_t i = 0; i < GUARD; i++)
        if (((const uint8_t *)block)[n + i] != 0x5A) return false;
    return true;
}

static void check_gemv(const tern_ternary_kernels *k, problem *p, tern_packing packing,
                       size_t first, size_t last) {
    const size_t n_prepared = k->prepared_bytes(packing, p->n_in, p->n_tokens);
    void *prepared = guarded(n_prepared);
    char what[64];
    snprintf(what, sizeof what, "%s gemv %s, %zu tokens", k->name, packing ? "1.6" : "2",
             p->n_tokens);
    clear(p);
    k->prepare(packing, prepared, &p->x, p->n_in, p->n_tokens / 2, p->n_tokens); // as two threads
    k->prepare(packing, prepared, &p->x, p->n_in, 0, p->n_tokens / 2);
    tern_product to = {first, last, p->out, p->out_stride, false};
    k->gemv(&p->w[packing], &p->x, prepared, &to);
    compare(p, what, first, last, false);
    to.accumulate = true;
    k->gemv(&p->w[packing], &p->x, prepared, &to);
    compare(p, what, first, last, true);
    RIGHT(guard_is_whole(prepared, n_prepared), "%s: prepared is longer than said", what);
    tern_free(prepared);
}

static void check_gemm(const tern_ternary_kernels *k, problem *p, tern_packing packing,
                       size_t first, size_t last) {
    const size_t n_panels = k->panels_bytes(p->n_in, p->n_tokens);
    const size_t n_scratch = k->gemm_scratch_bytes(p->n_in);
    void *panels = guarded(n_panels), *scratch = guarded(n_scratch);
    char what[64];
    snprintf(what, sizeof what, "%s gemm %s, %zu tokens", k->name, packing ? "1.6" : "2",
             p->n_tokens);
    clear(p);
    size_t block = k->gemm_token_block(p->n_tokens); // in two calls, as two threads would
    RIGHT(block > 0, "%s: blocks of no tokens", what);
    size_t half = block ? p->n_tokens / 2 / block * block : 0;
    k->make_panels(panels, &p->x, p->n_in, 0, half);
    k->make_panels(panels, &p->x, p->n_in, half, p->n_tokens);
    first = first / k->gemm_row_block * k->gemm_row_block;
    tern_product to = {first, last, p->out, p->out_stride, false};
    k->gemm(&p->w[packing], &p->x, panels, scratch, &to);
    compare(p, what, first, last, false);
    to.accumulate = true;
    k->gemm(&p->w[packing], &p->x, panels, scratch, &to);
    compare(p, what, first, last, true);
    RIGHT(guard_is_whole(panels, n_panels), "%s: panels are longer than said", what);
    RIGHT(guard_is_whole(scratch, n_scratch), "%s: scratch is longer than said", what);
    tern_free(panels);
    tern_free(scratch);
}

static const size_t widths[] = {1, 16, 79, 127, 128, 129, 256, 288, 320, 336, 640, 700, 2560, 6912};
enum { N_WIDTHS = sizeof widths / sizeof *widths };

// Both packers, against the plain ones.
static void check_packers(const tern_ternary_kernels *k, const int8_t *q, size_t n) {
    uint8_t *row[2], *fast = malloc(tern_ternary_row_bytes(TERN_PACK_2BIT, n));
    for (int packing = 0; packing < 2; packing++) {
        const size_t bytes = tern_ternary_row_bytes((tern_packing)packing, n);
        row[packing] = malloc(bytes);
        tern_ternary_pack_row((tern_packing)packing, q, n, row[packing]);
        memset(fast, 0xEE, bytes);
        k->pack_row((tern_packing)packing, q, n, fast);
        RIGHT(memcmp(fast, row[packing], bytes) == 0, "%s packs %zu weights otherwise (%d)",
              k->name, n, packing);
    }
    const size_t bytes = tern_ternary_row_bytes(TERN_PACK_1_6BIT, n);
    memset(fast, 0xEE, bytes);
    k->repack_row(fast, row[0], n);
    RIGHT(memcmp(fast, row[1], bytes) == 0, "%s repacks %zu weights otherwise", k->name, n);
    free(row[0]), free(row[1]), free(fast);
}

TEST(ternary_rows_pack_and_unpack) {
    const tern_ternary_kernels *k[8];
    size_t n_variants = variants(k);
    for (size_t i = 0; i < N_WIDTHS; i++) {
        size_t n = widths[i];
        int8_t *q = array(1, n), *back = array(1, n);
        size_t bytes[2] = {tern_ternary_row_bytes(TERN_PACK_2BIT, n),
                           tern_ternary_row_bytes(TERN_PACK_1_6BIT, n)};
        CHECK(bytes[0] == (n + 127) / 128 * 32 && bytes[1] >= (n + 4) / 5 && bytes[1] < n / 5 + 33);
        for (int round = 0; round < 3; round++) {
            for (size_t j = 0; j < n; j++)
                q[j] = (int8_t)(round == 0 ? random_u32() % 3 - 1 : (uint32_t)(round == 1) * 2 - 1);
            uint8_t *row = malloc(bytes[0]);
            for (int packing = 0; packing < 2; packing++) {
                tern_ternary_pack_row((tern_packing)packing, q, n, row);
                memset(back, 9, n);
                tern_ternary_unpack_row((tern_packing)packing, row, n, back);
                CHECK(memcmp(q, back, n) == 0);
            }
            for (size_t v = 0; v < n_variants; v++) check_packers(k[v], q, n);
            free(row);
        }
        tern_free(q), tern_free(back);
    }
}

TEST(ternary_1_6bit_bytes_are_as_documented) {
    for (unsigned n = 0; n < 243; n++) {
        int8_t q[160] = {0}, back[160];
        for (unsigned k = 0, rest = n; k < 5; k++, rest /= 3)
            q[(4 - k) * 32] = (int8_t)(rest % 3 - 1);
        uint8_t row[32];
        tern_ternary_pack_row(TERN_PACK_1_6BIT, q, 160, row);
        CHECK(row[0] == 85 * (n / 81) + 256 * (n % 81 + 1) / 243 - 1);
        CHECK(row[1] == 85 + 256 * 41 / 243 - 1); // all weights 0
        tern_ternary_unpack_row(TERN_PACK_1_6BIT, row, 160, back);
        CHECK(memcmp(q, back, 160) == 0);
    }
}

TEST(ternary_gemv_is_exact) {
    const tern_ternary_kernels *k[8];
    size_t n_variants = variants(k);
    for (size_t i = 0; i < N_WIDTHS; i++)
        for (size_t n_tokens = 1; n_tokens <= 8; n_tokens++)
            for (int kind = RANDOM; kind < N_PATTERNS; kind++) {
                problem p = problem_new(widths[i], 11, n_tokens);
                fill(&p, (pattern)kind);
                for (size_t v = 0; v < n_variants; v++)
                    for (int packing = 0; packing < 2; packing++) {
                        check_gemv(k[v], &p, (tern_packing)packing, 0, 11);
                        check_gemv(k[v], &p, (tern_packing)packing, 3, 10);
                        check_gemv(k[v], &p, (tern_packing)packing, 10, 11);
                        check_gemv(k[v], &p, (tern_packing)packing, 5, 5);
                    }
                problem_free(&p);
            }
}

// Both kernels take any number of tokens, in parts of their own choice. Seen to fail: when parts of
// gemv began one token early, when tiles of gemm and panels had different sizes, when the last tile
// computed a token too few.
TEST(ternary_any_number_of_tokens_is_exact) {
    static const size_t some_widths[] = {79, 700, 2560 + 320 + 1};
    const tern_ternary_kernels *k[8];
    size_t n_variants = variants(k);
    for (size_t n_tokens = 1; n_tokens <= 70; n_tokens++)
        for (size_t i = 0; i < sizeof some_widths / sizeof *some_widths; i++) {
            problem p = problem_new(some_widths[i], 35, n_tokens);
            fill(&p, (pattern)((n_tokens + i) % N_PATTERNS));
            for (size_t v = 0; v < n_variants; v++)
                for (int packing = 0; packing < 2; packing++) {
                    if (v == 0 && n_tokens % 16 != 1) continue; // the slow one need not see all
                    check_gemv(k[v], &p, (tern_packing)packing, 0, 35);
                    check_gemv(k[v], &p, (tern_packing)packing, 2, 17);
                    check_gemm(k[v], &p, (tern_packing)packing, 0, 35);
                }
            problem_free(&p);
        }
}

TEST(ternary_gemm_is_exact) {
    static const size_t token_counts[] = {1, 2, 5, 7, 12, 13, 23, 24, 31, 50};
    const tern_ternary_kernels *k[8];
    size_t n_variants = variants(k);
    for (size_t i = 0; i < N_WIDTHS; i++)
        for (size_t j = 0; j < sizeof token_counts / sizeof *token_counts; j++) {
            problem p = problem_new(widths[i], 71, token_counts[j]);
            fill(&p, (pattern)(j % 3));
            for (size_t v = 0; v < n_variants; v++)
                for (int packing = 0; packing < 2; packing++) {
                    if (v == 0 && j % 3) continue; // the slow one need not see all
                    check_gemm(k[v], &p, (tern_packing)packing, 0, 71);
                    check_gemm(k[v], &p, (tern_packing)packing, 32, 64);
                    check_gemm(k[v], &p, (tern_packing)packing, 64, 70);
                }
            problem_free(&p);
        }
}

TEST(ternary_long_rows_do_not_overflow) {
    const tern_ternary_kernels *k[8];
    size_t n_variants = variants(k);
    for (int kind = ALL_PLUS; kind < N_PATTERNS; kind++) {
        problem p = problem_new(65536, 5, 8);
        fill(&p, (pattern)kind);
        for (size_t v = 0; v < n_variants; v++)
            for (int packing = 0; packing < 2; packing++) {
                check_gemv(k[v], &p, (tern_packing)packing, 0, 5);
                check_gemm(k[v], &p, (tern_packing)packing, 0, 5);
            }
        problem_free(&p);
    }
}

// Without AMX, or under an emulator or a system that does not grant its tiles, nothing above has
// seen it.
TEST(ternary_products_in_tiles_are_chosen) {
    tern_cpu_kernels k;
    if (!tern_cpu_kernels_select("amx", &k) || strcmp(k.t->name, "amx") != 0) {
        test_skip("this processor has no AMX, or the system does not grant its tiles");
        return;
    }
    CHECK(strcmp(k.name, "avx512 amx") == 0 && strcmp(k.q->name, "amx") == 0);
    CHECK(tern_cpu_kernels_select("avx512", &k) && strcmp(k.t->name, "avx512") == 0);
}

// A processor without i8mm takes the level below. Seen to fail: with dotprod's grouped
// kernels in i8mm's row.
TEST(ternary_products_of_matrices_are_chosen) {
    tern_cpu_kernels k;
    if (!tern_cpu_kernels_select("i8mm", &k)) {
        test_skip("this processor is not an ARM");
        return;
    }
    if (!strcmp(k.name, "neon dotprod i8mm"))
        CHECK(!strcmp(k.t->name, "i8mm") && !strcmp(k.q->name, "i8mm"));
    else
        test_skip("this processor has no i8mm");
    CHECK(tern_cpu_kernels_select("neon", &k) && !strcmp(k.name, "neon"));
    CHECK(!strcmp(k.t->name, "neon") && !strcmp(k.h->name, "neon"));
}

// ---- Each kernel of the table ------------------------------------------------------------------

static const tern_ternary_kernels *whole; // the best variant, before a kernel is broken

static void broken_pack_row(tern_packing packing, const int8_t *q, size_t n_in, uint8_t *row) {
    whole->pack_row(packing, q, n_in, row);
    row[0] ^= 1;
}
static void broken_repack_row(uint8_t *dst, const uint8_t *src, size_t n_in) {
    whole->repack_row(dst, src, n_in);
    dst[0] ^= 1;
}
static size_t broken_prepared_bytes(tern_packing packing, size_t n_in, size_t n_tokens) {
    return whole->prepared_bytes(packing, n_in, n_tokens) / 128 * 64;
}
static void broken_prepare(tern_packing packing, void *prepared, const tern_i8_rows *x, size_t n_in,
                           size_t first_token, size_t last_token) {
    (void)packing, (void)prepared, (void)x, (void)n_in, (void)first_token, (void)last_token;
}
static void broken_gemv(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *prepared,
                        const tern_product *to) {
    whole->gemv(w, x, prepared, to);
    to->out[to->last - 1] += 1;
}
static size_t broken_panels_bytes(size_t n_in, size_t n_tokens) {
    return whole->panels_bytes(n_in, n_tokens) / 128 * 64;
}
static void broken_make_panels(void *panels, const tern_i8_rows *x, size_t n_in, size_t first_token,
                               size_t last_token) {
    (void)panels, (void)x, (void)n_in, (void)first_token, (void)last_token;
}
static size_t broken_gemm_token_block(size_t n_tokens) { return (void)n_tokens, 0; }
static size_t broken_gemm_scratch_bytes(size_t n_in) {
    return whole->gemm_scratch_bytes(n_in) / 128 * 64;
}
static void broken_gemm(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *panels,
                        void *scratch, const tern_product *to) {
    whole->gemm(w, x, panels, scratch, to);
    to->out[to->last - 1] += 1;
}
static uint64_t broken_peak_loop(void) { return 0; }

#define KERNELS(ROW)                                                                               \
    ROW(pack_row)                                                                                  \
    ROW(repack_row)                                                                                \
    ROW(prepared_bytes)                                                                            \
    ROW(prepare)                                                                                   \
    ROW(gemv)                                                                                      \
    ROW(panels_bytes)                                                                              \
    ROW(make_panels)                                                                               \
    ROW(gemm_token_block)                                                                          \
    ROW(gemm_scratch_bytes)                                                                        \
    ROW(gemm)                                                                                      \
    ROW(peak_loop)
KERNELS_ARE_ALL(tern_ternary_kernels, pack_row, 3, KERNELS); // gemv_tokens, gemm_row_block

// So wide that AMX has scratch for no more than these rows, and tokens for which it needs all of
// it.
enum { WIDTH = 6912, ROWS = 97, N_TOKENS = 45 };

static void check_kernels(const tern_ternary_kernels *k) {
    problem p = problem_new(WIDTH, ROWS, N_TOKENS);
    fill(&p, RANDOM);
    check_packers(k, p.weights, WIDTH);
    for (int packing = 0; packing < 2; packing++) {
        check_gemv(k, &p, (tern_packing)packing, 0, ROWS);
        check_gemm(k, &p, (tern_packing)packing, 0, ROWS);
    }
    RIGHT(k->peak_loop() > 0, "%s: nothing was multiplied", k->name);
    problem_free(&p);
}

// Whether the variant rearranges what this member is for: not all do.
static bool is_used(size_t member) {
    switch (member) {
    case offsetof(tern_ternary_kernels, prepared_bytes):
    case offsetof(tern_ternary_kernels, prepare):
        return whole->prepared_bytes(TERN_PACK_2BIT, WIDTH, N_TOKENS) > 0;
    case offsetof(tern_ternary_kernels, panels_bytes):
    case offsetof(tern_ternary_kernels, make_panels):
        return whole->panels_bytes(WIDTH, N_TOKENS) > 0;
    case offsetof(tern_ternary_kernels, gemm_scratch_bytes):
        return whole->gemm_scratch_bytes(WIDTH) > 0;
    default: return true;
    }
}

TEST(ternary_kernels_that_are_broken_are_found) {
    const tern_ternary_kernels *k[8];
    tern_ternary_kernels table;
    size_t n_variants = variants(k);
    for (size_t v = 0; v < n_variants; v++) check_kernels(k[v]);
    whole = k[n_variants - 1];
#define ROW(kernel)                                                                                \
    if (is_used(offsetof(tern_ternary_kernels, kernel)))                                           \
        MUST_FIND(table, whole, kernel, check_kernels);
    KERNELS(ROW)
}
