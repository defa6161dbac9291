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

// A node with one output of a's rows and, unless cols is given, columns. b: -1 for none.
static tern_vid op_node(tern_graph *g, tern_op op, tern_vid a, tern_vid b, tern_value_type type,
                        int64_t cols) {
    if (a < 0) return -1;
    tern_node *n = tern_g_node(g, op);
    tern_g_in(g, n, a);
    if (b != -1) tern_g_in(g, n, b);
    return tern_g_out(g, n, a, type, cols ? cols : g->values[a].cols);
}

static tern_node *last_node(tern_graph *g) { return &g->nodes[g->n_nodes - 1]; }

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
    if (table < 0) return -1;
    return op_node(g, TERN_OP_EMBED, ids, table, TERN_VALUE_F32, g->values[table].cols);
}

tern_vid tern_g_rms_norm(tern_graph *g, tern_vid x, tern_vid w, float eps) {
    tern_vid y = op_node(g, TERN_OP_RMS_NORM, x, w < 0 ? -2 : w, TERN_VALUE_F32, 0);
    if (y >= 0) last_node(g)->eps = eps;
    return y;
}

tern_vid tern_g_layer_norm(tern_graph *g, tern_vid x, tern_vid w, tern_vid b, float eps) {
    tern_vid y = op_node(g, TERN_OP_LAYER_NORM, x, w, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    last_node(g)->eps = eps;
    if (b >= 0) tern_g_in(g, last_node(g), b);
    return y;
}

tern_vid tern_g_positions(tern_graph *g, tern_vid ids, tern_vid table, int32_t first) {
    if (table < 0) return -1;
    tern_vid y = op_node(g, TERN_OP_POSITIONS, ids, table, TERN_VALUE_F32, g->values[table].cols);
    if (y >= 0) last_node(g)->first = first;
    return y;
}

tern_vid tern_g_segments(tern_graph *g, tern_vid ids, tern_vid table, int32_t end) {
    if (table < 0) return -1;
    tern_vid y = op_node(g, TERN_OP_SEGMENTS, ids, table, TERN_VALUE_F32, g->values[table].cols);
    if (y >= 0) last_node(g)->first = end;
    return y;
}

tern_vid tern_g_quantize(tern_graph *g, tern_vid x) {
    return op_node(g, TERN_OP_QUANTIZE, x, -1, TERN_VALUE_I8ROWS, 0);
}

tern_vid tern_g_ternarize(tern_graph *g, tern_vid w) {
    return op_node(g, TERN_OP_TERNARIZE, w, -1, TERN_VALUE_F32, 0);
}

tern_vid tern_g_linear(tern_graph *g, tern_vid x, tern_vid w) {
    if (w < 0) return -1;
    return op_node(g, TERN_OP_LINEAR, x, w, TERN_VALUE_F32, g->values[w].rows);
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
    tern_vid y = op_node(g, TERN_OP_ROPE, x, factors, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    tern_node *n = last_node(g);
    if (long_factors >= 0) tern_g_in(g, n, long_factors);
    n->n_heads = n_heads;
    n->head_dim = head_dim;
    n->rope = *attrs;
    return y;
}

void tern_g_kv_store(tern_graph *g, tern_vid k, tern_vid v, tern_vid k_state, tern_vid v_state,
                     int32_t n_kv_heads, int32_t head_dim) {
    tern_node *n = tern_g_node(g, TERN_OP_KV_STORE);
    tern_g_in(g, n, k);
    tern_g_in(g, n, v);
    tern_g_in(g, n, k_state);
    tern_g_in(g, n, v_state);
    if (!n) return;
    n->n_kv_heads = n_kv_heads;
    n->head_dim = head_dim;
}

tern_vid tern_g_attention(tern_graph *g, tern_vid q, tern_vid k_state, tern_vid v_state,
                          const tern_attention_attrs *attrs) {
    tern_vid y = op_node(g, TERN_OP_ATTENTION, q, k_state < 0 ? -2 : k_state, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    tern_node *n = last_node(g);
    tern_g_in(g, n, v_state);
    n->n_heads = attrs->n_heads;
    n->n_kv_heads = attrs->n_kv_heads;
    n->head_dim = attrs->head_dim;
    n->scale = attrs->scale;
    n->window = attrs->window;
    n->ahead = attrs->ahead;
    n->bidirectional = attrs->bidirectional;
    n->images = attrs->images;
    n->soft_cap = attrs->soft_cap;
    return y;
}

tern_vid tern_g_add(tern_graph *g, tern_vid a, tern_vid b) {
    return op_node(g, TERN_OP_ADD, a, b < 0 ? -2 : b, TERN_VALUE_F32, 0);
}

tern_vid tern_g_mul(tern_graph *g, tern_vid a, tern_vid b) {
    return op_node(g, TERN_OP_MUL, a, b < 0 ? -2 : b, TERN_VALUE_F32, 0);
}

tern_vid tern_g_act(tern_graph *g, tern_vid x, tern_act_kind act) {
    tern_vid y = op_node(g, TERN_OP_ACT, x, -1, TERN_VALUE_F32, 0);
    if (y >= 0) last_node(g)->act = act;
    return y;
}

tern_vid tern_g_scale(tern_graph *g, tern_vid x, float factor) {
    tern_vid y = op_node(g, TERN_OP_SCALE, x, -1, TERN_VALUE_F32, 0);
    if (y >= 0) last_node(g)->scale = factor;
    return y;
}

tern_vid tern_g_hadamard(tern_graph *g, tern_vid x, tern_vid signs, const tern_rotation *r) {
    tern_vid y = op_node(g, TERN_OP_HADAMARD, x, r->has_signs ? signs : -1, TERN_VALUE_F32, 0);
    if (y >= 0) last_node(g)->rotation = *r;
    return y;
}

tern_vid tern_g_bias(tern_graph *g, tern_vid x, tern_vid b) {
    return op_node(g, TERN_OP_BIAS, x, b < 0 ? -2 : b, TERN_VALUE_F32, 0);
}

tern_vid tern_g_l2_norm(tern_graph *g, tern_vid x) {
    return op_node(g, TERN_OP_L2_NORM, x, -1, TERN_VALUE_F32, 0);
}

tern_vid tern_g_columns(tern_graph *g, tern_vid x, int64_t group, int64_t first, int64_t width) {
    if (x < 0 || group <= 0) return -1;
    tern_vid y =
        op_node(g, TERN_OP_COLUMNS, x, -1, TERN_VALUE_F32, g->values[x].cols / group * width);
    if (y < 0) return -1;
    tern_node *n = last_node(g);
    n->group = (int32_t)group;
    n->first = (int32_t)first;
    n->width = (int32_t)width;
    return y;
}

tern_vid tern_g_depthwise_conv(tern_graph *g, tern_vid x, tern_vid w, tern_vid bias, tern_vid state,
                               tern_act_kind act) {
    tern_vid y = op_node(g, TERN_OP_DEPTHWISE_CONV, x, w < 0 ? -2 : w, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    tern_node *n = last_node(g);
    tern_g_in(g, n, state);
    if (bias >= 0) tern_g_in(g, n, bias);
    n->act = act;
    return y;
}

tern_vid tern_g_delta_net(tern_graph *g, tern_vid qkv, tern_vid a, tern_vid b, tern_vid a_log,
                          tern_vid dt_bias, tern_vid state, const tern_delta_attrs *attrs) {
    tern_vid y = op_node(g, TERN_OP_DELTA_NET, qkv, a < 0 ? -2 : a, TERN_VALUE_F32,
                         (int64_t)attrs->n_v_heads * attrs->v_dim);
    if (y < 0) return -1;
    tern_node *n = last_node(g);
    tern_g_in(g, n, b);
    tern_g_in(g, n, a_log);
    tern_g_in(g, n, dt_bias);
    tern_g_in(g, n, state);
    n->n_heads = attrs->n_v_heads;
    n->n_kv_heads = attrs->n_k_heads;
    n->head_dim = attrs->head_dim;
    n->v_dim = attrs->v_dim;
    n->tiled = attrs->tiled;
    n->eps = attrs->eps;
    return y;
}

tern_vid tern_g_ssm(tern_graph *g, tern_vid xbc, tern_vid dt, tern_vid a, tern_vid d,
                    tern_vid dt_bias, tern_vid state, const tern_ssm_attrs *attrs) {
    tern_vid y = op_node(g, TERN_OP_SSM, xbc, dt < 0 ? -2 : dt, TERN_VALUE_F32,
                         (int64_t)attrs->n_heads * attrs->head_dim);
    if (y < 0) return -1;
    tern_node *n = last_node(g);
    tern_g_in(g, n, a);
    tern_g_in(g, n, d);
    tern_g_in(g, n, dt_bias);
    tern_g_in(g, n, state);
    n->n_heads = attrs->n_heads;
    n->n_kv_heads = attrs->n_groups;
    n->head_dim = attrs->n_state;
    n->v_dim = attrs->head_dim;
    return y;
}

tern_vid tern_g_scale_pieces(tern_graph *g, tern_vid x, const int64_t widths[TERN_PIECES_MAX],
                             const double factors[TERN_PIECES_MAX]) {
    tern_vid y = op_node(g, TERN_OP_SCALE_PIECES, x, -1, TERN_VALUE_F32, 0);
    for (int i = 0; y >= 0 && i < TERN_PIECES_MAX; i++) {
        last_node(g)->factors[i] = (float)factors[i];
        last_node(g)->widths[i] = (int32_t)widths[i];
    }
    return y;
}

tern_vid tern_g_group_norm(tern_graph *g, tern_vid x, int64_t group, float eps) {
    tern_vid y = op_node(g, TERN_OP_GROUP_NORM, x, -1, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    last_node(g)->group = (int32_t)group;
    last_node(g)->eps = eps;
    return y;
}

tern_vid tern_g_scale_by(tern_graph *g, tern_vid x, tern_vid s) {
    return op_node(g, TERN_OP_SCALE_BY, x, s < 0 ? -2 : s, TERN_VALUE_F32, 0);
}

tern_vid tern_g_capped_linear(tern_graph *g, tern_vid x, tern_vid w, float cap) {
    tern_vid y = tern_g_linear(g, x, w);
    if (y >= 0) last_node(g)->soft_cap = cap;
    return y;
}

tern_vid tern_g_route(tern_graph *g, tern_vid scores, tern_vid bias,
                      const tern_route_attrs *attrs) {
    tern_vid y = op_node(g, TERN_OP_ROUTE, scores, bias, TERN_VALUE_F32, 2 * attrs->n_chosen);
    if (y < 0) return -1;
    tern_node *n = last_node(g);
    n->n_chosen = attrs->n_chosen;
    n->sigmoid = attrs->sigmoid;
    n->normed = attrs->normed;
    n->eps = attrs->eps;
    n->scale = attrs->scale;
    return y;
}

tern_vid tern_g_experts(tern_graph *g, tern_vid x, tern_vid route, tern_vid w) {
    if (route < 0 || w < 0 || g->values[w].parts < 1) return -1;
    int32_t n_chosen = (int32_t)(g->values[route].cols / 2);
    int64_t each = g->values[w].rows / g->values[w].parts;
    tern_vid y = op_node(g, TERN_OP_EXPERTS, x, route, TERN_VALUE_F32, n_chosen * each);
    if (y < 0) return -1;
    tern_g_in(g, last_node(g), w);
    last_node(g)->n_chosen = n_chosen;
    return y;
}

tern_vid tern_g_mix(tern_graph *g, tern_vid x, tern_vid route) {
    if (x < 0 || route < 0 || g->values[route].cols < 2) return -1;
    int32_t n_chosen = (int32_t)(g->values[route].cols / 2);
    tern_vid y = op_node(g, TERN_OP_MIX, x, route, TERN_VALUE_F32, g->values[x].cols / n_chosen);
    if (y >= 0) last_node(g)->n_chosen = n_chosen;
    return y;
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
    if (step < 1 || step > INT32_MAX || width < 1 || width > INT32_MAX) return -1;
    tern_vid y = recounted(g, op_node(g, TERN_OP_WINDOWS, x, -1, TERN_VALUE_F32, width), dim);
    if (y < 0) return -1;
    last_node(g)->first = (int32_t)step;
    last_node(g)->width = (int32_t)width;
    last_node(g)->tiled = by_column;
    return y;
}

tern_vid tern_g_padded_windows(tern_graph *g, tern_vid x, tern_dim dim, int64_t step, int64_t width,
                               int64_t before, int64_t after, bool by_column) {
    if (before < 0 || before > INT32_MAX || after < 0 || after > INT32_MAX) return -1;
    tern_vid y = tern_g_windows(g, x, dim, step, width, by_column);
    if (y < 0) return -1;
    last_node(g)->before = (int32_t)before;
    last_node(g)->after = (int32_t)after;
    return y;
}

tern_vid tern_g_whole_norm(tern_graph *g, tern_vid x, tern_vid w, tern_vid b, float eps) {
    tern_vid y = op_node(g, TERN_OP_WHOLE_NORM, x, w < 0 ? -2 : w, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    tern_g_in(g, last_node(g), b);
    last_node(g)->eps = eps;
    return y;
}

static void set_heads(tern_node *n, const tern_attention_attrs *attrs) {
    n->n_heads = attrs->n_heads;
    n->n_kv_heads = attrs->n_kv_heads;
    n->head_dim = attrs->head_dim;
    n->scale = attrs->scale;
}

void tern_g_source_store(tern_graph *g, tern_vid k, tern_vid v, tern_vid k_state, tern_vid v_state,
                         tern_vid n_state, const tern_attention_attrs *attrs) {
    const tern_vid in[] = {k, v, k_state, v_state, n_state};
    tern_node *n = tern_g_node(g, TERN_OP_SOURCE_STORE);
    for (int i = 0; i < 5; i++) tern_g_in(g, n, in[i]);
    if (n) set_heads(n, attrs);
}

tern_vid tern_g_cross_attention(tern_graph *g, tern_vid q, tern_vid k_state, tern_vid v_state,
                                tern_vid n_state, const tern_attention_attrs *attrs) {
    tern_vid y =
        op_node(g, TERN_OP_CROSS_ATTENTION, q, k_state < 0 ? -2 : k_state, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    tern_g_in(g, last_node(g), v_state);
    tern_g_in(g, last_node(g), n_state);
    set_heads(last_node(g), attrs);
    return y;
}

tern_vid tern_g_take_rows(tern_graph *g, tern_vid x, tern_vid rows) {
    if (rows < 0) return -1;
    return recounted(g, op_node(g, TERN_OP_TAKE_ROWS, x, rows, TERN_VALUE_F32, 0),
                     g->values[rows].dim);
}

tern_vid tern_g_replace(tern_graph *g, tern_vid x, tern_vid rows, tern_vid ids) {
    tern_vid y = op_node(g, TERN_OP_REPLACE, x, rows < 0 ? -2 : rows, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    tern_g_in(g, last_node(g), ids);
    g->values[rows].is_optional = true;
    return y;
}

tern_vid tern_g_add_given(tern_graph *g, tern_vid x, tern_vid rows, tern_vid ids, int64_t first) {
    tern_vid y = op_node(g, TERN_OP_ADD_INPUT_EMBEDS, x, rows < 0 ? -2 : rows, TERN_VALUE_F32, 0);
    if (y < 0) return -1;
    tern_g_in(g, last_node(g), ids);
    last_node(g)->first = (int32_t)first;
    return y;
}

tern_vid tern_g_add_point(tern_graph *g, tern_vid x, tern_vid points, tern_vid table) {
    tern_vid y = op_node(g, TERN_OP_ADD_POINT, x, points < 0 ? -2 : points, TERN_VALUE_F32, 0);
    if (y >= 0) tern_g_in(g, last_node(g), table);
    return y;
}

tern_vid tern_g_merge(tern_graph *g, tern_vid x, int32_t group) {
    if (x < 0 || group < 1) return -1;
    tern_vid y = op_node(g, TERN_OP_MERGE, x, -1, TERN_VALUE_F32, g->values[x].cols * group);
    if (y < 0) return -1;
    last_node(g)->group = group;
    return recounted(g, y, tern_g_dim(g, "outputs"));
}

tern_vid tern_g_pool(tern_graph *g, tern_vid x, tern_dim sequences, tern_pool_kind kind) {
    tern_vid y = recounted(g, op_node(g, TERN_OP_POOL, x, -1, TERN_VALUE_F32, 0), sequences);
    if (y >= 0) last_node(g)->pool = kind;
    return y;
}

tern_vid tern_g_top_k(tern_graph *g, tern_vid x) {
    return op_node(g, TERN_OP_TOP_K, x, -1, TERN_VALUE_F32, 0);
}

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
        have += (int64_t)w->before + w->after;
        int64_t *count = &counts[g->values[w->out[0]].dim];
        if (*count == 0 && have >= w->width) *count = (have - w->width) / w->first + 1;
    }
}

// ---- RoPE --------------------------------------------------------------------------------------

bool tern_rope_same(const tern_rope_attrs *a, const tern_rope_attrs *b) {
    return a->n_rot == b->n_rot && a->halves == b->halves && a->base == b->base &&
           a->scaling == b->scaling && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow &&
           a->attn_factor == b->attn_factor && a->n_context_orig == b->n_context_orig &&
           a->growth == b->growth && a->axes == b->axes &&
           memcmp(a->sections, b->sections, sizeof a->sections) == 0;
}

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
