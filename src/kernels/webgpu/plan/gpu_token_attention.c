// Attention of few tokens and the product after it: two dispatches. The first also does
// what queries and keys go through before: biases, norms of heads, the rotation.
#include "kernels/webgpu/plan/gpu_token.h"
#include <string.h>
#include "base/alloc.h"

// ---- Queries, keys and values ------------------------------------------------------------------

// A value that heads are read from, and what is done to them first.
typedef struct source {
    tern_vid raw;
    int64_t first, stride; // of its columns: the first head's, and from head to head
    tern_vid bias, norm;   // -1: none
    float eps;
    const tern_node *rope; // by itself, and then the norm, if any
    ptrdiff_t n_nodes;
} source;

// Whether columns are those of all heads, one after the other, or one head's of each group.
static bool follow_columns(const tern_plan *p, const tern_node *n, int32_t head_dim, source *s) {
    const tern_columns_attrs *c = &n->columns;
    bool is_whole = c->group == cols(p, n->in[0]);
    if (!is_whole && c->width != head_dim) return false;
    s->first = c->first;
    s->stride = is_whole ? head_dim : c->group;
    return true;
}

// From v back, through nodes from `begin` on.
static source find_source(const tern_plan *p, tern_vid v, const tern_node *begin,
                          int32_t head_dim) {
    source s = {.raw = v, .stride = head_dim, .bias = -1, .norm = -1};
    for (bool more = true; more && read_once(p->g, s.raw);) {
        int32_t at = p->g->values[s.raw].producer;
        const tern_node *n = at >= 0 ? &p->g->nodes[at] : NULL;
        if (!n || n < begin) break;
        bool is_norm = n->op == TERN_OP_RMS_NORM && s.norm < 0 && cols(p, n->in[1]) == head_dim;
        if (is_norm && s.bias < 0 && !s.rope) {
            s.norm = n->in[1];
            s.eps = n->norm.eps;
        } else if (n->op == TERN_OP_ROPE && !s.rope && s.bias < 0) {
            s.rope = n;
        } else if (n->op == TERN_OP_BIAS && s.bias < 0) {
            s.bias = n->in[1];
        } else if (n->op == TERN_OP_COLUMNS && follow_columns(p, n, head_dim, &s)) {
            more = false;
        } else {
            break;
        }
        s.raw = n->in[0];
        s.n_nodes++;
    }
    return s;
}

typedef struct heads {
    source of[3];                  // queries, keys, values
    const tern_node *store, *rope; // rope NULL: positions do not turn them
} heads;

static bool find_heads(const tern_plan *p, const tern_node *n, heads *h) {
    enum { NODES_MAX = 7 };
    const tern_node *end = p->g->nodes + p->g->n_nodes - 1, *store = n;
    while (store < end && store - n < NODES_MAX && !tern_node_stores(store)) store++;
    bool rotates = store->op == TERN_OP_ROPE_STORE;
    const tern_node *attention = store + 1;
    if (store >= end || (!rotates && store->op != TERN_OP_KV_STORE) ||
        attention->op != TERN_OP_ATTENTION)
        return false;
    int32_t dim = attention->attention.head_dim;
    const tern_vid *states = tern_node_stores(store);
    if (attention->in[1] != states[0] || attention->in[2] != states[1] ||
        (rotates && (attention->in[0] != store->out[0] || !read_once(p->g, store->out[0]))))
        return false;
    h->store = store;
    h->of[0] = find_source(p, rotates ? store->in[0] : attention->in[0], n, dim);
    h->of[1] = find_source(p, store->in[rotates], n, dim);
    h->of[2] = find_source(p, store->in[rotates + 1], n, dim);
    const source *q = &h->of[0], *k = &h->of[1], *v = &h->of[2];
    h->rope = rotates ? store : q->rope;
    const tern_vid raws[] = {q->raw, k->raw, v->raw};
    if (q->n_nodes + k->n_nodes + v->n_nodes != store - n || v->norm >= 0 || v->rope ||
        !fits_span(p, raws, 3))
        return false;
    if ((q->norm >= 0) != (k->norm >= 0) || q->eps != k->eps || (q->bias >= 0) != (k->bias >= 0) ||
        (q->bias >= 0) != (v->bias >= 0))
        return false;
    if (!q->rope && !k->rope) return true;
    return !rotates && q->rope && k->rope &&
           tern_rope_same(&q->rope->rope.angles, &k->rope->rope.angles);
}

// Their vectors side by side: the norms of queries and keys, the biases of all three.
static tern_status make_vectors(tern_plan *p, const heads *h, gpu_binding *out, tern_error *err) {
    tern_vid v[5];
    size_t n = 0, n_vectors = 0;
    for (int i = 0; i < 2 && h->of[0].norm >= 0; i++) v[n_vectors++] = h->of[i].norm;
    for (int i = 0; i < 3 && h->of[0].bias >= 0; i++) v[n_vectors++] = h->of[i].bias;
    for (size_t i = 0; i < n_vectors; i++) n += (size_t)cols(p, v[i]);
    if (n == 0) return TERN_OK;
    float *all = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *all), *at = all;
    if (!all) return tern_fail_memory(err, n * sizeof *all);
    for (size_t i = 0; i < n_vectors; at += cols(p, v[i++]))
        memcpy(at, p->weights[v[i]]->vector, (size_t)cols(p, v[i]) * sizeof *at);
    tern_status status = gpu_plan_constants(p, all, n, "norms and biases of heads", out, err);
    tern_free(all);
    return status;
}

static void bind_heads(const tern_plan *p, gpu_dispatch *d, const heads *h) {
    static const char *const at[] = {"Q_AT", "K_AT", "V_AT"};
    static const char *const length[] = {"Q_ROW", "K_ROW", "V_ROW"};
    static const char *const head[] = {"Q_HEAD", "K_HEAD", "V_HEAD"};
    const tern_vid raws[] = {h->of[0].raw, h->of[1].raw, h->of[2].raw};
    uint64_t begin[3];
    bind_span(p, d, raws, 3, begin);
    for (int i = 0; i < 3; i++) {
        set(d, at[i], (double)begin[i] + (double)h->of[i].first);
        set(d, length[i], (double)cols(p, raws[i]));
        set(d, head[i], (double)h->of[i].stride);
    }
    set(d, "N_ROT", h->rope ? h->rope->rope.angles.n_rot : 0);
    set(d, "HALVES", h->rope && h->rope->rope.angles.halves);
    if (h->of[0].bias >= 0) set(d, "BIASES", 1);
    if (h->of[0].norm < 0) return;
    set(d, "NORMS", h->of[0].rope ? 2 : 1);
    set(d, "EPS", (double)h->of[0].eps);
}

// ---- Attention ---------------------------------------------------------------------------------

#define ATTENTION_THREADS 512
#define KEPT_WORDS        16 // in attention_token.wgsl

// As many as workgroup memory has room for: the query, the batch's own keys and values, a tile's
// scores and sums, and what the reduction takes.
static uint32_t attention_threads(const tern_device *d, uint32_t half) {
    uint32_t threads = ATTENTION_THREADS;
    uint32_t fixed = 8 * half + GPU_FEW * 2 * half * 8 + 512;
    uint32_t each = 4 + 8 + (d->subgroups ? 0 : 8);
    while (threads > 0 &&
           (threads > d->workgroup_size_max || fixed + threads * each > d->workgroup_bytes_max))
        threads /= 2;
    return threads;
}

// Positions of a tile: as many as a workgroup's registers can hold keys and values of.
static uint32_t positions_of_tile(uint32_t threads, uint32_t half) {
    uint32_t n = threads;
    while (n > 1 &&
           (groups(half, threads / n) > KEPT_WORDS || groups(n, threads / half) > KEPT_WORDS))
        n /= 2;
    return n;
}

static void bind_parts(gpu_dispatch *d, uint64_t offset, uint64_t bytes) {
    bind(d, (gpu_binding){.place = GPU_PARTS, .offset = offset, .bytes = bytes});
}

typedef struct where {
    gpu_binding angles, vectors; // of a head that has none: another weight, which is not read
    uint32_t threads, tile;
    uint64_t rows_bytes, info_bytes; // of all rows' parts
} where;

static gpu_dispatch *add_attention_token(tern_plan *p, uint32_t n_tokens, const heads *h,
                                         const where *w) {
    const tern_node *attention = h->store + 1;
    const tern_vid *states = tern_node_stores(h->store);
    gpu_dispatch *d =
        add(p, GPU_ATTENTION_TOKEN, (uint32_t)attention->attention.n_heads, GPU_ROWS_PARTS);
    d->rows_each = w->tile;
    d->window = (uint32_t)attention->attention.window;
    d->by_token = true;
    set(d, "THREADS", w->threads);
    gpu_set_attention(p, d, attention);
    set(d, "PART", w->tile);
    set(d, "PARTS_MAX", GPU_PARTS_MAX);
    set(d, "TOKENS", n_tokens);
    bind(d, w->angles);
    bind_heads(p, d, h);
    bind(d, w->vectors);
    for (int i = 0; i < 2; i++) bind_place(d, GPU_STATE, states[i]);
    bind_parts(d, 0, w->rows_bytes + w->info_bytes);
    set(d, "INFO_AT", (double)(w->rows_bytes / 8));
    return d;
}

// The parameters of a row that attention has left in parts; they follow the dispatch's other ones.
static void bind_row_in_parts(gpu_dispatch *d, const tern_node *attention, const where *w) {
    set(d, "HEAD4", attention->attention.head_dim / 4);
    set(d, "PART", w->tile);
    set(d, "SEES", attention->attention.window);
    bind_parts(d, 0, w->rows_bytes);
}

// The product of such a row.
static void add_output(tern_plan *p, const product *f, const tern_node *attention, const where *w) {
    bool scaled = f->tail.residual >= 0;
    gpu_dispatch *d = gpu_add_one(p, scaled ? GPU_PARTS_LINEAR_SCALED : GPU_PARTS_LINEAR_ADD, f);
    bind_row_in_parts(d, attention, w);
    gpu_bind_tail(p, d, &f->tail);
    bind_parts(d, w->rows_bytes, w->info_bytes);
    d = gpu_add_quantize(p, GPU_PARTS_QUANTIZE, f);
    bind_row_in_parts(d, attention, w);
    bind_value(p, d, f->quantized);
    bind_parts(d, w->rows_bytes, w->info_bytes);
    gpu_add_few_tail(p, f);
}

// Rows of steps that are computed together, at most.
static int32_t steps_rows(const tern_plan *p) {
    int32_t n = p->n_batch < GPU_STEPS_ROWS ? p->n_batch : GPU_STEPS_ROWS;
    return n < GPU_FEW ? GPU_FEW : n;
}

// Its memory, in threads and in the parts that it leaves; false: heads are too large.
static bool find_where(tern_plan *p, const tern_attention_attrs *a, const product *f, where *w) {
    uint32_t half = (uint32_t)a->head_dim / 2;
    if (a->bidirectional || a->head_dim % 4 != 0 || a->head_dim > 256) return false;
    w->threads = attention_threads(p->device, half);
    if (w->threads < half) return false;
    w->tile = positions_of_tile(w->threads, half);
    uint64_t n_parts = (uint64_t)steps_rows(p) * GPU_PARTS_MAX;
    w->rows_bytes = gpu_round(n_parts * (uint64_t)f->work.n_cols * sizeof(float), 256);
    w->info_bytes = n_parts * (uint64_t)a->n_heads * 8;
    if (p->parts_bytes < w->rows_bytes + w->info_bytes)
        p->parts_bytes = w->rows_bytes + w->info_bytes;
    return true;
}

tern_status gpu_token_attention(tern_plan *p, const tern_node *n, size_t *count, tern_error *err) {
    heads h;
    if (!find_heads(p, n, &h)) return TERN_OK;
    const tern_node *attention = h.store + 1, *quantize = h.store + 2, *linear = h.store + 3;
    product f = {.linear = linear, .count = 1};
    where w = {0};
    if (linear >= p->g->nodes + p->g->n_nodes || !read_once(p->g, attention->out[0]) ||
        !gpu_find_tail(p, linear, &f.tail) || !gpu_find_row(p, quantize, linear, &f.row) ||
        f.row.x != attention->out[0] || !gpu_find_product(p, &f) ||
        !find_where(p, &attention->attention, &f, &w))
        return TERN_OK;
    f.quantized = quantize->out[0];
    const gpu_part *any = &p->weights[linear->in[1]]->parts[0];
    w.angles = w.vectors = (gpu_binding){
        .place = GPU_WEIGHT, .buffer = any->buffer, .offset = any->offset, .bytes = any->bytes};
    TERN_TRY(make_vectors(p, &h, &w.vectors, err));
    if (h.rope) {
        w.angles = (gpu_binding){.place = GPU_ANGLES};
        TERN_TRY(rope_index(p, h.rope, &w.angles.v, err));
    }
    gpu_dispatch *one = add_attention_token(p, 1, &h, &w);
    one->kinds = GPU_FEW_STEPS;
    one->tokens_max = 1;
    gpu_dispatch *more = add_attention_token(p, GPU_FEW, &h, &w);
    more->kinds = GPU_STEPS;
    more->tokens_min = 2;
    add_output(p, &f, attention, &w);
    *count = (size_t)(linear - n) + f.tail.n_nodes;
    return TERN_OK;
}
