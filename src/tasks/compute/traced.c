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

tern_status tern_traced_open(tern_traced *t, int32_t n_rows, int32_t n_context,
                             tern_kv_type kv_type, tern_error *err) {
    const tern_runner_desc desc = {.graph = (int)(t->of - t->model->graphs),
                                   .n_rows = n_rows,
                                   .n_context = n_context,
                                   .kv_type = kv_type,
                                   .instead = &t->graph};
    return tern_runner_open(&t->runner, t->model, &desc, err);
}

tern_status tern_traced_run(tern_traced *t, tern_batch *batch, tern_tap_fn on_value, void *ctx,
                            tern_error *err) {
    return tern_runner_trace(&t->runner, batch, 0, on_value, ctx, err);
}

void tern_traced_close(tern_traced *t) {
    tern_runner_close(&t->runner);
    tern_graph_free(&t->graph);
    *t = (tern_traced){0};
}
