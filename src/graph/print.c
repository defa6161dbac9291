// A graph as text, JSON or Graphviz.
#include <inttypes.h>
#include "graph/build.h"

void tern_graph_print_rows(const tern_graph *g, tern_vid vid, tern_strbuf *out) {
    const tern_value *v = &g->values[vid];
    if (v->dim == TERN_DIM_NONE) {
        tern_strbuf_printf(out, "%" PRId64, v->rows);
        return;
    }
    tern_strbuf_puts(out, g->dims[v->dim]);
    if (v->times != 1) tern_strbuf_printf(out, " * %d", (int)v->times);
    if (v->per != 1) tern_strbuf_printf(out, " / %d", (int)v->per);
    if (v->rows != 0) tern_strbuf_printf(out, " + %" PRId64, v->rows);
}

void tern_graph_print_shape(const tern_graph *g, tern_vid vid, tern_strbuf *out) {
    const tern_value *v = &g->values[vid];
    static const char *const type_names[] = {"f32", "i32", "i8rows", "i8groups"};
    if (v->dim != TERN_DIM_NONE) {
        tern_strbuf_printf(out, "%s[", type_names[v->type]);
        tern_graph_print_rows(g, vid, out);
        tern_strbuf_printf(out, ", %" PRId64 "]", v->cols);
    } else if (v->kind == TERN_VALUE_STATE && v->state == TERN_STATE_POSITIONAL)
        tern_strbuf_printf(out, "state[positions, %" PRId64 "]", v->cols);
    else if (v->rows == 1)
        tern_strbuf_printf(out, "[%" PRId64 "]", v->cols);
    else
        tern_strbuf_printf(out, "[%" PRId64 ", %" PRId64 "]", v->rows, v->cols);
}

const char *tern_act_name(tern_act_kind act) {
    static const char *const names[] = {
#define ROW(name, text) text,
        TERN_ACTS(ROW)
#undef ROW
    };
    return names[act];
}

const char *tern_pool_name(tern_pool_kind kind) {
    static const char *const names[] = {"mean", "last", "first"};
    return names[kind];
}

static void print_text(const tern_graph *g, const char *name, const char *pass,
                       const tern_memory_plan *plan, tern_strbuf *out) {
    tern_strbuf_printf(out, "%s, %s: %zu nodes\n", name, pass, g->n_nodes);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        tern_strbuf_printf(out, "%4zu  %-18s", i, tern_op_name(n->op));
        for (int k = 0; k < n->n_out; k++)
            tern_strbuf_printf(out, "%s%s", k ? ", " : "", g->values[n->out[k]].name);
        tern_strbuf_puts(out, n->n_out ? " = (" : "(");
        for (int k = 0; k < n->n_in; k++)
            tern_strbuf_printf(out, "%s%s", k ? ", " : "", g->values[n->in[k]].name);
        tern_strbuf_putc(out, ')');
        tern_g_print_attrs(n, out);
        for (int k = 0; k < n->n_out; k++) {
            tern_strbuf_puts(out, k ? ", " : " : ");
            tern_graph_print_shape(g, n->out[k], out);
            if (plan && plan->spans[n->out[k]].bytes)
                tern_strbuf_printf(out, " @%" PRIu64 "+%" PRIu64, plan->spans[n->out[k]].offset,
                                   plan->spans[n->out[k]].bytes);
        }
        tern_strbuf_putc(out, '\n');
    }
    if (plan)
        tern_strbuf_printf(out, "buffers: one pool of %.2f MB (%.2f MB without sharing)\n",
                           (double)plan->bytes / 1e6, (double)plan->bytes_sum / 1e6);
}

static void print_names(const tern_graph *g, const tern_vid *ids, int n, tern_strbuf *out) {
    tern_strbuf_putc(out, '[');
    for (int k = 0; k < n; k++) {
        const char *name = g->values[ids[k]].name;
        if (k) tern_strbuf_puts(out, ", ");
        tern_strbuf_json(out, name, __builtin_strlen(name));
    }
    tern_strbuf_putc(out, ']');
}

static void print_json(const tern_graph *g, const char *name, const char *pass,
                       const tern_memory_plan *plan, tern_strbuf *out) {
    tern_strbuf_printf(out, "{\"graph\": \"%s\", \"pass\": \"%s\", \"nodes\": [", name, pass);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        tern_strbuf_printf(out, "%s\n {\"op\": \"%s\", \"layer\": %d, \"in\": ", i ? "," : "",
                           tern_op_name(n->op), (int)n->layer);
        print_names(g, n->in, n->n_in, out);
        tern_strbuf_puts(out, ", \"out\": ");
        print_names(g, n->out, n->n_out, out);
        if (plan && n->n_out)
            tern_strbuf_printf(out, ", \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64,
                               plan->spans[n->out[0]].offset, plan->spans[n->out[0]].bytes);
        tern_strbuf_putc(out, '}');
    }
    tern_strbuf_puts(out, "\n]");
    if (plan) tern_strbuf_printf(out, ", \"pool_bytes\": %" PRIu64, plan->bytes);
    tern_strbuf_puts(out, "}");
}

static void print_dot(const tern_graph *g, const char *name, const char *pass, tern_strbuf *out) {
    tern_strbuf_printf(out, "digraph \"%s, %s\" {\n  rankdir=TB; node [shape=box];\n", name, pass);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        tern_strbuf_printf(out, "  n%zu [label=\"%s", i, tern_op_name(n->op));
        for (int k = 0; k < n->n_in; k++)
            if (g->values[n->in[k]].kind == TERN_VALUE_WEIGHT)
                tern_strbuf_printf(out, "\\n%s", g->values[n->in[k]].name);
        tern_strbuf_puts(out, "\"];\n");
        for (int k = 0; k < n->n_in; k++)
            if (g->values[n->in[k]].producer >= 0)
                tern_strbuf_printf(out, "  n%d -> n%zu;\n", (int)g->values[n->in[k]].producer, i);
    }
    tern_strbuf_puts(out, "}\n");
}

void tern_graph_print(const tern_graph *g, const char *name, const char *pass,
                      const tern_memory_plan *plan, tern_format format, tern_strbuf *out) {
    if (format == TERN_FORMAT_JSON)
        print_json(g, name, pass, plan, out);
    else if (format == TERN_FORMAT_DOT)
        print_dot(g, name, pass, out);
    else
        print_text(g, name, pass, plan, out);
}
