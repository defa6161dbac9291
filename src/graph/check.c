// The table of ops, and whether a graph is sound: order, numbers of inputs and outputs, shapes.
#include "graph/build.h"

#ifdef TERN_NO_TRAINING // browsers: these tables have no rows for its ops
#define TERN_OPS_OF_MODELS
#endif

typedef tern_status (*check_fn)(const tern_graph *g, const tern_node *n, tern_error *err);

// ---- What a row of ops.inc says ----------------------------------------------------------------

const tern_op_facts *tern_op_info(tern_op op) {
#define PAIR(least, most) least, most
#define TERN_OP_ROW(id, text, inputs, outputs, rule, attrs, place, stores, check, gradient)        \
    [TERN_OP_##id] = {text,  PAIR inputs, PAIR outputs, TERN_COLUMNS_##rule, TERN_ATTRS_##attrs,   \
                      place, stores},
    static const tern_op_facts facts[TERN_OP_COUNT] = {
#include "graph/ops.inc"
    };
#undef PAIR
    return (unsigned)op < TERN_OP_COUNT && facts[op].name ? &facts[op] : NULL;
}

const char *tern_op_name(tern_op op) {
    const tern_op_facts *f = tern_op_info(op);
    return f ? f->name : "?";
}

tern_vid tern_node_optional(const tern_node *n, int i) {
    int at = tern_op_info(n->op)->n_in_least + i;
    return at < n->n_in ? n->in[at] : -1;
}

bool tern_node_has(const tern_node *n, tern_attrs_kind kind) {
    const tern_op_facts *f = tern_op_info(n->op);
    return f && f->attrs == kind;
}

bool tern_node_looks_ahead(const tern_node *n) {
    return tern_node_has(n, TERN_ATTRS_ATTENTION) && n->attention.bidirectional;
}

const tern_vid *tern_node_stores(const tern_node *n) {
    int at = tern_op_info(n->op)->stores;
    return at >= 0 ? &n->in[at] : NULL;
}

int64_t tern_g_columns_of(const tern_graph *g, const tern_node *n) {
    const tern_value *x = &g->values[n->in[0]];
    switch ((tern_columns_rule)tern_op_info(n->op)->columns) {
    case TERN_COLUMNS_SAME: return x->cols;
    case TERN_COLUMNS_TABLE:
    case TERN_COLUMNS_BACK: return g->values[n->in[1]].cols;
    case TERN_COLUMNS_PRODUCT: return g->values[n->in[1]].rows;
    case TERN_COLUMNS_ONE: return 1;
    case TERN_COLUMNS_COLUMNS: {
        const tern_columns_attrs *c = &n->columns;
        return c->group > 0 ? x->cols / c->group * c->width : 0;
    }
    case TERN_COLUMNS_SPREAD: {
        const tern_columns_attrs *c = &n->columns;
        return c->width > 0 ? x->cols / c->width * c->group : 0;
    }
    case TERN_COLUMNS_DELTA: return (int64_t)n->delta.n_v_heads * n->delta.v_dim;
    case TERN_COLUMNS_SSM: return (int64_t)n->ssm.n_heads * n->ssm.head_dim;
    case TERN_COLUMNS_ROUTE: return 2 * (int64_t)n->route.n_chosen;
    case TERN_COLUMNS_EXPERTS: {
        const tern_value *w = &g->values[n->in[2]];
        return w->parts > 0 ? n->route.n_chosen * (w->rows / w->parts) : 0;
    }
    case TERN_COLUMNS_MERGE: return x->cols * n->group;
    case TERN_COLUMNS_MIX: return n->route.n_chosen > 0 ? x->cols / n->route.n_chosen : 0;
    case TERN_COLUMNS_CHOSEN: return n->route.n_chosen * g->values[n->in[2]].cols;
    case TERN_COLUMNS_WIDTH: return n->windows.width;
    case TERN_COLUMNS_DIGITS: return x->cols * n->digits.n;
    case TERN_COLUMNS_THIRD: return g->values[n->in[2]].cols;
    case TERN_COLUMNS_FREE: break;
    }
    return -1;
}

// ---- Checks that rows of ops.inc name ----------------------------------------------------------

static const tern_value *input(const tern_graph *g, const tern_node *n, int i) {
    return &g->values[n->in[i]];
}

// A row of numbers for each row of x.
static bool is_vector(const tern_value *v, int64_t cols) { return v->rows == 1 && v->cols == cols; }

static bool is_fixed_state(const tern_value *v) {
    return v->kind == TERN_VALUE_STATE && v->state == TERN_STATE_FIXED;
}

static tern_status check_linear(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0), *w = input(g, n, 1);
    if (x->cols == w->cols) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s has %lld columns but its input %s has %lld",
                     w->name, (long long)w->cols, x->name, (long long)x->cols);
}

static tern_status check_alike(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *a = input(g, n, 0), *b = input(g, n, 1);
    if (a->cols == b->cols && a->dim == b->dim) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s and %s differ in shape", a->name, b->name);
}

static tern_status check_bias(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0), *b = input(g, n, 1);
    if (is_vector(b, x->cols)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s is not a vector for rows of %s", b->name,
                     x->name);
}

static tern_status check_gain(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0), *gains = input(g, n, 1);
    if (x->dim == gains->dim && n->first >= 0 && n->first < gains->cols) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s has no gain %d of each row of %s",
                     gains->name, (int)n->first, x->name);
}

static tern_status check_factors(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *s = input(g, n, 1);
    return is_vector(s, 1) ? TERN_OK : check_bias(g, n, err);
}

// Norms: a weight for each column of a group; vectors, if any; groups of columns.
static tern_status check_norm(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0), *w = input(g, n, 1);
    if (w->cols > 0 && x->cols % w->cols == 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s does not divide the columns of %s", w->name,
                     x->name);
}

static tern_status check_vectors(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0);
    for (int i = 1; i < n->n_in; i++)
        if (!is_vector(input(g, n, i), x->cols))
            return tern_fail(err, TERN_ERR_FORMAT, "graph: %s does not fit the norm of %s",
                             input(g, n, i)->name, x->name);
    return TERN_OK;
}

static tern_status check_groups(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0);
    if (n->norm.group > 0 && x->cols % n->norm.group == 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: groups of %d of the columns of %s",
                     (int)n->norm.group, x->name);
}

static tern_status check_columns(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0);
    const tern_columns_attrs *c = &n->columns;
    if (c->group > 0 && x->cols % c->group == 0 && c->first >= 0 && c->width > 0 &&
        c->first + c->width <= c->group)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: columns %d to %d of %d of %s", (int)c->first,
                     (int)(c->first + c->width - 1), (int)c->group, x->name);
}

static tern_status check_pieces(const tern_graph *g, const tern_node *n, tern_error *err) {
    int64_t sum = 0;
    bool fits = true;
    for (int i = 0; i < TERN_PIECES_MAX; i++) {
        sum += n->pieces.widths[i];
        fits &= n->pieces.widths[i] >= 0;
    }
    if (fits && sum == input(g, n, 0)->cols) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: the pieces of %s have %lld columns",
                     input(g, n, 0)->name, (long long)sum);
}

static tern_status check_windows(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0);
    const tern_windows_attrs *w = &n->windows;
    bool rows = w->step % x->cols == 0 && w->width % x->cols == 0 && w->before % x->cols == 0;
    if (w->step > 0 && (!w->by_column || rows)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "graph: windows of %d numbers, %d from one to the next, of %s", (int)w->width,
                     (int)w->step, x->name);
}

static bool divides(int32_t part, int32_t whole) { return part > 0 && whole % part == 0; }

static tern_status check_heads(const tern_graph *g, const tern_node *n, tern_error *err) {
    (void)g;
    const tern_attention_attrs *a = &n->attention;
    if (divides(a->n_kv_heads, a->n_heads)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %d query heads over %d key heads",
                     (int)a->n_heads, (int)a->n_kv_heads);
}

// Recurrences: the rows of x, and the state of all heads.
static tern_status check_recurrence(const tern_graph *g, const tern_node *n, bool fits,
                                    tern_error *err) {
    if (fits) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s does not fit its heads",
                     input(g, n, 0)->name);
}

static tern_status check_delta(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *state = input(g, n, 5);
    const tern_delta_attrs *a = &n->delta;
    int64_t keys = (int64_t)a->n_k_heads * a->head_dim, values = (int64_t)a->n_v_heads * a->v_dim;
    bool fits = divides(a->n_k_heads, a->n_v_heads) && input(g, n, 0)->cols == 2 * keys + values &&
                state->rows == (int64_t)a->n_v_heads * a->head_dim && state->cols == a->v_dim;
    return check_recurrence(g, n, fits, err);
}

static tern_status check_ssm(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *state = input(g, n, 5);
    const tern_ssm_attrs *a = &n->ssm;
    int64_t x = (int64_t)a->n_heads * a->head_dim, b = (int64_t)a->n_groups * a->n_state;
    bool fits = divides(a->n_groups, a->n_heads) && input(g, n, 0)->cols == x + 2 * b &&
                state->rows == (int64_t)a->n_heads * a->n_state && state->cols == a->head_dim;
    return check_recurrence(g, n, fits, err);
}

static tern_status check_taps(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0), *w = input(g, n, 1), *state = input(g, n, 2);
    if (w->rows == x->cols && w->cols >= 2 && w->cols <= 8 && state->rows == w->cols - 1 &&
        state->cols == x->cols)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s does not fit %s", w->name, x->name);
}

// Cross-attention: keys and values in fixed states, and how many there are.
static tern_status check_source(const tern_graph *g, const tern_node *n, int64_t cols,
                                tern_error *err) {
    int first = n->n_in - 3;
    const tern_value *x = input(g, n, 0), *keys = input(g, n, first);
    const tern_value *values = input(g, n, first + 1);
    int64_t key = (int64_t)n->attention.n_kv_heads * n->attention.head_dim;
    bool fits = divides(n->attention.n_kv_heads, n->attention.n_heads) && keys->cols == key &&
                values->cols == key && values->rows == keys->rows && keys->rows > 0 &&
                keys->rows % 16 == 0 && is_vector(input(g, n, first + 2), 1) && x->cols == cols;
    for (int i = first; i < n->n_in; i++) fits &= is_fixed_state(input(g, n, i));
    if (fits) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s does not fit what it attends to", x->name);
}

static tern_status check_source_store(const tern_graph *g, const tern_node *n, tern_error *err) {
    return check_source(g, n, (int64_t)n->attention.n_kv_heads * n->attention.head_dim, err);
}

static tern_status check_cross(const tern_graph *g, const tern_node *n, tern_error *err) {
    return check_source(g, n, (int64_t)n->attention.n_heads * n->attention.head_dim, err);
}

// x, the rows added or put in its place, and the input that says where.
static tern_status check_third(const tern_graph *g, const tern_node *n, bool fits,
                               tern_error *err) {
    const tern_value *x = input(g, n, 0), *y = input(g, n, 1);
    if (fits && y->dim == x->dim) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s and %s do not fit %s", y->name,
                     input(g, n, 2)->name, x->name);
}

static tern_status check_embeds(const tern_graph *g, const tern_node *n, tern_error *err) {
    int64_t first = tern_node_has(n, TERN_ATTRS_FIRST) ? n->first : 0;
    bool fits = first >= 0 && input(g, n, 1)->cols >= first + input(g, n, 0)->cols &&
                input(g, n, 2)->type == TERN_VALUE_I32;
    return check_third(g, n, fits, err);
}

static tern_status check_point(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *points = input(g, n, 1), *table = input(g, n, 2);
    int64_t side = 1;
    while (side * side < table->rows) side++;
    bool fits = (points->cols == 2 || points->cols == 4) && table->cols == input(g, n, 0)->cols &&
                side * side == table->rows;
    return check_third(g, n, fits, err);
}

// Experts.
static tern_status check_chosen(const tern_graph *g, const tern_node *n, bool fits,
                                tern_error *err) {
    if (fits && n->route.n_chosen <= TERN_CHOSEN_MAX) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s does not fit %d chosen experts",
                     input(g, n, 0)->name, (int)n->route.n_chosen);
}

static tern_status check_route(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0);
    bool fits = n->route.n_chosen >= 1 && n->route.n_chosen <= x->cols &&
                (n->n_in < 2 || input(g, n, 1)->cols == x->cols);
    return check_chosen(g, n, fits, err);
}

static tern_status check_experts(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0), *w = input(g, n, 2);
    int64_t k = n->route.n_chosen;
    bool fits = k >= 1 && input(g, n, 1)->cols == 2 * k && w->parts > 0 &&
                w->rows % w->parts == 0 && (x->cols == w->cols || x->cols == k * w->cols);
    return check_chosen(g, n, fits, err);
}

static tern_status check_mix(const tern_graph *g, const tern_node *n, tern_error *err) {
    int64_t k = n->route.n_chosen;
    bool fits = k >= 1 && input(g, n, 1)->cols == 2 * k && input(g, n, 0)->cols % k == 0;
    return check_chosen(g, n, fits, err);
}

#ifndef TERN_NO_TRAINING
// Ids are kept as floats, which count exactly so far.
static bool is_top(const tern_value *v, int64_t n_cols, int32_t n_tail) {
    return v->kind == TERN_VALUE_STATE && v->cols % 2 == 1 && n_tail >= 0 && v->cols / 2 > n_tail &&
           v->cols / 2 <= n_cols && n_cols <= 1 << 24;
}

static tern_status check_keep_top(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *logits = input(g, n, 0), *top = input(g, n, 1);
    if (n->top.n_cols <= logits->cols && is_top(top, n->top.n_cols, n->top.n_tail)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s does not hold the best of %s", top->name,
                     logits->name);
}

// The logits of student and teacher are of the same rows.
static tern_status check_distill(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *logits = input(g, n, 0), *teacher = input(g, n, 2);
    const tern_distill_attrs *a = &n->distill;
    bool fits = logits->dim == teacher->dim ||
                (a->temperature == 1 && is_top(teacher, logits->cols, a->n_tail));
    if (fits && a->ratio >= 0 && a->ratio <= 1 && a->temperature > 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s cannot be distilled from %s", logits->name,
                     teacher->name);
}

static tern_status check_row_factors(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *m = input(g, n, 0), *w = input(g, n, 1), *a = input(g, n, 2),
                     *b = input(g, n, 3), *s = input(g, n, 4);
    if (is_vector(m, w->rows) && b->rows == w->rows && a->cols == w->cols && b->cols == a->rows &&
        s->rows == a->rows && s->cols == a->rows)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: %s and its adapter differ in shape", w->name);
}
#endif

// Codecs.
static tern_status check_codec(const tern_graph *g, const tern_node *n, bool fits,
                               tern_error *err) {
    if (fits) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: the inputs of %s do not fit %s",
                     g->values[n->out[0]].name, input(g, n, 0)->name);
}

static tern_status check_digits(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_value *x = input(g, n, 0);
    return check_codec(g, n, x->type == TERN_VALUE_I32 && x->cols > 0, err);
}

static tern_status check_snake(const tern_graph *g, const tern_node *n, tern_error *err) {
    return check_codec(g, n, is_vector(input(g, n, 1), input(g, n, 0)->cols / 2), err);
}

static bool fits_causal(const tern_graph *g, const tern_node *n, int64_t state_rows) {
    const tern_causal_attrs *a = &n->causal;
    const tern_value *state = input(g, n, 3);
    return input(g, n, 0)->cols == a->n_in && is_vector(input(g, n, 2), a->n_out) &&
           is_fixed_state(state) && state->cols == a->n_in && state->rows == state_rows;
}

static tern_status check_conv1d(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_causal_attrs *a = &n->causal;
    const tern_value *w = input(g, n, 1);
    bool fits = a->taps >= 2 && a->dilation >= 1 && w->cols == a->taps &&
                w->rows == (int64_t)a->n_in * a->n_out &&
                fits_causal(g, n, (int64_t)(a->taps - 1) * a->dilation);
    return check_codec(g, n, fits, err);
}

static tern_status check_upsample(const tern_graph *g, const tern_node *n, tern_error *err) {
    const tern_causal_attrs *a = &n->causal;
    const tern_value *w = input(g, n, 1);
    bool fits = a->rate >= 1 && a->groups >= 1 && a->n_in % a->groups == 0 &&
                a->n_out % a->groups == 0 && w->cols == 2 * (int64_t)a->rate &&
                w->rows == (int64_t)a->n_in * (a->n_out / a->groups) && fits_causal(g, n, 1);
    return check_codec(g, n, fits, err);
}

#define check_none NULL

static check_fn check_of(tern_op op) {
#define TERN_OP_ROW(id, text, inputs, outputs, rule, attrs, place, stores, check, gradient)        \
    [TERN_OP_##id] = check_##check,
    static const check_fn checks[TERN_OP_COUNT] = {
#include "graph/ops.inc"
    };
    return checks[op];
}

// ---- A whole graph -----------------------------------------------------------------------------

static tern_status check_arity(const tern_node *n, size_t i, tern_error *err) {
    const tern_op_facts *f = tern_op_info(n->op);
    if (f && n->n_in >= f->n_in_least && n->n_in <= f->n_in_most && n->n_out >= f->n_out_least &&
        n->n_out <= f->n_out_most)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "graph: node %zu (%s) has %d inputs and %d outputs", i,
                     tern_op_name(n->op), n->n_in, n->n_out);
}

static tern_status check_order(const tern_graph *g, size_t i, tern_error *err) {
    const tern_node *n = &g->nodes[i];
    for (int k = 0; k < n->n_in; k++) {
        const tern_value *v = input(g, n, k);
        bool ready = v->producer >= 0 ? (size_t)v->producer < i
                                      : v->kind != TERN_VALUE_TEMP && v->kind != TERN_VALUE_OUTPUT;
        if (!ready)
            return tern_fail(err, TERN_ERR_FORMAT, "graph: node %zu (%s) reads %s too early", i,
                             tern_op_name(n->op), v->name);
    }
    return TERN_OK;
}

static tern_status check_shapes(const tern_graph *g, const tern_node *n, tern_error *err) {
    int64_t columns = tern_g_columns_of(g, n);
    check_fn check = check_of(n->op);
    if (n->n_out > 0 && columns >= 0 && g->values[n->out[0]].cols != columns)
        return tern_fail(err, TERN_ERR_FORMAT, "graph: %s has %lld columns, not %lld",
                         g->values[n->out[0]].name, (long long)g->values[n->out[0]].cols,
                         (long long)columns);
    return check ? check(g, n, err) : TERN_OK;
}

tern_status tern_graph_check(const tern_graph *g, tern_error *err) {
    if (g->cut[0])
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "graph: a name is longer than %d characters: %s...", TERN_NAME_BYTES - 1,
                         g->cut);
    if (g->failed) return tern_fail_memory(err, g->n_values * sizeof *g->values);
    for (size_t i = 0; i < g->n_nodes; i++) {
        TERN_TRY(check_arity(&g->nodes[i], i, err));
        TERN_TRY(check_order(g, i, err));
        TERN_TRY(check_shapes(g, &g->nodes[i], err));
    }
    return TERN_OK;
}
