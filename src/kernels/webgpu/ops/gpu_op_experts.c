// Mixtures of experts: each row is multiplied with a few of many matrices.
#include "kernels/webgpu/ops/gpu_op.h"

tern_status gpu_op_ROUTE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    bool biased = n->n_in > 1;
    gpu_dispatch *d = add(p, biased ? GPU_ROUTE_BIASED : GPU_ROUTE, 1, rows_of(p, n->out[0]));
    set(d, "EXPERTS", (double)cols(p, n->in[0]));
    set(d, "CHOSEN", n->route.n_chosen);
    set(d, "SIGMOIDS", n->route.sigmoid);
    set(d, "NORMED", n->route.normed);
    set(d, "EPS", (double)n->route.eps);
    set(d, "FACTOR", (double)n->route.scale);
    set(d, "COLS", 1);
    bind_value(p, d, n->in[0]);
    if (biased) bind_part(d, &p->weights[n->in[1]]->parts[0]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}

tern_status gpu_op_EXPERTS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    const tern_weight *w = p->weights[n->in[2]];
    int64_t each = w->n_rows / p->g->values[n->in[2]].parts;
    uint32_t blocks = groups(each, 16);
    for (size_t i = 0; i < w->n_parts; i++) {
        uint32_t n_groups = (uint32_t)n->route.n_chosen * blocks;
        gpu_dispatch *d = add(p, GPU_EXPERTS, n_groups, rows_of(p, n->out[0]));
        set_form(w, d);
        set(d, "FIRST_ROW", (double)w->parts[i].first_row);
        set(d, "N_ROWS", (double)w->parts[i].n_rows);
        set(d, "EACH", (double)each);
        set(d, "BLOCKS", blocks);
        set(d, "CHOSEN", n->route.n_chosen);
        set(d, "SHARED", cols(p, n->in[0]) == w->n_cols);
        bind_part(d, &w->parts[i]);
        bind_value(p, d, n->in[0]);
        bind_value(p, d, n->in[1]);
        bind_value(p, d, n->out[0]);
        set_phase(p, d, n->out[0]);
    }
    return TERN_OK;
}

tern_status gpu_op_MIX(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, GPU_MIX, groups(n_cols, 64), rows_of(p, n->out[0]));
    set(d, "COLS", (double)n_cols);
    set(d, "CHOSEN", n->route.n_chosen);
    set(d, "EXPERTS", 1);
    set(d, "SIGMOIDS", 0);
    set(d, "NORMED", 0);
    set(d, "EPS", 0);
    set(d, "FACTOR", 1);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    bind_value(p, d, n->in[1]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}
