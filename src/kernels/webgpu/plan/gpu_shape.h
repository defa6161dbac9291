// How the threads of a dispatch of gpu_token.c share the products of a few tokens.
#ifndef TERN_KERNELS_GPU_SHAPE_H
#define TERN_KERNELS_GPU_SHAPE_H

#include "kernels/webgpu/ops/gpu_build.h"

#define FEW_EACH   4 // in few.wgsl, EACH_MAX
#define STAGED_MAX 8 // there, too

// The work of a workgroup.
typedef struct work {
    gpu_codes codes;
    int64_t n_cols;
    uint32_t tiles; // about this many
    uint32_t teams; // exactly this many; 0: any number
    bool crowds;    // products in groups may take all of the memory
    bool pairs;     // half of the tiles of each of two matrices
} work;

typedef struct shape {
    uint32_t splits, steps, teams, tiles, threads;
} shape;

// For one token. False: there is none.
bool gpu_find_shape(const tern_plan *p, const work *w, shape *best);
// For few tokens; threads 0: there is none.
shape gpu_find_shape_few(const tern_plan *p, const work *w, uint32_t n_tokens);
// Bytes of the sums of n_tokens in few.wgsl; in groups, of the products of a step.
uint64_t gpu_few_bytes(const tern_plan *p, const work *w, const shape *s, uint32_t n_tokens);

#endif
