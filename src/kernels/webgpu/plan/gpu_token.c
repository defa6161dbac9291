// Few tokens, above all one: the ops between two points where every workgroup must wait for all
// others become one dispatch each, five a layer.
//
//   norm, quantize, Q + K + V          norm_linear3
//   RoPE, store, attention             attention_token, in parts of the positions
//   join, norm, quantize, output +=    parts_linear_add
//   norm, quantize, act(gate) * up     norm_glu
//   norm, quantize, down +=            norm_linear_add
//
// Two to eight tokens, as speculation verifies them, read each weight once, so a product is two
// dispatches: row_quantize or parts_quantize makes the rows; few_linear3, few_glu or few_linear_add
// multiplies. A token gets the same bits as one that comes alone; speculation relies on that. So
// the same text quantizes the rows, with as many threads.
//
// More rows of several sequences (GPU_MANY_STEPS) have the same bits too: their rows are quantized,
// and attention computed, by the same dispatches, and the products are those of prompts, whose sums
// are the same integers.
//
//   row_quantize, gemm                 Q + K + V
//   attention_token, parts_quantize, gemm
//   row_quantize, gemm                 gate, up
//   glu_quantize, gemm                 act(gate) * up, norm, quantize; down
//
// The patterns are runs of neighbours in the graph, which is fused as far as any backend wants.
// Anything else, and prompts, are left to the dispatches of ops/.
#include "kernels/webgpu/plan/gpu_token.h"
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/ops/gpu_op.h"

// ---- Recognizing -------------------------------------------------------------------------------

bool gpu_find_row(const tern_plan *p, const tern_node *n, const tern_node *linear, row *r) {
    bool is_normed = n->op == TERN_OP_NORM_QUANTIZE;
    if (!is_normed && n->op != TERN_OP_QUANTIZE) return false;
    *r = (row){n->in[0], is_normed ? n->in[1] : -1, is_normed ? n->norm.eps : 0};
    return linear->in[0] == n->out[0] && read_once(p->g, n->out[0]) &&
           rows_of(p, n->out[0]) == GPU_ROWS_TOKENS;
}

// All products of a group are with codes, whole.
static bool is_group(const tern_plan *p, const tern_node *n, int count) {
    if (n->op != TERN_OP_LINEAR_GROUP || n->n_out != count) return false;
    for (int i = 1; i <= count; i++)
        if (!has_codes(p, n->in[i]) || p->weights[n->in[i]]->n_parts != 1) return false;
    return true;
}

bool gpu_find_tail(const tern_plan *p, const tern_node *n, tail *t) {
    const tern_node *next = n + 1;
    bool adds = n->op == TERN_OP_LINEAR_ADD;
    *t = (tail){1, adds, n->out[0], -1, 1};
    if ((!adds && n->op != TERN_OP_LINEAR) || n->soft_cap != 0 || !has_codes(p, n->in[1]) ||
        p->weights[n->in[1]]->n_parts != 1 || gpu_is_logits(p->g, n->out[0]) ||
        tern_graph_gain_of(p->g, n) >= 0)
        return false;
    if (!adds && next < p->g->nodes + p->g->n_nodes && next->op == TERN_OP_SCALE_ADD &&
        next->in[1] == n->out[0] && read_once(p->g, n->out[0]) &&
        is_apart(p, next->in[0], next->out[0]))
        *t = (tail){2, false, next->out[0], next->in[0], next->scale};
    return true;
}

// How many of a batch's tokens a thread has sums for. All variants give the same bits.
static const struct {
    uint32_t tokens, min, max;
} few_counts[] = {{2, 2, 2}, {4, 3, 4}, {GPU_FEW, 5, GPU_FEW}};
#define N_FEW_COUNTS (sizeof few_counts / sizeof *few_counts)

// ---- Products ----------------------------------------------------------------------------------

// If weights are few, reading and unpacking them for each token costs less than a separate dispatch
// that makes the rows first.
static uint32_t alone_max(const tern_plan *p, uint32_t tiles, const work *w) {
    uint64_t bytes = (uint64_t)tiles * gpu_tile_bytes(w->codes, w->n_cols);
    uint64_t n = p->device->alone_bytes / bytes;
    return n < 1 ? 1 : n > GPU_FEW ? GPU_FEW : (uint32_t)n;
}

static const tern_weight *first_of(const tern_plan *p, const product *f) {
    return p->weights[f->linear->in[1 + f->first]];
}

bool gpu_find_product(const tern_plan *p, product *f) {
    const tern_node *linear = f->linear;
    const tern_weight *w = first_of(p, f);
    uint32_t tiles = 0;
    for (int i = 1; i <= f->count; i++)
        tiles += groups(p->weights[linear->in[f->first + i]]->n_rows, GPU_TILE_ROWS);
    f->work.n_cols = w->n_cols;
    f->work.codes = w->codes;
    f->alone = alone_max(p, tiles, &f->work);
    uint32_t each = f->work.pairs ? 2 : 1;
    f->work.tiles = each * groups(tiles / each, GPU_WORKGROUPS);
    for (size_t i = 0; i < N_FEW_COUNTS; i++)
        if (gpu_find_shape_few(p, &f->work, few_counts[i].tokens).threads == 0) return false;
    return gpu_find_shape(p, &f->work, &f->one);
}

// The parameters of ternary_tiles.wgsl; binds the weights.
static void set_tiles(const tern_plan *p, gpu_dispatch *d, const product *f, const shape *s) {
    static const char *const at[] = {"", "AT1", "AT2"}, *const tile[] = {"", "TILE1", "TILE2"};
    static const char *const rows[] = {"ROWS0", "ROWS1", "ROWS2"};
    gpu_part span = first_of(p, f)->parts[0];
    uint32_t n_tiles = 0;
    set(d, "BLOCKS", (double)gpu_blocks(f->work.n_cols));
    set(d, "SPLITS", s->splits);
    set(d, "STEPS", s->steps);
    set(d, "TEAMS", s->teams);
    set(d, "TILES", s->tiles);
    set(d, "THREADS", s->threads);
    for (int i = 0; i < f->count; i++) {
        const gpu_part *part = &p->weights[f->linear->in[1 + f->first + i]]->parts[0];
        if (i > 0) {
            set(d, at[i], (double)((part->offset - span.offset) / 16));
            set(d, tile[i], n_tiles);
        }
        set(d, rows[i], (double)part->n_rows);
        n_tiles += groups(part->n_rows, GPU_TILE_ROWS);
        span.bytes = part->offset + part->bytes - span.offset;
    }
    set(d, "N_TILES", n_tiles);
    set_codes(d, first_of(p, f));
    if (f->work.pairs) set(d, "PAIRS", 1);
    d->x = groups(n_tiles, s->teams * s->tiles);
    bind_part(d, &span);
}

// The same kernel for wide codes.
static gpu_kernel kernel_for(const product *f, gpu_kernel kernel) {
    if (!gpu_is_wide(f->work.codes)) return kernel;
    switch (kernel) {
    case GPU_NORM_LINEAR3: return GPU_WIDE_LINEAR3;
    case GPU_NORM_GLU: return GPU_WIDE_GLU;
    case GPU_ADD_NORM_GLU: return GPU_WIDE_ADD_GLU;
    case GPU_NORM_LINEAR_ADD: return GPU_WIDE_LINEAR_ADD;
    case GPU_PARTS_LINEAR_ADD: return GPU_WIDE_PARTS_ADD;
    case GPU_FEW_LINEAR3: return GPU_WIDE_FEW_LINEAR3;
    case GPU_FEW_GLU: return GPU_WIDE_FEW_GLU;
    case GPU_FEW_LINEAR_ADD: return GPU_WIDE_FEW_LINEAR_ADD;
    case GPU_NORM_LINEAR_SCALED: return GPU_WIDE_LINEAR_SCALED;
    case GPU_PARTS_LINEAR_SCALED: return GPU_WIDE_PARTS_SCALED;
    case GPU_FEW_LINEAR_SCALED: return GPU_WIDE_FEW_LINEAR_SCALED;
    default: return kernel;
    }
}

// The parameters of ternary_row.wgsl; binds the norm. The binding must exist: without a norm it is
// a weight that is not read.
static void set_row(const tern_plan *p, gpu_dispatch *d, const product *f) {
    set(d, "COLS4", (double)(f->work.n_cols / 4));
    set(d, "NORM", f->row.norm >= 0);
    set(d, "EPS", (double)f->row.eps);
    if (d->what.kernel == kernel_for(f, GPU_ADD_NORM_GLU)) {
        set(d, "ADDS", 1);
        set(d, "ADD_EPS", (double)f->added->norm.eps);
        bind(d, f->norms);
        return;
    }
    bind_part(d, &p->weights[f->row.norm >= 0 ? f->row.norm : f->linear->in[1]]->parts[0]);
}

gpu_dispatch *gpu_add_one(tern_plan *p, gpu_kernel kernel, const product *f) {
    gpu_dispatch *d = add(p, kernel_for(f, kernel), 0, GPU_ROWS_TOKENS);
    d->kinds = GPU_FEW_STEPS;
    d->tokens_max = f->alone;
    set_tiles(p, d, f, &f->one);
    set_row(p, d, f);
    return d;
}

gpu_dispatch *gpu_add_quantize(tern_plan *p, gpu_kernel kernel, const product *f) {
    gpu_dispatch *d = add(p, kernel, 1, GPU_ROWS_TOKENS);
    d->kinds = GPU_STEPS;
    d->tokens_min = f->alone + 1; // 9: many steps only
    d->tokens_max = GPU_FEW;
    set(d, "THREADS", f->one.threads);
    if (f->work.codes.group) set(d, "GROUP", f->work.codes.group);
    set(d, "Q_VECS", (double)(gpu_blocks(f->work.n_cols) * GPU_BLOCK_COLS / 16));
    set_row(p, d, f);
    return d;
}

static gpu_dispatch *add_row_quantize(tern_plan *p, const product *f) {
    gpu_dispatch *d = gpu_add_quantize(p, GPU_ROW_QUANTIZE, f);
    bind_value(p, d, f->row.x);
    bind_value(p, d, f->quantized);
    return d;
}

// The same for many rows act(gate) * up, which few rows have from their product: once gate and up
// exist, which is after the dispatches of a later node.
static void leave_glu_quantize(tern_plan *p, const product *f, tern_act_kind act, tern_vid up,
                               const tern_node *after) {
    gpu_dispatch *d = add(p, GPU_GLU_QUANTIZE, 1, GPU_ROWS_TOKENS);
    d->kinds = GPU_MANY_STEPS;
    set(d, "THREADS", f->one.threads);
    if (f->work.codes.group) set(d, "GROUP", f->work.codes.group);
    set(d, "Q_VECS", (double)(gpu_blocks(f->work.n_cols) * GPU_BLOCK_COLS / 16));
    set(d, "ACT", act);
    bind_value(p, d, up);
    set_row(p, d, f);
    bind_value(p, d, f->row.x);
    bind_value(p, d, f->quantized);
    p->later = *d;
    p->later.node = (int32_t)(after - p->g->nodes);
    p->n_dispatches--;
}

// Whether the rows fit in the workgroup's memory, and its threads can load them all at once.
static bool has_room(const tern_plan *p, const work *w, const shape *s, uint32_t n_tokens) {
    uint64_t bytes = n_tokens * (uint64_t)gpu_blocks(w->n_cols) * GPU_BLOCK_COLS;
    return bytes + gpu_few_bytes(p, w, s, n_tokens) <= p->device->workgroup_bytes_max &&
           bytes / 16 <= STAGED_MAX * s->threads;
}

void gpu_bind_tail(const tern_plan *p, gpu_dispatch *d, const tail *t) {
    bind_value(p, d, t->out);
    if (t->residual < 0) {
        set(d, "ADD", t->adds);
        return;
    }
    set(d, "FACTOR", (double)t->factor);
    bind_value(p, d, t->residual);
}

static void add_few(tern_plan *p, gpu_kernel kernel, const product *f, tern_act_kind act,
                    const tern_vid *out, int n_out) {
    for (size_t i = 0; i < N_FEW_COUNTS; i++) {
        uint32_t n_tokens = few_counts[i].tokens;
        if (few_counts[i].max <= f->alone) continue;
        shape s = gpu_find_shape_few(p, &f->work, n_tokens);
        gpu_dispatch *d = add(p, kernel_for(f, kernel), 0, GPU_ROWS_TOKENS);
        d->kinds = GPU_FEW_STEPS;
        d->rows_each = GPU_FEW;
        d->tokens_min = few_counts[i].min > f->alone ? few_counts[i].min : f->alone + 1;
        d->tokens_max = few_counts[i].max;
        set_tiles(p, d, f, &s);
        set(d, "TOKENS", n_tokens);
        set(d, "EACH", n_tokens < FEW_EACH ? n_tokens : FEW_EACH);
        set(d, "STAGED", has_room(p, &f->work, &s, n_tokens));
        set(d, "ACT", act);
        bind_value(p, d, f->quantized);
        for (int k = 0; k < n_out; k++) bind_value(p, d, out[k]);
        if (n_out == 0) gpu_bind_tail(p, d, &f->tail);
    }
}

// The products of a group: neighbours with codes of one kind are one. All have as many threads, so
// that the row which each makes for itself is the same, to the bit.
static int find_products(const tern_plan *p, const product *like, product out[3]) {
    int n = 0;
    for (int first = 0; first < 3; first += out[n++].count) {
        product *f = &out[n];
        *f = *like;
        f->first = first;
        f->count = neighbours(p, f->linear, first);
        if (n > 0) f->work.teams = out[0].one.teams;
        if (!gpu_find_product(p, f)) return 0;
        if (f->one.threads != out[0].one.threads) return 0;
    }
    for (int i = 1; i < n; i++)
        if (out[i].alone < out[0].alone) out[0].alone = out[i].alone;
    for (int i = 1; i < n; i++) out[i].alone = out[0].alone;
    return n;
}

// The results of all three, those of this product first: kernels bind three.
static void order_results(const product *f, tern_vid out[3]) {
    for (int i = 0; i < 3; i++) out[i] = f->linear->out[(f->first + i) % 3];
}

static size_t add_linear3(tern_plan *p, const tern_node *n) {
    const tern_node *linear = n + 1;
    product f[3] = {{.linear = linear, .quantized = n->out[0]}};
    if (!is_group(p, linear, 3) || !gpu_find_row(p, n, linear, &f[0].row)) return 0;
    for (int i = 0; i < 3; i++)
        if (!is_apart(p, f[0].row.x, linear->out[i])) return 0;
    const product like = f[0];
    int count = find_products(p, &like, f);
    tern_vid out[3];
    for (int k = 0; k < count; k++) {
        gpu_dispatch *d = gpu_add_one(p, GPU_NORM_LINEAR3, &f[k]);
        order_results(&f[k], out);
        bind_value(p, d, f[k].row.x);
        for (int i = 0; i < 3; i++) bind_value(p, d, out[i]);
    }
    if (count > 0) add_row_quantize(p, &f[0]);
    for (int k = 0; k < count; k++) {
        order_results(&f[k], out);
        add_few(p, GPU_FEW_LINEAR3, &f[k], 0, out, 3);
    }
    return count > 0 ? 2 : 0;
}

static void add_glu(tern_plan *p, const product *f, tern_act_kind act, tern_vid gated) {
    const tern_node *added = f->added;
    gpu_dispatch *d = gpu_add_one(p, added ? GPU_ADD_NORM_GLU : GPU_NORM_GLU, f);
    set(d, "ACT", act);
    bind_value(p, d, added ? added->in[0] : f->row.x);
    bind_value(p, d, gated);
    if (added) bind_value(p, d, added->out[0]);
    if (added) bind_value(p, d, added->in[1]);
    add_row_quantize(p, f);
    add_few(p, GPU_FEW_GLU, f, act, &gated, 1);
}

void gpu_add_few_tail(tern_plan *p, const product *f) {
    bool scaled = f->tail.residual >= 0;
    add_few(p, scaled ? GPU_FEW_LINEAR_SCALED : GPU_FEW_LINEAR_ADD, f, 0, NULL, 0);
}

static gpu_dispatch *add_end(tern_plan *p, const product *f) {
    bool scaled = f->tail.residual >= 0;
    gpu_dispatch *d = gpu_add_one(p, scaled ? GPU_NORM_LINEAR_SCALED : GPU_NORM_LINEAR_ADD, f);
    bind_value(p, d, f->row.x);
    gpu_bind_tail(p, d, &f->tail);
    d = add_row_quantize(p, f);
    gpu_add_few_tail(p, f);
    return d;
}

// A product by itself.
static size_t add_product(tern_plan *p, const tern_node *n) {
    product f = {.linear = n + 1, .count = 1, .quantized = n->out[0]};
    if (!gpu_find_tail(p, f.linear, &f.tail) || !gpu_find_row(p, n, f.linear, &f.row) ||
        !is_apart(p, f.row.x, f.tail.out) || !gpu_find_product(p, &f))
        return 0;
    add_end(p, &f);
    return 1 + f.tail.n_nodes;
}

// The row that goes down: act(gate) * up, which lies where the gate would.
static bool find_down(const tern_plan *p, const tern_node *glu, product *f) {
    const tern_node *quantize = glu->op == TERN_OP_GLU ? glu + 1 : glu;
    tern_vid gate = glu->in[0];
    f->linear = quantize + 1;
    f->count = 1;
    f->quantized = quantize->out[0];
    if (glu->op == TERN_OP_GLU_NORM_QUANTIZE)
        f->row = (row){gate, glu->in[2], glu->act.eps};
    else if (quantize->op != TERN_OP_QUANTIZE || quantize->in[0] != glu->out[0] ||
             !read_once(p->g, glu->out[0]))
        return false;
    else
        f->row = (row){gate, -1, 0};
    return f->linear < p->g->nodes + p->g->n_nodes && gpu_find_tail(p, f->linear, &f->tail) &&
           f->linear->in[0] == quantize->out[0] && read_once(p->g, quantize->out[0]) &&
           is_apart(p, gate, f->tail.out) && gpu_find_product(p, f);
}

// A norm_add before: for more than one token it stays a dispatch of its own, with the same bits.
static tern_status find_added(tern_plan *p, const tern_node *n, tern_vid gated, product *f,
                              tern_error *err) {
    const tern_weight *weights[] = {p->weights[n->in[2]], NULL};
    size_t n_cols = (size_t)cols(p, n->out[0]), n_vectors = f->row.norm >= 0 ? 2 : 1;
    uint32_t fours = (uint32_t)n_cols / 4, threads = threads_for(p, fours);
    if (fours > f->one.threads || fours > threads || !is_apart(p, n->in[0], gated) ||
        !is_apart(p, n->in[1], gated) || p->g->values[n->in[1]].kind != TERN_VALUE_TEMP)
        return TERN_OK;
    if (n_vectors > 1) weights[1] = p->weights[f->row.norm];
    float *both = tern_alloc_array(TERN_MEM_GRAPH, n_vectors * n_cols, sizeof *both);
    if (!both) return tern_fail_memory(err, n_vectors * n_cols * sizeof *both);
    for (size_t i = 0; i < n_vectors; i++)
        memcpy(both + i * n_cols, weights[i]->vector, n_cols * sizeof *both);
    tern_status status =
        gpu_plan_constants(p, both, n_vectors * n_cols, "two norms", &f->norms, err);
    tern_free(both);
    if (status != TERN_OK) return status;
    f->added = n;
    f->alone = 1;
    TERN_TRY(gpu_op_NORM_ADD(p, n, err));
    p->n_dispatches--; // the node adds that of prompts
    p->dispatches[p->n_dispatches - 1].tokens_min = 2;
    return TERN_OK;
}

// If the product down has no room in a workgroup, only that of gate and up. added: whether node n
// is a norm_add.
static tern_status add_feed_forward(tern_plan *p, const tern_node *n, bool added, size_t *count,
                                    tern_error *err) {
    const tern_node *first = n + added, *linear = first + 1, *glu = first + 2;
    product in = {.linear = linear, .count = 2, .work.pairs = true, .quantized = first->out[0]};
    product out = {0};
    if (p->g->nodes + p->g->n_nodes - first < 4 || (added && first->in[0] != n->out[0]) ||
        !is_group(p, linear, 2) || neighbours(p, linear, 0) < 2 ||
        !gpu_find_row(p, first, linear, &in.row))
        return TERN_OK;
    tern_vid gate = linear->out[0], up = linear->out[1];
    if ((glu->op != TERN_OP_GLU && glu->op != TERN_OP_GLU_NORM_QUANTIZE) || glu->in[0] != gate ||
        glu->in[1] != up || !read_once(p->g, gate) || !read_once(p->g, up) ||
        !gpu_find_product(p, &in))
        return TERN_OK;
    bool whole = is_apart(p, in.row.x, gate) && find_down(p, glu, &out);
    tern_vid gated = whole ? gate : glu->out[0];
    if (!whole && (glu->op != TERN_OP_GLU || !is_apart(p, in.row.x, gated))) return TERN_OK;
    if (added) TERN_TRY(find_added(p, n, gated, &in, err));
    if (added && !in.added) return TERN_OK;
    add_glu(p, &in, glu->act.kind, gated);
    *count = added + 3u;
    if (!whole) return TERN_OK;
    add_end(p, &out)->kinds = GPU_FEW_STEPS;
    leave_glu_quantize(p, &out, glu->act.kind, up, out.linear - 1);
    *count = (size_t)(out.linear - n) + out.tail.n_nodes;
    return TERN_OK;
}

tern_status gpu_token_add(tern_plan *p, size_t i, size_t *count, tern_error *err) {
    const tern_node *n = &p->g->nodes[i];
    size_t n_left = p->g->n_nodes - i;
    *count = 0;
    TERN_TRY(gpu_token_attention(p, n, count, err));
    if (*count > 0) return TERN_OK;
    if (n_left >= 2) *count = add_linear3(p, n);
    if (*count == 0) TERN_TRY(add_feed_forward(p, n, n->op == TERN_OP_NORM_ADD, count, err));
    if (*count == 0 && n_left >= 2) *count = add_product(p, n);
    return TERN_OK;
}
