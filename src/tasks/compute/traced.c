#include "tasks/compute/traced.h"

#include "base/alloc.h"

// Traces show temps.
tern_status tern_traced_choose(tern_traced *t, tern_model *m, const tern_model_graph *of,
                               const tern_vid *wanted, size_t n_wanted, tern_error *err) {
    tern_graph *g = &t->graph;
    t->model = m;
    t->of = of;
    TERN_TRY(tern_graph_copy(g, &of->lowered, err));
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == TERN_VALUE_OUTPUT) g->values[v].kind = TERN_VALUE_TEMP;
    for (size_t i = 0; i < n_wanted; i++) g->values[wanted[i]].kind = TERN_VALUE_OUTPUT;
    TERN_TRY(tern_pass_fuse(g, err));
    for (size_t i = 0; i < n_wanted; i++) g->values[wanted[i]].kind = TERN_VALUE_TEMP;
    return TERN_OK;
}

static tern_status open_there(tern_traced *t, int32_t n_rows, int32_t n_context,
                              tern_kv_type kv_type, tern_error *err) {
    const tern_backend *b = t->at->backend;
    tern_cache_desc cache = {.kv_type = kv_type, .n_context = n_context};
    TERN_TRY(tern_kv_choose(&t->graph, n_context, kv_type, &cache.kv_type, err));
    TERN_TRY(tern_placement_weights(t->at, t->of, t->graph.n_values, &t->weights, err));
    TERN_TRY(b->compile(t->at->device, &t->graph, t->weights, n_rows, &t->plan, err));
    return tern_single_open(&t->single, b, t->plan, &t->graph, &cache, err);
}

tern_status tern_traced_open(tern_traced *t, int32_t n_rows, int32_t n_context,
                             tern_kv_type kv_type, tern_error *err) {
    TERN_TRY(tern_placement_hold(t->model, &t->at, err));
    tern_placement_begin_use(t->at);
    tern_status status = open_there(t, n_rows, n_context, kv_type, err);
    tern_placement_end_use(t->at);
    return status;
}

tern_status tern_traced_run(tern_traced *t, tern_batch *batch, tern_tap_fn on_value, void *ctx,
                            tern_error *err) {
    tern_placement_begin_use(t->at);
    tern_status status = tern_single_trace(&t->single, batch, 0, on_value, ctx, err);
    tern_placement_end_use(t->at);
    return status;
}

void tern_traced_close(tern_traced *t) {
    if (t->at) {
        tern_placement_begin_use(t->at);
        if (t->single.backend) tern_single_close(&t->single);
        if (t->plan) t->at->backend->plan_free(t->plan);
        tern_placement_end_use(t->at);
        tern_placement_let_go(t->model, t->at);
    }
    tern_free(t->weights);
    tern_graph_free(&t->graph);
    *t = (tern_traced){0};
}
