// Private to the WebGPU backend: how a dispatch is written down. Used by ops/, which give each op
// its own dispatches, and gpu_token.c, which fuses several ops for few tokens.
#ifndef TERN_KERNELS_WEBGPU_GPU_BUILD_H
#define TERN_KERNELS_WEBGPU_GPU_BUILD_H

#include "kernels/webgpu/device/gpu.h"

#define GPU_ROW_COUNTS  5   // kernels of a float product, by the number of rows
#define GPU_TILE_COUNTS 4   // of a ternary product of many rows, likewise
#define GPU_HALF_COUNTS 3   // more, of prompts as products of halves
#define GPU_WORKGROUPS  128 // about one for each core of a large GPU

static inline gpu_dispatch *add(tern_plan *p, gpu_kernel kernel, uint32_t x, gpu_rows rows) {
    gpu_dispatch *d = &p->dispatches[p->n_dispatches++];
    *d = (gpu_dispatch){.what.kernel = kernel, .x = x, .rows = rows, .rows_each = 1, .times = 1};
    d->kinds = GPU_ANY;
    d->tokens_min = 1;
    d->tokens_max = UINT32_MAX;
    d->rows_min = 1;
    d->rows_max = UINT32_MAX;
    return d;
}

static inline void set(gpu_dispatch *d, const char *name, double value) {
    gpu_set(&d->what, name, value);
}

static inline void bind(gpu_dispatch *d, gpu_binding b) { d->bindings[d->n_bindings++] = b; }
static inline void bind_place(gpu_dispatch *d, gpu_place place, tern_vid v) {
    bind(d, (gpu_binding){.place = place, .v = v});
}

static inline void bind_value(const tern_plan *p, gpu_dispatch *d, tern_vid v) {
    const tern_value *value = &p->g->values[v];
    const tern_span *s = &p->memory.spans[v];
    if (value->kind == TERN_VALUE_INPUT)
        bind_place(d, GPU_INPUT_EMBEDS, v);
    else if (gpu_is_logits(p->g, v))
        bind_place(d, GPU_LOGITS, v);
    else if (gpu_is_i8(value)) {
        uint64_t bytes = gpu_i8_bytes(value->cols, p->n_batch);
        bind(d, (gpu_binding){.place = GPU_POOL_I8, .offset = s->offset, .bytes = bytes});
        bind(d, (gpu_binding){
                    .place = GPU_POOL_I8, .offset = s->offset + bytes, .bytes = s->bytes - bytes});
    } else
        bind(d, (gpu_binding){.place = GPU_POOL, .offset = s->offset, .bytes = s->bytes});
}

// Binds temporaries as one piece of the pool; at: where each begins, in numbers.
static inline void bind_span(const tern_plan *p, gpu_dispatch *d, const tern_vid *v, int n,
                             uint64_t *at) {
    uint64_t first = UINT64_MAX, end = 0;
    for (int i = 0; i < n; i++) {
        const tern_span *s = &p->memory.spans[v[i]];
        if (s->offset < first) first = s->offset;
        if (s->offset + s->bytes > end) end = s->offset + s->bytes;
    }
    for (int i = 0; i < n; i++) at[i] = (p->memory.spans[v[i]].offset - first) / sizeof(float);
    bind(d, (gpu_binding){.place = GPU_POOL, .offset = first, .bytes = end - first});
}

// Whether that is possible for any of them.
static inline bool fits_span(const tern_plan *p, const tern_vid *v, int n) {
    for (int i = 0; i < n; i++)
        if (p->g->values[v[i]].kind != TERN_VALUE_TEMP) return false;
    return p->memory.bytes <= p->device->binding_bytes_max;
}

static inline void bind_part(gpu_dispatch *d, const gpu_part *part) {
    bind(d, (gpu_binding){.place = GPU_WEIGHT,
                          .buffer = part->buffer,
                          .offset = part->offset,
                          .bytes = part->bytes});
}

static inline int64_t cols(const tern_plan *p, tern_vid v) { return p->g->values[v].cols; }
static inline gpu_rows rows_of(const tern_plan *p, tern_vid v) {
    return tern_graph_is_by(p->g, v, "outputs")     ? GPU_ROWS_OUTPUTS
           : tern_graph_is_by(p->g, v, "sequences") ? GPU_ROWS_SEQUENCES
           : gpu_is_counted(p->g, v) ? (gpu_rows)(GPU_ROWS_COUNTED + p->g->values[v].dim)
                                     : GPU_ROWS_TOKENS;
}
static inline uint32_t groups(int64_t n, int64_t each) { return (uint32_t)((n + each - 1) / each); }

// One kernel goes token by token, the other computes tiles of many.
static inline void set_many(gpu_dispatch *d, bool many) {
    d->kinds = many ? GPU_PROMPTS : GPU_STEPS;
}
// The parameters that all kernels of attention have (ops/gpu_op_attention.c).
void gpu_set_attention(const tern_plan *p, gpu_dispatch *d, const tern_node *n);
// Where a state's pages are in a table.
static inline void set_pages(const tern_plan *p, gpu_dispatch *d, tern_vid state) {
    set(d, "PAGE_GROUPS", p->layout.n_groups);
    set(d, "PAGE_GROUP", tern_page_group_of(&p->layout, &p->g->values[state]));
    d->caches = GPU_ANY_CACHE;
}

// Everything that writes or reads the logits runs only when they are wanted.
static inline void set_phase(const tern_plan *p, gpu_dispatch *d, tern_vid out) {
    if (gpu_is_logits(p->g, out)) d->phase = GPU_PHASE_HEAD;
}

// Threads for a row of n elements: a power of two, as many as there is work for.
static inline uint32_t threads_for(const tern_plan *p, int64_t n) {
    return gpu_threads_for(p->device, n);
}

// Makes a buffer of n numbers, such as vectors side by side: kernels have few bindings.
tern_status gpu_plan_constants(tern_plan *p, const float *x, size_t n, const char *what,
                               gpu_binding *out, tern_error *err);

// Whether products with this weight use codes and int8 activations.
static inline bool has_codes(const tern_plan *p, tern_vid w) {
    return p->weights[w]->info.kind != TERN_WEIGHT_FLOAT && !p->weights[w]->head;
}

static inline bool same_codes(const tern_weight *a, const tern_weight *b) {
    const gpu_codes *c = &a->codes, *o = &b->codes;
    return a->form == b->form && c->bits == o->bits && c->group == o->group &&
           c->super == o->super && c->has_minima == o->has_minima && c->is_bf16 == o->is_bf16;
}

static inline void set_codes(gpu_dispatch *d, const tern_weight *w) {
    gpu_set_codes(&d->what, w->codes);
}

// How many matrices from `first` on can be one dispatch.
static inline int neighbours(const tern_plan *p, const tern_node *n, int first) {
    const gpu_part *a = &p->weights[n->in[1 + first]]->parts[0];
    int count = 1;
    for (; count < 3 && first + count < n->n_out; count++) {
        const tern_weight *w = p->weights[n->in[1 + first + count]];
        const gpu_part *b = &w->parts[0];
        if (!same_codes(w, p->weights[n->in[1 + first]]) || b->buffer != a->buffer ||
            b->offset < a->offset || w->n_parts > 1)
            break;
    }
    return count;
}

static inline bool read_once(const tern_graph *g, tern_vid v) {
    int n = g->values[v].kind == TERN_VALUE_OUTPUT;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) n += g->nodes[i].in[k] == v;
    return n == 1;
}

// A fused dispatch reads its input later than the graph says, when the memory plan may already have
// given that memory to something that the dispatch writes.
static inline bool is_apart(const tern_plan *p, tern_vid a, tern_vid b) {
    const tern_span *s = &p->memory.spans[a], *t = &p->memory.spans[b];
    return s->offset + s->bytes <= t->offset || t->offset + t->bytes <= s->offset;
}

static inline tern_status rope_index(tern_plan *p, const tern_node *n, tern_vid *index,
                                     tern_error *err) {
    tern_vid v = tern_node_optional(n, 0), more = tern_node_optional(n, 1);
    int i;
    const float *factors = v >= 0 ? p->weights[v]->vector : NULL;
    const float *long_factors = more >= 0 ? p->weights[more]->vector : NULL;
    TERN_TRY(tern_rope_list_find(&p->ropes, n, factors, long_factors, &i, err));
    *index = (tern_vid)i;
    return TERN_OK;
}

#endif
