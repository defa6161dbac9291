// A graph compiled for the CPU: a list of steps that a team of threads walks through with a barrier
// after each.
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/rope.h"

// ---- Values ------------------------------------------------------------------------------------

// An output lies in the caller's memory. One that other nodes read has a place of its own for runs
// that do not bind it; the scores, which only top_k reads, have none: top_k ranks them row by row.
static bool is_read(const tern_graph *g, tern_vid v) {
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] == v && g->nodes[i].op != TERN_OP_TOP_K) return true;
    return false;
}

static uint64_t value_bytes(const void *ctx, const tern_graph *g, tern_vid v) {
    const tern_plan *p = ctx;
    const tern_value *value = &g->values[v];
    int64_t most[TERN_DIMS_MAX];
    if (value->kind == TERN_VALUE_OUTPUT && !is_read(g, v)) return 0;
    for (int i = 0; i < TERN_DIMS_MAX; i++) most[i] = p->n_batch;
    int64_t rows = tern_graph_rows(g, v, most);
    if (value->type == TERN_VALUE_I8ROWS)
        return cpu_i8_layout(p->device, value->cols, (int32_t)rows, NULL, NULL);
    if (value->type == TERN_VALUE_I8GROUPS)
        return cpu_groups_layout(p->device, value->cols, (int32_t)rows, NULL, NULL);
    return (uint64_t)(rows * value->cols) * sizeof(float);
}

// ---- Compiling ---------------------------------------------------------------------------------

static tern_status add_rope(tern_plan *p, const tern_node *n, int *index, tern_error *err) {
    tern_vid v = tern_node_optional(n, 0), more = tern_node_optional(n, 1);
    const float *factors = v >= 0 ? p->weights[v]->vector : NULL;
    const float *long_factors = more >= 0 ? p->weights[more]->vector : NULL;
    return tern_rope_list_find(&p->ropes, n, factors, long_factors, index, err);
}

static tern_status add_step(tern_plan *p, const tern_node *n, tern_error *err) {
    const tern_graph *g = p->g;
    const cpu_op *op = cpu_op_of(n->op);
    cpu_step *s = &p->steps[p->n_steps];
    if (!op)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "the CPU backend has no %s",
                         tern_op_name(n->op));
    *s =
        (cpu_step){.fn = op->step, .node = n, .index = (int)p->n_steps, .rope = -1, .only_for = -1};
    s->gain = tern_graph_gain_of(g, n);
    if (n->op == TERN_OP_ROPE || n->op == TERN_OP_ROPE_STORE)
        TERN_TRY(add_rope(p, n, &s->rope, err));
    s->for_top_k = n->op == TERN_OP_TOP_K || n->op == TERN_OP_LINEAR_TOP_K;
    tern_vid out = n->n_out > 0 ? n->out[0] : -1;
    if (out >= 0 && g->values[out].kind == TERN_VALUE_OUTPUT && !s->for_top_k && !is_read(g, out))
        s->only_for = out;
    if (tern_node_looks_ahead(n) || n->op == TERN_OP_POOL) p->whole = true;
    size_t scratch = op->scratch ? (op->scratch(p, n) + 63) / 64 * 64 : 0;
    if (scratch > p->scratch_bytes) p->scratch_bytes = scratch;
    p->n_steps++;
    return TERN_OK;
}

static tern_vid find_input(const tern_graph *g, const char *name) {
    tern_vid v = tern_graph_find(g, name);
    return v >= 0 && g->values[v].kind == TERN_VALUE_INPUT ? v : -1;
}

tern_status cpu_compile(tern_device *d, const tern_graph *g, tern_weight *const *weights,
                        int32_t n_batch, tern_plan **out, tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_plan *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->device = d;
    p->g = g;
    p->weights = weights;
    p->n_batch = n_batch;
    p->ids = find_input(g, "ids");
    p->outputs = find_input(g, "outputs");
    p->scores = tern_graph_scores(g);
    p->gains = find_input(g, TERN_LORA_GAINS);
    p->steps = tern_alloc_array(TERN_MEM_GRAPH, g->n_nodes + 1, sizeof *p->steps);
    if (!p->steps) {
        status = tern_fail_memory(err, g->n_nodes * sizeof *p->steps);
        goto fail;
    }
    for (size_t i = 0; i < g->n_nodes; i++) TERN_TRY_GOTO(add_step(p, &g->nodes[i], err));
    TERN_TRY_GOTO(tern_page_layout_of(g, &p->layout, err));
    TERN_TRY_GOTO(tern_graph_plan_memory(g, value_bytes, p, &p->memory, err));
    *out = p;
    return TERN_OK;
fail:
    cpu_plan_free(p);
    return status;
}

void cpu_plan_free(tern_plan *p) {
    if (!p) return;
    tern_rope_list_free(&p->ropes);
    tern_free(p->steps);
    tern_memory_plan_free(&p->memory);
    tern_free(p);
}
