// Ops that make rows from rows, each by itself: looked up, normed, quantized, picked.
#include "kernels/webgpu/ops/gpu_op.h"

// The host sends the rows in the order of the tokens (gpu_run.c).
static tern_status add_sent(tern_plan *p, const tern_node *n, tern_error *err) {
    tern_weight *w = p->weights[n->in[1]];
    if (p->n_host_tables == GPU_HOST_TABLES_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "more than %d tables that stay on the host",
                         GPU_HOST_TABLES_MAX);
    gpu_dispatch *d = add(p, GPU_EMBED, groups(w->n_cols / 4, 64), GPU_ROWS_TOKENS);
    set_form(w, d);
    set(d, "IN_ORDER", true);
    set(d, "FIRST_ROW", 0);
    set(d, "N_ROWS", p->n_batch);
    bind_place(d, GPU_SENT, p->n_host_tables);
    bind_place(d, GPU_IDS, -1);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    p->host_tables[p->n_host_tables++] = w;
    return TERN_OK;
}

// Which rows: KIND, FIRST and SEGMENTS of table_row.wgsl.
static void set_which(gpu_dispatch *d, const tern_node *n, const tern_weight *w) {
    if (n->op == TERN_OP_EMBED) return;
    set(d, "KIND", n->op == TERN_OP_POSITIONS ? 1 : 2);
    set(d, "FIRST", (uint32_t)n->first);
    set(d, "SEGMENTS", (double)w->n_rows);
}

static void add_table(tern_plan *p, const tern_node *n) {
    const tern_weight *w = p->weights[n->in[1]];
    bool is_wide = gpu_is_wide(w->codes);
    for (size_t i = 0; i < w->n_parts; i++) {
        gpu_dispatch *d = add(p, is_wide ? GPU_WIDE_EMBED : GPU_EMBED, groups(w->n_cols / 4, 64),
                              GPU_ROWS_TOKENS);
        if (is_wide)
            set(d, "COLS4", (double)(w->n_cols / 4));
        else
            set_form(w, d);
        if (!is_wide) set(d, "IN_TILES", w->form == GPU_FORM_TILES);
        set_codes(d, w);
        set_which(d, n, w);
        set(d, "FIRST_ROW", (double)w->parts[i].first_row);
        set(d, "N_ROWS", (double)w->parts[i].n_rows);
        bind_part(d, &w->parts[i]);
        bind_place(d, GPU_IDS, -1);
        bind_value(p, d, n->out[0]);
        set_phase(p, d, n->out[0]);
    }
}

// Groups of columns that are normed by themselves: as many columns as the norm's weight has, or as
// the node says.
static int64_t n_groups(const tern_plan *p, const tern_node *n) {
    if (n->op == TERN_OP_GROUP_NORM) return cols(p, n->in[0]) / n->norm.group;
    return n->op == TERN_OP_RMS_NORM ? cols(p, n->in[0]) / cols(p, n->in[1]) : 1;
}

// The node that takes the rows only for norm `n`: the norm then reads them in place.
static const tern_node *taker_of(const tern_plan *p, const tern_node *n) {
    const tern_node *taker = n - 1;
    bool takes = n > p->g->nodes && n->op == TERN_OP_RMS_NORM && n_groups(p, n) == 1 &&
                 taker->op == TERN_OP_TAKE_ROWS && taker->out[0] == n->in[0] &&
                 read_once(p->g, n->in[0]) && is_apart(p, taker->in[0], n->out[0]);
    return takes ? taker : NULL;
}

static bool is_taker(const tern_plan *p, const tern_node *n) {
    return n + 1 < p->g->nodes + p->g->n_nodes && taker_of(p, n + 1) == n;
}

static void bind_inputs(tern_plan *p, gpu_dispatch *d, const tern_node *n, const tern_node *taker) {
    for (int i = 0; i < n->n_in; i++) {
        if (p->g->values[n->in[i]].kind == TERN_VALUE_WEIGHT)
            bind_part(d, &p->weights[n->in[i]]->parts[0]);
        else
            bind_value(p, d, taker ? taker->in[0] : n->in[i]);
    }
}

// A weight for a binding that a kernel does not read.
static tern_vid any_weight(const tern_plan *p) {
    for (size_t v = 0; v < p->g->n_values; v++)
        if (p->g->values[v].kind == TERN_VALUE_WEIGHT && p->weights[v] &&
            p->weights[v]->n_parts > 0)
            return (tern_vid)v;
    return 0;
}

// x, the bias, the weight. The bindings must exist: a missing one is bound to another weight, and
// not read.
static void bind_layer_norm(tern_plan *p, gpu_dispatch *d, const tern_node *n) {
    bool has_weight = n->n_in > 1, has_bias = n->n_in > 2;
    tern_vid weight = has_weight ? n->in[1] : any_weight(p);
    set(d, "HAS_WEIGHT", has_weight);
    set(d, "HAS_BIAS", has_bias);
    bind_value(p, d, n->in[0]);
    bind_part(d, &p->weights[has_bias ? n->in[2] : weight]->parts[0]);
    bind_part(d, &p->weights[weight]->parts[0]);
}

static void set_norm(gpu_dispatch *d, const tern_node *n) {
    bool is_gated = tern_node_has(n, TERN_ATTRS_ACT), is_norm = tern_node_has(n, TERN_ATTRS_NORM);
    set(d, "EPS", is_gated ? (double)n->act.eps : is_norm ? (double)n->norm.eps : 0);
    set(d, "ACT", is_gated ? n->act.kind : 0);
}

// Row-wise kernels have a workgroup for each row. A single row is a matter of latency; with many
// rows, threads that each keep ROW_KEPT vec4s (KEPT of rows_base.wgsl) leave room for more rows at
// a time.
#define ROW_KEPT 4
static void add_rows(tern_plan *p, const tern_node *n, gpu_kernel kernel) {
    int64_t in_row = n_groups(p, n), n_cols = cols(p, n->in[0]) / in_row;
    bool by_token = rows_of(p, n->out[0]) == GPU_ROWS_TOKENS;
    const tern_node *taker = taker_of(p, n);
    for (int many = 0; many <= by_token; many++) {
        gpu_dispatch *d = add(p, kernel, (uint32_t)in_row, rows_of(p, n->out[0]));
        if (by_token) set_many(d, many);
        set(d, "THREADS", threads_for(p, n_cols / 4 / (many ? ROW_KEPT : 1)));
        set(d, "COLS4", (double)(n_cols / 4));
        set(d, "Q_WORDS", (double)(gpu_blocks(n_cols) * GPU_BLOCK_COLS / 4));
        set_norm(d, n);
        set(d, "TAKES", taker != NULL);
        if (in_row > 1) set(d, "GROUPS", (double)in_row);
        if (p->g->values[n->out[0]].type == TERN_VALUE_I8GROUPS) set(d, "GROUPED", 1);
        if (n->op == TERN_OP_LAYER_NORM)
            bind_layer_norm(p, d, n);
        else
            bind_inputs(p, d, n, taker);
        bind_value(p, d, n->out[0]);
        set_phase(p, d, n->out[0]);
    }
}

tern_status gpu_op_EMBED(tern_plan *p, const tern_node *n, tern_error *err) {
    if (p->weights[n->in[1]]->form == GPU_FORM_HOST) return add_sent(p, n, err);
    add_table(p, n);
    return TERN_OK;
}

tern_status gpu_op_POSITIONS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_table(p, n);
    return TERN_OK;
}

tern_status gpu_op_SEGMENTS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_table(p, n);
    return TERN_OK;
}

// Whether the norms that node i and the next one compute, of queries and of keys, can be one
// dispatch: a token waits once.
static bool is_pair(const tern_plan *p, ptrdiff_t i) {
    if (i < 0 || i + 1 >= (ptrdiff_t)p->g->n_nodes) return false;
    const tern_node *n = &p->g->nodes[i], *next = n + 1;
    return n->op == TERN_OP_RMS_NORM && next->op == TERN_OP_RMS_NORM &&
           n->norm.eps == next->norm.eps && cols(p, n->in[1]) == cols(p, next->in[1]) &&
           next->in[0] != n->out[0] && rows_of(p, n->out[0]) == GPU_ROWS_TOKENS &&
           rows_of(p, next->out[0]) == GPU_ROWS_TOKENS && is_apart(p, n->in[0], next->out[0]) &&
           !is_pair(p, i - 1);
}

static void add_pair(tern_plan *p, const tern_node *n) {
    const tern_node *next = n + 1;
    int64_t heads = n_groups(p, n), more = n_groups(p, next), n_cols = cols(p, n->in[1]);
    for (int many = 0; many <= 1; many++) {
        gpu_dispatch *d = add(p, GPU_NORM_PAIR, (uint32_t)(heads + more), GPU_ROWS_TOKENS);
        set_many(d, many);
        set(d, "THREADS", threads_for(p, n_cols / 4 / (many ? ROW_KEPT : 1)));
        set(d, "COLS4", (double)(n_cols / 4));
        set(d, "EPS", (double)n->norm.eps);
        set(d, "HEADS0", (double)heads);
        set(d, "HEADS1", (double)more);
        bind_value(p, d, n->in[0]);
        bind_value(p, d, next->in[0]);
        bind_part(d, &p->weights[n->in[1]]->parts[0]);
        bind_part(d, &p->weights[next->in[1]]->parts[0]);
        bind_value(p, d, n->out[0]);
        bind_value(p, d, next->out[0]);
    }
}

tern_status gpu_op_RMS_NORM(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    ptrdiff_t i = n - p->g->nodes;
    if (is_pair(p, i))
        add_pair(p, n);
    else if (!is_pair(p, i - 1))
        add_rows(p, n, GPU_RMS_NORM);
    return TERN_OK;
}

tern_status gpu_op_NORM_ADD(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_rows(p, n, GPU_NORM_ADD);
    return TERN_OK;
}

tern_status gpu_op_GROUP_NORM(tern_plan *p, const tern_node *n, tern_error *err) {
    if (n->norm.group % 4 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU's norms have groups of a multiple of 4 columns, not %d",
                         (int)n->norm.group);
    add_rows(p, n, GPU_GROUP_NORM);
    return TERN_OK;
}

tern_status gpu_op_LAYER_NORM(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_rows(p, n, GPU_LAYER_NORM);
    return TERN_OK;
}

tern_status gpu_op_HADAMARD(tern_plan *p, const tern_node *n, tern_error *err) {
    const tern_rotation *r = &n->rotation;
    int64_t n_blocks = cols(p, n->in[0]) / r->block;
    gpu_dispatch *d = add(p, GPU_HADAMARD, (uint32_t)n_blocks, rows_of(p, n->out[0]));
    TERN_TRY(gpu_set_transform(p->device, &d->what, r, n_blocks, err));
    bind_value(p, d, n->in[0]);
    // The binding must exist: without signs, a weight that is not read.
    bind_part(d, &p->weights[r->has_signs ? n->in[1] : any_weight(p)]->parts[0]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}

tern_status gpu_op_L2_NORM(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_rows(p, n, GPU_L2_NORM);
    return TERN_OK;
}

tern_status gpu_op_QUANTIZE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_rows(p, n, GPU_QUANTIZE);
    return TERN_OK;
}

tern_status gpu_op_NORM_QUANTIZE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_rows(p, n, GPU_NORM_QUANTIZE);
    return TERN_OK;
}

tern_status gpu_op_GLU_NORM_QUANTIZE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_rows(p, n, GPU_GLU_NORM_QUANTIZE);
    return TERN_OK;
}

static void add_take_rows(tern_plan *p, const tern_node *n) {
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, GPU_TAKE_ROWS, groups(n_cols / 4, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)(n_cols / 4));
    bind_value(p, d, n->in[0]); // which rows: the last of the batch
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
}

tern_status gpu_op_TAKE_ROWS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    if (!is_taker(p, n)) add_take_rows(p, n);
    return TERN_OK;
}

tern_status gpu_op_COLUMNS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, GPU_COLUMNS, groups(n_cols, 64), rows_of(p, n->out[0]));
    set(d, "COLS", (double)n_cols);
    set(d, "GROUP", n->columns.group);
    set(d, "FIRST", n->columns.first);
    set(d, "WIDTH", n->columns.width);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}

// Input embeddings in the place of other rows, or added to them.
static gpu_dispatch *add_input_embeds(tern_plan *p, const tern_node *n, gpu_kernel kernel) {
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, kernel, groups(n_cols / 4, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)(n_cols / 4));
    set(d, "WIDTH", (double)cols(p, n->in[1]));
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->in[1]);
    bind_place(d, GPU_IDS, -1);
    bind_value(p, d, n->out[0]);
    return d;
}

tern_status gpu_op_REPLACE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_input_embeds(p, n, GPU_REPLACE);
    return TERN_OK;
}

tern_status gpu_op_ADD_INPUT_EMBEDS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    set(add_input_embeds(p, n, GPU_ADD_INPUT_EMBEDS), "FIRST", n->first);
    return TERN_OK;
}

tern_status gpu_op_ADD_POINT(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    const tern_weight *table = p->weights[n->in[2]];
    int64_t n_cols = cols(p, n->out[0]), side = 1;
    while (side * side < p->g->values[n->in[2]].rows) side++;
    gpu_dispatch *d = add(p, GPU_ADD_POINT, groups(n_cols / 4, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)(n_cols / 4));
    set(d, "SIDE", (double)side);
    set(d, "WIDTH", (double)cols(p, n->in[1]));
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->in[1]);
    bind_value(p, d, n->out[0]);
    bind_part(d, &table->parts[0]);
    return TERN_OK;
}

// Rows lie one after the other: a copy whose rows are counted differently.
tern_status gpu_op_MERGE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, GPU_SCALE, groups(n_cols / 4, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)(n_cols / 4));
    set(d, "SCALE", 1);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    return TERN_OK;
}

// Happens when a weight is bound.
tern_status gpu_op_TERNARIZE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_ARGUMENT, "graph: a %s was not lowered", tern_op_name(n->op));
}
