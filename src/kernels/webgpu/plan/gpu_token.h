// What the fused dispatches of few tokens share (gpu_token.c, gpu_token_attention.c).
#ifndef TERN_KERNELS_GPU_TOKEN_H
#define TERN_KERNELS_GPU_TOKEN_H

#include "kernels/webgpu/plan/gpu_shape.h"

typedef struct row {  // that is quantized
    tern_vid x, norm; // norm -1: none
    float eps;
} row;

// The quantized row that only `linear` reads, made by the node before it.
bool gpu_find_row(const tern_plan *p, const tern_node *n, const tern_node *linear, row *r);

// What becomes of a product: it is added to the value there, stands alone, or is added to another
// value, times a factor.
typedef struct tail {
    size_t n_nodes; // the product's, and one after it
    bool adds;
    tern_vid out, residual; // -1: no other value
    float factor;
} tail;

bool gpu_find_tail(const tern_plan *p, const tern_node *n, tail *t);

// Ternary matrices that multiply a row, and the shapes of the work.
typedef struct product {
    const tern_node *linear;
    int first, count; // of its matrices
    row row;
    tern_vid quantized; // the row in the graph
    // The norm_add that makes the row, if the dispatch of one token does it, and its weight with
    // that of the row's norm after it; NULL: none.
    const tern_node *added;
    gpu_binding norms;
    tail tail; // of one that stands at the end of a block
    work work;
    shape one;
    uint32_t alone; // up to this many tokens, each makes its own row
} product;

bool gpu_find_product(const tern_plan *p, product *f);
gpu_dispatch *gpu_add_one(tern_plan *p, gpu_kernel kernel, const product *f);
gpu_dispatch *gpu_add_quantize(tern_plan *p, gpu_kernel kernel, const product *f);
// Where the product at the end of a block goes.
void gpu_bind_tail(const tern_plan *p, gpu_dispatch *d, const tail *t);
void gpu_add_few_tail(tern_plan *p, const product *f);

// The dispatches of attention and the product after it, from node n on.
tern_status gpu_token_attention(tern_plan *p, const tern_node *n, size_t *count, tern_error *err);

#endif
