// The numbers of problems: what weights and rows are filled with.
#include <math.h>
#include <string.h>
#include "kernels/webgpu/tests/gpu_rig_test.h"

float rig_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) * 0x1p-23f - 1;
}

void fill_normal(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = rig_random(seed) + rig_random(seed) + rig_random(seed);
}

void fill_kinds(float *x, int64_t n, int64_t row, uint32_t *seed) {
    static const float scales[] = {1, 1e-8f, 1e8f, 0, 100, 1e-3f};
    int kind = (int)(row % 6);
    for (int64_t i = 0; i < n; i++) {
        x[i] = rig_random(seed) * scales[kind];
        if (kind == 4) x[i] = -fabsf(x[i]);
    }
    if (kind == 5) x[row % n] = -3e4f;
}

void fill_integers(float *x, int64_t n, int64_t row, uint32_t *seed) {
    static const float units[] = {1, 0.25f, 64};
    for (int64_t i = 0; i < n; i++) x[i] = rintf(rig_random(seed) * 127) * units[row % 3];
    x[row % n] = (row % 2 ? -127.0f : 127.0f) * units[row % 3];
    if (row % 5 == 4) // the greatest sums
        for (int64_t i = 0; i < n; i++) x[i] = 127 * units[row % 3];
}

void fill_codes(float *x, int64_t n, int64_t row, uint32_t *seed) {
    for (int64_t i = 0; i < n; i++) x[i] = rintf(rig_random(seed) * 1.49f) * 0.5f;
    x[row % n] = 0.5f; // some code is not zero
}

void fill_two_bits(float *x, int64_t n, int64_t row, uint32_t *seed) {
    for (int64_t i = 0; i < n; i++) {
        float number = i % 64 == 0 ? 1 : rintf(rig_random(seed) * 1.49f);
        x[i] = number * ldexpf(1, (int)((row + i / 64) % 3) - 2);
    }
}

void fill_plus(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row, (void)seed;
    for (int64_t i = 0; i < n; i++) x[i] = 0.5f;
}

void fill_minus(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row, (void)seed;
    for (int64_t i = 0; i < n; i++) x[i] = -0.5f;
}

void fill_unit(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)seed;
    memset(x, 0, (size_t)n * sizeof *x);
    x[row % n] = 0.5f;
}
