// A graph becomes a program: neighbours are fused, values get buffers, nodes become dispatches.
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/train/gpu_train.h"

#define STORAGE (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

// ---- Fusing ------------------------------------------------------------------------------------

// How many nodes read v.
static int n_readers(const tern_graph *g, tern_vid v) {
    int n = 0;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) n += g->nodes[i].in[k] == v;
    return n;
}

// norm and the quantization after it: one pass over memory and one value less.
static void fuse(tern_graph *g) {
    size_t kept = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        tern_node n = g->nodes[i];
        const tern_node *next = i + 1 < g->n_nodes ? &g->nodes[i + 1] : NULL;
        if (n.op == TERN_OP_RMS_NORM && next && next->op == TERN_OP_QUANTIZE && !next->group &&
            next->in[0] == n.out[0] && g->values[n.in[0]].cols == g->values[n.in[1]].cols &&
            n_readers(g, n.out[0]) == 1) {
            n.op = TERN_OP_NORM_QUANTIZE;
            n.out[0] = next->out[0];
            i++;
        }
        g->nodes[kept++] = n;
    }
    g->n_nodes = kept;
    for (size_t v = 0; v < g->n_values; v++) g->values[v].producer = -1;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_out; k++)
            g->values[g->nodes[i].out[k]].producer = (int32_t)i;
}

// ---- Memory ------------------------------------------------------------------------------------

static tern_status new_buffer(tern_program *p, uint64_t bytes, const char *what, wgpu_buffer *out,
                              tern_error *err) {
    *out = NULL;
    p->bytes += bytes;
    if (p->is_plan) return TERN_OK;
    return gpu_buffer_new(p->device->gpu, GPU_USE_WORK, bytes, STORAGE, what, out, err);
}

static tern_status new_slot(tern_program *p, uint64_t bytes, const char *what, wgpu_buffer *out,
                            tern_error *err) {
    tern_device *gpu = p->device->gpu;
    *out = NULL;
    if (bytes > gpu->binding_bytes_max)
        return tern_fail(err, TERN_ERR_DEVICE,
                         "%s needs %llu MB for %d tokens, and the GPU reads at most %llu MB in one "
                         "piece: use a smaller batch",
                         what, (unsigned long long)(bytes >> 20), (int)p->n_rows,
                         (unsigned long long)(gpu->binding_bytes_max >> 20));
    if (tern_array_reserve(TERN_MEM_ACTIVATIONS, &p->slots, &p->slots_capacity, p->n_slots, 1) != 0)
        return tern_fail_memory(err, sizeof *p->slots);
    TERN_TRY(new_buffer(p, bytes, what, out, err));
    p->slots[p->n_slots++] = (gpu_slot){.bytes = bytes, .buffer = *out, .holds = GPU_NO_VALUE};
    return TERN_OK;
}

tern_status gpu_train_slot(tern_program *p, int use, uint64_t bytes, gpu_slot **out,
                           tern_error *err) {
    bytes = gpu_round(bytes, 256);
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].use == use && p->slots[i].bytes == bytes) {
            *out = &p->slots[i];
            return TERN_OK;
        }
    wgpu_buffer unused;
    TERN_TRY(new_slot(p, bytes, "an intermediate sum", &unused, err));
    *out = &p->slots[p->n_slots - 1];
    (*out)->use = use;
    return TERN_OK;
}

tern_status gpu_train_scratch(tern_program *p, int use, uint64_t bytes, wgpu_buffer *out,
                              tern_error *err) {
    gpu_slot *slot;
    TERN_TRY(gpu_train_slot(p, use, bytes, &slot, err));
    *out = slot->buffer;
    return TERN_OK;
}

static uint64_t bytes_of(const tern_program *p, tern_vid v) {
    uint64_t each = p->is_half[v] ? 2 : sizeof(float);
    uint64_t stride = gpu_train_stride(p->g.values[v].cols);
    return gpu_round(gpu_train_rows_in_memory(p, v) * stride * each, 256);
}

typedef struct size_class {
    const tern_program *p;
    uint64_t bytes;
} size_class;

static uint64_t bytes_in_class(const void *ctx, const tern_graph *g, tern_vid v) {
    const size_class *c = ctx;
    (void)g;
    uint64_t bytes = bytes_of(c->p, v);
    return bytes == c->bytes ? bytes : 0;
}

// Values of one size: the plan of their lifetimes, in which every offset is a multiple of the size,
// says which buffer each gets.
static tern_status place_class(tern_program *p, uint64_t bytes, tern_error *err) {
    tern_memory_plan plan;
    size_class c = {p, bytes};
    TERN_TRY(tern_graph_plan_memory(&p->g, bytes_in_class, &c, &plan, err));
    size_t first = p->n_slots, n = (size_t)(plan.bytes / bytes);
    tern_status status = TERN_OK;
    for (size_t v = 0; status == TERN_OK && v < p->g.n_values; v++) {
        if (plan.spans[v].bytes == 0) continue;
        while (status == TERN_OK && p->n_slots < first + n) {
            wgpu_buffer unused;
            status = new_slot(p, bytes, p->g.values[v].name, &unused, err);
        }
        if (status == TERN_OK)
            p->buffers[v] = p->slots[first + (size_t)(plan.spans[v].offset / bytes)].buffer;
    }
    tern_memory_plan_free(&plan);
    return status;
}

static bool all_take_halves(const tern_program *p, tern_vid v) {
    int n_readers = 0;
    for (size_t i = 0; i < p->g.n_nodes; i++)
        for (int k = 0; k < p->g.nodes[i].n_in; k++) {
            if (p->g.nodes[i].in[k] != v) continue;
            if (!gpu_train_takes_halves(p, &p->g.nodes[i], k)) return false;
            n_readers++;
        }
    return n_readers > 0;
}

static bool can_write_halves(const tern_node *n) {
    switch (n->op) {
    case TERN_OP_TERNARIZE:
    case TERN_OP_NORM_QUANTIZE:
    case TERN_OP_GLU_GRAD: return true;
    case TERN_OP_QUANTIZE: return !n->group;
    default: return false;
    }
}

// What the units would round is rounded when it is written: half of the bytes, the same results.
static void find_halves(tern_program *p) {
    for (size_t i = 0; i < p->g.n_nodes; i++) {
        const tern_node *n = &p->g.nodes[i];
        bool all = can_write_halves(n);
        for (int k = 0; k < n->n_out; k++)
            all = all && p->g.values[n->out[k]].kind == TERN_VALUE_TEMP &&
                  all_take_halves(p, n->out[k]);
        for (int k = 0; k < n->n_out; k++) p->is_half[n->out[k]] = all;
    }
}

static bool is_temporary(const tern_value *v) {
    return (v->kind == TERN_VALUE_TEMP || v->kind == TERN_VALUE_OUTPUT) && v->producer >= 0;
}

static bool has_class(const tern_program *p, uint64_t bytes) {
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].bytes == bytes && p->slots[i].use == 0) return true;
    return false;
}

static tern_status place_values(tern_program *p, tern_train_array *const *arrays, tern_error *err) {
    for (size_t i = 0; i < p->g.n_values; i++) {
        const tern_value *v = &p->g.values[i];
        if (v->kind == TERN_VALUE_WEIGHT || v->kind == TERN_VALUE_STATE) {
            // No arrays: a plan; no array: the cache of inference, which no node reads.
            if (!arrays || !arrays[i]) continue;
            if (arrays[i]->n != (uint64_t)v->rows * (uint64_t)v->cols)
                return tern_fail(err, TERN_ERR_ARGUMENT, "the array for %s has the wrong size",
                                 v->name);
            p->buffers[i] = arrays[i]->buffer;
        } else if (is_temporary(v) && !has_class(p, bytes_of(p, (tern_vid)i)))
            TERN_TRY(place_class(p, bytes_of(p, (tern_vid)i), err));
    }
    return TERN_OK;
}

static tern_status make_decoded(tern_program *p, tern_error *err) {
    const uint64_t bytes = gpu_train_decoded_bytes(p);
    return bytes ? gpu_train_scratch(p, 3, bytes, &p->decoded, err) : TERN_OK;
}

// ---- Inputs ------------------------------------------------------------------------------------

static tern_status uniform_buffer(tern_program *p, tern_error *err) {
    return gpu_buffer_new(p->device->gpu, GPU_USE_WORK, sizeof(gpu_train_uniform),
                          WGPU_BUFFER_UNIFORM | WGPU_BUFFER_COPY_DST, "the parameters of a run",
                          &p->uniform, err);
}

// Finds the sizes of the tables that the ids and targets of a batch index.
static void find_bounds(tern_program *p) {
    const tern_graph *g = &p->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        int64_t bound = n->op == TERN_OP_EMBED        ? g->values[n->in[1]].rows
                        : n->op == TERN_OP_EMBED_GRAD ? g->values[n->in[2]].rows
                                                      : 0;
        if (bound > 0 && (p->n_ids == 0 || bound < p->n_ids)) p->n_ids = bound;
        if (n->op == TERN_OP_EMBED_GRAD) p->embeds_back = true;
        if (n->op == TERN_OP_CROSS_ENTROPY || n->op == TERN_OP_CROSS_ENTROPY_GRAD ||
            n->op == TERN_OP_DISTILL)
            p->n_targets = g->values[n->in[0]].cols;
        if (n->op == TERN_OP_POOL_SEQ) p->n_targets = g->values[n->in[2]].rows;
    }
}

static tern_status make_inputs(tern_program *p, tern_error *err) {
    uint64_t rows = (uint64_t)p->n_rows;
    find_bounds(p);
    TERN_TRY(new_buffer(p, rows * 4, "tokens", &p->ids, err));
    TERN_TRY(new_buffer(p, rows * 4, "targets", &p->targets, err));
    TERN_TRY(new_buffer(p, rows * 8, "documents", &p->spans, err));
    TERN_TRY(new_buffer(p, rows * 4, "tokens", &p->order, err));
    TERN_TRY(new_buffer(p, rows * 16, "tokens", &p->found, err));
    TERN_TRY(new_buffer(p, rows * 4, "rows", &p->taken, err));
    TERN_TRY(new_buffer(p, rows * 4, "rows", &p->places, err));
    TERN_TRY(new_buffer(p, rows * 4, "weights", &p->weights, err));
    if (p->is_plan) return TERN_OK;
    TERN_TRY(uniform_buffer(p, err));
    size_t n = (size_t)rows * 5 + (p->embeds_back ? (size_t)p->n_ids + 1 : 0);
    p->host = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *p->host);
    p->scored = tern_alloc_array(TERN_MEM_SESSION, (size_t)rows, sizeof *p->scored);
    p->answers = tern_alloc_array(TERN_MEM_SESSION, (size_t)rows, sizeof *p->answers);
    p->shares = tern_alloc_array(TERN_MEM_SESSION, (size_t)rows, sizeof *p->shares);
    bool ok = p->host && p->scored && p->answers && p->shares;
    return ok ? TERN_OK : tern_fail_memory(err, n * sizeof *p->host);
}

// ---- Ropes -------------------------------------------------------------------------------------

static tern_status angles_of(tern_program *p, size_t index, tern_error *err) {
    tern_device *gpu = p->device->gpu;
    const tern_rope *r = &p->ropes.items[index];
    size_t half = (size_t)r->attrs.n_rot / 2, n = (size_t)p->n_span * half * 2;
    bool is_long = p->n_span > r->attrs.n_context_orig; // of all documents alike
    TERN_TRY(new_buffer(p, n * 4, "angles", &p->angles[index], err));
    if (p->is_plan) return TERN_OK;
    float *angles = tern_alloc_array(TERN_MEM_ACTIVATIONS, n + 1, sizeof *angles);
    if (!angles) return tern_fail_memory(err, n * sizeof *angles);
    for (size_t t = 0; t < (size_t)p->n_span; t++) {
        float *row = angles + 2 * t * half;
        const int32_t at = (int32_t)t, place[3] = {at, at, at};
        tern_rope_angles(r, place, is_long, row, row + 1, 2);
    }
    gpu->api.QueueWriteBuffer(gpu->queue, p->angles[index], 0, angles, n * sizeof *angles);
    tern_free(angles);
    return TERN_OK;
}

// One of a node's sets of factors, to be freed; NULL: it has none.
static tern_status read_factors(const tern_program *p, tern_train_array *const *arrays,
                                const tern_node *n, int which, float **out, tern_error *err) {
    tern_vid v = tern_node_optional(n, which);
    *out = NULL;
    if (v < 0 || p->is_plan) return TERN_OK;
    size_t n_factors = (size_t)arrays[v]->n;
    if (n_factors < (size_t)n->rope.angles.n_rot / 2)
        return tern_fail(err, TERN_ERR_FORMAT, "graph: %s has too few factors",
                         p->g.values[v].name);
    *out = tern_alloc_array(TERN_MEM_ACTIVATIONS, n_factors + 1, sizeof **out);
    if (!*out) return tern_fail_memory(err, n_factors * sizeof **out);
    return gpu_train_read(arrays[v], 0, n_factors, *out, err);
}

static tern_status make_ropes(tern_program *p, tern_train_array *const *arrays, tern_error *err) {
    for (size_t i = 0; i < p->g.n_nodes; i++) {
        const tern_node *n = &p->g.nodes[i];
        if (n->op != TERN_OP_ROPE) continue;
        float *factors[2] = {NULL, NULL};
        int index;
        tern_status status = TERN_OK;
        for (int k = 0; k < 2 && status == TERN_OK; k++)
            status = read_factors(p, arrays, n, k, &factors[k], err);
        if (status == TERN_OK)
            status = tern_rope_list_find(&p->ropes, n, factors[0], factors[1], &index, err);
        tern_free(factors[0]);
        tern_free(factors[1]);
        TERN_TRY(status);
    }
    p->angles = tern_alloc_array(TERN_MEM_ACTIVATIONS, p->ropes.n + 1, sizeof *p->angles);
    if (!p->angles) return tern_fail_memory(err, p->ropes.n * sizeof *p->angles);
    for (size_t i = 0; i < p->ropes.n; i++) TERN_TRY(angles_of(p, i, err));
    return TERN_OK;
}

// ---- Compiling ---------------------------------------------------------------------------------

static tern_status make_step(tern_program *p, gpu_train_step *s, tern_error *err) {
    tern_device *gpu = p->device->gpu;
    TERN_TRY(gpu_pipeline_find(gpu, &s->what, &s->pipeline, err));
    TERN_TRY(gpu_pipeline_begin(s->pipeline, err));
    const char *kinds = gpu_kernel_bindings(s->what.kernel);
    wgpu_group_entry entries[1 + GPU_BINDINGS] = {{0}};
    entries[0] = (wgpu_group_entry){.buffer = p->uniform, .bytes = UINT64_MAX};
    uint32_t number = 0;
    for (int k = 0; k < s->n_buffers; k++, number++) {
        while (kinds[number] == '-') number++;
        entries[1 + k] = (wgpu_group_entry){.binding = number + 1,
                                            .buffer = s->buffers[k],
                                            .offset = s->offsets[k],
                                            .bytes = UINT64_MAX};
    }
    wgpu_group_desc desc = {.layout = gpu->layouts[s->what.kernel],
                            .n_entries = (size_t)s->n_buffers + 1,
                            .entries = entries};
    s->group = gpu->api.DeviceCreateBindGroup(gpu->device, &desc);
    return gpu_check(gpu, gpu_kernel_entry(s->what.kernel), err);
}

// The logits of a piece: gradients of large heads are read and written once for each.
#define PIECE_BYTES ((uint64_t)512 << 20)

static void choose_piece(tern_program *p) {
    uint64_t bytes = p->device->piece_bytes ? p->device->piece_bytes : PIECE_BYTES;
    uint64_t most = p->device->gpu->binding_bytes_max;
    p->head = tern_graph_scored(&p->g);
    p->piece_rows =
        tern_graph_scored_rows(&p->g, bytes < most ? bytes : most, GPU_TRAIN_TILE, p->n_rows);
}

static tern_status begin_head(tern_program *p, tern_error *err) {
    if (p->head.end > 0) TERN_TRY(gpu_train_add_head_halves(p, err));
    p->head_first = p->n_steps;
    return TERN_OK;
}

static void end_head(tern_program *p) {
    p->head_end = p->n_steps;
    gpu_train_forget_halves(p);
}

static tern_status add_nodes(tern_program *p, tern_error *err) {
    for (size_t i = 0; i < p->g.n_nodes; i++) {
        const tern_node *n = &p->g.nodes[i];
        const size_t most = GPU_TRAIN_STEPS + gpu_train_decoding_steps(p, n);
        if (tern_array_reserve(TERN_MEM_GRAPH, &p->steps, &p->steps_capacity, p->n_steps, most))
            return tern_fail_memory(err, most * sizeof *p->steps);
        if (i == p->head.first) TERN_TRY(begin_head(p, err));
        TERN_TRY(gpu_train_add_node(p, n, err));
        if (i + 1 == p->head.end) end_head(p);
    }
    return TERN_OK;
}

#define ROWS_MAX (1 << 18) // row by row kernels take eight in each of 65535 workgroups at most

static tern_status wait_for_pipelines(const tern_program *p, tern_error *err) {
    TERN_TRY(gpu_pipelines_wait(p->device->gpu, err));
    for (size_t i = 0; i < p->n_steps; i++) TERN_TRY(gpu_pipeline_check(p->steps[i].pipeline, err));
    return TERN_OK;
}

static tern_status build(tern_program *p, const tern_graph *g, tern_train_array *const *arrays,
                         tern_error *err) {
    if (p->n_rows < 1 || p->n_rows > ROWS_MAX || p->n_span < 1)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a run of %d tokens: it must have 1 to %d",
                         (int)p->n_rows, ROWS_MAX);
    TERN_TRY(tern_graph_copy(&p->g, g, err));
    fuse(&p->g);
    choose_piece(p);
    p->buffers = tern_alloc_array(TERN_MEM_ACTIVATIONS, p->g.n_values + 1, sizeof *p->buffers);
    if (!p->buffers) return tern_fail_memory(err, p->g.n_values * sizeof *p->buffers);
    p->is_half = tern_alloc_array(TERN_MEM_ACTIVATIONS, p->g.n_values + 1, sizeof *p->is_half);
    if (!p->is_half) return tern_fail_memory(err, p->g.n_values);
    find_halves(p);
    TERN_TRY(place_values(p, arrays, err));
    TERN_TRY(make_inputs(p, err));
    TERN_TRY(make_ropes(p, arrays, err));
    TERN_TRY(make_decoded(p, err));
    TERN_TRY(add_nodes(p, err));
    for (size_t i = 0; i < p->n_steps && !p->is_plan; i++)
        TERN_TRY(make_step(p, &p->steps[i], err));
    return p->is_plan ? TERN_OK : wait_for_pipelines(p, err);
}

tern_status gpu_train_compile(tern_trainer_device *d, const tern_graph *g,
                              tern_train_array *const *arrays, int32_t n_rows, int32_t n_span,
                              tern_program **out, tern_error *err) {
    *out = NULL;
    tern_program *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->device = d;
    p->n_rows = n_rows;
    p->n_span = n_span;
    p->arrays = arrays;
    p->is_plan = !arrays;
    tern_status status = build(p, g, arrays, err);
    if (status == TERN_OK)
        *out = p;
    else
        gpu_train_program_free(p);
    return status;
}

void gpu_train_program_free(tern_program *p) {
    if (!p) return;
    tern_device *gpu = p->device->gpu;
    for (size_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].group) gpu->api.BindGroupRelease(p->steps[i].group);
    for (size_t i = 0; i < p->n_slots; i++) gpu_buffer_free(gpu, GPU_USE_WORK, p->slots[i].buffer);
    for (size_t i = 0; p->angles && i < p->ropes.n; i++)
        gpu_buffer_free(gpu, GPU_USE_WORK, p->angles[i]);
    wgpu_buffer inputs[] = {p->uniform, p->ids,   p->targets, p->spans,  p->order,
                            p->found,   p->taken, p->places,  p->weights};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        gpu_buffer_free(gpu, GPU_USE_WORK, inputs[i]);
    tern_rope_list_free(&p->ropes);
    tern_graph_free(&p->g);
    tern_free(p->slots);
    tern_free(p->buffers);
    tern_free(p->is_half);
    tern_free(p->angles);
    tern_free(p->steps);
    tern_free(p->host);
    tern_free(p->scored);
    tern_free(p->answers);
    tern_free(p->shares);
    tern_free(p);
}
