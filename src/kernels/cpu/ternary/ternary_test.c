// Every variant against sums written out here, exactly: ordinary and worst cases, odd sizes, ranges
// of rows that begin anywhere.
#include "kernels/cpu/ternary/ternary_kernels.h"
#include "base/alloc.h"
#include "kernels/cpu/check_random.h"
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
            CHECK_MSG(false, "%s: n_in %zu, rows %zu..%zu of %zu: [%zu, %zu] is %g, not %g", what,
                      p->n_in, first, last, p->n_rows, t, r, (double)got, (double)want);
            return;
        }
}

static void clear(problem *p) {
    for (size_t i = 0; i < p->n_tokens * p->out_stride; i++) p->out[i] = -7;
}

static void check_gemv(const tern_ternary_kernels *k, problem *p, tern_packing packing,
                       size_t first, size_t last) {
    void *prepared = array(1, k->prepared_bytes(packing, p->n_in, p->n_tokens));
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
    tern_free(prepared);
}

static void check_gemm(const tern_ternary_kernels *k, problem *p, tern_packing packing,
                       size_t first, size_t last) {
    void *panels = array(1, k->panels_bytes(p->n_in, p->n_tokens));
    void *scratch = array(1, k->gemm_scratch_bytes(p->n_in));
    char what[64];
    snprintf(what, sizeof what, "%s gemm %s, %zu tokens", k->name, packing ? "1.6" : "2",
             p->n_tokens);
    clear(p);
    size_t block = k->gemm_token_block(p->n_tokens); // in two calls, as two threads would
    size_t half = p->n_tokens / 2 / block * block;
    k->make_panels(panels, &p->x, p->n_in, 0, half);
    k->make_panels(panels, &p->x, p->n_in, half, p->n_tokens);
    first = first / k->gemm_row_block * k->gemm_row_block;
    tern_product to = {first, last, p->out, p->out_stride, false};
    k->gemm(&p->w[packing], &p->x, panels, scratch, &to);
    compare(p, what, first, last, false);
    to.accumulate = true;
    k->gemm(&p->w[packing], &p->x, panels, scratch, &to);
    compare(p, what, first, last, true);
    tern_free(panels);
    tern_free(scratch);
}

static const size_t widths[] = {1, 16, 79, 127, 128, 129, 256, 288, 320, 336, 640, 700, 2560, 6912};
enum { N_WIDTHS = sizeof widths / sizeof *widths };

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
            uint8_t *row[2] = {malloc(bytes[0]), malloc(bytes[1])}, *fast = malloc(bytes[0]);
            for (int packing = 0; packing < 2; packing++) {
                tern_ternary_pack_row((tern_packing)packing, q, n, row[packing]);
                memset(back, 9, n);
                tern_ternary_unpack_row((tern_packing)packing, row[packing], n, back);
                CHECK(memcmp(q, back, n) == 0);
                for (size_t v = 0; v < n_variants; v++) {
                    memset(fast, 0xEE, bytes[0]);
                    k[v]->pack_row((tern_packing)packing, q, n, fast);
                    CHECK_MSG(memcmp(fast, row[packing], bytes[packing]) == 0,
                              "%s packs %zu weights otherwise (%d)", k[v]->name, n, packing);
                }
            }
            for (size_t v = 0; v < n_variants; v++) {
                memset(fast, 0xEE, bytes[0]);
                k[v]->repack_row(fast, row[0], n);
                CHECK_MSG(memcmp(fast, row[1], bytes[1]) == 0, "%s repacks %zu weights otherwise",
                          k[v]->name, n);
            }
            free(row[0]), free(row[1]), free(fast);
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
