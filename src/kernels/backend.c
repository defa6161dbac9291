// What all backends have in common.
#include <stdio.h>
#include <string.h>
#include "kernels/backend.h"

tern_status tern_backend_open(const tern_backend *b, tern_device **out,
                              const tern_device_desc *desc, tern_error *err) {
    TERN_TRY(b->open(out, desc, err));
    tern_status status = TERN_OK;
    for (bool done = false; status == TERN_OK && !done;) status = b->open_poll(*out, &done, err);
    if (status == TERN_OK) return TERN_OK;
    b->close(*out);
    *out = NULL;
    return status;
}

tern_status tern_backend_bind(const tern_backend *b, tern_device *d,
                              const tern_weight_source *source, tern_weight **out,
                              tern_error *err) {
    TERN_TRY(b->bind(d, source, out, err));
    tern_status status = TERN_OK;
    for (uint64_t left = 1; status == TERN_OK && left > 0;)
        status = b->bind_poll(d, *out, &left, err);
    if (status == TERN_OK) return TERN_OK;
    b->unbind(d, *out);
    *out = NULL;
    return status;
}

// Columns that share a scale in the kernels: those of activations.
#define GROUP 64

bool tern_weight_in_groups(const tern_weight_source *s, bool precise) {
    size_t group = tern_dtype_group_n(s->type);
    tern_dtype other;
    bool as_it_is = !s->is_head || !tern_head_type(s->head, &other);
    bool may = !precise && !s->as_floats && as_it_is;
    return may && s->is_matrix && s->n_parts == 0 && group >= GROUP &&
           (size_t)s->n_cols % group == 0;
}

static tern_status check_chunks(const tern_batch *b, int32_t n_context, tern_error *err) {
    int64_t n_tokens = 0;
    for (int32_t i = 0; i < b->n_chunks; i++) {
        const tern_chunk *c = &b->chunks[i];
        n_tokens += c->n_tokens;
        if (c->n_tokens < 1 || c->first_pos < 0 || c->first_pos > n_context - c->n_tokens)
            return tern_fail(err, TERN_ERR_ARGUMENT, "a batch of %d tokens at %d does not fit",
                             (int)c->n_tokens, (int)c->first_pos);
        if (tern_sequence_is_out(c->sequence))
            return tern_fail(err, TERN_ERR_ARGUMENT, "a sequence of the batch is swapped out");
    }
    if (n_tokens != b->n_tokens)
        return tern_fail(err, TERN_ERR_ARGUMENT, "chunks of %lld tokens in a batch of %d",
                         (long long)n_tokens, (int)b->n_tokens);
    return TERN_OK;
}

// Checks that a row's image is complete: its rows are all in the row's chunk, or before it.
static tern_status check_ends(const tern_batch *b, tern_error *err) {
    for (int32_t i = 0, row = 0; b->ends && i < b->n_chunks; i++) {
        int32_t end = b->chunks[i].first_pos + b->chunks[i].n_tokens;
        for (int32_t t = 0; t < b->chunks[i].n_tokens; t++, row++)
            if (b->ends[row] > end)
                return tern_fail(err, TERN_ERR_ARGUMENT,
                                 "a batch with a part of an image, up to position %d of %d",
                                 (int)end, (int)b->ends[row]);
    }
    return TERN_OK;
}

void tern_batch_place(const tern_batch *b, const tern_chunk *c, int32_t row, int32_t at,
                      int32_t place[3]) {
    const int32_t *given = b->places && row >= 0 ? b->places + 3 * (size_t)row : NULL;
    for (int i = 0; i < 3; i++) place[i] = given ? given[i] : c->first_pos + at + c->shift;
}

void tern_batch_counts(const tern_batch *b, const tern_graph *g, int64_t counts[TERN_DIMS_MAX]) {
    const struct {
        const char *name;
        int32_t n;
    } own[] = {{"tokens", b->n_tokens}, {"outputs", b->n_outputs}, {"sequences", b->n_chunks}};
    for (int32_t d = 0; d < g->n_dims; d++) {
        counts[d] = b->counts[d];
        for (int i = 0; i < 3 && b->n_tokens > 0; i++)
            if (strcmp(g->dims[d], own[i].name) == 0) counts[d] = own[i].n;
    }
}

static bool has_tokens(const tern_graph *g) {
    for (int32_t d = 0; d < g->n_dims; d++)
        if (strcmp(g->dims[d], "tokens") == 0) return true;
    return false;
}

static tern_status check_counts(const tern_batch *b, const tern_graph *g, int32_t n_batch,
                                tern_error *err) {
    for (int32_t d = 0; d < g->n_dims; d++)
        if (b->counts[d] < 0 || b->counts[d] > n_batch)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%lld %s in a batch of at most %d",
                             (long long)b->counts[d], g->dims[d], (int)n_batch);
    return TERN_OK;
}

// Tables of learned positions are finite.
static tern_status check_positions(const tern_batch *b, const tern_graph *g, tern_error *err) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        if (n->op != TERN_OP_POSITIONS) continue;
        int64_t most = g->values[n->in[1]].rows - n->first;
        for (int32_t k = 0; k < b->n_chunks; k++)
            if (b->chunks[k].first_pos + (int64_t)b->chunks[k].n_tokens > most)
                return tern_fail(err, TERN_ERR_ARGUMENT,
                                 "a text of %lld tokens: the model has positions for %lld",
                                 b->chunks[k].first_pos + (long long)b->chunks[k].n_tokens,
                                 (long long)most);
    }
    return TERN_OK;
}

// ids and the wanted rows are members of a batch; other inputs are bound.
static tern_status check_inputs(const tern_batch *b, const tern_graph *g, tern_error *err) {
    int64_t counts[TERN_DIMS_MAX];
    tern_batch_counts(b, g, counts);
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *in = &g->values[v];
        if (in->kind != TERN_VALUE_INPUT || tern_batch_data(b, (tern_vid)v)) continue;
        if (in->dim != TERN_DIM_NONE && counts[in->dim] == 0) continue;
        if (strcmp(in->name, "ids") == 0 || strcmp(in->name, "outputs") == 0) continue;
        if (in->is_optional || (b->places && strcmp(in->name, "places") == 0)) continue;
        return tern_fail(err, TERN_ERR_ARGUMENT, "a batch without the input %s", in->name);
    }
    return TERN_OK;
}

// Windows lie within their input; rows stored for cross-attention fit into the sequence's states,
// and the batch has just that sequence.
static tern_status check_windows(const tern_batch *b, const tern_graph *g, tern_error *err) {
    int64_t counts[TERN_DIMS_MAX];
    tern_batch_counts(b, g, counts);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        if (n->op != TERN_OP_WINDOWS && n->op != TERN_OP_SOURCE_STORE) continue;
        int64_t have = tern_graph_rows(g, n->in[0], counts);
        if (n->op == TERN_OP_WINDOWS) {
            int64_t made = tern_graph_rows(g, n->out[0], counts);
            have = have * g->values[n->in[0]].cols + n->windows.before + n->windows.after;
            if (made < 1 || (made - 1) * n->windows.step + n->windows.width <= have) continue;
            return tern_fail(err, TERN_ERR_ARGUMENT, "%lld windows of %lld rows of %s do not fit",
                             (long long)made, (long long)have, g->values[n->in[0]].name);
        }
        if (have == 0 || (have <= g->values[n->in[2]].rows && b->n_chunks == 1)) continue;
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%lld rows to attend to, of at most %lld for one sequence",
                         (long long)have, (long long)g->values[n->in[2]].rows);
    }
    return TERN_OK;
}

tern_status tern_batch_check(const tern_batch *b, const tern_graph *g, int32_t n_batch,
                             int32_t n_context, tern_error *err) {
    tern_vid scores = tern_graph_scores(g);
    if (b->n_tokens < has_tokens(g) || b->n_tokens > n_batch || b->n_outputs < 0 ||
        b->n_outputs > b->n_tokens || b->n_bindings < 0 || b->n_bindings > TERN_BINDINGS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a batch of %d tokens, %d wanted, does not fit",
                         (int)b->n_tokens, (int)b->n_outputs);
    for (int32_t i = 0; b->outputs && i < b->n_outputs; i++)
        if (b->outputs[i] < 0 || b->outputs[i] >= b->n_tokens)
            return tern_fail(err, TERN_ERR_ARGUMENT, "row %d of a batch of %d tokens is wanted",
                             (int)b->outputs[i], (int)b->n_tokens);
    if (scores >= 0 && b->wants.top_k > g->values[scores].cols)
        return tern_fail(err, TERN_ERR_ARGUMENT, "top %d of %lld", (int)b->wants.top_k,
                         (long long)g->values[scores].cols);
    if (b->n_scores > 0 &&
        (scores < 0 || b->first_score < 0 || b->n_scores > g->values[scores].cols - b->first_score))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d scores from %d on", (int)b->n_scores,
                         (int)b->first_score);
    TERN_TRY(check_counts(b, g, n_batch, err));
    TERN_TRY(check_chunks(b, n_context, err));
    TERN_TRY(check_ends(b, err));
    TERN_TRY(check_inputs(b, g, err));
    TERN_TRY(check_windows(b, g, err));
    return check_positions(b, g, err);
}

// How many rows of keys a row of the batch attends to at most.
static uint64_t rows_seen(const tern_graph *g, const tern_node *n, const tern_batch *b) {
    uint64_t most = 0;
    if (n->op == TERN_OP_CROSS_ATTENTION) return (uint64_t)g->values[n->in[1]].rows;
    for (int32_t i = 0; i < b->n_chunks; i++) {
        uint64_t seen = (uint64_t)(b->chunks[i].first_pos + b->chunks[i].n_tokens);
        if (seen > most) most = seen;
    }
    uint64_t window = (uint64_t)n->attention.window;
    return window > 0 && window < most ? window : most;
}

uint64_t tern_node_work(const tern_graph *g, const tern_node *n,
                        const int64_t counts[TERN_DIMS_MAX], const tern_batch *b) {
    uint64_t rows = n->n_out ? (uint64_t)tern_graph_rows(g, n->out[0], counts) : 0;
    uint64_t work = n->n_out ? rows * (uint64_t)g->values[n->out[0]].cols : 0;
    if (n->op == TERN_OP_ATTENTION || n->op == TERN_OP_CROSS_ATTENTION)
        return 2 * work * rows_seen(g, n, b);
    for (int i = 0; i < n->n_in; i++) {
        const tern_value *v = &g->values[n->in[i]];
        if (v->kind != TERN_VALUE_WEIGHT || (v->is_table && !v->is_matrix)) continue;
        work +=
            rows * (uint64_t)v->rows * (uint64_t)v->cols / (v->parts > 1 ? (uint64_t)v->parts : 1);
    }
    return work;
}

void *tern_batch_data(const tern_batch *b, tern_vid value) {
    for (int32_t i = 0; i < b->n_bindings; i++)
        if (b->bindings[i].value == value) return b->bindings[i].data;
    return NULL;
}

void tern_batch_bind(tern_batch *b, tern_vid value, void *data) {
    if (data && value >= 0 && b->n_bindings < TERN_BINDINGS_MAX)
        b->bindings[b->n_bindings++] = (tern_binding){value, data};
}

tern_vid tern_graph_scores(const tern_graph *g) {
    tern_vid best = -1;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_MERGE) return -1; // its outputs are rows for another graph
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *value = &g->values[v];
        tern_op op = value->producer >= 0 ? g->nodes[value->producer].op : TERN_OP_COUNT;
        if (value->kind != TERN_VALUE_OUTPUT || !tern_graph_is_by(g, (tern_vid)v, "outputs") ||
            op == TERN_OP_TOP_K || op == TERN_OP_LINEAR_TOP_K)
            continue;
        if (best < 0 || value->cols > g->values[best].cols) best = (tern_vid)v;
    }
    return best;
}

#define F32_CACHE_BYTES_MAX ((uint64_t)64 << 20)
tern_status tern_kv_choose(const tern_graph *g, int32_t n_context, tern_kv_type wanted,
                           tern_kv_type *out, tern_error *err) {
    const tern_kv_type last = TERN_HAS_Q4_CACHE ? TERN_KV_Q4_0 : TERN_KV_Q8_0;
    uint64_t f32_bytes = 0;
    if ((unsigned)wanted > (unsigned)last)
        return tern_fail(err, TERN_ERR_ARGUMENT, "kv_type is %d: expected 0 to %d", (int)wanted,
                         (int)last);
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == TERN_VALUE_STATE && g->values[v].state == TERN_STATE_POSITIONAL)
            f32_bytes += (uint64_t)g->values[v].cols * (uint64_t)n_context * sizeof(float);
    *out = wanted;
    if (wanted == TERN_KV_AUTO) *out = f32_bytes <= F32_CACHE_BYTES_MAX ? TERN_KV_F32 : TERN_KV_F16;
    for (size_t i = 0; *out >= TERN_KV_Q8_0 && i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_ATTENTION && g->nodes[i].attention.head_dim % 32 != 0)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "a %s cache needs heads of a multiple of 32 dimensions, not %d",
                             *out == TERN_KV_Q8_0 ? "Q8_0" : "Q4_0",
                             (int)g->nodes[i].attention.head_dim);
    return TERN_OK;
}

void tern_profile_add(tern_profile *p, const char *name, double seconds, uint64_t bytes) {
    size_t i = 0;
    while (i < p->n && strcmp(p->rows[i].name, name) != 0) i++;
    if (i == TERN_PROFILE_ROWS) i--;
    tern_profile_row *r = &p->rows[i];
    if (i == p->n) {
        *r = (tern_profile_row){0};
        snprintf(r->name, sizeof r->name, "%s", name);
        p->n++;
    }
    r->n_calls++;
    r->seconds += seconds;
    r->bytes += bytes;
}

bool tern_head_type(tern_head_mode mode, tern_dtype *type) {
    switch (mode) {
    case TERN_HEAD_Q8_0: *type = TERN_DTYPE_Q8_0; return true;
    case TERN_HEAD_Q6_K: *type = TERN_DTYPE_Q6_K; return true;
    case TERN_HEAD_Q4_0: *type = TERN_DTYPE_Q4_0; return true;
    default: return false;
    }
}
