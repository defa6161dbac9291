// Ternary matrices: what the variants share. Private to this folder and to select.c.
//
// A row of weights -1, 0, +1 is stored as codes 0, 1, 2, padded with code 1 (weight 0).
//
// TERN_PACK_2BIT, a row of I2_S: blocks of 128 weights in 32 bytes; see kernels.h.
//
// TERN_PACK_1_6BIT: pieces of m bytes that hold 5 m weights. Byte j of a piece holds the elements
// j, m + j, 2m + j, 3m + j and 4m + j of the piece, so that a register of bytes yields five
// registers of neighbouring weights, and activations need no rearranging. All pieces have m = 64
// but the last, where m may be 32: a row of 2560 weights takes 512 bytes, one of 6912 takes 1408
// (1.63 bits a weight).
// The five codes c0..c4 of a byte B are kept as B = 85 c0 + g, where g in 0..84 stands for
// m = 27 c1 + 9 c2 + 3 c3 + c4 and is chosen so that the codes can be found in two ways:
// - by look-up: g = min(B, B - 85, B - 170) with bytes that wrap around, 85 c0 = B - g, and a table
//   of no more than 128 bytes has c1..c4 for each g;
// - by arithmetic: g = floor(256 (m + 1) / 243) - 1. For v = 3 g + 2, as for B itself, the code is
//   the number of the thresholds 85 and 170 that v reaches, and 3 v + 2 mod 256 is the v of the
//   next code. (v + 1) / 256 lies in (m / 81, (m + 1) / 81], and threefold it keeps what is left of
//   the base-3 fraction. From B to the first v: 3 B + 2 + c0 = 256 c0 + 3 g + 2 = 3 g + 2 mod 256.
#ifndef TERN_KERNELS_CPU_TERNARY_KERNELS_H
#define TERN_KERNELS_CPU_TERNARY_KERNELS_H

#include "kernels/cpu/kernels.h"

extern const tern_ternary_kernels tern_ternary_kernels_scalar, tern_ternary_kernels_avx2,
    tern_ternary_kernels_avxvnni, tern_ternary_kernels_avx512, tern_ternary_kernels_amx,
    tern_ternary_kernels_neon, tern_ternary_kernels_dotprod, tern_ternary_kernels_i8mm,
    tern_ternary_kernels_wasm, tern_ternary_kernels_wasm_dot;

enum {
    TERN_I2S_WEIGHTS = 128, // in a block of 2-bit codes
    TERN_I2S_BYTES = 32,
    TERN_T5_WEIGHTS = 320, // in a whole piece of 1.6-bit codes
    TERN_T5_BYTES = 64,
    TERN_T5_FIRST = 85, // the weight of the first code in a byte
    TERN_AHEAD = 12288, // bytes that rows are prefetched ahead, see ternary_avx512.c
};

// The part of a 1.6-bit byte that stands for 27 c1 + 9 c2 + 3 c3 + c4.
static inline unsigned tern_t5_low_part(unsigned m) { return 256 * (m + 1) / 243 - 1; }

// Bytes of the last, shorter piece of a 1.6-bit row; 0: there is none.
static inline size_t tern_t5_tail_bytes(size_t n_in) {
    return (n_in % TERN_T5_WEIGHTS + 159) / 160 * 32;
}

#define TERN_INLINE static inline __attribute__((always_inline))

static inline size_t tern_min_size(size_t a, size_t b) { return a < b ? a : b; }

// Tokens in a block where n_tokens share as few blocks of at most `most` as possible.
static inline size_t tern_token_block(size_t n_tokens, size_t most) {
    size_t n_blocks = (n_tokens + most - 1) / most;
    return n_blocks ? (n_tokens + n_blocks - 1) / n_blocks : 1;
}

// From a sum of code * activation to the result: code = weight + 1, so the sum of the activations
// is taken off first. acc may have wrapped; the difference is the true value.
static inline float tern_ternary_result(int32_t acc, int32_t sum, float scale) {
    return (float)(int32_t)((uint32_t)acc - (uint32_t)sum) * scale;
}

// The scalar packers, which the variants without a faster one use.
void tern_ternary_repack_row(uint8_t *dst, const uint8_t *src, size_t n_in);

#endif
