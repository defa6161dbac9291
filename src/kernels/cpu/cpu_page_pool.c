// Pages of states in the host's memory. A page of a positional group holds 16 positions, a block of
// the attention kernel: of each state in turn the blocks of its heads. A page of the fixed group
// holds the fixed states in turn, as floats.
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/cpu.h"

struct tern_page_pool {
    int32_t n_context;
    tern_dtype kv_type;
    size_t *offsets; // [n_values] of a state in its page
    uint64_t page_bytes[TERN_PAGE_GROUPS];
};

// The node that stores into a positional state; it has the number of heads.
static const tern_node *store_node(const tern_graph *g, tern_vid state) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        const tern_vid *states = tern_node_stores(n);
        if (states && (states[0] == state || states[1] == state)) return n;
    }
    return NULL;
}

static uint64_t state_bytes(const tern_graph *g, tern_vid v, tern_dtype kv_type) {
    const tern_value *value = &g->values[v];
    if (value->state == TERN_STATE_FIXED)
        return (uint64_t)(value->rows * value->cols) * sizeof(float);
    const tern_node *n = store_node(g, v);
    return n ? (uint64_t)n->rope.n_kv_heads *
                   tern_kv_head_bytes(kv_type, (size_t)n->rope.head_dim, TERN_PAGE_POSITIONS)
             : 0;
}

tern_status cpu_page_pool_open(tern_plan *p, const tern_page_layout *layout,
                               const tern_cache_desc *desc, tern_page_pool **out, tern_error *err) {
    *out = NULL;
    tern_kv_type kv = desc->kv_type;
    TERN_TRY(tern_kv_choose(p->g, desc->n_context, kv, &kv, err));
    tern_page_pool *s = tern_alloc(TERN_MEM_KV, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->n_context = desc->n_context;
    s->kv_type = kv == TERN_KV_F32    ? TERN_DTYPE_F32
                 : kv == TERN_KV_Q4_0 ? TERN_DTYPE_Q4_0
                 : kv == TERN_KV_Q8_0 ? TERN_DTYPE_Q8_0
                                      : TERN_DTYPE_F16;
    s->offsets = tern_alloc_array(TERN_MEM_KV, p->g->n_values + 1, sizeof *s->offsets);
    if (!s->offsets) {
        cpu_page_pool_close(s);
        return tern_fail_memory(err, p->g->n_values * sizeof *s->offsets);
    }
    for (size_t v = 0; v < p->g->n_values; v++) {
        const tern_value *value = &p->g->values[v];
        if (!tern_is_paged(value)) continue;
        uint64_t *bytes = &s->page_bytes[tern_page_group_of(layout, value)];
        s->offsets[v] = (size_t)*bytes;
        *bytes += (state_bytes(p->g, (tern_vid)v, s->kv_type) + 63) / 64 * 64;
    }
    *out = s;
    return TERN_OK;
}

void cpu_page_pool_close(tern_page_pool *s) {
    if (!s) return;
    tern_free(s->offsets);
    tern_free(s);
}

int32_t cpu_page_pool_n_context(const tern_page_pool *s) { return s->n_context; }
tern_dtype cpu_page_pool_kv_type(const tern_page_pool *s) { return s->kv_type; }
size_t cpu_page_pool_offset(const tern_page_pool *s, tern_vid state) { return s->offsets[state]; }

int32_t cpu_page_positions(const tern_page_pool *s) {
    (void)s;
    return TERN_PAGE_POSITIONS;
}

uint64_t cpu_page_bytes(const tern_page_pool *s, int group) { return s->page_bytes[group]; }

tern_status cpu_page_new(tern_page_pool *s, int group, tern_page *out, tern_error *err) {
    out->memory = tern_alloc_open(TERN_MEM_KV, (size_t)s->page_bytes[group]);
    return out->memory ? TERN_OK : tern_fail_memory(err, (size_t)s->page_bytes[group]);
}

void cpu_page_free(tern_page_pool *s, int group, tern_page page) {
    (void)s;
    (void)group;
    tern_free(page.memory);
}

tern_status cpu_page_copy(tern_page_pool *s, int group, tern_page from, tern_page to,
                          tern_error *err) {
    (void)err;
    memcpy(to.memory, from.memory, (size_t)s->page_bytes[group]);
    return TERN_OK;
}

tern_status cpu_page_clear(tern_page_pool *s, int group, tern_page page, tern_error *err) {
    (void)err;
    memset(page.memory, 0, (size_t)s->page_bytes[group]);
    return TERN_OK;
}

tern_status cpu_page_read(tern_page_pool *s, int group, tern_page page, void *to, tern_error *err) {
    (void)err;
    memcpy(to, page.memory, (size_t)s->page_bytes[group]);
    return TERN_OK;
}

tern_status cpu_page_write(tern_page_pool *s, int group, tern_page page, const void *from,
                           tern_error *err) {
    (void)err;
    memcpy(page.memory, from, (size_t)s->page_bytes[group]);
    return TERN_OK;
}
