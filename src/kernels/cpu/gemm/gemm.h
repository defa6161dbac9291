// Products of float matrices for training.
//
//   gemm.c            blocks that fit the caches, shares for the threads of a team
//   gemm.inl          tiles in registers, over the 16-lane vector, and gemm_panels.inl what they
//                     read; gemm_float.inl and gemm_bf16.inl make tables of them
//   gemm_<isa>.c      the tables
//
// The order of additions is part of the contract, so the bits depend neither on the instruction set
// nor on the threads: element (i, j) of op(A) op(B) is one chain of fmas from 0 over each
// TERN_GEMM_DEPTH values of k; the ends of the chains are added up in order, starting with what C
// holds if the product accumulates. (Factors rounded to bf16 have orders of their own, the
// instructions', which do not depend on the threads either.)
#ifndef TERN_KERNELS_CPU_GEMM_H
#define TERN_KERNELS_CPU_GEMM_H

#include <stdatomic.h>
#include "kernels/cpu/kernels.h"
#include "base/os/team.h"

enum { TERN_GEMM_DEPTH = 256 };

// C [m, n] = op(A) [m, k] op(B) [k, n], added to C if accumulate; row-major, op(X) = X or its
// transpose, ld: floats from one row to the next as they lie in memory.
typedef struct cpu_gemm {
    bool transpose_a, transpose_b, accumulate;
    size_t m, n, k;
    const float *a, *b;
    float *c;
    size_t lda, ldb, ldc;
} cpu_gemm;

typedef struct tern_gemm_part {
    float *c;
    size_t ldc, m, n;
    bool accumulate;
} tern_gemm_part;

// A panel holds `tile` rows of A (columns of B) side by side, word [k][tile]: a word is a float, or
// a pair of bf16 that are neighbours in k.
typedef struct tern_gemm_kernels {
    const char *name;
    size_t rows, cols; // tiles of A and of B: the part of C held in registers
    size_t values;     // of k in a word
    size_t depth;      // values of k in a panel, up to TERN_GEMM_DEPTH words
    // n rows (columns of B) over up to `depth` values of k, in panels that are padded
    // with zeros. along: k runs along the rows of X, else down its columns. Writes up to 16 * tile
    // words beyond the last panel.
    void (*pack_a)(float *to, const float *x, size_t ld, bool along, size_t n, size_t depth);
    void (*pack_b)(float *to, const float *x, size_t ld, bool along, size_t n, size_t depth);
    // Part of C [m, n] = or += product of panels over `words` words of k.
    void (*multiply)(const tern_gemm_part *c, const float *a, const float *b, size_t words);
    // The processor's peak: the inner step on registers alone. Returns the number of multiply-adds
    // done.
    uint64_t (*peak_loop)(void);
} tern_gemm_kernels;

extern const tern_gemm_kernels tern_gemm_kernels_scalar;
extern const tern_gemm_kernels tern_gemm_kernels_avx2;
extern const tern_gemm_kernels tern_gemm_kernels_avx512;
extern const tern_gemm_kernels tern_gemm_kernels_neon;
extern const tern_gemm_kernels tern_gemm_kernels_wasm;
extern const tern_gemm_kernels tern_gemm_kernels_bf16;
extern const tern_gemm_kernels tern_gemm_kernels_amxbf16;

// Factors rounded to bf16, if this processor multiplies them faster than floats; else NULL.
const tern_gemm_kernels *cpu_gemm_bf16(void);
// All tables of such products that this processor runs, also slow ones. Returns how many.
size_t cpu_gemm_bf16_list(const tern_gemm_kernels *tables[2]);

// The whole product on the calling thread. scratch: 64, cpu_gemm_scratch_floats().
void cpu_gemm_run(const tern_gemm_kernels *kernels, const cpu_gemm *g, float *scratch);
// The same by a team: every thread calls it, with its own scratch and a counter that is 0 at the
// beginning. C is complete after the next barrier.
void cpu_gemm_team(const tern_gemm_kernels *kernels, const cpu_gemm *g, const tern_team *team,
                   atomic_size_t *counter, float *scratch);
size_t cpu_gemm_scratch_floats(void);

#endif
