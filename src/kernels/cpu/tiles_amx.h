// AMX: products of two-dimensional registers. Only for files whose names end in _amx.c, and
// _amxbf16.c, whose products are of pairs of bf16 instead (gemm/gemm_amxbf16.c).
//
// A thread has eight of them, "tiles" of at most 16 rows of 64 bytes. One instruction multiplies
// two and adds to a third, C += A B, 16 x 16 sums of 32 bits by 64 columns of int8 at once: 16,384
// multiply-adds in 16 cycles, where vpdpbusd does 64 in half a cycle. Here
//
//     C [token][row of weights]   16 sums a token: a register as the outputs want it
//     A [token][column]           64 activations a token
//     B [column / 4][row][4]      weights, as all packings with 16 rows side by side have them:
//                                 nothing must be turned around
//
// Tiles 0 to 3 are C, for 32 tokens and 32 rows of weights; 4 and 5 are A, 6 and 7 are B. So each
// tile that is loaded serves two products: a load takes 8 cycles, a product 16.
//
// What tiles are shaped like is a thread's state. It is set where a kernel begins and given back
// where it ends, since a thread that keeps it makes every change of threads 8 KB dearer and its
// core slower. gcc's functions do not say which memory they read: between ordinary stores to what
// tiles load and these loads stands tern_tiles_fence.
#ifndef TERN_KERNELS_CPU_TILES_AMX_H
#define TERN_KERNELS_CPU_TILES_AMX_H

#include <immintrin.h>
#if defined(_WIN32) // gcc casts strides to long, half a register there
#undef _tile_loadd
#undef _tile_stored
#define _tile_loadd(tile, from, stride)                                                            \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"((const void *)(from)),               \
                     "r"((long long)(stride)))
#define _tile_stored(tile, to, stride)                                                             \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"((void *)(to)),                   \
                     "r"((long long)(stride))                                                      \
                     : "memory")
#endif
#include <stddef.h>
#include <stdint.h>

enum {
    TILE_TOKENS = 16, // rows of C and A, at most
    TILE_ROWS = 16,   // columns of C and B: rows of weights
    TILE_DEPTH = 64,  // columns of int8 in one product
    TILE_BYTES = 1024,
};

static inline __attribute__((always_inline)) void tern_tiles_fence(void) {
    __asm__ volatile("" ::: "memory");
}

// Tiles 0, 1 and 4 have n_tokens rows, 2, 3 and 5 n_more (0: they are not used): fewer take less
// time. B has b_rows, A as many bytes as these have columns. All tiles are 0 afterwards.
static inline void tern_tiles_begin(size_t n_tokens, size_t n_more, size_t b_rows) {
    struct {
        uint8_t palette, start_row, zeros[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    _Static_assert(sizeof shape == 64, "what ldtilecfg reads");
    for (int i = 0; i < 8; i++) {
        const size_t rows = i > 5 ? b_rows : i == 2 || i == 3 || i == 5 ? n_more : n_tokens;
        const size_t row_bytes = i == 4 || i == 5 ? 4 * b_rows : 64;
        shape.row_bytes[i] = (uint16_t)(rows ? row_bytes : 0);
        shape.rows[i] = (uint8_t)rows;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

static inline void tern_tiles_end(void) { _tile_release(); }

#endif
