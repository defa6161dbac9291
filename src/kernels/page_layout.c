// In which group of pages each state of a graph lies.
#include "kernels/sequence.h"

int tern_page_group_of(const tern_page_layout *l, const tern_value *state) {
    if (state->state == TERN_STATE_FIXED) return l->fixed;
    for (int i = 0; i < l->n_groups; i++)
        if (l->groups[i].kind == TERN_STATE_POSITIONAL && l->groups[i].window == state->window)
            return i;
    return -1;
}

bool tern_is_paged(const tern_value *v) {
    return v->kind == TERN_VALUE_STATE && v->state != TERN_STATE_ARRAY;
}

tern_status tern_page_layout_of(const tern_graph *g, tern_page_layout *out, tern_error *err) {
    *out = (tern_page_layout){.fixed = -1};
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *value = &g->values[v];
        if (!tern_is_paged(value)) continue;
        if (tern_page_group_of(out, value) >= 0) continue;
        if (out->n_groups == TERN_PAGE_GROUPS)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "graph: more than %d kinds of windows",
                             TERN_PAGE_GROUPS - 1);
        if (value->state == TERN_STATE_FIXED) out->fixed = out->n_groups;
        out->groups[out->n_groups++] = (tern_page_group){value->state, value->window};
    }
    return TERN_OK;
}
