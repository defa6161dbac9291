// The products of training against sums in double: all four ways to transpose, odd sizes, alpha and
// beta; nothing beside the result is written.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/train/cpu_train.h"
#include "tests/harness.h"

enum { MOST = 150 * 150 };

static void check_product(const cpu_gemm_kernel *kernel, cpu_gemm g, float *scratch, double error) {
    static float a[MOST], b[MOST], c[MOST], before[MOST];
    uint32_t seed = (uint32_t)(g.m * 7 + g.n * 3 + g.k);
    for (int i = 0; i < MOST; i++) {
        seed = seed * 1664525u + 1013904223u;
        a[i] = (float)(int32_t)seed * 0x1p-31f;
        b[i] = a[i] * 3 - 1;
        before[i] = c[i] = a[MOST - 1 - i];
    }
    g.lda = (g.transpose_a ? g.m : g.k) + 2;
    g.ldb = (g.transpose_b ? g.k : g.n) + 1;
    g.ldc = g.n + 3;
    g.a = a;
    g.b = b;
    g.c = c;
    kernel->run(&g, scratch);
    double wrong = 0, size = 1e-30;
    for (size_t i = 0; i < g.m; i++)
        for (size_t j = 0; j < g.ldc; j++) {
            double sum = 0, old = before[i * g.ldc + j], got = c[i * g.ldc + j];
            if (j >= g.n) {
                CHECK_MSG(got == old, "%s wrote outside", kernel->name);
                continue;
            }
            for (size_t k = 0; k < g.k; k++)
                sum += (double)a[g.transpose_a ? k * g.lda + i : i * g.lda + k] *
                       b[g.transpose_b ? j * g.ldb + k : k * g.ldb + j];
            double right = g.alpha * sum + (g.beta == 0 ? 0 : g.beta * old);
            wrong += (right - got) * (right - got);
            size += right * right;
        }
    CHECK_MSG(sqrt(wrong / size) < error, "%s %zu x %zu x %zu %d%d: relative error %g",
              kernel->name, g.m, g.n, g.k, g.transpose_a, g.transpose_b, sqrt(wrong / size));
}

static void check_kernel(const cpu_gemm_kernel *kernel, double error) {
    static const size_t sizes[][3] = {{1, 1, 1},    {16, 16, 32}, {17, 33, 5},  {5, 100, 65},
                                      {100, 3, 63}, {64, 64, 64}, {129, 31, 2}, {40, 70, 131}};
    float *scratch = tern_alloc_array(TERN_MEM_MISC, kernel->scratch_floats + 16, sizeof *scratch);
    REQUIRE(scratch != NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 8; way++)
            check_product(kernel,
                          (cpu_gemm){.transpose_a = way & 1, .transpose_b = way >> 1 & 1,
                                     .m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2],
                                     .alpha = way & 4 ? 0.5f : 1, .beta = way & 4 ? 2 : 0},
                          scratch, error);
    tern_free(scratch);
}

TEST(gemm_products_are_right) {
    check_kernel(&cpu_gemm_float, 1e-6);
}

#if defined(__x86_64__)
TEST(gemm_bf16_products_are_right_to_their_precision) {
    if (!__builtin_cpu_supports("avx512bf16")) {
        test_skip("this processor has no avx512_bf16");
        return;
    }
    check_kernel(&cpu_gemm_bf16, 8e-3);
}
#endif
