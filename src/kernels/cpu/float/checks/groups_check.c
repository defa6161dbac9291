// Activations in groups and Walsh-Hadamard transforms: every variant against the definition, and to
// the bit against the scalar one.
#include "kernels/cpu/float/checks/float_check.h"

// Seen to fail: when the sum kept its sign.
TEST(float_groups_are_quantized_by_definition) {
    enum { N = 256 };
    const variants all = all_variants();
    uint32_t seed = 5;
    float x[N], scale[N / 64];
    int8_t q[N];
    int32_t sum[N / 64 * 7];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < N; i++) x[i] = next_float(&seed) * (i < 64 ? 1e-3f : 5.0f);
        for (int i = 0; round == 1 && i < 64; i++) x[i] = 0;
        if (round == 2) x[70] = 1e30f;
        for (size_t v = 0; v < all.n; v++) {
            all.k[v]->quantize_groups(q, scale, sum, x, N);
            for (int g = 0; g < N / 64; g++) {
                float largest = 0;
                int32_t total = 0, parts[7] = {0};
                for (int i = 64 * g; i < 64 * g + 64; i++) largest = fmaxf(largest, fabsf(x[i]));
                float inverse = largest > 0 ? 127 / largest : 0;
                for (int i = 64 * g; i < 64 * g + 64; i++) {
                    CHECK_MSG(q[i] == (int8_t)rintf(x[i] * inverse), "%s: %d", all.k[v]->name, i);
                    total += q[i];
                    parts[i % 64 / 16] -= q[i];
                    parts[4 + i % 64 / 32] -= q[i];
                }
                parts[6] = -total;
                CHECK(!memcmp(sum + 7 * g, parts, sizeof parts) && scale[g] == largest / 127);
            }
        }
    }
}

// y[i] = sum of x[j], with a minus where i and j share an odd number of bits, over sqrt(block).
// Seen to fail: when tiles were turned once only.
TEST(float_hadamard_is_the_matrix) {
    enum { N = 2048 };
    static const size_t blocks[] = {1, 2, 8, 16, 64, 128, 256, 512, 1024, 2048};
    const variants all = all_variants();
    uint32_t seed = 6;
    float x[N], sign[N], y[N], first[N];
    for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
        size_t n = blocks[b];
        for (int i = 0; i < N; i++) {
            x[i] = next_float(&seed);
            sign[i] = next_float(&seed) < 0 ? -1.0f : 1.0f;
        }
        for (size_t v = 0; v < all.n; v++) {
            all.k[v]->hadamard(y, x, sign, N, n);
            if (v == 0) memcpy(first, y, sizeof y);
            CHECK_MSG(memcmp(first, y, sizeof y) == 0, "%s, blocks of %zu", all.k[v]->name, n);
            memcpy(y, x, sizeof y);
            all.k[v]->hadamard(y, y, sign, N, n); // in place
            CHECK(memcmp(first, y, sizeof y) == 0);
        }
        for (size_t i = 0; i < N; i += 37) {
            double want = 0;
            for (size_t j = i / n * n; j < i / n * n + n; j++)
                want += (__builtin_popcountll(i & j & (n - 1)) & 1 ? -1.0 : 1.0) *
                        (double)(x[j] * sign[j]);
            want /= sqrt((double)n);
            CHECK_MSG(fabs(want - (double)first[i]) < 2e-6, "blocks of %zu: [%zu] is %g, not %g", n,
                      i, (double)first[i], want);
        }
        float back[N];
        all.k[0]->hadamard(back, first, NULL, N, n); // its own inverse
        for (size_t i = 0; i < N; i++) CHECK(fabsf(back[i] - x[i] * sign[i]) < 1e-5f);
    }
}

// Whatever a row holds, all variants give the same bits.
TEST(float_groups_of_odd_numbers_have_the_same_bits) {
    const variants all = all_variants();
    float x[256], scale[4], first_scale[4];
    int8_t q[256], first[256];
    int32_t sum[4 * 7], first_sum[4 * 7];
    for (int kind = 0; kind < N_KINDS; kind++) {
        fill(x, 256, kind, 9);
        for (size_t v = 0; v < all.n; v++) {
            all.k[v]->quantize_groups(v ? q : first, v ? scale : first_scale, v ? sum : first_sum,
                                      x, 256);
            if (v == 0) continue;
            CHECK_MSG(memcmp(q, first, sizeof q) == 0 && memcmp(sum, first_sum, sizeof sum) == 0 &&
                          same_bits(scale, first_scale, 4),
                      "%s, kind %d", all.k[v]->name, kind);
        }
    }
}
