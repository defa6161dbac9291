// Products against the contract's own order of additions, bit for bit, for each instruction set and
// any number of threads; those of bf16 against sums in double.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/fma.h"
#include "base/dtype/half.h"
#include "base/os/os_thread.h"
#include "kernels/cpu/check_table.h"
#include "kernels/cpu/gemm/gemm.h"
#include "tests/support/harness.h"

enum { MOST = 640 * 200 };
static float a[MOST], b[MOST], before[MOST], expected[MOST], got[MOST];

static const size_t shapes[][3] = {
    {1, 1, 1},     {12, 32, 256}, {17, 33, 5},    {5, 100, 65},  {100, 3, 63},   {64, 64, 64},
    {129, 31, 2},  {40, 70, 131}, {6, 16, 255},   {13, 49, 257}, {121, 17, 512}, {7, 47, 600},
    {250, 90, 33}, {9, 513, 19},  {24, 128, 300}, {241, 16, 3},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_WAYS = 8 };

// Numbers of many magnitudes, so that another order of additions gives other bits.
static void fill(float *x, uint32_t seed) {
    for (size_t i = 0; i < MOST; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ldexpf((float)(int32_t)seed * 0x1p-31f, (int)(seed >> 3 & 7));
    }
}

static cpu_gemm product_of(const size_t shape[3], int way) {
    cpu_gemm g = {.transpose_a = way & 1,
                  .transpose_b = way >> 1 & 1,
                  .accumulate = way >> 2 & 1,
                  .m = shape[0],
                  .n = shape[1],
                  .k = shape[2],
                  .a = a,
                  .b = b};
    g.lda = (g.transpose_a ? g.m : g.k) + 2;
    g.ldb = (g.transpose_b ? g.k : g.n) + 1;
    g.ldc = g.n + 3;
    return g;
}

static float factor_a(const cpu_gemm *g, size_t i, size_t k) {
    return a[g->transpose_a ? k * g->lda + i : i * g->lda + k];
}
static float factor_b(const cpu_gemm *g, size_t k, size_t j) {
    return b[g->transpose_b ? j * g->ldb + k : k * g->ldb + j];
}

// What gemm.h promises, one element at a time.
static void reference(const cpu_gemm *g, float *c) {
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            float *at = c + i * g->ldc + j;
            for (size_t k0 = 0; k0 < g->k; k0 += TERN_GEMM_DEPTH) {
                float chain = 0;
                for (size_t k = k0; k < g->k && k < k0 + TERN_GEMM_DEPTH; k++)
                    chain = tern_fma(factor_a(g, i, k), factor_b(g, k, j), chain);
                *at = k0 > 0 || g->accumulate ? *at + chain : chain;
            }
        }
}

static float *new_scratch(int n_threads) {
    return tern_alloc_array(TERN_MEM_MISC, (size_t)n_threads * cpu_gemm_scratch_floats(),
                            sizeof(float));
}

static const char *way_name(const cpu_gemm *g) {
    static char name[64];
    snprintf(name, sizeof name, "%zu x %zu x %zu %d%d%d", g->m, g->n, g->k, g->transpose_a,
             g->transpose_b, g->accumulate);
    return name;
}

// In scratch that holds NaNs, as another step may leave them.
static void run_alone(const tern_gemm_kernels *k, const cpu_gemm *g, float *scratch) {
    memset(scratch, 0xff, cpu_gemm_scratch_floats() * sizeof *scratch);
    cpu_gemm_run(k, g, scratch);
}

// What surrounds C must not change.
static void check_product(const tern_gemm_kernels *k, cpu_gemm *g, float *scratch) {
    g->c = got;
    memcpy(got, before, sizeof got);
    run_alone(k, g, scratch);
    RIGHT(memcmp(got, expected, sizeof got) == 0, "%s %s", k->name, way_name(g));
}

// Seen to fail: a depth of 128 in the blocks; a panel's last word stored over the next panel;
// multiply and add in place of fma.
TEST(gemm_products_have_the_bits_of_their_contract) {
    const char *names[8];
    size_t n_names = tern_cpu_kernels_list(names);
    float *scratch = new_scratch(1);
    REQUIRE(scratch != NULL);
    fill(a, 1), fill(b, 2), fill(before, 3);
    for (int s = 0; s < N_SHAPES * N_WAYS; s++) {
        cpu_gemm g = product_of(shapes[s / N_WAYS], s % N_WAYS);
        memcpy(expected, before, sizeof expected);
        reference(&g, expected);
        for (size_t i = 0; i < n_names; i++) {
            tern_cpu_kernels k;
            REQUIRE(tern_cpu_kernels_select(names[i], &k));
            check_product(k.g, &g, scratch);
        }
    }
    tern_free(scratch);
}

typedef struct team_run {
    const tern_gemm_kernels *kernels;
    const cpu_gemm *g;
    atomic_size_t counter;
    float *scratch;
} team_run;

static void run_team(void *ctx, const tern_team *team) {
    team_run *r = ctx;
    cpu_gemm_team(r->kernels, r->g, team, &r->counter,
                  r->scratch + (size_t)team->thread * cpu_gemm_scratch_floats());
}

static void nothing(void *arg) { (void)arg; }
static bool has_threads(void) { // WebAssembly without shared memory has none
    tern_thread thread;
    if (!tern_thread_start(&thread, nothing, NULL)) return false;
    tern_thread_join(&thread);
    return true;
}

// Seen to fail: parts that begin one column late.
static void check_teams(const tern_gemm_kernels *kernels) {
    static const int n_threads[] = {1, 2, 3, 16};
    float *scratch = new_scratch(16);
    REQUIRE(scratch != NULL);
    tern_error err;
    fill(a, 4), fill(b, 5), fill(before, 6);
    for (size_t t = 0; t < sizeof n_threads / sizeof *n_threads; t++) {
        tern_team *team;
        if (n_threads[t] > 1 && !has_threads()) break;
        REQUIRE(tern_team_open(&team, n_threads[t], &err) == TERN_OK);
        for (int s = 0; s < N_SHAPES * N_WAYS; s += 3) {
            cpu_gemm g = product_of(shapes[s / N_WAYS], s % N_WAYS);
            memcpy(expected, before, sizeof expected);
            memcpy(got, before, sizeof got);
            g.c = expected;
            cpu_gemm_run(kernels, &g, scratch);
            g.c = got;
            team_run r = {kernels, &g, 0, scratch};
            tern_team_run(team, run_team, &r);
            CHECK_MSG(memcmp(got, expected, sizeof got) == 0, "%s, %d threads, %s", kernels->name,
                      n_threads[t], way_name(&g));
        }
        tern_team_close(team);
    }
    tern_free(scratch);
}

TEST(gemm_products_of_a_team_have_the_bits_of_one_thread) {
    tern_cpu_kernels k;
    REQUIRE(tern_cpu_kernels_select(NULL, &k));
    check_teams(k.g);
    const tern_gemm_kernels *tables[2];
    const size_t n = cpu_gemm_bf16_list(tables);
    for (size_t i = 0; i < n; i++) check_teams(tables[i]);
}

// ---- Factors rounded to bf16 -------------------------------------------------------------------

static bool is_inside(const cpu_gemm *g, size_t at) { return at % g->ldc < g->n; }

// The relative error of what is in `got`, beside sums in double.
static double error_of(const cpu_gemm *g) {
    double wrong = 0, size = 1e-30;
    for (size_t at = 0; at < g->m * g->ldc; at++) {
        if (!is_inside(g, at)) continue;
        double right = g->accumulate ? before[at] : 0;
        for (size_t k = 0; k < g->k; k++)
            right += (double)factor_a(g, at / g->ldc, k) * factor_b(g, k, at % g->ldc);
        wrong += (right - got[at]) * (right - got[at]);
        size += right * right;
    }
    return sqrt(wrong / size);
}

// Seen to fail: the second value of an odd pair not zeroed.
static void check_bf16(const tern_gemm_kernels *k, float *scratch) {
    for (int s = 0; s < N_SHAPES * N_WAYS; s++) {
        cpu_gemm g = product_of(shapes[s / N_WAYS], s % N_WAYS);
        memcpy(got, before, sizeof got);
        g.c = got;
        run_alone(k, &g, scratch);
        bool is_clean = true;
        for (size_t at = 0; at < MOST; at++)
            is_clean &= got[at] == before[at] || (at < g.m * g.ldc && is_inside(&g, at));
        CHECK_MSG(is_clean, "%s %s wrote outside", k->name, way_name(&g));
        const double error = error_of(&g);
        CHECK_MSG(error < 5e-3, "%s %s: relative error %g", k->name, way_name(&g), error);
    }
}

TEST(gemm_bf16_products_are_right_to_their_precision) {
    const tern_gemm_kernels *tables[2];
    const size_t n = cpu_gemm_bf16_list(tables);
    if (n == 0) {
        test_skip("this processor does not multiply bf16");
        return;
    }
    float *scratch = new_scratch(1);
    REQUIRE(scratch != NULL);
    fill(a, 7), fill(b, 8), fill(before, 9);
    for (size_t i = 0; i < n; i++) check_bf16(tables[i], scratch);
    tern_free(scratch);
}

// What gemm_amxbf16.c promises, one element at a time.
static float bf16_of(float x) { return tern_bf16_to_f32(tern_f32_to_bf16(x)); }
static void tiles_reference(const cpu_gemm *g, float *c) {
    for (size_t at = 0; at < g->m * g->ldc; at++) {
        if (!is_inside(g, at)) continue;
        float sum = g->accumulate ? c[at] : 0;
        for (size_t k0 = 0; k0 < g->k; k0 += 32) {
            float chains[2] = {0, 0};
            for (size_t k = k0; k < k0 + 32 && k < g->k; k++)
                chains[k % 2] = tern_fma(bf16_of(factor_a(g, at / g->ldc, k)),
                                         bf16_of(factor_b(g, k, at % g->ldc)), chains[k % 2]);
            sum += chains[0] + chains[1];
        }
        c[at] = sum;
    }
}

// Seen to fail: a panel's last step left out or not padded with zeros, a tile's lower rows read
// from its upper ones, a row less in it, sums that begin at 0 where they should go on.
TEST(gemm_bf16_products_in_tiles_have_the_bits_of_their_contract) {
    const tern_gemm_kernels *tables[2];
    if (cpu_gemm_bf16_list(tables) < 2) { // the first is the one in tiles
        test_skip("this processor has no tiles for bf16, or the system does not grant them");
        return;
    }
    float *scratch = new_scratch(1);
    REQUIRE(scratch != NULL);
    fill(a, 13), fill(b, 14), fill(before, 15);
    for (size_t s = 0; s < (N_SHAPES + 65) * N_WAYS; s++) {
        const size_t i = s / N_WAYS, m = i - N_SHAPES + 1; // then 1 to 65 rows
        const size_t odd[3] = {m, (2 * m + 3) % 64, 131 - m};
        cpu_gemm g = product_of(i < N_SHAPES ? shapes[i] : odd, s % N_WAYS);
        memcpy(expected, before, sizeof expected);
        tiles_reference(&g, expected);
        check_product(tables[0], &g, scratch);
    }
    tern_free(scratch);
}

// ---- Each kernel of the table ------------------------------------------------------------------

static void broken_pack_a(float *to, const float *x, size_t ld, bool along, size_t n,
                          size_t depth) {
    tern_gemm_kernels_scalar.pack_a(to, x, ld, along, n, depth);
    to[0] += 1;
}
static void broken_pack_b(float *to, const float *x, size_t ld, bool along, size_t n,
                          size_t depth) {
    tern_gemm_kernels_scalar.pack_b(to, x, ld, along, n, depth);
    to[0] += 1;
}
static void broken_multiply(const tern_gemm_part *c, const float *x, const float *y, size_t words) {
    tern_gemm_kernels_scalar.multiply(c, x, y, words);
    c->c[0] += 1;
}
static uint64_t broken_peak_loop(void) { return 0; }

#define KERNELS(ROW)                                                                               \
    ROW(pack_a)                                                                                    \
    ROW(pack_b)                                                                                    \
    ROW(multiply)                                                                                  \
    ROW(peak_loop)
KERNELS_ARE_ALL(tern_gemm_kernels, pack_a, 0, KERNELS);

static void check_kernels(const tern_gemm_kernels *k) {
    cpu_gemm g = product_of((const size_t[]){17, 33, 5}, 0);
    float *scratch = new_scratch(1);
    memcpy(expected, before, sizeof expected);
    reference(&g, expected);
    check_product(k, &g, scratch);
    RIGHT(k->peak_loop() > 0, "%s: nothing was multiplied", k->name);
    tern_free(scratch);
}

TEST(gemm_kernels_that_are_broken_are_found) {
    tern_gemm_kernels table;
    const char *names[8];
    size_t n_names = tern_cpu_kernels_list(names);
    fill(a, 10), fill(b, 11), fill(before, 12);
    for (size_t i = 0; i < n_names; i++) {
        tern_cpu_kernels k;
        REQUIRE(tern_cpu_kernels_select(names[i], &k));
        check_kernels(k.g);
    }
#define ROW(kernel) MUST_FIND(table, &tern_gemm_kernels_scalar, kernel, check_kernels);
    KERNELS(ROW)
}
