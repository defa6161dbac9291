// A graph compiled for the GPU: a list of dispatches, each a pipeline specialised to its shapes and
// the places of its bindings. Everything that does not depend on a batch is decided here.
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/gpu_build.h"

// ---- Values ------------------------------------------------------------------------------------

#define POOL_ALIGN 256 // of memory bound at an offset

uint64_t gpu_i8_bytes(int64_t n_cols, int32_t n_rows) {
    return gpu_round((uint64_t)gpu_blocks(n_cols) * GPU_BLOCK_COLS * (uint64_t)n_rows, POOL_ALIGN);
}

static uint64_t value_bytes(const void *ctx, const tern_graph *g, tern_vid v) {
    const tern_plan *p = ctx;
    const tern_value *value = &g->values[v];
    uint64_t rows = (uint64_t)p->n_batch;
    if (value->kind == TERN_VALUE_OUTPUT) return 0; // the session's buffer of logits
    if (value->type == TERN_VALUE_I8ROWS)
        return gpu_i8_bytes(value->cols, p->n_batch) + gpu_round(rows * 8, POOL_ALIGN);
    return gpu_round(rows * (uint64_t)value->cols * sizeof(float), POOL_ALIGN);
}

// ---- Ops of rows and elements ------------------------------------------------------------------

// How a kernel reads the rows of a table or of a float matrix.
static void set_form(const tern_weight *w, gpu_dispatch *d) {
    set(d, "COLS4", (double)(w->n_cols / 4));
    set(d, "IS_F16", w->form == GPU_FORM_F16);
    set(d, "IS_Q8", w->form == GPU_FORM_Q8);
    if (w->form == GPU_FORM_Q8) set(d, "ROW4", (double)(gpu_q8_row_bytes(w->n_cols) / 16));
}

static void add_embed(tern_plan *p, const tern_node *n) {
    const tern_weight *w = p->weights[n->in[1]];
    for (size_t i = 0; i < w->n_parts; i++) {
        gpu_dispatch *d = add(p, GPU_EMBED, groups(w->n_cols / 4, 64), GPU_ROWS_TOKENS);
        set_form(w, d);
        set(d, "FIRST_ROW", (double)w->parts[i].first_row);
        set(d, "N_ROWS", (double)w->parts[i].n_rows);
        bind_part(d, &w->parts[i]);
        bind_place(d, GPU_IDS, -1);
        bind_value(p, d, n->out[0]);
        set_phase(p, d, n->out[0]);
    }
}

// The node that takes the rows only for norm `n`: the norm then reads them in place.
static const tern_node *taker_of(const tern_plan *p, const tern_node *n) {
    const tern_node *taker = n - 1;
    bool takes = n > p->g->nodes && n->op == TERN_OP_RMS_NORM && taker->op == TERN_OP_TAKE_ROWS &&
                 taker->out[0] == n->in[0] && read_once(p->g, n->in[0]) &&
                 is_apart(p, taker->in[0], n->out[0]);
    return takes ? taker : NULL;
}

static bool is_taker(const tern_plan *p, const tern_node *n) {
    return n + 1 < p->g->nodes + p->g->n_nodes && taker_of(p, n + 1) == n;
}

// Row-wise kernels have a workgroup for each row. A single row is a matter of latency; with many
// rows, threads that each keep ROW_KEPT vec4s (KEPT of rows_base.wgsl) leave room for more rows at
// a time.
#define ROW_KEPT 4
static void add_rows(tern_plan *p, const tern_node *n, gpu_kernel kernel) {
    int64_t n_cols = cols(p, n->in[0]);
    bool by_token = rows_of(p, n->out[0]) == GPU_ROWS_TOKENS;
    const tern_node *taker = taker_of(p, n);
    for (int many = 0; many <= by_token; many++) {
        gpu_dispatch *d = add(p, kernel, 1, rows_of(p, n->out[0]));
        if (by_token) set_many(d, many);
        set(d, "THREADS", threads_for(p, n_cols / 4 / (many ? ROW_KEPT : 1)));
        set(d, "COLS4", (double)(n_cols / 4));
        set(d, "Q_WORDS", (double)(gpu_blocks(n_cols) * GPU_BLOCK_COLS / 4));
        set(d, "EPS", (double)n->eps);
        set(d, "ACT", n->act);
        set(d, "TAKES", taker != NULL);
        for (int i = 0; i < n->n_in; i++) {
            if (p->g->values[n->in[i]].kind == TERN_VALUE_WEIGHT)
                bind_part(d, &p->weights[n->in[i]]->parts[0]);
            else
                bind_value(p, d, taker ? taker->in[0] : n->in[i]);
        }
        bind_value(p, d, n->out[0]);
        set_phase(p, d, n->out[0]);
    }
}

static void add_elementwise(tern_plan *p, const tern_node *n, gpu_kernel kernel) {
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, kernel, groups(n_cols / 4, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)(n_cols / 4));
    set(d, "ACT", n->act);
    int n_in = n->op == TERN_OP_TAKE_ROWS ? 1 : n->n_in; // which rows: the last of the batch
    for (int i = 0; i < n_in; i++) bind_value(p, d, n->in[i]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
}

// ---- Linears -----------------------------------------------------------------------------------

// The fewest threads a row beyond which there are no fewer steps; few enough for the least device.
static uint32_t splits_for(int64_t blocks, uint32_t threads_max) {
    int64_t most = threads_max / GPU_TILE_ROWS, steps = (blocks + most - 1) / most;
    int64_t splits = (blocks + steps - 1) / steps;
    return (uint32_t)(splits < 8 ? 8 : splits); // the reduction needs 64 threads
}

// Where a part of a matrix writes.
static void set_part(const tern_weight *w, const gpu_part *part, gpu_dispatch *d) {
    set(d, "FIRST_ROW", (double)part->first_row);
    set(d, "Y_COLS", (double)w->n_rows);
}

// One product, or up to three neighbours in a slab, which are then not cut into parts.
static void add_gemv(tern_plan *p, const tern_node *n, int first, int count, size_t part,
                     bool accumulate) {
    static const char *const at[] = {"AT0", "AT1", "AT2"};
    static const char *const rows[] = {"ROWS0", "ROWS1", "ROWS2"};
    static const char *const tile[] = {"", "TILE1", "TILE2"};
    gpu_dispatch *d = add(p, (gpu_kernel)(GPU_GEMV1 + count - 1), 0, rows_of(p, n->in[0]));
    gpu_part span = p->weights[n->in[1 + first]]->parts[part];
    int64_t blocks = gpu_blocks(cols(p, n->in[0]));
    int64_t n_rows = 0;
    for (int i = 0; i < count; i++)
        n_rows += p->weights[n->in[1 + first + i]]->parts[part].n_rows;
    // Many rows fill the device with few threads each; few rows need all the threads there are.
    uint32_t most = n_rows > 8192 ? 160 : p->device->workgroup_size_max < 320 ? 256 : 320;
    uint32_t splits = splits_for(blocks, most);
    set(d, "BLOCKS", (double)blocks);
    set(d, "SPLITS", splits);
    set(d, "THREADS", 8 * splits);
    if (count == 1) {
        set(d, "ADD", accumulate);
        set_part(p->weights[n->in[1 + first]], &span, d);
    }
    for (int i = 0; i < count; i++) {
        const gpu_part *at_i = &p->weights[n->in[1 + first + i]]->parts[part];
        set(d, at[i], (double)((at_i->offset - span.offset) / 16));
        set(d, rows[i], (double)at_i->n_rows);
        if (i > 0) set(d, tile[i], d->x);
        d->x += groups(at_i->n_rows, GPU_TILE_ROWS);
    }
    const gpu_part *last = &p->weights[n->in[first + count]]->parts[part];
    span.bytes = last->offset + last->bytes - span.offset;
    bind_part(d, &span);
    bind_value(p, d, n->in[0]);
    for (int i = 0; i < count; i++) bind_value(p, d, n->out[first + i]);
    if (d->rows == GPU_ROWS_TOKENS) d->tokens_max = GPU_FEW;
    set_phase(p, d, n->out[first]);
}

// Binds the results of several products as one piece of the pool, and records where each begins.
static void bind_results(const tern_plan *p, gpu_dispatch *d, const tern_vid *out, int count) {
    static const char *const begin[] = {"Y0", "Y1", "Y2"};
    uint64_t first = UINT64_MAX, end = 0;
    for (int i = 0; i < count; i++) {
        const tern_span *s = &p->memory.spans[out[i]];
        if (s->offset < first) first = s->offset;
        if (s->offset + s->bytes > end) end = s->offset + s->bytes;
    }
    for (int i = 0; i < count; i++)
        set(d, begin[i], (double)((p->memory.spans[out[i]].offset - first) / sizeof(float)));
    bind(d, (gpu_binding){.place = GPU_POOL, .offset = first, .bytes = end - first});
}

// For many tokens; otherwise as add_gemv.
static void add_gemm(tern_plan *p, const tern_node *n, int first, int count, size_t part,
                     bool accumulate) {
    static const char *const at[] = {"", "AT1", "AT2"};
    static const char *const rows[] = {"ROWS0", "ROWS1", "ROWS2"};
    static const char *const tile[] = {"", "TILE1", "TILE2"};
    gpu_dispatch *d = add(p, GPU_GEMM, 0, GPU_ROWS_TOKENS);
    const tern_weight *w = p->weights[n->in[1 + first]];
    gpu_part span = w->parts[part];
    d->rows_each = GPU_GEMM_TOKENS;
    d->tokens_min = GPU_FEW + 1;
    set(d, "BLOCKS", (double)gpu_blocks(cols(p, n->in[0])));
    set(d, "ADD", accumulate);
    set(d, "Y_COLS", (double)w->n_rows);
    for (int i = 0; i < count; i++) {
        const gpu_part *at_i = &p->weights[n->in[1 + first + i]]->parts[part];
        if (i > 0) set(d, at[i], (double)((at_i->offset - span.offset) / 16));
        if (i > 0) set(d, tile[i], d->x);
        set(d, rows[i], (double)at_i->n_rows);
        d->x += groups(at_i->n_rows, p->device->matrix ? GPU_GEMM_ROWS_MATRIX : GPU_GEMM_ROWS);
        span.bytes = at_i->offset + at_i->bytes - span.offset;
    }
    bind_part(d, &span);
    bind_value(p, d, n->in[0]);
    if (count > 1)
        bind_results(p, d, &n->out[first], count);
    else {
        set(d, "Y0", (double)span.first_row);
        bind_value(p, d, n->out[first]);
    }
    set_phase(p, d, n->out[first]);
}

// Whether the results of neighbours can be bound as one piece.
static bool fit_one_binding(const tern_plan *p, const tern_node *n, int first, int count) {
    for (int i = first; i < first + count; i++)
        if (p->g->values[n->out[i]].kind != TERN_VALUE_TEMP) return false;
    return p->memory.bytes <= p->device->binding_bytes_max;
}

// How many rows of x a workgroup of float_linear.wgsl multiplies each weight with, by the number of
// rows. All variants give a row the same bits.
static const struct {
    uint32_t each, min, max;
} row_counts[] = {{1, 1, 1}, {2, 2, 2}, {4, 3, 4}, {GPU_FEW, 5, UINT32_MAX}};
#define N_ROW_COUNTS (sizeof row_counts / sizeof *row_counts)

// vec4s of a row of x that a thread multiplies with 16 bytes of a row of weights.
static uint32_t x_each(const tern_weight *w) {
    return w->form == GPU_FORM_Q8 ? 4 : w->form == GPU_FORM_F16 ? 2 : 1;
}

// Whether a workgroup's memory has room for two steps of 32 threads, and for the sums.
static bool has_room(const tern_plan *p, const tern_weight *w, uint32_t rows) {
    uint32_t sums = p->device->subgroups ? 0 : 4096;
    return 2 * 32 * 16 * x_each(w) * rows + sums <= p->device->workgroup_bytes_max;
}

typedef struct product {
    tern_vid x, out;
    const tern_weight *w;
    bool accumulate, chunk; // chunk: of the logits
} product;

static gpu_dispatch *add_float_part(tern_plan *p, const product *f, const gpu_part *part,
                                    gpu_kernel kernel) {
    bool many = kernel == GPU_FLOAT_GEMM;
    gpu_dispatch *d = add(p, kernel, groups(part->n_rows, many ? 64 : 32),
                          f->chunk ? GPU_ROWS_CHUNK : rows_of(p, f->x));
    set_form(f->w, d);
    set(d, "ADD", f->accumulate);
    set(d, "FIRST_ROW", (double)part->first_row);
    set(d, "N_ROWS", (double)part->n_rows);
    set(d, "Y_COLS", (double)f->w->n_rows);
    set(d, "OUTPUTS", f->chunk);
    bind_part(d, part);
    bind_value(p, d, f->x);
    if (f->chunk) {
        bind_place(d, GPU_LOGITS, -1);
        d->phase = GPU_PHASE_HEAD;
    } else
        bind_value(p, d, f->out);
    return d;
}

// By the number of rows of x; fewer to a workgroup if its memory has no room for more.
static void add_float_gemvs(tern_plan *p, const product *f, const gpu_part *part, bool by_token) {
    for (size_t i = 0; i < N_ROW_COUNTS; i++) {
        uint32_t each = row_counts[i].each;
        while (each > 1 && !has_room(p, f->w, each)) each /= 2;
        gpu_dispatch *d = add_float_part(p, f, part, GPU_FLOAT_GEMV);
        if (by_token) d->tokens_max = GPU_FEW;
        set(d, "ROWS", each);
        set(d, "EACH", x_each(f->w));
        d->rows_each = each;
        if (!by_token && !f->chunk) return; // row by row
        set(d, "CHUNK_ROWS", p->chunk_rows);
        d->rows_min = row_counts[i].min;
        d->rows_max = row_counts[i].max;
    }
}

// x W^T for float weights; the logits of some outputs when `chunk`.
static void add_float(tern_plan *p, tern_vid x, tern_vid wv, tern_vid out, bool accumulate,
                      bool chunk) {
    const tern_weight *w = p->weights[wv];
    if (chunk && w->head) w = w->head;
    const product f = {x, out, w, accumulate, chunk};
    bool by_token = rows_of(p, x) == GPU_ROWS_TOKENS && !chunk;
    for (size_t i = 0; i < w->n_parts; i++) {
        add_float_gemvs(p, &f, &w->parts[i], by_token);
        if (!by_token) continue;
        gpu_dispatch *d = add_float_part(p, &f, &w->parts[i], GPU_FLOAT_GEMM);
        d->rows_each = 64;
        d->tokens_min = GPU_FEW + 1;
    }
}

static void add_linear(tern_plan *p, const tern_node *n, bool accumulate) {
    for (int i = 0; i < n->n_out;) {
        bool chunk = p->g->values[n->out[i]].kind == TERN_VALUE_OUTPUT;
        if (!is_ternary(p, n->in[1 + i])) {
            add_float(p, n->in[0], n->in[1 + i], n->out[i], accumulate, chunk);
            i++;
            continue;
        }
        size_t n_parts = p->weights[n->in[1 + i]]->n_parts;
        int count = accumulate || n_parts > 1 ? 1 : neighbours(p, n, i);
        for (size_t part = 0; part < n_parts; part++) {
            add_gemv(p, n, i, count, part, accumulate);
            if (rows_of(p, n->in[0]) != GPU_ROWS_TOKENS) continue;
            int each = fit_one_binding(p, n, i, count) ? count : 1;
            for (int k = i; k < i + count; k += each) add_gemm(p, n, k, each, part, accumulate);
        }
        i += count;
    }
}

// ---- Attention ---------------------------------------------------------------------------------

static tern_status add_rope(tern_plan *p, const tern_node *n, tern_error *err) {
    bool rotates = n->op != TERN_OP_KV_STORE, stores = n->op != TERN_OP_ROPE;
    tern_vid rope = -1;
    if (rotates) TERN_TRY(rope_index(p, n, &rope, err));
    int64_t q_pairs = rotates ? cols(p, n->in[0]) / 2 : 0;
    int64_t k_pairs = stores ? cols(p, n->in[rotates ? 1 : 0]) / 2 : 0;
    gpu_kernel kernel = !stores ? GPU_ROPE : rotates ? GPU_ROPE_STORE : GPU_KV_STORE;
    gpu_dispatch *d = add(p, kernel, groups(q_pairs + k_pairs, 64), GPU_ROWS_TOKENS);
    d->uses_cache = stores;
    set(d, "HEAD_DIM", n->head_dim);
    set(d, "N_ROT", rotates ? n->rope.n_rot : 0);
    set(d, "HALVES", rotates && n->rope.halves);
    set(d, "Q_PAIRS", (double)q_pairs);
    set(d, "K_PAIRS", (double)k_pairs);
    if (rotates) bind_place(d, GPU_ANGLES, rope);
    int n_values = kernel == GPU_ROPE_STORE ? 3 : kernel == GPU_KV_STORE ? 2 : 1;
    for (int i = 0; i < n_values; i++) bind_value(p, d, n->in[i]);
    if (rotates) bind_value(p, d, n->out[0]);
    if (stores) {
        bind_place(d, GPU_STATE, n->in[n_values]);
        bind_place(d, GPU_STATE, n->in[n_values + 1]);
    }
    return TERN_OK;
}

static tern_status add_attention(tern_plan *p, const tern_node *n, tern_error *err) {
    if (n->head_dim > 256 || n->head_dim % 2 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU's attention has heads of an even number up to 256 dimensions, "
                         "not %d",
                         (int)n->head_dim);
    // Few tokens are a matter of latency: many threads a head. Many tokens fill the device anyway.
    for (int many = 0; many < 2; many++) {
        bool tiles = many && n->head_dim <= GPU_PROMPT_HEAD_DIM_MAX &&
                     p->device->workgroup_bytes_max >= GPU_PROMPT_BYTES;
        gpu_dispatch *d = add(p, tiles ? GPU_ATTENTION_PROMPT : GPU_ATTENTION,
                              (uint32_t)n->n_heads, GPU_ROWS_TOKENS);
        d->rows_each = tiles ? GPU_PROMPT_TOKENS : 1;
        set_many(d, many);
        d->uses_cache = true;
        if (!tiles) set(d, "THREADS", many ? 256 : threads_for(p, 1024));
        set(d, "HEAD_DIM", n->head_dim);
        set(d, "N_HEADS", n->n_heads);
        set(d, "N_KV_HEADS", n->n_kv_heads);
        set(d, "SCALE", (double)n->scale);
        bind_value(p, d, n->in[0]);
        bind_place(d, GPU_STATE, n->in[1]);
        bind_place(d, GPU_STATE, n->in[2]);
        bind_value(p, d, n->out[0]);
        set_phase(p, d, n->out[0]);
    }
    return TERN_OK;
}

// ---- The greatest logits -----------------------------------------------------------------------

static void add_top_step(tern_plan *p, gpu_kernel kernel, gpu_phase phase, int64_t n_vocab,
                         gpu_place from, gpu_place to) {
    bool by_part = from == GPU_LOGITS;
    gpu_dispatch *d = add(p, kernel, by_part ? GPU_TOP_PARTS_N : 1, GPU_ROWS_CHUNK);
    if (by_part) set(d, "COLS", (double)n_vocab);
    set(d, "PARTS", GPU_TOP_PARTS_N);
    bind_place(d, from, -1);
    bind_place(d, to, -1);
    if (kernel == GPU_TOP_ROW) bind_place(d, GPU_IDS, -1);
    d->phase = phase;
}

static void add_top(tern_plan *p, int64_t n_vocab) {
    add_top_step(p, GPU_TOP_PARTS, GPU_PHASE_PARTS, n_vocab, GPU_LOGITS, GPU_TOP_PARTS_MEMORY);
    add_top_step(p, GPU_TOP_ROW, GPU_PHASE_TOP, n_vocab, GPU_TOP_PARTS_MEMORY, GPU_TOP_MEMORY);
    // With a smaller vocabulary some parts have no logits, and a row is soon read.
    if (n_vocab < GPU_TOP_PARTS_N * GPU_TOP_THREADS) return;
    p->makes_lists = true;
    add_top_step(p, GPU_TOP_LEAST, GPU_PHASE_LIST, n_vocab, GPU_TOP_PARTS_MEMORY, GPU_TOP_LISTS);
    add_top_step(p, GPU_TOP_LIST, GPU_PHASE_LIST, n_vocab, GPU_LOGITS, GPU_TOP_LISTS);
}

// A fused top-k computes the logits itself: the plain product for the output "logits" is the same.
static bool made_by_top_k(const tern_graph *g, const tern_node *linear) {
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_LINEAR_TOP_K && g->nodes[i].in[0] == linear->in[0] &&
            g->nodes[i].in[1] == linear->in[1])
            return true;
    return false;
}

// ---- Compiling ---------------------------------------------------------------------------------

static tern_status check_node(const tern_plan *p, const tern_node *n, tern_error *err) {
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const tern_value *v = &p->g->values[i < n->n_in ? n->in[i] : n->out[i - n->n_in]];
        bool matters = v->kind == TERN_VALUE_TEMP;
        if (matters && (v->cols % 4 != 0 || v->cols > 1 << 17))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "%s: the GPU's kernels need rows of a multiple of 4 elements, at most "
                             "131072, not %lld",
                             v->name, (long long)v->cols);
    }
    return TERN_OK;
}

static tern_status add_node(tern_plan *p, const tern_node *n, tern_error *err) {
    switch (n->op) {
    case TERN_OP_EMBED: add_embed(p, n); break;
    case TERN_OP_RMS_NORM: add_rows(p, n, GPU_RMS_NORM); break;
    case TERN_OP_QUANTIZE: add_rows(p, n, GPU_QUANTIZE); break;
    case TERN_OP_NORM_QUANTIZE: add_rows(p, n, GPU_NORM_QUANTIZE); break;
    case TERN_OP_GLU_NORM_QUANTIZE: add_rows(p, n, GPU_GLU_NORM_QUANTIZE); break;
    case TERN_OP_ADD: add_elementwise(p, n, GPU_ADD); break;
    case TERN_OP_MUL: add_elementwise(p, n, GPU_MUL); break;
    case TERN_OP_GLU: add_elementwise(p, n, GPU_GLU); break;
    case TERN_OP_ACT: add_elementwise(p, n, GPU_ACT); break;
    case TERN_OP_TAKE_ROWS:
        if (!is_taker(p, n)) add_elementwise(p, n, GPU_TAKE_ROWS);
        break;
    case TERN_OP_LINEAR:
        if (!made_by_top_k(p->g, n)) add_linear(p, n, false);
        break;
    case TERN_OP_LINEAR_GROUP: add_linear(p, n, false); break;
    case TERN_OP_LINEAR_ADD: add_linear(p, n, true); break;
    case TERN_OP_ROPE:
    case TERN_OP_KV_STORE:
    case TERN_OP_ROPE_STORE: return add_rope(p, n, err);
    case TERN_OP_ATTENTION: return add_attention(p, n, err);
    case TERN_OP_LINEAR_TOP_K:
        add_float(p, n->in[0], n->in[1], -1, false, true);
        add_top(p, p->weights[n->in[1]]->n_rows);
        break;
    case TERN_OP_TOP_K: add_top(p, cols(p, n->in[0])); break;
    default:
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                         tern_op_name(n->op));
    }
    return TERN_OK;
}

static size_t n_head_parts(const tern_weight *w) {
    return w->head ? w->head->n_parts : 0;
}

static tern_status reserve(tern_plan *p, const tern_node *n, tern_error *err) {
    // gemv and gemm of each product, top, fused dispatches
    size_t most = 2 * TERN_NODE_OUTPUTS + 2 + 4 + GPU_FUSED_MAX;
    for (int i = 0; i < n->n_in; i++)
        if (p->g->values[n->in[i]].kind == TERN_VALUE_WEIGHT)
            most += (1 + N_ROW_COUNTS) *
                    (p->weights[n->in[i]]->n_parts + n_head_parts(p->weights[n->in[i]]));
    if (tern_array_reserve(TERN_MEM_GRAPH, &p->dispatches, &p->dispatches_capacity, p->n_dispatches,
                           most) != 0)
        return tern_fail_memory(err, most * sizeof *p->dispatches);
    return TERN_OK;
}

// Up to GPU_FEW tokens use the fused dispatches if there are any: a token's result must not depend
// on how many came together. Dispatches only for few tokens are dropped then.
static void leave_to_many(tern_plan *p, size_t first) {
    size_t kept = first;
    for (size_t k = first; k < p->n_dispatches; k++) {
        gpu_dispatch *d = &p->dispatches[k];
        if (d->tokens_max <= GPU_FEW) continue;
        if (d->tokens_min <= GPU_FEW) d->tokens_min = GPU_FEW + 1;
        p->dispatches[kept++] = *d;
    }
    p->n_dispatches = kept;
}

static tern_status add_nodes(tern_plan *p, tern_error *err) {
    const tern_graph *g = p->g;
    size_t end = 0; // nodes before `end` are part of fused dispatches
    for (size_t i = 0; i < g->n_nodes; i++) {
        size_t count = 0, first = p->n_dispatches;
        TERN_TRY(reserve(p, &g->nodes[i], err));
        if (i >= end) TERN_TRY(gpu_token_add(p, i, &count, err));
        if (count > 0) end = i + count;
        size_t own = p->n_dispatches;
        TERN_TRY(add_node(p, &g->nodes[i], err));
        if (i < end) leave_to_many(p, own);
        for (size_t k = first; k < p->n_dispatches; k++)
            p->dispatches[k].node = (int32_t)(k < own ? i + count - 1 : i);
    }
    return TERN_OK;
}

tern_status gpu_plan_pipelines(tern_plan *p, gpu_cache cache, tern_error *err) {
    for (size_t i = 0; i < p->n_dispatches; i++) {
        gpu_dispatch *d = &p->dispatches[i];
        if (d->pipeline[cache]) continue;
        gpu_pipeline wanted = d->what;
        wanted.constants[wanted.n_constants++] = (gpu_constant){"CACHE", cache};
        TERN_TRY(gpu_pipeline_get(p->device, &wanted, &d->pipeline[cache], err));
    }
    return TERN_OK;
}

static tern_status make_pipelines(tern_plan *p, tern_error *err) {
    for (size_t i = 0; i < p->n_dispatches; i++) {
        gpu_dispatch *d = &p->dispatches[i];
        if (d->uses_cache) continue;
        TERN_TRY(gpu_pipeline_get(p->device, &d->what, &d->pipeline[0], err));
        for (int k = 1; k < GPU_CACHES; k++) d->pipeline[k] = d->pipeline[0];
    }
    return TERN_OK;
}

#define LOGITS_BYTES ((uint64_t)16 << 20) // at a time
static void find_outputs(tern_plan *p) {
    for (size_t v = 0; v < p->g->n_values; v++)
        if (p->g->values[v].kind == TERN_VALUE_OUTPUT && p->g->values[v].cols > p->n_vocab)
            p->n_vocab = p->g->values[v].cols;
    uint64_t rows = LOGITS_BYTES / ((uint64_t)(p->n_vocab ? p->n_vocab : 1) * sizeof(float));
    p->chunk_rows = rows < 1 ? 1 : rows < (uint64_t)p->n_batch ? (int32_t)rows : p->n_batch;
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
    TERN_TRY_GOTO(tern_graph_plan_memory(g, value_bytes, p, &p->memory, err));
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_span *s = &p->memory.spans[v];
        if (g->values[v].type == TERN_VALUE_I8ROWS && s->offset + s->bytes > p->i8_bytes)
            p->i8_bytes = s->offset + s->bytes;
    }
    for (size_t i = 0; i < g->n_nodes; i++) TERN_TRY_GOTO(check_node(p, &g->nodes[i], err));
    TERN_TRY_GOTO(add_nodes(p, err));
    TERN_TRY_GOTO(make_pipelines(p, err));
    *out = p;
    return TERN_OK;
fail:
    gpu_plan_free(p);
    return status;
}

void gpu_plan_free(tern_plan *p) {
    if (!p) return;
    tern_rope_list_free(&p->ropes);
    tern_free(p->dispatches);
    tern_memory_plan_free(&p->memory);
    tern_free(p);
}
