// The inner loops of the head, one table for each instruction set. Layout and proof: head.c.
#ifndef TERN_KERNELS_CPU_HEAD_KERNELS_H
#define TERN_KERNELS_CPU_HEAD_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/head/head.h" // TERN_HEAD_VECTORS_MAX

enum {
    TERN_HEAD_LANES = 16,                      // blocks of a group lie side by side
    TERN_HEAD_GROUP = 512,                     // 16 blocks of 32 weights
    TERN_HEAD_VECTOR = 128,                    // weights of 64 bytes of 4-bit codes
    TERN_HEAD_PLANES = 3,                      // of 4, 1 and 1 bits
    TERN_HEAD_TILE = 4,                        // rows whose vectors of codes alternate in memory
    TERN_HEAD_CODE_STEP = 64 * TERN_HEAD_TILE, // bytes from a row's vector to the next
    TERN_HEAD_SHARED = 4,                      // vectors that share the unpacking of codes
    TERN_HEAD_SCALE_STEP = TERN_HEAD_LANES * TERN_HEAD_TILE, // for the scales of its groups
};

// One row of the copy.
typedef struct tern_head_row {
    uint8_t *codes;   // n_vectors of 64 bytes, TERN_HEAD_CODE_STEP apart
    uint8_t *scales;  // n_groups of 16, TERN_HEAD_SCALE_STEP apart
    uint8_t *bits[2]; // [64 * n_groups] each
    float rho;
    float norm_w, norm_r[TERN_HEAD_PLANES]; // computed, not yet rounded up
} tern_head_row;

// A query's vector in the order of the codes.
typedef struct tern_head_vector {
    int8_t *hi, *lo;         // 64: [512 * n_groups]: X = 128 hi + lo
    int32_t *sum_x, *sum_hi; // 64: [16 * n_groups]: 15 * (sum of X), sum of hi of each block
} tern_head_vector;

// Tiles of rows, and vectors that meet them together.
typedef struct tern_head_screen {
    const uint8_t *codes, *scales; // of the first row
    const uint8_t *bits[2];        // likewise, rows 64 n_groups apart; only screen_deep reads them
    const tern_head_vector *const *x;
    size_t n_x, n_tiles, n_vectors;
} tern_head_screen;

typedef struct tern_head_kernels {
    const char *name;
    // w: [512 * n_groups] with zeros after n, followed by room for [16 * n_groups] floats.
    void (*quantize)(tern_head_row *row, float *w, size_t n);
    // out[r] = sum over blocks of scale * (sum of (2 code - 15) * X), for all rows of the tiles
    void (*screen)(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors);
    // The same for X = 128 hi, times 1/128: out[i][r] = sum over blocks of
    // scale * (sum of (2 code - 15) * hi) for each of n_x <= TERN_HEAD_SHARED vectors.
    void (*screen_hi)(float *const *out, const tern_head_screen *s);
    // out[i] = sum over blocks of scale * (sum of (2 bit - 1) * hi) of vector i, for one row
    void (*refine)(float *out, const uint8_t *bits, const uint8_t *scales,
                   const tern_head_vector *const *x, size_t n_x, size_t n_groups);
    // All six bits at once: out[i][r] = sum over blocks of scale * (sum of (2 code - 63) * hi), for
    // n_x <= TERN_HEAD_VECTORS_MAX vectors. NULL where this is not faster than the two above.
    void (*screen_deep)(float *const *out, const tern_head_screen *s);
} tern_head_kernels;

extern const tern_head_kernels tern_head_kernels_scalar;
extern const tern_head_kernels tern_head_kernels_avx2;
extern const tern_head_kernels tern_head_kernels_avx512;
extern const tern_head_kernels tern_head_kernels_neon, tern_head_kernels_dotprod;
extern const tern_head_kernels tern_head_kernels_wasm, tern_head_kernels_wasm_dot;

#endif
