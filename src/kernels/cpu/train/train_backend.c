// Training on the CPU: devices, arrays, programs. train_run.c runs them.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train/cpu_train.h"

// The logits of a piece: some hundred rows of a large vocabulary, so that the head's weights are
// read from memory far less often than they are multiplied.
#define PIECE_BYTES ((uint64_t)128 << 20)

// ---- Device and arrays -------------------------------------------------------------------------

static void device_close(tern_trainer_device *d) {
    if (!d) return;
    tern_team_close(d->team);
    tern_free(d->pool);
    tern_free(d);
}

static tern_status device_open(tern_trainer_device **out, const tern_trainer_desc *desc,
                               tern_error *err) {
    *out = NULL;
    tern_trainer_device *d = tern_alloc(TERN_MEM_GRAPH, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    tern_status status =
        cpu_team_open(desc->cpu_features, desc->n_threads, &d->kernels, &d->team, err);
    if (status != TERN_OK) {
        device_close(d);
        return status;
    }
    d->piece_bytes = desc->piece_bytes ? desc->piece_bytes : PIECE_BYTES;
    d->gemm = desc->bf16 && !desc->cpu_features ? cpu_gemm_bf16() : NULL;
    if (!d->gemm) d->gemm = d->kernels.g;
    int n = d->team->n_threads;
    snprintf(d->description, sizeof d->description, "cpu %s, %s, %d thread%s", d->kernels.name,
             d->gemm->name, n, n == 1 ? "" : "s");
    *out = d;
    return TERN_OK;
}

static const char *device_describe(const tern_trainer_device *d) { return d->description; }

static tern_status array_bytes(const tern_trainer_device *d, uint64_t n, uint64_t *bytes,
                               tern_error *err) {
    (void)d, (void)err;
    *bytes = tern_alloc_resident(n * sizeof(float));
    return TERN_OK;
}

static tern_status array_new(tern_trainer_device *d, uint64_t n, tern_train_array **out,
                             tern_error *err) {
    *out = NULL;
    tern_train_array *a = tern_alloc(TERN_MEM_GRAPH, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    a->device = d;
    a->n = n;
    a->data = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof(float));
    if (!a->data) {
        tern_free(a);
        return tern_fail_memory(err, n * sizeof(float));
    }
    *out = a;
    return TERN_OK;
}

static tern_status codes_bytes(const tern_trainer_device *d, const tern_train_codes *codes,
                               uint64_t *bytes, tern_error *err) {
    (void)d, (void)err;
    *bytes = codes->bytes;
    return TERN_OK;
}

static tern_status array_of_codes(tern_trainer_device *d, const tern_train_codes *codes,
                                  tern_train_array **out, tern_error *err) {
    *out = tern_alloc(TERN_MEM_GRAPH, sizeof **out);
    if (!*out) return tern_fail_memory(err, sizeof **out);
    **out = (tern_train_array){.device = d, .codes = *codes};
    return TERN_OK;
}

static void array_free(tern_train_array *a) {
    if (!a) return;
    tern_free(a->data);
    tern_free(a->halves);
    tern_free(a);
}

static tern_status array_write(tern_train_array *a, uint64_t first, uint64_t n, const float *data,
                               tern_error *err) {
    (void)err;
    for (uint64_t i = 0; a->halves && i < n; i++) a->halves[first + i] = tern_f32_to_bf16(data[i]);
    if (a->data) memcpy(a->data + first, data, n * sizeof *data);
    return TERN_OK;
}

static tern_status array_read(tern_train_array *a, uint64_t first, uint64_t n, float *data,
                              tern_error *err) {
    (void)err;
    for (uint64_t i = 0; a->halves && i < n; i++) data[i] = tern_bf16_to_f32(a->halves[first + i]);
    if (a->data) memcpy(data, a->data + first, n * sizeof *data);
    return TERN_OK;
}

static float *array_host(tern_train_array *a) { return a->data; }

// ---- Programs ----------------------------------------------------------------------------------

static void program_free(tern_program *p) {
    if (!p) return;
    tern_rope_list_free(&p->ropes);
    tern_memory_plan_free(&p->memory);
    tern_free(p->steps);
    tern_free(p->scratch);
    tern_free(p->sums);
    tern_free(p->parts);
    tern_free(p->shared);
    tern_free(p->rope_tables);
    tern_free(p->documents);
    tern_free(p->scored);
    tern_free(p->places);
    tern_free(p);
}

static uint64_t value_bytes(const void *ctx, const tern_graph *g, tern_vid v) {
    const tern_program *p = ctx;
    const tern_value *value = &g->values[v];
    uint64_t rows = value->dim == TERN_DIM_NONE ? (uint64_t)value->rows
                    : value->dim == p->head.dim ? (uint64_t)p->piece_rows
                                                : (uint64_t)p->n_rows;
    return rows * (uint64_t)value->cols * sizeof(float);
}

// NULL: none, or a plan, whose sizes do not depend on them.
static const float *factors_of(const tern_program *p, tern_vid v) {
    return v >= 0 && p->arrays ? p->arrays[v]->data : NULL;
}

static tern_status add_rope(tern_program *p, cpu_train_step *s, tern_error *err) {
    const float *factors = factors_of(p, tern_node_optional(s->node, 0));
    const float *more = factors_of(p, tern_node_optional(s->node, 1));
    return tern_rope_list_find(&p->ropes, s->node, factors, more, &s->rope, err);
}

static tern_status make_steps(tern_program *p, tern_error *err) {
    for (size_t i = 0; i < p->g->n_nodes; i++) {
        const tern_node *n = &p->g->nodes[i];
        cpu_train_step *s = &p->steps[p->n_steps++];
        *s = (cpu_train_step){.fn = cpu_train_fn_for(n->op), .node = n, .rope = -1};
        if (!s->fn)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "training on the CPU has no %s",
                             tern_op_name(n->op));
        if (n->op == TERN_OP_ROPE) TERN_TRY(add_rope(p, s, err));
        size_t floats = (cpu_train_scratch_floats(p, n) + 15) / 16 * 16;
        if (floats > p->scratch_floats) p->scratch_floats = floats;
        floats = (cpu_train_room_floats(p, n) + 15) / 16 * 16;
        if (floats > p->scratch_floats) p->scratch_floats = floats;
        floats = (cpu_train_part_floats(p, n) + 15) / 16 * 16;
        if (floats > p->part_floats) p->part_floats = floats;
        floats = cpu_train_shared_floats(p, n);
        if (floats > p->shared_floats) p->shared_floats = floats;
    }
    return TERN_OK;
}

// Which step is the last to add to a gradient.
static void find_last_steps(tern_program *p) {
    for (size_t v = 0; v < p->g->n_values; v++) {
        if (p->g->values[v].kind != TERN_VALUE_STATE) continue;
        for (size_t i = p->n_steps; i-- > 0;) {
            const tern_node *n = p->steps[i].node;
            bool adds = false;
            for (int k = 0; k < n->n_in; k++) adds |= n->in[k] == (tern_vid)v;
            if (!adds) continue;
            p->steps[i].done = p->arrays[v];
            break;
        }
    }
}

// What the program needs besides the pool, in the order in which take_memory takes it.
enum { SCRATCH, SUMS, PARTS, SHARED, DOCUMENTS, SCORED, PLACES, ROPES, N_BLOCKS };

static void find_sizes(const tern_program *p, uint64_t bytes[N_BLOCKS]) {
    uint64_t n_threads = (uint64_t)p->device->team->n_threads;
    bytes[SCRATCH] = n_threads * (p->scratch_floats + 16) * sizeof(float);
    bytes[SUMS] = CPU_TRAIN_PARTS * sizeof *p->sums;
    bytes[PARTS] = CPU_TRAIN_PARTS * (p->part_floats + 1) * sizeof(float);
    bytes[SHARED] = p->shared_floats * sizeof(float);
    bytes[DOCUMENTS] = ((uint64_t)p->n_rows + 1) * sizeof *p->documents;
    bytes[SCORED] = bytes[PLACES] = ((uint64_t)p->n_rows + 1) * sizeof *p->scored;
    bytes[ROPES] = (p->ropes.n * p->rope_stride + 1) * sizeof(float);
}

static void find_rope_stride(tern_program *p) {
    for (size_t i = 0; i < p->ropes.n; i++) {
        size_t floats = (size_t)p->n_span * (size_t)p->ropes.items[i].attrs.n_rot / 2 * 3;
        if (floats > p->rope_stride) p->rope_stride = floats;
    }
}

// Programs run one after the other and leave nothing in the pool: they share the largest.
static tern_status take_pool(tern_trainer_device *d, uint64_t bytes, tern_error *err) {
    if (bytes <= d->pool_bytes) return TERN_OK;
    tern_free(d->pool);
    d->pool_bytes = 0;
    d->pool = tern_alloc(TERN_MEM_ACTIVATIONS, bytes);
    if (!d->pool) return tern_fail_memory(err, bytes);
    d->pool_bytes = bytes;
    return TERN_OK;
}

static tern_status take_memory(tern_program *p, tern_error *err) {
    uint64_t bytes[N_BLOCKS], all = 0;
    void *blocks[N_BLOCKS];
    bool ok = true;
    TERN_TRY(take_pool(p->device, p->memory.bytes + 64, err));
    find_sizes(p, bytes);
    for (int i = 0; i < N_BLOCKS; i++) {
        blocks[i] = tern_alloc(TERN_MEM_ACTIVATIONS, bytes[i]);
        ok &= blocks[i] != NULL;
        all += bytes[i];
    }
    p->scratch = blocks[SCRATCH];
    p->sums = blocks[SUMS];
    p->parts = blocks[PARTS];
    p->shared = blocks[SHARED];
    p->documents = blocks[DOCUMENTS];
    p->scored = blocks[SCORED];
    p->places = blocks[PLACES];
    p->rope_tables = blocks[ROPES];
    return ok ? TERN_OK : tern_fail_memory(err, all);
}

static tern_status compile(tern_trainer_device *d, const tern_graph *g,
                           tern_train_array *const *arrays, int32_t n_rows, int32_t n_span,
                           tern_program **out, tern_error *err) {
    *out = NULL;
    tern_status status;
    tern_program *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    *p = (tern_program){.device = d, .g = g, .arrays = arrays, .n_rows = n_rows, .n_span = n_span};
    p->head = tern_graph_scored(g);
    p->piece_rows = tern_graph_scored_rows(g, d->piece_bytes, TERN_GEMM_DEPTH, n_rows);
    p->steps = tern_alloc_array(TERN_MEM_GRAPH, g->n_nodes + 1, sizeof *p->steps);
    if (!p->steps) {
        status = tern_fail_memory(err, g->n_nodes * sizeof *p->steps);
        goto fail;
    }
    TERN_TRY_GOTO(make_steps(p, err));
    TERN_TRY_GOTO(tern_graph_plan_memory(p->g, value_bytes, p, &p->memory, err));
    find_rope_stride(p);
    if (arrays) {
        find_last_steps(p);
        TERN_TRY_GOTO(take_memory(p, err));
        cpu_train_fill_ropes(p);
    }
    *out = p;
    return TERN_OK;
fail:
    program_free(p);
    return status;
}

static tern_program_bytes program_bytes(const tern_program *p) {
    uint64_t bytes[N_BLOCKS];
    uint64_t cols = (uint64_t)tern_graph_logits_cols(p->g);
    tern_program_bytes all = {.shared = tern_alloc_resident(p->memory.bytes + 64),
                              .logits = (uint64_t)p->piece_rows * cols * sizeof(float)};
    find_sizes(p, bytes);
    for (int i = 0; i < N_BLOCKS; i++) all.own += tern_alloc_resident(bytes[i]);
    return all;
}

const tern_train_backend tern_train_cpu = {
    .name = "cpu",
    .open = device_open,
    .close = device_close,
    .describe = device_describe,
    .array_bytes = array_bytes,
    .array_new = array_new,
    .codes_bytes = codes_bytes,
    .array_of_codes = array_of_codes,
    .array_new_bf16 = cpu_train_array_new_bf16,
    .array_free = array_free,
    .write = array_write,
    .read = array_read,
    .host = array_host,
    .compile = compile,
    .program_free = program_free,
    .program_bytes = program_bytes,
    .run = cpu_train_submit,
};
