// A graph compiled for the GPU: a list of dispatches, each a pipeline specialised to its shapes and
// the places of its bindings. Everything that does not depend on a batch is decided here.
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/ops/gpu_op.h"

// ---- Values ------------------------------------------------------------------------------------

static uint64_t value_bytes(const void *ctx, const tern_graph *g, tern_vid v) {
    const tern_plan *p = ctx;
    const tern_value *value = &g->values[v];
    uint64_t rows = (uint64_t)p->n_batch;
    if (gpu_is_logits(g, v)) return 0;
    uint64_t in_groups = value->type == TERN_VALUE_I8GROUPS;
    uint64_t infos = rows * (in_groups ? (uint64_t)gpu_blocks(value->cols) : 1);
    if (gpu_is_i8(value))
        return gpu_i8_bytes(value->cols, p->n_batch) + gpu_round(infos * 8, GPU_POOL_ALIGN);
    // Elementwise kernels take all numbers in fours.
    uint64_t each = gpu_round((uint64_t)(value->cols * gpu_times(g, v)), 4);
    return gpu_round(rows * each * sizeof(float), GPU_POOL_ALIGN);
}

// ---- Compiling ---------------------------------------------------------------------------------

#define I8_COLS_MAX (1 << 17) // their sum is exact as a float
#define COLS_MAX    (1 << 22) // 64 to a workgroup, and at most 65535 workgroups to a dispatch

// Most kernels go by four columns. Those that do not: what products write, sums, biases, the gates
// of a delta net, columns that are picked, a state space, routes to experts and codecs.
static bool takes_any_columns(const tern_node *n, int i) {
    switch (n->op) {
    case TERN_OP_LINEAR:
    case TERN_OP_LINEAR_GROUP: return i >= n->n_in;
    case TERN_OP_DELTA_NET: return i == 1 || i == 2;
    case TERN_OP_EXPERTS: return i > 0;
    case TERN_OP_ROUTE:
    case TERN_OP_MIX:
    case TERN_OP_SSM:
    case TERN_OP_SCALE_PIECES:
    case TERN_OP_BIAS:
    case TERN_OP_ADD:
    case TERN_OP_SCALE:
    case TERN_OP_SCALE_ADD:
    case TERN_OP_CODE_DIGITS:
    case TERN_OP_CONV1D:
    case TERN_OP_UPSAMPLE_CONV:
    case TERN_OP_HALF_SNAKE:
    case TERN_OP_COLUMNS: return true;
    default: return false;
    }
}

static tern_status check_node(const tern_graph *g, const tern_node *n, tern_error *err) {
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        tern_vid id = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        const tern_value *v = &g->values[id];
        if (v->kind != TERN_VALUE_TEMP && v->kind != TERN_VALUE_OUTPUT) continue;
        if (gpu_is_logits(g, id)) continue;
        int64_t most = v->type == TERN_VALUE_I8ROWS ? I8_COLS_MAX : COLS_MAX;
        if ((v->cols % 4 != 0 && !takes_any_columns(n, i)) || v->cols * gpu_times(g, id) > most)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "%s: the GPU's kernels need rows of a multiple of 4 elements, at most "
                             "%lld, not %lld",
                             v->name, (long long)most, (long long)v->cols);
    }
    return TERN_OK;
}

tern_status gpu_check_graph(const tern_graph *g, tern_error *err) {
    for (size_t i = 0; i < g->n_nodes; i++) TERN_TRY(check_node(g, &g->nodes[i], err));
    return TERN_OK;
}

static tern_status add_node(tern_plan *p, const tern_node *n, tern_error *err) {
#define TERN_OP_MODEL(id, ...) [TERN_OP_##id] = gpu_op_##id,
#define TERN_OP_FUSED          TERN_OP_MODEL
    static gpu_op_fn *const table[TERN_OP_COUNT] = {
#include "graph/ops.inc"
    };
    if (table[n->op]) return table[n->op](p, n, err);
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "graph: %s is an op of training",
                     tern_op_name(n->op));
}

static size_t n_head_parts(const tern_weight *w) { return w->head ? w->head->n_parts : 0; }

static tern_status reserve(tern_plan *p, const tern_node *n, size_t *limit, tern_error *err) {
    // gemv and gemm of each product, top, fused dispatches, a head's screen
    size_t most = (1 + GPU_TILE_COUNTS + GPU_HALF_COUNTS) * TERN_NODE_OUTPUTS + 2 + 5;
    most += GPU_FUSED_MAX + GPU_SCREEN_MAX;
    for (int i = 0; i < n->n_in; i++)
        if (p->g->values[n->in[i]].kind == TERN_VALUE_WEIGHT)
            most += (1 + GPU_ROW_COUNTS) *
                    (p->weights[n->in[i]]->n_parts + n_head_parts(p->weights[n->in[i]]));
    if (tern_array_reserve(TERN_MEM_GRAPH, &p->dispatches, &p->dispatches_capacity, p->n_dispatches,
                           most) != 0)
        return tern_fail_memory(err, most * sizeof *p->dispatches);
    *limit = p->n_dispatches + most;
    return TERN_OK;
}

// What ops add is bounded by their own numbers (GPU_FUSED_MAX and the like): one that is too small
// is found here, before a graph comes whose dispatches do not fit. Not in pages, which are built
// small from what was tested elsewhere.
static tern_status check_limits(const tern_plan *p, size_t first, size_t limit, tern_error *err) {
    int n_constants = 0;
    for (size_t k = first; k < p->n_dispatches; k++)
        if (p->dispatches[k].what.n_constants > n_constants)
            n_constants = p->dispatches[k].what.n_constants;
    if (p->n_dispatches <= limit && n_constants < GPU_CONSTANTS) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "graph: %zu dispatches for an op, of at most %d constants, are more than the "
                     "plan has room for",
                     p->n_dispatches - first, n_constants);
}

// What many rows use of the dispatches that prompts have: products, and what fused ones do with the
// results of products.
static bool is_shared(const gpu_dispatch *d) {
    gpu_kernel k = d->what.kernel;
    bool by_units = k == GPU_GEMM_MATRIX || k == GPU_GEMM_NARROW || k == GPU_GEMM_GROUPS ||
                    k == GPU_WIDE_GEMM_MATRIX || k == GPU_GEMM_HALF || k == GPU_WIDE_GEMM_HALF;
    return k == GPU_GEMM || k == GPU_WIDE_GEMM || k == GPU_SCALE_ADD || k == GPU_GLU ||
           (GPU_MAY_HAVE_MATRIX && by_units);
}

// Steps use the fused dispatches if there are any: a token's result must not depend on how many
// came together. Many of them share the products of prompts, whose sums are integers. Dispatches
// that are left without use are dropped.
static void leave_to_many(tern_plan *p, size_t first) {
    size_t kept = first;
    for (size_t k = first; k < p->n_dispatches; k++) {
        gpu_dispatch *d = &p->dispatches[k];
        d->kinds &= is_shared(d) ? GPU_PROMPTS | GPU_MANY_STEPS : GPU_PROMPTS;
        if (d->kinds != 0) p->dispatches[kept++] = *d;
    }
    p->n_dispatches = kept;
}

// Adds the dispatch that fused ones have left to follow this node's own.
static void add_later(tern_plan *p, size_t node) {
    if (p->later.x == 0 || p->later.node != (int32_t)node) return;
    p->dispatches[p->n_dispatches++] = p->later;
    p->later.x = 0;
}

static tern_status add_nodes(tern_plan *p, tern_error *err) {
    const tern_graph *g = p->g;
    size_t end = 0; // nodes before `end` are part of fused dispatches
    for (size_t i = 0; i < g->n_nodes; i++) {
        size_t count = 0, first = p->n_dispatches, limit = 0;
        TERN_TRY(reserve(p, &g->nodes[i], &limit, err));
        if (i >= end) TERN_TRY(gpu_token_add(p, i, &count, err));
        if (count > 0) end = i + count;
        size_t own = p->n_dispatches;
        TERN_TRY(add_node(p, &g->nodes[i], err));
        if (!GPU_COMPILES_LATER) TERN_TRY(check_limits(p, first, limit, err));
        if (i < end) leave_to_many(p, own);
        add_later(p, i);
        for (size_t k = first; k < p->n_dispatches; k++)
            p->dispatches[k].node = (int32_t)(k < own ? i + count - 1 : i);
    }
    return TERN_OK;
}

// Whether the first text needs it: a step of its own, or a long prompt.
static bool is_first(const tern_plan *p, const gpu_dispatch *d) {
    bool by_tokens = d->rows == GPU_ROWS_TOKENS;
    bool of_prompts = by_tokens ? d->rows_max >= (uint32_t)p->n_batch : d->rows_min <= 1;
    bool of_steps = d->tokens_min <= 1 && d->rows_min <= 1;
    return ((d->kinds & GPU_PROMPTS) && of_prompts) || ((d->kinds & GPU_FEW_STEPS) && of_steps);
}

tern_status gpu_plan_pipelines(tern_plan *p, gpu_cache cache, bool all, tern_error *err) {
    for (size_t i = 0; i < p->n_dispatches; i++) {
        gpu_dispatch *d = &p->dispatches[i];
        if (d->caches && !(d->caches & 1u << cache)) continue;
        if (!d->pipeline[cache]) {
            gpu_pipeline wanted = d->what;
            if (d->caches) wanted.constants[wanted.n_constants++] = (gpu_constant){"CACHE", cache};
            TERN_TRY(gpu_pipeline_find(p->device, &wanted, &d->pipeline[cache], err));
        }
        for (int k = 0; k < GPU_CACHES && !d->caches; k++) d->pipeline[k] = d->pipeline[cache];
        if (GPU_COMPILES_LATER || all || is_first(p, d))
            TERN_TRY(gpu_pipeline_begin(d->pipeline[cache], err));
    }
    return TERN_OK;
}

// The cache that sessions of usual lengths will have, see tern_kv_choose.
#define USUAL_CONTEXT 4096
static gpu_cache usual_cache(const tern_graph *g) {
    tern_kv_type type;
    bool small = tern_kv_choose(g, USUAL_CONTEXT, TERN_KV_AUTO, &type, NULL) == TERN_OK &&
                 type == TERN_KV_F32;
    return small ? GPU_CACHE_F32 : GPU_CACHE_F16;
}

tern_status gpu_compile_poll(tern_plan *p, bool *done, tern_error *err) {
    gpu_cache cache = usual_cache(p->g);
    bool all;
    *done = GPU_COMPILES_LATER;
    if (*done) return TERN_OK;
    TERN_TRY(gpu_pipelines_poll(p->device, &all, err));
    *done = true;
    for (size_t i = 0; *done && i < p->n_dispatches; i++) {
        const gpu_compiled *c = p->dispatches[i].pipeline[cache];
        *done = !c || !c->is_pending;
    }
    return TERN_OK;
}

// Logits that are computed at a time, and logits that the host reads at a time; to read only the
// greatest of them takes a few bytes.
#define LOGITS_BYTES ((uint64_t)40 << 20)
#define LOGITS_ROWS  64
#define READ_BYTES   ((uint64_t)16 << 20)
static int32_t rows_in(uint64_t bytes, int64_t n_vocab, int32_t most) {
    uint64_t rows = bytes / ((uint64_t)(n_vocab ? n_vocab : 1) * sizeof(float));
    return rows < 1 ? 1 : rows < (uint64_t)most ? (int32_t)rows : most;
}
static void find_outputs(tern_plan *p) {
    for (size_t v = 0; v < p->g->n_values; v++)
        if (gpu_is_logits(p->g, (tern_vid)v) && p->g->values[v].cols > p->n_vocab)
            p->n_vocab = p->g->values[v].cols;
    int32_t most = p->n_batch < LOGITS_ROWS ? p->n_batch : LOGITS_ROWS;
    p->read_rows = rows_in(READ_BYTES, p->n_vocab, p->n_batch);
    p->chunk_rows = rows_in(LOGITS_BYTES, p->n_vocab, most);
    if (p->chunk_rows < p->read_rows) p->chunk_rows = p->read_rows;
}

tern_status gpu_compile(tern_device *d, const tern_graph *g, tern_weight *const *weights,
                        int32_t n_batch, tern_plan **out, tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    if (n_batch > 65535)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a batch of %d tokens: the GPU takes 65535",
                         (int)n_batch);
    tern_plan *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->device = d;
    p->g = g;
    p->weights = weights;
    p->n_batch = n_batch;
    find_outputs(p);
    TERN_TRY_GOTO(tern_page_layout_of(g, &p->layout, err));
    TERN_TRY_GOTO(tern_graph_plan_memory(g, value_bytes, p, &p->memory, err));
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_span *s = &p->memory.spans[v];
        if (gpu_is_i8(&g->values[v]) && s->offset + s->bytes > p->i8_bytes)
            p->i8_bytes = s->offset + s->bytes;
    }
    TERN_TRY_GOTO(gpu_check_graph(g, err));
    TERN_TRY_GOTO(add_nodes(p, err));
    TERN_TRY_GOTO(gpu_plan_pipelines(p, usual_cache(g), false, err));
    *out = p;
    return TERN_OK;
fail:
    gpu_plan_free(p);
    return status;
}

void gpu_plan_free(tern_plan *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_constants; i++)
        gpu_buffer_free(p->device, GPU_USE_WEIGHTS, p->constants[i]);
    tern_free(p->constants);
    tern_rope_list_free(&p->ropes);
    tern_free(p->dispatches);
    tern_memory_plan_free(&p->memory);
    tern_free(p);
}
