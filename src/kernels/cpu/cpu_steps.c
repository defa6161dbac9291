// One function per op: how a step's work is shared among the team, and which inner kernels do it.
//
// Every thread of the team calls the function; blocks of work are claimed from a counter, so a core
// that is slowed down by other programs takes fewer of them. Which thread computes a block never
// changes a bit of it.
#include <string.h>
#include "kernels/cpu/cpu.h"

// ---- Helpers -----------------------------------------------------------------------------------

static const tern_cpu_kernels *kernels(const cpu_run *run) {
    return &run->plan->device->kernels;
}

static atomic_size_t *counter(cpu_run *run, const cpu_step *step, int which) {
    return &run->instance->counters[step->index * CPU_COUNTERS + which];
}

static int64_t cols(const cpu_run *run, tern_vid v) {
    return run->plan->g->values[v].cols;
}

static void *scratch(const cpu_run *run, const tern_team *team) {
    return run->instance->scratch + (size_t)team->thread * run->plan->scratch_bytes;
}

// Row-wise work: blocks of this many tokens when there are many, one by one when there are few,
// since then a token's work is long compared with the matrix products that wait for it.
#define ROW_BLOCK 8
static bool claim_rows(cpu_run *run, const cpu_step *step, const tern_team *team, int32_t n_rows,
                       size_t block, size_t *first, size_t *last) {
    (void)team;
    return tern_team_claim(counter(run, step, 0), (size_t)n_rows,
                           n_rows <= TERN_GEMV_TOKENS ? 1 : block, first, last);
}

// ---- Row-wise ops ------------------------------------------------------------------------------

static void step_embed(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_weight *w = run->plan->weights[n->in[1]];
    const tern_weight_source *s = &w->source;
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, team, run->batch->n_tokens, ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            kernels(run)->f->decode(s->type, s->data,
                                    (uint64_t)run->batch->ids[t] * (uint64_t)s->n_cols,
                                    (size_t)s->n_cols, s->scale, y + t * (size_t)s->n_cols);
}

static void step_rms_norm(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]), *w = run->plan->weights[n->in[1]]->vector;
    float *y = cpu_value(run, n->out[0]);
    int32_t n_rows = cpu_rows(run, n->in[0]);
    for (size_t t, last; claim_rows(run, step, team, n_rows, ROW_BLOCK, &t, &last);)
        for (; t < last; t++) kernels(run)->f->rms_norm(y + t * d, x + t * d, w, d, n->eps);
}

// Makes rows [first, last) of a quantized value; `row` computes their floats into a buffer.
typedef const float *(*row_fn)(cpu_run *run, const tern_node *n, size_t t, float *buffer);

static const float *row_plain(cpu_run *run, const tern_node *n, size_t t, float *buffer) {
    (void)buffer;
    return (const float *)cpu_value(run, n->in[0]) + t * (size_t)cols(run, n->in[0]);
}

static const float *row_norm(cpu_run *run, const tern_node *n, size_t t, float *buffer) {
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = (const float *)cpu_value(run, n->in[0]) + t * d;
    kernels(run)->f->rms_norm(buffer, x, run->plan->weights[n->in[1]]->vector, d, n->eps);
    return buffer;
}

static const float *row_glu_norm(cpu_run *run, const tern_node *n, size_t t, float *buffer) {
    size_t d = (size_t)cols(run, n->in[0]);
    const float *gate = (const float *)cpu_value(run, n->in[0]) + t * d;
    const float *up = (const float *)cpu_value(run, n->in[1]) + t * d;
    const float *w = run->plan->weights[n->in[2]]->vector;
    kernels(run)->f->glu(buffer, gate, up, d, cpu_act_of(n->act));
    kernels(run)->f->rms_norm(buffer, buffer, w, d, n->eps);
    return buffer;
}

static void quantize_rows(cpu_run *run, const cpu_step *step, const tern_team *team, row_fn row) {
    const tern_node *n = step->node;
    const tern_ternary_kernels *k = kernels(run)->t;
    size_t d = (size_t)cols(run, n->out[0]);
    int32_t n_rows = cpu_rows(run, n->out[0]);
    cpu_i8 v;
    cpu_i8_layout(run->plan->device, (int64_t)d, n_rows, cpu_value(run, n->out[0]), &v);
    for (size_t first, last;
         claim_rows(run, step, team, n_rows, k->gemm_token_block, &first, &last);) {
        for (size_t t = first; t < last; t++) {
            int8_t *q = v.rows.q + t * v.rows.stride;
            kernels(run)->f->quantize_i8(q, &v.rows.inv_scale[t], &v.rows.sum[t],
                                         row(run, n, t, scratch(run, team)), d);
            memset(q + d, 0, v.rows.stride - d);
        }
        if (n_rows <= TERN_GEMV_TOKENS)
            k->prepare(run->plan->device->packing, v.prepared, &v.rows, d, first, last);
        else
            k->make_panels(v.panels, &v.rows, d, first, last);
    }
}

static void step_quantize(cpu_run *run, const cpu_step *step, const tern_team *team) {
    quantize_rows(run, step, team, row_plain);
}
static void step_norm_quantize(cpu_run *run, const cpu_step *step, const tern_team *team) {
    quantize_rows(run, step, team, row_norm);
}
static void step_glu_norm_quantize(cpu_run *run, const cpu_step *step, const tern_team *team) {
    quantize_rows(run, step, team, row_glu_norm);
}

static void step_elementwise(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_float_kernels *f = kernels(run)->f;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *a = cpu_value(run, n->in[0]);
    const float *b = n->n_in > 1 ? cpu_value(run, n->in[1]) : NULL;
    float *y = cpu_value(run, n->out[0]);
    for (size_t first, last;
         claim_rows(run, step, team, cpu_rows(run, n->in[0]), ROW_BLOCK, &first, &last);) {
        size_t at = first * d, count = (last - first) * d;
        switch (n->op) {
        case TERN_OP_ADD: f->add(y + at, a + at, b + at, count); break;
        case TERN_OP_MUL: f->mul(y + at, a + at, b + at, count); break;
        case TERN_OP_GLU: f->glu(y + at, a + at, b + at, count, cpu_act_of(n->act)); break;
        default: f->act(y + at, a + at, count, cpu_act_of(n->act)); break;
        }
    }
}

static void step_take_rows(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    size_t skip = (size_t)(run->batch->n_tokens - run->batch->n_outputs);
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, team, run->batch->n_outputs, ROW_BLOCK, &t, &last);)
        memcpy(y + t * d, x + (skip + t) * d, (last - t) * d * sizeof *y);
}

// ---- Linears -----------------------------------------------------------------------------------

// Matrix x vector is bound by memory, which wants each thread to read on for as long as possible:
// every new run of rows costs about a microsecond until the prefetchers follow. The last runs are
// short, so that the threads finish together.
#define LEAST_CLAIM_BYTES 32768
static bool claim_matrix_rows(const tern_team *team, atomic_size_t *counter, size_t n_rows,
                              size_t row_bytes, size_t *first, size_t *last) {
    size_t least = LEAST_CLAIM_BYTES / (row_bytes ? row_bytes : 1) / 16 * 16;
    return tern_team_claim_guided(team, counter, n_rows, 16, least < 16 ? 16 : least, first, last);
}

static void ternary_linear(cpu_run *run, const cpu_step *step, const tern_team *team, int which,
                           const tern_weight *w, tern_vid x, float *out, bool accumulate) {
    const tern_ternary_kernels *k = kernels(run)->t;
    const tern_ternary_matrix *m = &w->ternary;
    int32_t n_rows = cpu_rows(run, x);
    cpu_i8 v;
    size_t first, last;
    cpu_i8_layout(run->plan->device, cols(run, x), n_rows, cpu_value(run, x), &v);
    if (n_rows <= TERN_GEMV_TOKENS) {
        while (claim_matrix_rows(team, counter(run, step, which), m->n_rows, m->row_bytes, &first,
                                 &last))
            k->gemv(m, first, last, &v.rows, v.prepared, out, m->n_rows, accumulate);
        return;
    }
    while (tern_team_claim(counter(run, step, which), m->n_rows, k->gemm_row_block, &first, &last))
        k->gemm(m, first, last, &v.rows, v.panels, scratch(run, team), out, m->n_rows, accumulate);
}

#define FLOAT_BLOCK_FLOATS 65536 // decoded weights that stay in the second-level cache: 256 KB
static size_t float_block_rows(size_t n_in) {
    size_t rows = FLOAT_BLOCK_FLOATS / n_in / 16 * 16;
    return rows < 16 ? 16 : rows > 256 ? 256 : rows;
}

static void float_linear(cpu_run *run, const cpu_step *step, const tern_team *team, int which,
                         const tern_weight *w, const float *x, int32_t n_rows, float *out,
                         bool accumulate) {
    const tern_float_kernels *f = kernels(run)->f;
    size_t n_in = (size_t)w->source.n_cols, n_out = (size_t)w->source.n_rows, first, last;
    float scale = w->source.scale;
    if (n_rows == 1) {
        while (
            claim_matrix_rows(team, counter(run, step, which), n_out, w->row_bytes, &first, &last))
            f->matvec(out + first, x, w->type, w->rows + first * w->row_bytes, w->row_bytes,
                      last - first, n_in, scale, accumulate);
        return;
    }
    float *decoded = scratch(run, team);
    size_t block = float_block_rows(n_in);
    while (tern_team_claim(counter(run, step, which), n_out, block, &first, &last)) {
        f->decode(w->type, w->rows, first * n_in, (last - first) * n_in, scale, decoded);
        f->matmul(out + first, n_out, x, n_in, (size_t)n_rows, decoded, last - first, n_in,
                  accumulate);
    }
}

static void linear(cpu_run *run, const cpu_step *step, const tern_team *team, int which, tern_vid x,
                   tern_vid wv, float *out, bool accumulate) {
    const tern_weight *w = run->plan->weights[wv];
    if (w->info.kind == TERN_WEIGHT_TERNARY)
        ternary_linear(run, step, team, which, w, x, out, accumulate);
    else
        float_linear(run, step, team, which, w, cpu_value(run, x), cpu_rows(run, x), out,
                     accumulate);
}

static void step_linear(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    for (int i = 0; i < n->n_out; i++)
        linear(run, step, team, i, n->in[0], n->in[1 + i], cpu_value(run, n->out[i]), false);
}

static void step_linear_add(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node; // the output is where the residual is
    linear(run, step, team, 0, n->in[0], n->in[1], cpu_value(run, n->out[0]), true);
}

// ---- Attention ---------------------------------------------------------------------------------

static void rotate_heads(cpu_run *run, const cpu_step *step, const tern_node *n, float *row,
                         int32_t n_heads, size_t t) {
    size_t half = (size_t)n->rope.n_rot / 2;
    const float *cos = run->instance->rope_tables + (size_t)step->rope * run->instance->rope_stride;
    const float *sin = cos + (size_t)run->plan->n_batch * half;
    for (int32_t h = 0; h < n_heads; h++)
        kernels(run)->f->rope(row + h * n->head_dim, cos + t * half, sin + t * half,
                              (size_t)n->rope.n_rot, n->rope.halves);
}

static void step_rope(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, team, run->batch->n_tokens, ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            memcpy(y + t * d, x + t * d, d * sizeof *y);
            rotate_heads(run, step, n, y + t * d, n->n_heads, t);
        }
}

static void store_token(cpu_run *run, const tern_node *n, tern_vid k_state, tern_vid v_state,
                        const float *k, const float *v, size_t t) {
    const tern_instance *i = run->instance;
    size_t pos = (size_t)run->batch->first_pos + t, lane = pos % TERN_PAGE_POSITIONS;
    size_t head_bytes =
        tern_kv_head_bytes(i->kv_type, (size_t)n->head_dim, TERN_PAGE_POSITIONS);
    uint8_t *page = i->pages[pos / TERN_PAGE_POSITIONS].memory;
    for (int32_t h = 0; h < n->n_kv_heads; h++)
        kernels(run)->f->kv_store(page + i->state_offset[k_state] + (size_t)h * head_bytes,
                                  page + i->state_offset[v_state] + (size_t)h * head_bytes,
                                  i->kv_type, lane, (size_t)n->head_dim, k + h * n->head_dim,
                                  v + h * n->head_dim);
}

static void step_kv_store(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *k = cpu_value(run, n->in[0]), *v = cpu_value(run, n->in[1]);
    for (size_t t, last; claim_rows(run, step, team, run->batch->n_tokens, ROW_BLOCK, &t, &last);)
        for (; t < last; t++) store_token(run, n, n->in[2], n->in[3], k + t * d, v + t * d, t);
}

static void step_rope_store(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t q_dim = (size_t)cols(run, n->in[0]), kv_dim = (size_t)cols(run, n->in[1]);
    const float *q = cpu_value(run, n->in[0]), *v = cpu_value(run, n->in[2]);
    float *k = cpu_value(run, n->in[1]), *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, team, run->batch->n_tokens, ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            memcpy(y + t * q_dim, q + t * q_dim, q_dim * sizeof *y);
            rotate_heads(run, step, n, y + t * q_dim, n->n_heads, t);
            rotate_heads(run, step, n, k + t * kv_dim, n->n_kv_heads, t); // k dies here: in place
            store_token(run, n, n->in[3], n->in[4], k + t * kv_dim, v + t * kv_dim, t);
        }
}

// A unit of work is a block of tokens and some of the query heads that share a key/value head; for
// a single token the heads are split further, so that there is something for every thread.
#define ATTENTION_TOKENS 24 // whole tiles of the attention kernel for any number of heads

static void step_attention(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_instance *in = run->instance;
    size_t group = (size_t)(n->n_heads / n->n_kv_heads), dim = (size_t)n->head_dim;
    size_t n_tokens = (size_t)run->batch->n_tokens;
    size_t splits = n_tokens == 1 && group % 2 == 0 && team->n_threads > 1 ? 2 : 1;
    size_t heads = group / splits, n_units_h = (size_t)n->n_kv_heads * splits;
    size_t n_blocks = (n_tokens + ATTENTION_TOKENS - 1) / ATTENTION_TOKENS;
    size_t head_bytes = tern_kv_head_bytes(in->kv_type, dim, TERN_PAGE_POSITIONS);
    const float *q = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t unit, last;
         tern_team_claim(counter(run, step, 0), n_blocks * n_units_h, 1, &unit, &last);) {
        // The longest units, those of the last tokens, are handed out first.
        size_t token = (n_blocks - 1 - unit / n_units_h) * ATTENTION_TOKENS;
        size_t kv_head = unit % n_units_h / splits;
        size_t column = (unit % n_units_h) * heads * dim;
        size_t left = n_tokens - token;
        tern_attention_args args = {
            .out = y + token * (size_t)n->n_heads * dim + column,
            .q = q + token * (size_t)n->n_heads * dim + column,
            .row_stride = (size_t)n->n_heads * dim,
            .n_tokens = left < ATTENTION_TOKENS ? left : ATTENTION_TOKENS,
            .n_heads = heads,
            .head_dim = dim,
            .first_pos = (size_t)run->batch->first_pos + token,
            .pages = in->pages,
            .k_offset = in->state_offset[n->in[1]] + kv_head * head_bytes,
            .v_offset = in->state_offset[n->in[2]] + kv_head * head_bytes,
            .causal = true,
            .kv_type = in->kv_type,
            .scale = n->scale,
            .scratch = scratch(run, team),
        };
        kernels(run)->f->attention(&args);
    }
}

// ---- The greatest logits -----------------------------------------------------------------------

// True when (a, id a) is to be dropped before (b, id b): smaller, or equal with the higher index.
static bool is_below(float a, int32_t id_a, float b, int32_t id_b) {
    return a < b || (a == b && id_a > id_b);
}

// Sinks the root of a heap whose root is the worst of the kept ones.
static void sift_down(float *values, int32_t *ids, int32_t k) {
    for (int32_t at = 0;;) {
        int32_t child = 2 * at + 1;
        if (child >= k) return;
        if (child + 1 < k && is_below(values[child + 1], ids[child + 1], values[child], ids[child]))
            child++;
        if (!is_below(values[child], ids[child], values[at], ids[at])) return;
        float v = values[at];
        int32_t id = ids[at];
        values[at] = values[child];
        ids[at] = ids[child];
        values[child] = v;
        ids[child] = id;
        at = child;
    }
}

static void select_top_k(const float *x, int64_t n, int32_t k, int32_t *ids, float *values) {
    for (int32_t i = 0; i < k; i++) { // worse than anything, NaN included
        values[i] = -__builtin_inff();
        ids[i] = INT32_MAX;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!is_below(values[0], ids[0], x[i], (int32_t)i)) continue;
        values[0] = x[i];
        ids[0] = (int32_t)i;
        sift_down(values, ids, k);
    }
    for (int32_t n_left = k - 1; n_left > 0; n_left--) { // heap sort: the worst go to the end
        float v = values[0];
        int32_t id = ids[0];
        values[0] = values[n_left];
        ids[0] = ids[n_left];
        values[n_left] = v;
        ids[n_left] = id;
        sift_down(values, ids, n_left);
    }
}

// Resets the counter for another round of work inside one step. Call between two barriers, since
// all threads must be done with the old value before, and see the new one after.
static void restart(cpu_run *run, const cpu_step *step, const tern_team *team) {
    tern_team_barrier(team);
    if (team->thread == 0) atomic_store(counter(run, step, 0), 0);
    tern_team_barrier(team);
}

// All logits of a row into the instance's buffer, then the greatest of them.
static void top_k_of_all(cpu_run *run, const cpu_step *step, const tern_team *team,
                         const tern_weight *w, const float *x, int32_t *ids, float *values) {
    float *logits = run->instance->logits;
    float_linear(run, step, team, 0, w, x, 1, logits, false);
    tern_team_barrier(team);
    if (team->thread == 0) select_top_k(logits, w->source.n_rows, run->batch->top_k, ids, values);
}

// The same for n_rows by the exact head. One thread writes whether there is another round; all read
// it after a barrier.
static void top_k_screened(cpu_run *run, const cpu_step *step, const tern_team *team,
                           const float *x, size_t n_rows, int32_t *ids, float *values) {
    tern_head_query *q = run->instance->query;
    if (team->thread == 0) tern_head_begin(q, x, n_rows, run->batch->top_k);
    for (bool more = true; more;) {
        tern_team_barrier(team);
        size_t n = tern_head_n_items(q), block = tern_head_block(q), first, last;
        while (tern_team_claim(counter(run, step, 0), n, block, &first, &last))
            tern_head_work(q, first, last);
        tern_team_barrier(team);
        if (team->thread == 0) {
            run->instance->more = tern_head_next(q, ids, values);
            atomic_store(counter(run, step, 0), 0);
        }
        tern_team_barrier(team);
        more = run->instance->more;
    }
}

static void step_top_k(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_batch *b = run->batch;
    bool fused = n->op == TERN_OP_LINEAR_TOP_K;
    const tern_weight *w = fused ? run->plan->weights[n->in[1]] : NULL;
    const tern_head_query *query = b->logits ? NULL : run->instance->query;
    int32_t at_once = query ? (int32_t)tern_head_query_max(query) : 1;
    for (int32_t row = 0; row < b->n_outputs; row += at_once) {
        int32_t *ids = b->top_ids + row * b->top_k;
        float *values = b->top_logits + row * b->top_k;
        if (b->logits) {
            int64_t n_vocab = run->plan->n_vocab;
            if (team->thread == 0)
                select_top_k(b->logits + row * n_vocab, n_vocab, b->top_k, ids, values);
            continue;
        }
        const float *x = (const float *)cpu_value(run, n->in[0]) + row * w->source.n_cols;
        int32_t n_rows = b->n_outputs - row < at_once ? b->n_outputs - row : at_once;
        if (row > 0) restart(run, step, team);
        if (query)
            top_k_screened(run, step, team, x, (size_t)n_rows, ids, values);
        else
            top_k_of_all(run, step, team, w, x, ids, values);
    }
}

// ---- The table ---------------------------------------------------------------------------------

cpu_step_fn cpu_step_for(tern_op op) {
    switch (op) {
    case TERN_OP_EMBED: return step_embed;
    case TERN_OP_RMS_NORM: return step_rms_norm;
    case TERN_OP_QUANTIZE: return step_quantize;
    case TERN_OP_NORM_QUANTIZE: return step_norm_quantize;
    case TERN_OP_GLU_NORM_QUANTIZE: return step_glu_norm_quantize;
    case TERN_OP_ADD:
    case TERN_OP_MUL:
    case TERN_OP_GLU:
    case TERN_OP_ACT: return step_elementwise;
    case TERN_OP_TAKE_ROWS: return step_take_rows;
    case TERN_OP_LINEAR:
    case TERN_OP_LINEAR_GROUP: return step_linear;
    case TERN_OP_LINEAR_ADD: return step_linear_add;
    case TERN_OP_ROPE: return step_rope;
    case TERN_OP_KV_STORE: return step_kv_store;
    case TERN_OP_ROPE_STORE: return step_rope_store;
    case TERN_OP_ATTENTION: return step_attention;
    case TERN_OP_TOP_K:
    case TERN_OP_LINEAR_TOP_K: return step_top_k;
    default: return NULL; // ternarize happens when a weight is bound; training has its own table
    }
}

static size_t linear_scratch(const tern_plan *p, tern_vid wv) {
    const tern_weight *w = p->weights[wv];
    size_t n_in = (size_t)w->source.n_cols;
    if (w->info.kind == TERN_WEIGHT_TERNARY) return p->device->kernels.t->gemm_scratch_bytes(n_in);
    return float_block_rows(n_in) * n_in * sizeof(float);
}

size_t cpu_step_scratch(const tern_plan *p, const tern_node *n) {
    size_t most = 0;
    switch (n->op) {
    case TERN_OP_QUANTIZE:
    case TERN_OP_NORM_QUANTIZE:
    case TERN_OP_GLU_NORM_QUANTIZE: return (size_t)p->g->values[n->out[0]].cols * sizeof(float);
    case TERN_OP_ATTENTION: {
        tern_attention_args args = {.n_tokens = ATTENTION_TOKENS,
                                    .n_heads = (size_t)(n->n_heads / n->n_kv_heads),
                                    .head_dim = (size_t)n->head_dim};
        return tern_attention_scratch_floats(&args) * sizeof(float);
    }
    case TERN_OP_LINEAR:
    case TERN_OP_LINEAR_ADD: return linear_scratch(p, n->in[1]);
    case TERN_OP_LINEAR_GROUP:
        for (int i = 1; i < n->n_in; i++) {
            size_t bytes = linear_scratch(p, n->in[i]);
            most = bytes > most ? bytes : most;
        }
        return most;
    default: return 0;
    }
}
