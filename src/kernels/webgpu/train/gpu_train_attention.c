// The dispatches of attention in a training graph, and of its gradient.
#include "kernels/webgpu/train/gpu_train_steps.h"

// Rows that a workgroup takes at once, and dimensions of a head; tile 0: none fit.
typedef struct attention_shape {
    int tile, slab;
} attention_shape;

// The largest tile whose blocks fit in a workgroup's memory, with at most four whole tiles to a
// slab, and as few slabs to a head as that allows.
static attention_shape shape_of(const tern_program *p, const tern_node *n, int head_blocks,
                                int squares) {
    for (int n_slabs = 1; 4 * n_slabs <= n->attention.head_dim; n_slabs++) {
        int slab = n->attention.head_dim / n_slabs;
        if (n->attention.head_dim % n_slabs != 0 || slab % 4 != 0) continue;
        for (int tile = 32; tile >= 8; tile /= 2) {
            int bytes = 4 * (head_blocks * slab * tile + squares * tile * tile + tile * tile / 4);
            bool fits = bytes <= (int)p->device->gpu->workgroup_bytes_max;
            bool whole = slab <= tile || (slab % tile == 0 && slab <= 4 * tile);
            if (fits && whole) return (attention_shape){tile, slab};
        }
    }
    return (attention_shape){0};
}

// By the matrix units: heads of a few pieces of 16 dimensions, 128 queries or keys a workgroup.
// Windows and caps are left to the other kernels.
#define MATRIX_TILE     128
#define MATRIX_HEAD_DIM 128
#define MATRIX_BYTES    46608 // of workgroup memory that the largest of the three kernels has
static bool matrix_attends(const tern_program *p, const tern_node *n) {
    const tern_attention_attrs *a = &n->attention;
    return p->device->rounds && a->head_dim % 16 == 0 && a->head_dim <= MATRIX_HEAD_DIM &&
           a->window == 0 && a->soft_cap == 0 &&
           p->device->gpu->workgroup_bytes_max >= MATRIX_BYTES;
}

#define NO_WINDOW (1 << 30)
static void set_shape(gpu_train_step *s, const tern_node *n, attention_shape shape) {
    set(s, "TILE", shape.tile);
    set(s, "THREADS", shape.tile * shape.tile / 16);
    set(s, "SLAB", shape.slab);
    set(s, "WINDOW", n->attention.window > 0 ? n->attention.window : NO_WINDOW);
    set(s, "CAP", (double)n->attention.soft_cap);
    s->grid[2] = fixed((uint64_t)(n->attention.head_dim / shape.slab));
}

// A step over tiles of the rows and over heads; shape NULL: by the matrix units.
static gpu_train_step *add_heads(tern_program *p, gpu_kernel kernel, const tern_node *n,
                                 const attention_shape *shape, int32_t n_heads, tern_vid sums) {
    gpu_train_step *s = add(p, kernel, each((uint32_t)(shape ? shape->tile : MATRIX_TILE)),
                            fixed((uint64_t)n_heads));
    if (shape) set_shape(s, n, *shape);
    set(s, "HEAD_DIM", n->attention.head_dim);
    set(s, "N_HEADS", n->attention.n_heads);
    set(s, "GROUP", n->attention.n_heads / n->attention.n_kv_heads);
    set(s, "SCALE", (double)n->attention.scale);
    set(s, "LDQ", (double)stride4(p, n->in[0]));
    set(s, "LDK", (double)stride4(p, n->in[1]));
    set(s, "LDS", (double)stride4(p, sums) * 4);
    return s;
}

static tern_status check_attention(const tern_program *p, const tern_node *n, attention_shape shape,
                                   tern_error *err) {
    const tern_attention_attrs *a = &n->attention;
    if (a->n_kv_heads <= 0 || a->n_heads % a->n_kv_heads != 0 || a->head_dim % 4 != 0 ||
        cols(p, n->in[0]) != (int64_t)a->n_heads * a->head_dim ||
        cols(p, n->in[1]) != (int64_t)a->n_kv_heads * a->head_dim)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU trains heads of a multiple of 4 dimensions, not %d of %d",
                         (int)a->n_heads, (int)a->head_dim);
    if (a->bidirectional)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU cannot train attention to both sides: train encoders on the CPU");
    if (shape.tile == 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "heads of %d dimensions do not fit in this GPU's %u KB a workgroup",
                         (int)a->head_dim, p->device->gpu->workgroup_bytes_max >> 10);
    return TERN_OK;
}

tern_status gpu_train_add_attention(tern_program *p, const tern_node *n, tern_error *err) {
    attention_shape shape = shape_of(p, n, 2, 1);
    TERN_TRY(check_attention(p, n, shape, err));
    bool matrix = matrix_attends(p, n);
    gpu_train_step *s = add_heads(p, matrix ? GPU_TRAIN_ATTENTION_MATRIX : GPU_TRAIN_ATTENTION, n,
                                  matrix ? NULL : &shape, n->attention.n_heads, n->out[1]);
    for (int i = 0; i < 3; i++) bind_value(p, s, n->in[i]);
    bind(s, p->spans);
    bind_value(p, s, n->out[0]);
    bind_value(p, s, n->out[1]);
    return TERN_OK;
}

tern_status gpu_train_add_attention_gradient(tern_program *p, const tern_node *n, tern_error *err) {
    static const gpu_kernel kernels[2][2] = {
        {GPU_TRAIN_ATTENTION_GRAD_Q, GPU_TRAIN_ATTENTION_GRAD_KV},
        {GPU_TRAIN_GRAD_Q_MATRIX, GPU_TRAIN_GRAD_KV_MATRIX}};
    tern_vid y = n->in[3], sums = n->in[4], dy = n->in[5];
    attention_shape shape = shape_of(p, n, 4, 2);
    TERN_TRY(check_attention(p, n, shape, err));
    bool matrix = matrix_attends(p, n);
    wgpu_buffer stats;
    uint64_t heads = (uint64_t)n->attention.n_heads;
    TERN_TRY(gpu_train_scratch(p, 1, (uint64_t)p->n_rows * heads * 8, &stats, err));
    gpu_train_step *s = add_heads(p, GPU_TRAIN_ATTENTION_DELTA, n,
                                  &(attention_shape){4, n->attention.head_dim}, 1, sums);
    s->grid[0] = (gpu_count){groups(heads * 64, 256), 64};
    bind_value(p, s, y);
    bind_value(p, s, sums);
    bind_value(p, s, dy);
    bind(s, stats);
    for (int part = 0; part < 2; part++) {
        s = add_heads(p, kernels[matrix][part], n, matrix ? NULL : &shape,
                      part ? n->attention.n_kv_heads : n->attention.n_heads, sums);
        for (int i = 0; i < 3; i++) bind_value(p, s, n->in[i]);
        bind_value(p, s, dy);
        bind(s, p->spans);
        bind(s, stats);
        bind_value(p, s, n->out[part]);
        if (part) bind_value(p, s, n->out[2]);
    }
    return TERN_OK;
}
