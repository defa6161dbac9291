// Rotation, the store into the cache, and attention.
#include "kernels/webgpu/ops/gpu_op.h"

static tern_status add_rope(tern_plan *p, const tern_node *n, tern_error *err) {
    bool rotates = n->op != TERN_OP_KV_STORE, stores = n->op != TERN_OP_ROPE;
    tern_vid rope = -1;
    if (rotates) TERN_TRY(rope_index(p, n, &rope, err));
    int64_t q_pairs = rotates ? cols(p, n->in[0]) / 2 : 0;
    int64_t k_pairs = stores ? cols(p, n->in[rotates ? 1 : 0]) / 2 : 0;
    gpu_kernel kernel = !stores ? GPU_ROPE : rotates ? GPU_ROPE_STORE : GPU_KV_STORE;
    gpu_dispatch *d = add(p, kernel, groups(q_pairs + k_pairs, 64), GPU_ROWS_TOKENS);
    set(d, "HEAD_DIM", n->rope.head_dim);
    set(d, "N_ROT", rotates ? n->rope.angles.n_rot : 0);
    set(d, "HALVES", rotates && n->rope.angles.halves);
    set(d, "Q_PAIRS", (double)q_pairs);
    set(d, "K_PAIRS", (double)k_pairs);
    if (rotates) bind_place(d, GPU_ANGLES, rope);
    int n_values = kernel == GPU_ROPE_STORE ? 3 : kernel == GPU_KV_STORE ? 2 : 1;
    for (int i = 0; i < n_values; i++) bind_value(p, d, n->in[i]);
    if (rotates) bind_value(p, d, n->out[0]);
    if (stores) {
        const tern_vid *states = tern_node_stores(n);
        for (int i = 0; i < 2; i++) bind_place(d, GPU_STATE, states[i]);
        set_pages(p, d, states[0]);
    }
    return TERN_OK;
}

// Threads of attention_row.wgsl: four a score, and one for each pair of columns of its values.
uint32_t gpu_attention_threads(const tern_plan *p, uint32_t most, int32_t head_dim) {
    uint32_t threads = threads_for(p, most);
    while (threads > 64 && threads * 17 + 4 * (uint32_t)head_dim > p->device->workgroup_bytes_max)
        threads /= 2;
    return threads;
}

// Threads of attention_prompt.wgsl; 0: there is no room for it.
static uint32_t prompt_threads(const tern_plan *p, int32_t head_dim) {
    uint32_t threads = GPU_PROMPT_THREADS;
    for (int32_t dims = GPU_PROMPT_DIMS; dims < head_dim; dims *= 2) threads /= 2;
    return p->device->workgroup_bytes_max >= GPU_PROMPT_BYTES ? threads : 0;
}

void gpu_set_attention(const tern_plan *p, gpu_dispatch *d, const tern_node *n) {
    const tern_attention_attrs *a = &n->attention;
    set(d, "HEAD_DIM", a->head_dim);
    set(d, "N_HEADS", a->n_heads);
    set(d, "N_KV_HEADS", a->n_kv_heads);
    set(d, "SCALE", (double)a->scale);
    set(d, "WINDOW", a->window);
    set(d, "AHEAD", a->ahead);
    set(d, "CAUSAL", !a->bidirectional);
    set(d, "IMAGES", a->images);
    set(d, "SOFT_CAP", (double)a->soft_cap);
    set_pages(p, d, n->in[1]);
}

static gpu_dispatch *add_attention(tern_plan *p, const tern_node *n, gpu_kernel kernel,
                                   uint32_t threads) {
    bool tiles = kernel != GPU_ATTENTION;
    gpu_dispatch *d =
        add(p, kernel, (uint32_t)n->attention.n_heads, tiles ? GPU_ROWS_TILES : GPU_ROWS_TOKENS);
    set(d, "THREADS", threads);
    gpu_set_attention(p, d, n);
    bind_value(p, d, n->in[0]);
    bind_place(d, GPU_STATE, n->in[1]);
    bind_place(d, GPU_STATE, n->in[2]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return d;
}

// One tiling serves all layers of a plan.
static void take_tiles(tern_plan *p, uint32_t caches, int32_t rows) {
    for (int c = 0; c < GPU_CACHES; c++)
        if ((caches & 1u << c) && (p->tile_rows[c] == 0 || rows < p->tile_rows[c]))
            p->tile_rows[c] = rows;
}

// Whether the matrix units can compute it, from a cache in f16.
static bool takes_matrix(const tern_plan *p, int32_t head_dim) {
    return GPU_MAY_HAVE_MATRIX && p->device->matrix_half && head_dim % 16 == 0 &&
           head_dim <= GPU_ATTENTION_MATRIX_DIMS &&
           p->device->workgroup_bytes_max >= GPU_ATTENTION_MATRIX_BYTES;
}

// Steps are a matter of latency: many threads a head. Prompts fill the device anyway.
tern_status gpu_op_ATTENTION(tern_plan *p, const tern_node *n, tern_error *err) {
    if (n->attention.head_dim > GPU_HEAD_DIM_MAX || n->attention.head_dim % 2 != 0)
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "the GPU's attention has heads of an even number up to %d dimensions, not %d",
            GPU_HEAD_DIM_MAX, (int)n->attention.head_dim);
    uint32_t threads = prompt_threads(p, n->attention.head_dim);
    int32_t rows = (int32_t)threads / 8;
    uint32_t alone = gpu_attention_threads(p, 1024, n->attention.head_dim);
    uint32_t many = gpu_attention_threads(p, 256, n->attention.head_dim);
    add_attention(p, n, GPU_ATTENTION, alone)->kinds = GPU_STEPS;
    if (threads == 0) {
        add_attention(p, n, GPU_ATTENTION, many)->kinds = GPU_PROMPTS;
        return TERN_OK;
    }
    uint32_t matrix = takes_matrix(p, n->attention.head_dim) ? 1u << GPU_CACHE_F16 : 0;
    gpu_dispatch *d = add_attention(p, n, GPU_ATTENTION_PROMPT, threads);
    d->kinds = GPU_PROMPTS;
    d->caches &= ~matrix;
    p->only_small |= d->caches;
    take_tiles(p, d->caches, rows);
    if (!matrix) return TERN_OK;
    take_tiles(p, matrix, GPU_TILE_SMALL);
    for (int large = 0; large < 2; large++) {
        d = add_attention(p, n, GPU_ATTENTION_MATRIX,
                          2 * (large ? GPU_TILE_LARGE : GPU_TILE_SMALL));
        d->kinds = GPU_PROMPTS;
        d->caches = matrix;
        d->tiling = large ? GPU_TILES_LARGE : GPU_TILES_SMALL;
    }
    return TERN_OK;
}

tern_status gpu_op_ROPE(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_rope(p, n, err);
}

tern_status gpu_op_KV_STORE(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_rope(p, n, err);
}

tern_status gpu_op_ROPE_STORE(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_rope(p, n, err);
}
