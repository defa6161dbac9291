// What the tests of the float kernels share: all variants that this processor runs, and rows of
// numbers for them.
#ifndef TERN_KERNELS_CPU_FLOAT_CHECK_H
#define TERN_KERNELS_CPU_FLOAT_CHECK_H

#include <math.h>
#include <string.h>
#include "kernels/cpu/kernels.h"
#include "tests/support/harness.h"

typedef struct variants {
    const tern_float_kernels *k[8]; // k[0] is the scalar one
    size_t n;
} variants;

static inline variants all_variants(void) {
    variants v = {.n = 0};
    const char *names[8];
    size_t n = tern_cpu_kernels_list(names);
    for (size_t i = 0; i < n; i++) {
        tern_cpu_kernels k;
        if (!tern_cpu_kernels_select(names[i], &k)) continue;
        if (!v.n || v.k[v.n - 1] != k.f) v.k[v.n++] = k.f;
    }
    return v;
}

static inline uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inline float next_float(uint32_t *state) { return (float)next_random(state) * 0x1p-23f - 1; }

// Rows of several kinds: ordinary numbers, tiny ones, huge ones, zeros, and a mixture with the odd
// NaN and infinity.
enum { KIND_PLAIN, KIND_TINY, KIND_HUGE, KIND_ZERO, KIND_MIXED, N_KINDS };
static inline void fill(float *x, size_t n, int kind, uint32_t seed) {
    static const float odd[] = {0,   -0.0f, 1e-45f, -1e-39f, 1e30f, -3e38f, INFINITY, -INFINITY,
                                NAN, 0.5f,  -1.5f,  2.5f,    127,   -128,   88.5f,    -87.5f};
    for (size_t i = 0; i < n; i++) {
        float u = next_float(&seed);
        x[i] = kind == KIND_PLAIN  ? u * 3
               : kind == KIND_TINY ? u * 1e-37f * (i % 3 ? 1e-3f : 1)
               : kind == KIND_HUGE ? u * 1e18f
               : kind == KIND_ZERO ? (i % 2 ? 0.0f : -0.0f)
               : i % 7             ? u * 20
                                   : odd[next_random(&seed) % 16];
    }
}

static inline bool same_bits(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (memcmp(a + i, b + i, sizeof *a) && !(a[i] != a[i] && b[i] != b[i])) return false;
    }
    return true;
}

#endif
