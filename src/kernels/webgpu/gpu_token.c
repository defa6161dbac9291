// Few tokens, above all one: the ops between two points where every workgroup must wait for all
// others become one dispatch each, five a layer.
//
//   norm, quantize, Q + K + V          norm_linear3
//   RoPE, store, attention             attention_token, in parts of the positions
//   join, norm, quantize, output +=    parts_linear_add
//   norm, quantize, act(gate) * up     norm_glu
//   norm, quantize, down +=            norm_linear_add
//
// They are found as runs of neighbours in the graph, which has them fused as far as any backend
// wants. What does not fit is left to the dispatches of gpu_plan.c, and so are more tokens than
// GPU_FEW. Up to that number each token has workgroups of its own, which do what they would do if
// it were alone, to the bit; speculation relies on that.
#include "kernels/webgpu/gpu_build.h"

// ---- Recognizing -------------------------------------------------------------------------------

static bool read_once(const tern_graph *g, tern_vid v) {
    int n = g->values[v].kind == TERN_VALUE_OUTPUT;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) n += g->nodes[i].in[k] == v;
    return n == 1;
}

// A fused dispatch reads its input later than the graph says, when the memory plan may already have
// given it to something that the dispatch writes.
static bool is_apart(const tern_plan *p, tern_vid a, tern_vid b) {
    const tern_span *s = &p->memory.spans[a], *t = &p->memory.spans[b];
    return s->offset + s->bytes <= t->offset || t->offset + t->bytes <= s->offset;
}

typedef struct row { // that is quantized
    tern_vid x, norm; // norm -1: none
    float eps;
} row;

// The quantized row that `linear` alone reads, in the node in front of it.
static bool find_row(const tern_plan *p, const tern_node *n, const tern_node *linear, row *r) {
    bool is_normed = n->op == TERN_OP_NORM_QUANTIZE;
    if (!is_normed && n->op != TERN_OP_QUANTIZE) return false;
    *r = (row){n->in[0], is_normed ? n->in[1] : -1, n->eps};
    return linear->in[0] == n->out[0] && read_once(p->g, n->out[0]) &&
           rows_of(p, n->out[0]) == GPU_ROWS_TOKENS;
}

// All products of a group are ternary, whole, and neighbours in memory.
static bool is_group(const tern_plan *p, const tern_node *n, int count) {
    return n->op == TERN_OP_LINEAR_GROUP && n->n_out == count && is_ternary(p, n->in[1]) &&
           p->weights[n->in[1]]->n_parts == 1 && neighbours(p, n, 0) == count;
}
static bool is_add(const tern_plan *p, const tern_node *n) {
    return n->op == TERN_OP_LINEAR_ADD && is_ternary(p, n->in[1]) &&
           p->weights[n->in[1]]->n_parts == 1;
}

// ---- Shapes ------------------------------------------------------------------------------------

#define WORKGROUPS       128   // about one for each core of a large GPU: the row is made in each
#define KEPT_X           8     // in ternary_token.wgsl
#define KEPT_CODES       4     // tiles of a team: as many as are asked for at a time
#define WORKGROUP_BYTES  16384 // that every device has
#define WORKGROUP_THREADS 1024 // at most

typedef struct shape {
    uint32_t splits, steps, teams, tiles, threads;
} shape;

static bool fits(const tern_plan *p, const shape *s, int64_t n_cols) {
    uint32_t share = p->device->subgroups ? 32 : 8;
    uint32_t bytes = s->splits * s->steps * GPU_BLOCK_COLS +                  // the row
                     s->teams * s->tiles * (s->splits * 8 / share) * 8 * 4 + // sums
                     s->threads * 12 / (share / 8) + 256;                    // of the norm, packing
    return s->tiles > 0 && s->tiles <= s->splits && bytes <= WORKGROUP_BYTES &&
           n_cols / 4 <= KEPT_X * s->threads;
}

// For a workgroup that takes about `wanted` tiles: as many teams as there are threads for, unless
// that leaves teams without work; an even number of them for pairs.
static bool find_shape(const tern_plan *p, int64_t n_cols, uint32_t wanted, bool pairs,
                       shape *best) {
    uint32_t most = p->device->workgroup_size_max, blocks = (uint32_t)gpu_blocks(n_cols);
    if (most > WORKGROUP_THREADS) most = WORKGROUP_THREADS;
    shape s = {.steps = groups(8 * blocks, (pairs ? most / 2 : most) / 32 * 32)};
    s.splits = (groups(blocks, s.steps) + 3) / 4 * 4;
    uint32_t least = UINT32_MAX;
    for (s.teams = pairs ? 2 : 1; s.teams * s.splits * 8 <= most; s.teams += pairs ? 2 : 1) {
        s.threads = s.teams * s.splits * 8;
        s.tiles = groups(wanted, s.teams);
        if (s.tiles > KEPT_CODES) s.tiles = KEPT_CODES;
        while (s.tiles > 1 && !fits(p, &s, n_cols)) s.tiles--;
        uint32_t rest = wanted % (s.teams * s.tiles);
        uint32_t unused = rest ? s.teams * s.tiles - rest : 0;
        if (!fits(p, &s, n_cols) || unused > least) continue;
        least = unused;
        *best = s;
    }
    return least != UINT32_MAX;
}

// ---- Products ----------------------------------------------------------------------------------

static gpu_dispatch *add_product(tern_plan *p, gpu_kernel kernel, const row *r, const shape *s,
                                 const tern_node *linear, int count) {
    static const char *const at[] = {"", "AT1", "AT2"}, *const tile[] = {"", "TILE1", "TILE2"};
    static const char *const rows[] = {"ROWS0", "ROWS1", "ROWS2"};
    gpu_part span = p->weights[linear->in[1]]->parts[0];
    uint32_t n_tiles = 0;
    gpu_dispatch *d = add(p, kernel, 0, GPU_ROWS_TOKENS);
    d->tokens_max = GPU_FEW;
    set(d, "COLS4", (double)(p->weights[linear->in[1]]->n_cols / 4));
    set(d, "NORM", r->norm >= 0);
    set(d, "EPS", (double)r->eps);
    set(d, "BLOCKS", (double)gpu_blocks(p->weights[linear->in[1]]->n_cols));
    set(d, "SPLITS", s->splits);
    set(d, "STEPS", s->steps);
    set(d, "TEAMS", s->teams);
    set(d, "TILES", s->tiles);
    set(d, "THREADS", s->threads);
    for (int i = 0; i < count; i++) {
        const gpu_part *part = &p->weights[linear->in[1 + i]]->parts[0];
        if (i > 0) {
            set(d, at[i], (double)((part->offset - span.offset) / 16));
            set(d, tile[i], n_tiles);
        }
        set(d, rows[i], (double)part->n_rows);
        n_tiles += groups(part->n_rows, GPU_TILE_ROWS);
        span.bytes = part->offset + part->bytes - span.offset;
    }
    set(d, "N_TILES", n_tiles);
    d->x = groups(n_tiles, s->teams * s->tiles);
    bind_part(d, &span);
    // A binding must be there; without a norm nobody reads it.
    bind_part(d, r->norm >= 0 ? &p->weights[r->norm]->parts[0] : &span);
    return d;
}

static uint32_t tiles_of(const tern_plan *p, const tern_node *linear, int count) {
    uint32_t n = 0;
    for (int i = 0; i < count; i++)
        n += groups(p->weights[linear->in[1 + i]]->n_rows, GPU_TILE_ROWS);
    return n;
}

static size_t add_linear3(tern_plan *p, const tern_node *n) {
    const tern_node *linear = n + 1;
    row r;
    shape s;
    if (!is_group(p, linear, 3) || !find_row(p, n, linear, &r)) return 0;
    for (int i = 0; i < 3; i++)
        if (!is_apart(p, r.x, linear->out[i])) return 0;
    uint32_t wanted = groups(tiles_of(p, linear, 3), WORKGROUPS);
    if (!find_shape(p, cols(p, r.x), wanted, false, &s)) return 0;
    gpu_dispatch *d = add_product(p, GPU_NORM_LINEAR3, &r, &s, linear, 3);
    bind_value(p, d, r.x);
    for (int i = 0; i < 3; i++) bind_value(p, d, linear->out[i]);
    return 2;
}

// The gated row lies where the gate would.
static size_t add_feed_forward(tern_plan *p, const tern_node *n, size_t n_left) {
    const tern_node *linear = n + 1, *glu = n + 2;
    size_t count = glu->op == TERN_OP_GLU ? 5 : 4;
    const tern_node *quantize = n + count - 2, *down = n + count - 1;
    row r, hidden;
    shape s, s_down;
    if (n_left < count || !is_group(p, linear, 2) || !find_row(p, n, linear, &r)) return 0;
    if (glu->op == TERN_OP_GLU_NORM_QUANTIZE)
        hidden = (row){-1, glu->in[2], glu->eps};
    else if (glu->op != TERN_OP_GLU || quantize->op != TERN_OP_QUANTIZE ||
             quantize->in[0] != glu->out[0] || !read_once(p->g, glu->out[0]))
        return 0;
    else
        hidden = (row){-1, -1, 0};
    tern_vid gate = linear->out[0], up = linear->out[1];
    hidden.x = gate;
    uint32_t tiles = groups(cols(p, gate), GPU_TILE_ROWS);
    if (!is_add(p, down) || down->in[0] != quantize->out[0] || glu->in[0] != gate ||
        glu->in[1] != up || !read_once(p->g, gate) || !read_once(p->g, up) ||
        !read_once(p->g, quantize->out[0]) || !is_apart(p, r.x, gate) ||
        !is_apart(p, gate, down->out[0]) ||
        !find_shape(p, cols(p, r.x), 2 * groups(tiles, WORKGROUPS), true, &s) ||
        !find_shape(p, cols(p, gate), groups(tiles_of(p, down, 1), WORKGROUPS), false, &s_down))
        return 0;
    gpu_dispatch *d = add_product(p, GPU_NORM_GLU, &r, &s, linear, 2);
    set(d, "PAIRS", 1);
    set(d, "ACT", glu->act);
    bind_value(p, d, r.x);
    bind_value(p, d, gate);
    d = add_product(p, GPU_NORM_LINEAR_ADD, &hidden, &s_down, down, 1);
    bind_value(p, d, gate);
    bind_value(p, d, down->out[0]);
    return count;
}

// ---- Attention ---------------------------------------------------------------------------------

#define ATTENTION_THREADS 512
#define KEPT_WORDS        16 // in attention_token.wgsl

// Positions of a tile: as many as the registers of a workgroup hold keys and values of.
static uint32_t positions_of_tile(uint32_t threads, uint32_t half) {
    uint32_t n = threads;
    while (n > 1 && (groups(half, threads / n) > KEPT_WORDS ||
                     groups(n, threads / half) > KEPT_WORDS))
        n /= 2;
    return n;
}

static void bind_parts(gpu_dispatch *d, uint64_t offset, uint64_t bytes) {
    bind(d, (gpu_binding){.place = GPU_PARTS, .offset = offset, .bytes = bytes});
}

typedef struct where {
    tern_vid rope;
    uint32_t threads, tile;
    uint64_t rows_bytes, info_bytes; // of all tokens' parts
} where;

static void add_attention_token(tern_plan *p, gpu_kernel kernel, bool several, const tern_node *n,
                                const tern_node *attention, where w) {
    bool stores = kernel == GPU_STORE_TOKENS;
    int32_t n_heads = stores ? attention->n_kv_heads : attention->n_heads;
    gpu_dispatch *d =
        add(p, kernel, (uint32_t)n_heads, stores ? GPU_ROWS_TOKENS : GPU_ROWS_PARTS);
    if (!stores) d->rows_each = w.tile;
    d->by_token = several && !stores;
    d->tokens_min = several ? 2 : 1;
    d->tokens_max = several ? GPU_FEW : 1;
    d->uses_cache = true;
    set(d, "THREADS", w.threads);
    set(d, "HEAD_DIM", attention->head_dim);
    set(d, "N_HEADS", attention->n_heads);
    set(d, "N_KV_HEADS", attention->n_kv_heads);
    set(d, "N_ROT", n->rope.n_rot);
    set(d, "HALVES", n->rope.halves);
    set(d, "SCALE", (double)attention->scale);
    set(d, "PART", w.tile);
    set(d, "PARTS_MAX", GPU_PARTS_MAX);
    set(d, "SEVERAL", several);
    bind_place(d, GPU_ANGLES, w.rope);
    for (int i = 0; i < 3; i++) bind_value(p, d, n->in[i]);
    bind_place(d, GPU_STATE, n->in[3]);
    bind_place(d, GPU_STATE, n->in[4]);
    bind_parts(d, 0, w.rows_bytes + w.info_bytes);
    set(d, "INFO_AT", (double)(w.rows_bytes / 8));
}

static tern_status add_attention(tern_plan *p, const tern_node *n, size_t *count, tern_error *err) {
    const tern_node *attention = n + 1, *quantize = n + 2, *linear = n + 3;
    row r;
    shape s;
    if (attention->op != TERN_OP_ATTENTION || attention->in[0] != n->out[0] ||
        attention->in[1] != n->in[3] || attention->in[2] != n->in[4] ||
        !read_once(p->g, n->out[0]) || !read_once(p->g, attention->out[0]) || !is_add(p, linear) ||
        !find_row(p, quantize, linear, &r) || r.x != attention->out[0] ||
        !find_shape(p, cols(p, r.x), groups(tiles_of(p, linear, 1), WORKGROUPS), false, &s))
        return TERN_OK;
    if (attention->head_dim % 4 != 0 || attention->head_dim > 256) return TERN_OK;
    uint32_t most = p->device->workgroup_size_max;
    uint32_t threads = most < ATTENTION_THREADS ? most : ATTENTION_THREADS;
    uint32_t tile = positions_of_tile(threads, (uint32_t)attention->head_dim / 2);
    uint64_t row_bytes = (uint64_t)cols(p, r.x) * sizeof(float);
    uint64_t rows_bytes = gpu_round(GPU_FEW * GPU_PARTS_MAX * row_bytes, 256);
    uint64_t info_bytes = (uint64_t)(GPU_FEW * GPU_PARTS_MAX * attention->n_heads) * 8;
    if (p->parts_bytes < rows_bytes + info_bytes) p->parts_bytes = rows_bytes + info_bytes;
    tern_vid rope;
    TERN_TRY(rope_index(p, n, &rope, err));

    where w = {rope, threads, tile, rows_bytes, info_bytes};
    add_attention_token(p, GPU_ATTENTION_TOKEN, false, n, attention, w);
    add_attention_token(p, GPU_STORE_TOKENS, true, n, attention, w);
    add_attention_token(p, GPU_ATTENTION_TOKEN, true, n, attention, w);
    gpu_dispatch *d = add_product(p, GPU_PARTS_LINEAR_ADD, &r, &s, linear, 1);
    set(d, "HEAD4", attention->head_dim / 4);
    set(d, "PART", tile);
    bind_parts(d, 0, rows_bytes);
    bind_value(p, d, linear->out[0]);
    bind_parts(d, rows_bytes, info_bytes);
    *count = 4;
    return TERN_OK;
}

tern_status gpu_token_add(tern_plan *p, size_t i, size_t *count, tern_error *err) {
    const tern_node *n = &p->g->nodes[i];
    size_t n_left = p->g->n_nodes - i;
    *count = 0;
    if (n->op == TERN_OP_ROPE_STORE && n_left >= 4) return add_attention(p, n, count, err);
    if (n_left >= 2) *count = add_linear3(p, n);
    if (*count == 0 && n_left >= 4) *count = add_feed_forward(p, n, n_left);
    return TERN_OK;
}
