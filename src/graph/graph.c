#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

void tern_graph_init(tern_graph *g) { *g = (tern_graph){.layer = -1}; }

void tern_graph_free(tern_graph *g) {
    tern_free(g->values);
    tern_free(g->nodes);
    *g = (tern_graph){0};
}

tern_status tern_graph_copy(tern_graph *to, const tern_graph *from, tern_error *err) {
    *to = *from;
    to->values = tern_alloc_array(TERN_MEM_GRAPH, from->n_values + 1, sizeof *to->values);
    to->nodes = tern_alloc_array(TERN_MEM_GRAPH, from->n_nodes + 1, sizeof *to->nodes);
    if (!to->values || !to->nodes) {
        tern_graph_free(to);
        return tern_fail_memory(err, from->n_nodes * sizeof *to->nodes);
    }
    to->values_capacity = from->n_values;
    to->nodes_capacity = from->n_nodes;
    memcpy(to->values, from->values, from->n_values * sizeof *to->values);
    memcpy(to->nodes, from->nodes, from->n_nodes * sizeof *to->nodes);
    return TERN_OK;
}

// ---- Building ----------------------------------------------------------------------------------
// A builder whose input is -1 (something failed before) adds nothing and returns -1.

tern_vid tern_g_value(tern_graph *g, tern_value_kind kind, tern_value_type type, tern_dim dim,
                      int64_t rows, int64_t cols) {
    if (g->failed ||
        tern_array_reserve(TERN_MEM_GRAPH, &g->values, &g->values_capacity, g->n_values, 1) != 0) {
        g->failed = true;
        return -1;
    }
    g->values[g->n_values] = (tern_value){.kind = kind,
                                          .type = type,
                                          .dim = dim,
                                          .times = 1,
                                          .per = 1,
                                          .rows = rows,
                                          .cols = cols,
                                          .producer = -1};
    return (tern_vid)g->n_values++;
}

// Cut names that begin alike would be the same name.
static bool fits(tern_graph *g, int n_bytes, const char *name) {
    if (n_bytes < TERN_NAME_BYTES) return true;
    if (!g->failed) memcpy(g->cut, name, TERN_NAME_BYTES);
    g->failed = true;
    return false;
}

tern_vid tern_g_named(tern_graph *g, const char *name, tern_value_kind kind, tern_value_type type,
                      tern_dim dim, int64_t rows, int64_t cols) {
    char full[TERN_NAME_BYTES];
    const char *hole = strstr(name, "%d");
    int n = hole ? snprintf(full, sizeof full, "%.*s%d%s", (int)(hole - name), name, (int)g->layer,
                            hole + 2)
                 : snprintf(full, sizeof full, "%s", name);
    if (!fits(g, n, full)) return -1;
    tern_vid v = tern_graph_find(g, full); // the same weight twice is one weight (a tied head)
    if (v < 0) v = tern_g_value(g, kind, type, dim, rows, cols);
    if (v >= 0) memcpy(g->values[v].name, full, sizeof full);
    return v;
}

tern_vid tern_graph_find(const tern_graph *g, const char *name) {
    for (size_t i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].name, name) == 0) return (tern_vid)i;
    return -1;
}

tern_state_bytes tern_graph_state_bytes(const tern_graph *g) {
    tern_state_bytes sum = {0};
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *x = &g->values[v];
        uint64_t cols = (uint64_t)x->cols;
        if (x->kind != TERN_VALUE_STATE) continue;
        if (x->state == TERN_STATE_FIXED) sum.sequence += (uint64_t)x->rows * cols * sizeof(float);
        if (x->state == TERN_STATE_POSITIONAL && x->window)
            sum.sequence += (uint64_t)x->window * cols * 2;
        if (x->state == TERN_STATE_POSITIONAL && !x->window) sum.position += cols * 2;
    }
    return sum;
}

tern_node *tern_g_node(tern_graph *g, tern_op op) {
    if (g->failed ||
        tern_array_reserve(TERN_MEM_GRAPH, &g->nodes, &g->nodes_capacity, g->n_nodes, 1) != 0) {
        g->failed = true;
        return NULL;
    }
    tern_node *n = &g->nodes[g->n_nodes++];
    *n = (tern_node){.op = op, .layer = g->layer};
    return n;
}

void tern_g_in(tern_graph *g, tern_node *n, tern_vid v) {
    if (v < 0)
        g->failed = true;
    else if (n)
        n->in[n->n_in++] = v;
}

tern_vid tern_g_out(tern_graph *g, tern_node *n, tern_vid like, tern_value_type type,
                    int64_t cols) {
    if (!n || like < 0 || g->failed) return -1;
    const tern_value *l = &g->values[like];
    tern_vid out = tern_g_value(g, TERN_VALUE_TEMP, type, l->dim, l->rows, cols);
    if (out < 0) return -1;
    tern_value *v = &g->values[out];
    l = &g->values[like]; // the array may have moved
    v->times = l->times;
    v->per = l->per;
    n->out[n->n_out++] = out;
    v->producer = (int32_t)(n - g->nodes);
    if (n->layer >= 0)
        snprintf(v->name, sizeof v->name, "l%d.%s.%d", (int)n->layer, tern_op_name(n->op),
                 (int)out);
    else
        snprintf(v->name, sizeof v->name, "%s.%d", tern_op_name(n->op), (int)out);
    return out;
}

tern_vid tern_g_op(tern_graph *g, const tern_node *like) {
    tern_node op = *like;
    while (op.n_in > tern_op_info(op.op)->n_in_least && op.in[op.n_in - 1] == -1) op.n_in--;
    for (int i = 0; i < op.n_in; i++) g->failed = g->failed || op.in[i] < 0;
    tern_node *n = tern_g_node(g, op.op);
    if (!n) return -1;
    op.layer = n->layer;
    *n = op;
    int64_t cols = tern_g_columns_of(g, n);
    if (cols < 0) return -1;
    return tern_g_out(g, n, n->in[0],
                      n->op == TERN_OP_QUANTIZE ? TERN_VALUE_I8ROWS : TERN_VALUE_F32, cols);
}

#define OP(g, id, ...) tern_g_op((g), &(tern_node){.op = TERN_OP_##id, __VA_ARGS__})

tern_dim tern_g_dim(tern_graph *g, const char *name) {
    for (int32_t d = 0; d < g->n_dims; d++)
        if (strcmp(g->dims[d], name) == 0) return d;
    if (g->n_dims == TERN_DIMS_MAX || strlen(name) >= TERN_DIM_BYTES) {
        g->failed = true;
        return TERN_DIM_NONE;
    }
    memcpy(g->dims[g->n_dims], name, strlen(name) + 1);
    return g->n_dims++;
}

tern_vid tern_g_input(tern_graph *g, const char *name, tern_dim dim, int64_t cols,
                      tern_value_type type) {
    return tern_g_named(g, name, TERN_VALUE_INPUT, type, dim, 0, cols);
}

tern_vid tern_g_matrix(tern_graph *g, const char *name, int64_t n_out, int64_t n_in) {
    tern_vid v =
        tern_g_named(g, name, TERN_VALUE_WEIGHT, TERN_VALUE_F32, TERN_DIM_NONE, n_out, n_in);
    if (v >= 0) g->values[v].is_matrix = true;
    return v;
}

tern_vid tern_g_vector(tern_graph *g, const char *name, int64_t n) {
    return tern_g_named(g, name, TERN_VALUE_WEIGHT, TERN_VALUE_F32, TERN_DIM_NONE, 1, n);
}

tern_vid tern_g_parts(tern_graph *g, const char *name, int32_t n_parts, int64_t n_out,
                      int64_t n_in) {
    tern_vid v = tern_g_matrix(g, name, n_parts * n_out, n_in);
    if (v >= 0) g->values[v].parts = n_parts;
    return v;
}

tern_vid tern_g_table(tern_graph *g, const char *name, int64_t n_rows, int64_t n_cols) {
    tern_vid v =
        tern_g_named(g, name, TERN_VALUE_WEIGHT, TERN_VALUE_F32, TERN_DIM_NONE, n_rows, n_cols);
    if (v >= 0) g->values[v].is_table = true;
    return v;
}

tern_vid tern_g_host_table(tern_graph *g, const char *name, int64_t n_rows, int64_t n_cols) {
    tern_vid v = tern_g_table(g, name, n_rows, n_cols);
    if (v >= 0) g->values[v].on_host = true;
    return v;
}

tern_vid tern_g_array(tern_graph *g, const char *name, int64_t n_rows, int64_t n_cols) {
    return tern_g_named(g, name, TERN_VALUE_WEIGHT, TERN_VALUE_F32, TERN_DIM_NONE, n_rows, n_cols);
}

tern_vid tern_g_positional_state(tern_graph *g, const char *name, int64_t cols, int32_t window) {
    tern_vid v = tern_g_named(g, name, TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, 0, cols);
    if (v < 0) return -1;
    g->values[v].state = TERN_STATE_POSITIONAL;
    g->values[v].window = window;
    return v;
}

tern_vid tern_g_fixed_state(tern_graph *g, const char *name, int64_t rows, int64_t cols) {
    tern_vid v = tern_g_named(g, name, TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, rows, cols);
    if (v >= 0) g->values[v].state = TERN_STATE_FIXED;
    return v;
}

tern_vid tern_g_embed(tern_graph *g, tern_vid ids, tern_vid table) {
    return OP(g, EMBED, TERN_IN(ids, table));
}

tern_vid tern_g_rms_norm(tern_graph *g, tern_vid x, tern_vid w, float eps) {
    return OP(g, RMS_NORM, TERN_IN(x, w), .norm = {.eps = eps});
}

tern_vid tern_g_layer_norm(tern_graph *g, tern_vid x, tern_vid w, tern_vid b, float eps) {
    return OP(g, LAYER_NORM, TERN_IN(x, w, b), .norm = {.eps = eps});
}

tern_vid tern_g_positions(tern_graph *g, tern_vid ids, tern_vid table, int32_t first) {
    return OP(g, POSITIONS, TERN_IN(ids, table), .first = first);
}

tern_vid tern_g_segments(tern_graph *g, tern_vid ids, tern_vid table, int32_t end) {
    return OP(g, SEGMENTS, TERN_IN(ids, table), .first = end);
}

tern_vid tern_g_quantize(tern_graph *g, tern_vid x) { return OP(g, QUANTIZE, TERN_IN(x)); }

tern_vid tern_g_ternarize(tern_graph *g, tern_vid w) { return OP(g, TERNARIZE, TERN_IN(w)); }

tern_vid tern_g_linear(tern_graph *g, tern_vid x, tern_vid w) {
    return tern_g_capped_linear(g, x, w, 0);
}

tern_vid tern_g_capped_linear(tern_graph *g, tern_vid x, tern_vid w, float cap) {
    return OP(g, LINEAR, TERN_IN(x, w), .soft_cap = cap);
}

tern_vid tern_g_bitlinear(tern_graph *g, tern_vid x, tern_vid w) {
    return tern_g_linear(g, tern_g_quantize(g, x), tern_g_ternarize(g, w));
}

tern_vid tern_g_rope(tern_graph *g, tern_vid x, tern_vid factors, int32_t n_heads, int32_t head_dim,
                     const tern_rope_attrs *attrs) {
    return tern_g_long_rope(g, x, factors, -1, n_heads, head_dim, attrs);
}

tern_vid tern_g_long_rope(tern_graph *g, tern_vid x, tern_vid factors, tern_vid long_factors,
                          int32_t n_heads, int32_t head_dim, const tern_rope_attrs *attrs) {
    return OP(g, ROPE, TERN_IN(x, factors, long_factors),
              .rope = {.n_heads = n_heads, .head_dim = head_dim, .angles = *attrs});
}

void tern_g_kv_store(tern_graph *g, tern_vid k, tern_vid v, tern_vid k_state, tern_vid v_state,
                     int32_t n_kv_heads, int32_t head_dim) {
    OP(g, KV_STORE, TERN_IN(k, v, k_state, v_state),
       .rope = {.n_kv_heads = n_kv_heads, .head_dim = head_dim});
}

tern_vid tern_g_attention(tern_graph *g, tern_vid q, tern_vid k_state, tern_vid v_state,
                          const tern_attention_attrs *attrs) {
    return OP(g, ATTENTION, TERN_IN(q, k_state, v_state), .attention = *attrs);
}

tern_vid tern_g_add(tern_graph *g, tern_vid a, tern_vid b) { return OP(g, ADD, TERN_IN(a, b)); }

tern_vid tern_g_mul(tern_graph *g, tern_vid a, tern_vid b) { return OP(g, MUL, TERN_IN(a, b)); }

tern_vid tern_g_act(tern_graph *g, tern_vid x, tern_act_kind act) {
    return OP(g, ACT, TERN_IN(x), .act = {.kind = act});
}

tern_vid tern_g_scale(tern_graph *g, tern_vid x, float factor) {
    return OP(g, SCALE, TERN_IN(x), .scale = factor);
}

tern_vid tern_g_hadamard(tern_graph *g, tern_vid x, tern_vid signs, const tern_rotation *r) {
    return OP(g, HADAMARD, TERN_IN(x, r->has_signs ? signs : -1), .rotation = *r);
}

tern_vid tern_g_bias(tern_graph *g, tern_vid x, tern_vid b) { return OP(g, BIAS, TERN_IN(x, b)); }

tern_vid tern_g_l2_norm(tern_graph *g, tern_vid x) { return OP(g, L2_NORM, TERN_IN(x)); }

tern_vid tern_g_columns(tern_graph *g, tern_vid x, int64_t group, int64_t first, int64_t width) {
    if (group <= 0) return -1;
    return OP(g, COLUMNS, TERN_IN(x), .columns = {(int32_t)group, (int32_t)first, (int32_t)width});
}

tern_vid tern_g_depthwise_conv(tern_graph *g, tern_vid x, tern_vid w, tern_vid bias, tern_vid state,
                               tern_act_kind act) {
    return OP(g, DEPTHWISE_CONV, TERN_IN(x, w, state, bias), .act = {.kind = act});
}

tern_vid tern_g_delta_net(tern_graph *g, tern_vid qkv, tern_vid a, tern_vid b, tern_vid a_log,
                          tern_vid dt_bias, tern_vid state, const tern_delta_attrs *attrs) {
    return OP(g, DELTA_NET, TERN_IN(qkv, a, b, a_log, dt_bias, state), .delta = *attrs);
}

tern_vid tern_g_ssm(tern_graph *g, tern_vid xbc, tern_vid dt, tern_vid a, tern_vid d,
                    tern_vid dt_bias, tern_vid state, const tern_ssm_attrs *attrs) {
    return OP(g, SSM, TERN_IN(xbc, dt, a, d, dt_bias, state), .ssm = *attrs);
}

tern_vid tern_g_scale_pieces(tern_graph *g, tern_vid x, const int64_t widths[TERN_PIECES_MAX],
                             const double factors[TERN_PIECES_MAX]) {
    tern_pieces_attrs pieces;
    for (int i = 0; i < TERN_PIECES_MAX; i++) {
        pieces.factors[i] = (float)factors[i];
        pieces.widths[i] = (int32_t)widths[i];
    }
    return OP(g, SCALE_PIECES, TERN_IN(x), .pieces = pieces);
}

tern_vid tern_g_group_norm(tern_graph *g, tern_vid x, int64_t group, float eps) {
    return OP(g, GROUP_NORM, TERN_IN(x), .norm = {.eps = eps, .group = (int32_t)group});
}

tern_vid tern_g_gain(tern_graph *g, tern_vid x, tern_vid gains, int32_t column) {
    return OP(g, GAIN, TERN_IN(x, gains), .first = column);
}

tern_vid tern_g_scale_by(tern_graph *g, tern_vid x, tern_vid s) {
    return OP(g, SCALE_BY, TERN_IN(x, s));
}

tern_vid tern_g_route(tern_graph *g, tern_vid scores, tern_vid bias,
                      const tern_route_attrs *attrs) {
    return OP(g, ROUTE, TERN_IN(scores, bias), .route = *attrs);
}

tern_vid tern_g_experts(tern_graph *g, tern_vid x, tern_vid route, tern_vid w) {
    if (route < 0 || w < 0 || g->values[w].parts < 1) return -1;
    return OP(g, EXPERTS, TERN_IN(x, route, w),
              .route = {.n_chosen = (int32_t)(g->values[route].cols / 2)});
}

tern_vid tern_g_mix(tern_graph *g, tern_vid x, tern_vid route) {
    if (route < 0 || g->values[route].cols < 2) return -1;
    return OP(g, MIX, TERN_IN(x, route),
              .route = {.n_chosen = (int32_t)(g->values[route].cols / 2)});
}

// Sets the result's rows to a dimension instead of its input's.
static tern_vid recounted(tern_graph *g, tern_vid y, tern_dim dim) {
    if (y < 0) return -1;
    tern_value *v = &g->values[y];
    v->dim = dim;
    v->times = v->per = 1;
    v->rows = 0;
    return y;
}

tern_vid tern_g_windows(tern_graph *g, tern_vid x, tern_dim dim, int64_t step, int64_t width,
                        bool by_column) {
    return tern_g_padded_windows(g, x, dim, step, width, 0, 0, by_column);
}

tern_vid tern_g_padded_windows(tern_graph *g, tern_vid x, tern_dim dim, int64_t step, int64_t width,
                               int64_t before, int64_t after, bool by_column) {
    if (step < 1 || step > INT32_MAX || width < 1 || width > INT32_MAX || before < 0 ||
        before > INT32_MAX || after < 0 || after > INT32_MAX)
        return -1;
    tern_vid y = OP(g, WINDOWS, TERN_IN(x),
                    .windows = {.step = (int32_t)step,
                                .width = (int32_t)width,
                                .before = (int32_t)before,
                                .after = (int32_t)after,
                                .by_column = by_column});
    return recounted(g, y, dim);
}

tern_vid tern_g_whole_norm(tern_graph *g, tern_vid x, tern_vid w, tern_vid b, float eps) {
    return OP(g, WHOLE_NORM, TERN_IN(x, w, b), .norm = {.eps = eps});
}

// Which rows are seen is a matter of the states.
static tern_attention_attrs heads_of(const tern_attention_attrs *a) {
    return (tern_attention_attrs){.n_heads = a->n_heads,
                                  .n_kv_heads = a->n_kv_heads,
                                  .head_dim = a->head_dim,
                                  .scale = a->scale};
}

void tern_g_source_store(tern_graph *g, tern_vid k, tern_vid v, tern_vid k_state, tern_vid v_state,
                         tern_vid n_state, const tern_attention_attrs *attrs) {
    OP(g, SOURCE_STORE, TERN_IN(k, v, k_state, v_state, n_state), .attention = heads_of(attrs));
}

tern_vid tern_g_cross_attention(tern_graph *g, tern_vid q, tern_vid k_state, tern_vid v_state,
                                tern_vid n_state, const tern_attention_attrs *attrs) {
    return OP(g, CROSS_ATTENTION, TERN_IN(q, k_state, v_state, n_state),
              .attention = heads_of(attrs));
}

tern_vid tern_g_take_rows(tern_graph *g, tern_vid x, tern_vid rows) {
    tern_vid y = OP(g, TAKE_ROWS, TERN_IN(x, rows));
    return y < 0 ? -1 : recounted(g, y, g->values[rows].dim);
}

tern_vid tern_g_replace(tern_graph *g, tern_vid x, tern_vid rows, tern_vid ids) {
    tern_vid y = OP(g, REPLACE, TERN_IN(x, rows, ids));
    if (y >= 0) g->values[rows].is_optional = true;
    return y;
}

tern_vid tern_g_add_given(tern_graph *g, tern_vid x, tern_vid rows, tern_vid ids, int64_t first) {
    return OP(g, ADD_INPUT_EMBEDS, TERN_IN(x, rows, ids), .first = (int32_t)first);
}

tern_vid tern_g_add_point(tern_graph *g, tern_vid x, tern_vid points, tern_vid table) {
    return OP(g, ADD_POINT, TERN_IN(x, points, table));
}

tern_vid tern_g_merge(tern_graph *g, tern_vid x, int32_t group) {
    if (group < 1) return -1;
    return recounted(g, OP(g, MERGE, TERN_IN(x), .group = group), tern_g_dim(g, "outputs"));
}

tern_vid tern_g_pool(tern_graph *g, tern_vid x, tern_dim sequences, tern_pool_kind kind) {
    return recounted(g, OP(g, POOL, TERN_IN(x), .pool = {kind}), sequences);
}

tern_vid tern_g_top_k(tern_graph *g, tern_vid x) { return OP(g, TOP_K, TERN_IN(x)); }

void tern_g_call(tern_graph *g, tern_vid v, const char *name) {
    if (v < 0) {
        g->failed = true;
        return;
    }
    tern_value *x = &g->values[v];
    fits(g, snprintf(x->name, sizeof x->name, "%s", name), x->name);
}

void tern_g_output(tern_graph *g, tern_vid v, const char *name) {
    tern_g_call(g, v, name);
    if (v >= 0) g->values[v].kind = TERN_VALUE_OUTPUT;
}

bool tern_graph_is_by(const tern_graph *g, tern_vid v, const char *dim) {
    tern_dim d = g->values[v].dim;
    return d != TERN_DIM_NONE && strcmp(g->dims[d], dim) == 0;
}

int64_t tern_graph_rows(const tern_graph *g, tern_vid v, const int64_t counts[TERN_DIMS_MAX]) {
    const tern_value *value = &g->values[v];
    if (value->dim == TERN_DIM_NONE) return value->rows;
    return counts[value->dim] * value->times / value->per + value->rows;
}

void tern_graph_count_windows(const tern_graph *g, tern_vid of, int64_t n,
                              int64_t counts[TERN_DIMS_MAX]) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *w = &g->nodes[i];
        if (w->op != TERN_OP_WINDOWS) continue;
        int64_t have = tern_graph_rows(g, w->in[0], counts) * g->values[w->in[0]].cols;
        if (w->in[0] == of && n < have) have = n;
        have += (int64_t)w->windows.before + w->windows.after;
        int64_t *count = &counts[g->values[w->out[0]].dim];
        if (*count == 0 && have >= w->windows.width)
            *count = (have - w->windows.width) / w->windows.step + 1;
    }
}

// ---- RoPE --------------------------------------------------------------------------------------

void tern_rope_llama3_factors(const tern_rope_attrs *a, float *factors) {
    for (int i = 0; i < a->n_rot / 2; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(a->base, 2.0 * i / a->n_rot);
        double turns = a->n_context_orig / wave; // over the context that it was trained for
        double keep = (turns - a->low_freq_factor) / (a->high_freq_factor - a->low_freq_factor);
        keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
        factors[i] = (float)(1 / ((1 - keep) / a->factor + keep));
    }
}

static bool are_close(const tern_rope_attrs *a, const float *factors) {
    float made[TERN_ROPE_PAIRS_MAX];
    tern_rope_llama3_factors(a, made);
    for (int i = 0; i < a->n_rot / 2; i++)
        if (!(fabsf(made[i] - factors[i]) <= 2e-6f * made[i])) return false;
    return true;
}

bool tern_rope_llama3_find(tern_rope_attrs *a, const float *factors) {
    tern_rope_attrs found = *a;
    if (a->n_rot / 2 > TERN_ROPE_PAIRS_MAX) return false;
    found.scaling = TERN_ROPE_LLAMA3;
    found.low_freq_factor = 1;
    found.high_freq_factor = 4;
    found.factor = 1;
    for (int i = 0; i < a->n_rot / 2; i++)
        if (factors[i] > found.factor) found.factor = factors[i];
    for (found.n_context_orig = 32; found.n_context_orig <= 1 << 20; found.n_context_orig *= 2)
        if (are_close(&found, factors)) {
            *a = found;
            return true;
        }
    return false;
}
