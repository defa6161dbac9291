// Building the steps of a training graph's op: a kernel, its grid, constants and buffers.
#ifndef TERN_KERNELS_WEBGPU_GPU_TRAIN_STEPS_H
#define TERN_KERNELS_WEBGPU_GPU_TRAIN_STEPS_H

#include "kernels/webgpu/train/gpu_train.h"

static inline uint32_t groups(uint64_t n, uint64_t each) {
    return (uint32_t)((n + each - 1) / each);
}

static inline gpu_count fixed(uint64_t n) { return (gpu_count){(uint32_t)n, 0}; }
static inline gpu_count each(uint32_t tokens) { return (gpu_count){1, tokens}; }

static inline gpu_train_step *add(tern_program *p, gpu_kernel kernel, gpu_count x, gpu_count y) {
    gpu_train_step *s = &p->steps[p->n_steps++];
    *s = (gpu_train_step){.what.kernel = kernel, .grid = {x, y, {1, 0}}};
    return s;
}

static inline void set(gpu_train_step *s, const char *name, double value) {
    gpu_set(&s->what, name, value);
}
static inline void bind(gpu_train_step *s, wgpu_buffer b) { s->buffers[s->n_buffers++] = b; }
static inline void bind_value(const tern_program *p, gpu_train_step *s, tern_vid v) {
    bind(s, p->buffers[v]);
}

static inline int64_t cols(const tern_program *p, tern_vid v) { return p->g.values[v].cols; }
static inline uint64_t stride4(const tern_program *p, tern_vid v) {
    return gpu_train_stride(cols(p, v)) / 4;
}

static inline bool is_const(const tern_program *p, tern_vid v) {
    return p->g.values[v].dim == TERN_DIM_NONE;
}

// Adds the sums over parts of `chunk` tokens to a weight's gradient (gpu_train_ops.c).
void gpu_train_add_parts(tern_program *p, wgpu_buffer parts, uint64_t n4, uint32_t chunk,
                         tern_vid to);

// Matrix products (gpu_train_products.c).
tern_status gpu_train_add_product(tern_program *p, const tern_node *n, tern_error *err);
tern_status gpu_train_add_weight_gradient(tern_program *p, const tern_node *n, tern_error *err);

// Attention over whole documents, and its gradient (gpu_train_attention.c).
tern_status gpu_train_add_attention(tern_program *p, const tern_node *n, tern_error *err);
tern_status gpu_train_add_attention_gradient(tern_program *p, const tern_node *n, tern_error *err);

// Mixtures of experts (gpu_train_mixture.c).
void gpu_train_add_route(tern_program *p, const tern_node *n);
void gpu_train_add_route_gradient(tern_program *p, const tern_node *n);
void gpu_train_add_mix(tern_program *p, const tern_node *n);
void gpu_train_add_mix_gradient(tern_program *p, const tern_node *n);
tern_status gpu_train_add_experts(tern_program *p, const tern_node *n, tern_error *err);
tern_status gpu_train_add_experts_gradient(tern_program *p, const tern_node *n, tern_error *err);
tern_status gpu_train_add_experts_weights(tern_program *p, const tern_node *n, tern_error *err);

// Delta nets and state spaces (gpu_train_scan.c).
tern_status gpu_train_add_scan(tern_program *p, const tern_node *n, tern_error *err);
tern_status gpu_train_add_scan_gradient(tern_program *p, const tern_node *n, tern_error *err);

#endif
