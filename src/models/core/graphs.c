// The graphs of a model: which exist, and which values flow between them.
#include <string.h>
#include "models/models.h"

int tern_arch_graphs(const tern_arch *arch, const tern_config *c,
                     const tern_graph_row *out[TERN_GRAPHS_MAX]) {
    int n = 0;
    for (const tern_graph_row *row = arch->graphs; row->name && n < TERN_GRAPHS_MAX; row++)
        if (!row->is_there || row->is_there(c)) out[n++] = row;
    return n;
}

tern_status tern_arch_build_main(tern_graph *g, const tern_arch *arch, const tern_config *c,
                                 tern_error *err) {
    const tern_graph_row *rows[TERN_GRAPHS_MAX];
    if (tern_arch_graphs(arch, c, rows) == 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "config: a %s that pools is not supported",
                         arch->name);
    return rows[0]->build(g, c, err);
}

tern_status tern_arch_build(tern_graph *g, const tern_file *file, const tern_arch *arch,
                            const tern_config *c, tern_error *err) {
    TERN_TRY(tern_arch_check_layers(file, arch, c, err));
    TERN_TRY(tern_arch_build_main(g, arch, c, err));
    return tern_arch_rotate(g, file, arch, c, err);
}

// ---- What flows --------------------------------------------------------------------------------

int tern_arch_flow(const tern_graph *const *graphs, int graph, tern_vid v) {
    const tern_value *in = &graphs[graph]->values[v];
    for (int i = graph - 1; i >= 0 && in->kind == TERN_VALUE_INPUT; i--) {
        tern_vid from = tern_graph_find(graphs[i], in->name);
        if (from >= 0 && graphs[i]->values[from].producer >= 0) return i;
    }
    return -1;
}

static tern_status check_flows(const tern_graph *const *graphs, int graph, tern_error *err) {
    const tern_graph *g = graphs[graph];
    for (size_t v = 0; v < g->n_values; v++) {
        int from = tern_arch_flow(graphs, graph, (tern_vid)v);
        if (from < 0) continue;
        const tern_value *in = &g->values[v];
        const tern_value *made = &graphs[from]->values[tern_graph_find(graphs[from], in->name)];
        if (in->type != made->type || in->cols != made->cols)
            return tern_fail(
                err, TERN_ERR_FORMAT,
                "graph: %s has %lld columns where it is made, and %lld where it is an input",
                in->name, (long long)made->cols, (long long)in->cols);
    }
    return TERN_OK;
}

tern_status tern_arch_build_all(tern_graph *graphs, int *n, const tern_file *file,
                                const tern_arch *arch, const tern_config *c, tern_error *err) {
    const tern_graph_row *rows[TERN_GRAPHS_MAX];
    const tern_graph *built[TERN_GRAPHS_MAX];
    int n_rows = tern_arch_graphs(arch, c, rows);
    tern_graph_init(&graphs[0]);
    built[0] = &graphs[0];
    *n = 1;
    TERN_TRY(tern_arch_build(&graphs[0], file, arch, c, err));
    for (; *n < n_rows; ++*n) {
        tern_graph *g = &graphs[*n];
        tern_graph_init(g);
        built[*n] = g;
        tern_status status = rows[*n]->build(g, c, err);
        if (status == TERN_OK) status = check_flows(built, *n, err);
        if (status == TERN_OK) continue;
        tern_graph_free(g);
        return status;
    }
    return TERN_OK;
}

tern_status tern_arch_check(const tern_file *file, const tern_arch *arch, const tern_config *c,
                            tern_error *err) {
    tern_graph graphs[TERN_GRAPHS_MAX];
    const tern_graph *all[TERN_GRAPHS_MAX];
    int n;
    tern_status status = tern_arch_build_all(graphs, &n, file, arch, c, err);
    for (int i = 0; status == TERN_OK && i < n; i++) {
        const tern_graph *g = all[i] = &graphs[i];
        for (size_t v = 0; status == TERN_OK && v < g->n_values; v++) {
            tern_tensor t;
            if (g->values[v].kind == TERN_VALUE_WEIGHT && !tern_tensor_is_sign(g->values[v].name))
                status = tern_arch_weight(file, arch, &g->values[v], &t, err);
        }
    }
    if (status == TERN_OK) status = tern_arch_refuse_unread(file, arch, c, all, n, err);
    for (int i = 0; i < n; i++) tern_graph_free(&graphs[i]);
    return status;
}
