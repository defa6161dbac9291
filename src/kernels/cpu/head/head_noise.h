// Random numbers for the tests of the head.
#ifndef TERN_KERNELS_CPU_HEAD_NOISE_H
#define TERN_KERNELS_CPU_HEAD_NOISE_H

#include <math.h>
#include <stdint.h>

static inline uint32_t noise(uint32_t *state) {
    uint32_t z = *state += 0x9E3779B9u;
    z = (z ^ z >> 16) * 0x85EBCA6Bu;
    z = (z ^ z >> 13) * 0xC2B2AE35u;
    return z ^ z >> 16;
}

static inline float gauss(uint32_t *state) {
    float u = ((float)(noise(state) >> 8) + 1) * 0x1p-24f,
          v = (float)(noise(state) >> 8) * 0x1p-24f;
    return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

#endif
