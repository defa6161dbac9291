// Products of rows and matrices.
#include "kernels/webgpu/ops/gpu_op.h"

// The fewest threads a row with which the number of steps is least; few enough for the least
// device.
static uint32_t splits_for(int64_t blocks, uint32_t threads_max) {
    int64_t most = threads_max / GPU_TILE_ROWS, steps = (blocks + most - 1) / most;
    int64_t splits = (blocks + steps - 1) / steps;
    return (uint32_t)(splits < 8 ? 8 : splits); // the reduction needs 64 threads
}

// Threads that share a row in wide_float.wgsl and wide_head_exact.wgsl.
uint32_t gpu_wide_float_splits(int64_t blocks) {
    return splits_for(blocks, GPU_WIDE_FLOAT_THREADS);
}

// Where a part of a matrix writes.
static void set_part(const tern_weight *w, const gpu_part *part, gpu_dispatch *d) {
    set(d, "FIRST_ROW", (double)part->first_row);
    set(d, "Y_COLS", (double)w->n_rows);
}

// Which outputs of a linear, `count` neighbours in a slab, and which part of their matrices.
typedef struct outputs {
    const tern_node *n;
    int first, count;
    size_t part;
    bool accumulate;
    bool chunk; // the logits of the outputs that this pass over the head computes
} outputs;

// One product, or up to three neighbours in a slab, which are then not cut into parts.
static void add_gemv(tern_plan *p, const outputs *o) {
    const bool chunk = o->chunk;
    const tern_node *n = o->n;
    const int first = o->first, count = o->count;
    const size_t part = o->part;
    static const char *const at[] = {"AT0", "AT1", "AT2"};
    static const char *const rows[] = {"ROWS0", "ROWS1", "ROWS2"};
    static const char *const tile[] = {"", "TILE1", "TILE2"};
    bool is_wide = gpu_is_wide(p->weights[n->in[1 + first]]->codes);
    gpu_kernel one = is_wide ? GPU_WIDE_GEMV1 : GPU_GEMV1;
    gpu_dispatch *d = add(p, (gpu_kernel)(one + count - 1), 0, rows_of(p, n->in[0]));
    gpu_part span = p->weights[n->in[1 + first]]->parts[part];
    int64_t blocks = gpu_blocks(cols(p, n->in[0]));
    int64_t n_rows = 0;
    for (int i = 0; i < count; i++) n_rows += p->weights[n->in[1 + first + i]]->parts[part].n_rows;
    // Many rows fill the device with few threads each; few rows need all the threads there are.
    uint32_t most = n_rows > 8192 ? 160 : p->device->workgroup_size_max < 320 ? 256 : 320;
    uint32_t splits = splits_for(blocks, most);
    set(d, "BLOCKS", (double)blocks);
    set(d, "SPLITS", splits);
    set(d, "THREADS", 8 * splits);
    set_codes(d, p->weights[n->in[1 + first]]);
    if (count == 1) {
        set(d, "ADD", o->accumulate);
        set(d, "OUTPUTS", chunk);
        if (n->soft_cap != 0) set(d, "SOFT_CAP", (double)n->soft_cap);
        set_part(p->weights[n->in[1 + first]], &span, d);
    }
    for (int i = 0; i < count; i++) {
        const gpu_part *at_i = &p->weights[n->in[1 + first + i]]->parts[part];
        set(d, at[i], (double)((at_i->offset - span.offset) / 16));
        set(d, rows[i], (double)at_i->n_rows);
        if (i > 0) set(d, tile[i], d->x);
        d->x += groups(at_i->n_rows, GPU_TILE_ROWS);
    }
    const gpu_part *last = &p->weights[n->in[first + count]]->parts[part];
    span.bytes = last->offset + last->bytes - span.offset;
    bind_part(d, &span);
    bind_value(p, d, n->in[0]);
    if (chunk) {
        bind_place(d, GPU_LOGITS, -1);
        d->rows = GPU_ROWS_CHUNK;
        d->rows_max = GPU_FEW;
        d->phase = GPU_PHASE_HEAD;
        return;
    }
    for (int i = 0; i < count; i++) bind_value(p, d, n->out[first + i]);
    if (d->rows == GPU_ROWS_TOKENS) d->kinds = GPU_FEW_STEPS;
    set_phase(p, d, n->out[first]);
}

// Binds the results of several products as one piece of the pool, and records where each begins.
static void bind_results(const tern_plan *p, gpu_dispatch *d, const tern_vid *out, int count) {
    static const char *const begin[] = {"Y0", "Y1", "Y2"};
    uint64_t at[3];
    bind_span(p, d, out, count, at);
    for (int i = 0; i < count; i++) set(d, begin[i], (double)at[i]);
}

// ---- Many rows of ternary products -------------------------------------------------------------

// A tile of gemm.wgsl, whose parameters are these.
typedef struct tile {
    gpu_kernel kernel;
    uint32_t tokens, rows, tokens_each, teams, step_blocks;
    uint32_t each; // rows of a subgroup, of gemm_half.wgsl; 0: another kernel
} tile;

// How many tokens a tile has, by the number of rows of x. All variants give a row the same bits.
static const struct {
    uint32_t tokens, each, min, max;
} tile_counts[] = {{16, 4, 1, 16}, {32, 4, 17, 32}, {64, 8, 33, 64}, {128, 8, 65, UINT32_MAX}};
_Static_assert(sizeof tile_counts / sizeof *tile_counts == GPU_TILE_COUNTS, "room in the plan");
#define TILE_THREADS 256
#define TILE_LONE    128 // from this many tokens on there are enough tiles: one team does
#define TILE_PROMPT  512 // tokens of the prompt for which tiles of TILE_LONE tokens are chosen

static uint32_t n_tiles_of(const tern_plan *p, const outputs *o, uint32_t rows) {
    uint32_t n_tiles = 0;
    for (int i = 0; i < o->count; i++)
        n_tiles += groups(p->weights[o->n->in[1 + o->first + i]]->n_rows, rows);
    return n_tiles;
}

// About the time of tiles of `rows` rows, `times` side by side: a core has them one after the
// other, and each also costs `more`, which does not depend on its rows.
static uint32_t tiles_time(const tern_plan *p, const outputs *o, uint32_t rows, uint32_t more,
                           uint32_t times) {
    return groups(n_tiles_of(p, o, rows) * times, GPU_WORKGROUPS) * (rows + more);
}

// As many teams as have work and memory. In groups a team's products lie where its codes and
// activations did.
static uint32_t teams_of(const tern_plan *p, const tile *t, int64_t blocks, bool in_groups) {
    uint32_t threads = 8 * t->tokens / t->tokens_each;
    uint32_t bytes = 4 * (t->rows + t->tokens + 4) * 16, teams = TILE_THREADS / threads;
    if (t->tokens >= TILE_LONE || (in_groups && t->rows * t->tokens * 4 > bytes)) return 1;
    if (in_groups) bytes += 4 * t->rows + 8 * t->tokens;
    while (teams > 1 && (teams * bytes > p->device->workgroup_bytes_max || 2 * teams > blocks))
        teams /= 2;
    return teams;
}

// The number of rows that takes least time.
static uint32_t rows_of_tile(const tern_plan *p, const outputs *o, gpu_kernel kernel,
                             bool in_groups, uint32_t times) {
    static const uint32_t narrow[] = {32, 64, 128}, dot[] = {40, 32, 24, 16};
    bool is_dot = kernel == GPU_GEMM || kernel == GPU_WIDE_GEMM;
    uint32_t least = UINT32_MAX, best = 0;
    size_t n_choices = is_dot ? sizeof dot / sizeof *dot : sizeof narrow / sizeof *narrow;
    for (size_t i = in_groups; i < n_choices; i++) { // 40 rows: more scales than all threads load
        uint32_t rows = is_dot ? dot[i] : narrow[i];
        uint32_t time = tiles_time(p, o, rows, is_dot ? 8 : 48, times);
        if (time >= least) continue;
        least = time;
        best = rows;
    }
    return best;
}

// ---- Tiles of gemm_groups.wgsl ------------------------------------------------------------------

static uint32_t parts_of(gpu_codes c) { return gpu_is_wide(c) ? (uint32_t)gpu_wide_parts(c) : 1; }

// Prompts are faster by products of bytes, and so are few tokens with ternary codes, whose columns
// several teams can share; for the many rows of a head it always pays.
static bool takes_groups(const tern_plan *p, const outputs *o, gpu_codes c, size_t variant) {
    if (!gpu_has_matrix(p->device) || p->device->workgroup_bytes_max < GPU_GEMM_GROUPS_BYTES)
        return false;
    if (c.group == 0 || tile_counts[variant].tokens > 64) return false;
    return gpu_is_wide(c) || tile_counts[variant].tokens == 64 || o->chunk;
}

// Whether activations, codes and sums have room, and what sums need of the tokens, and subgroups
// have equal shares.
static bool groups_fit(const tile *t, gpu_codes c) {
    uint32_t parts = parts_of(c), spread = parts == 4 ? 2 : 1, infos_max = 2048;
    uint32_t words = t->tokens * (16 * t->step_blocks + 4);
    words += t->rows * (16 * spread * t->step_blocks + 4);
    words += parts * t->step_blocks * t->tokens * (t->rows + 8);
    uint32_t infos = t->step_blocks * (c.has_minima ? parts : 1) * t->tokens * 16;
    uint32_t tasks = parts * t->step_blocks * (t->rows / 32) * (t->tokens / 16);
    return 4 * words <= GPU_GEMM_GROUPS_BYTES - infos_max && infos <= infos_max && tasks % 8 == 0;
}

// About the clocks of a product with `tokens` tokens. A core runs four workgroups side by side, and
// a step takes at least as long as what it waits for.
static uint32_t groups_time(const tern_plan *p, const outputs *o, const tile *t, gpu_codes c,
                            uint32_t tokens) {
    const uint32_t wait = 900, most = 4;
    uint32_t steps = groups(gpu_blocks(cols(p, o->n->in[0])), t->step_blocks);
    uint32_t sums = t->tokens * t->rows * parts_of(c) / 16, loads = (t->tokens + t->rows) / 2;
    uint32_t work = t->step_blocks * (sums + loads);
    uint32_t each = groups(n_tiles_of(p, o, t->rows) * groups(tokens, t->tokens), GPU_WORKGROUPS);
    uint32_t time = 0;
    while (each > 0) {
        uint32_t n = each < most ? each : most;
        time += steps * (n * work > wait ? n * work : wait) + 2 * wait;
        each -= n;
    }
    return time;
}

static tile groups_tile(const tern_plan *p, const outputs *o, gpu_codes c, uint32_t tokens) {
    tile best = {.kernel = GPU_KERNEL_COUNT};
    uint32_t least = UINT32_MAX;
    for (uint32_t n = 16; n <= tokens; n *= 2)
        for (uint32_t rows = 32; rows <= 64; rows *= 2)
            for (uint32_t blocks = 1; blocks <= 4; blocks *= 2) {
                tile t = {.kernel = gpu_is_wide(c) ? GPU_WIDE_GEMM_MATRIX : GPU_GEMM_GROUPS,
                          .tokens = n,
                          .rows = rows,
                          .step_blocks = blocks};
                if (!groups_fit(&t, c)) continue;
                uint32_t time = groups_time(p, o, &t, c, tokens);
                if (time >= least) continue;
                least = time;
                best = t;
            }
    return best;
}

// Byte products where matrix units do not pay (takes_groups). Where tiles of 32 rows leave a core
// less than two workgroups, four times as many small ones hide more of each other's waiting.
static tile tile_of(const tern_plan *p, const outputs *o, size_t variant) {
    tile t = {.kernel = GPU_GEMM,
              .tokens = tile_counts[variant].tokens,
              .tokens_each = tile_counts[variant].each};
    gpu_codes codes = p->weights[o->n->in[1 + o->first]]->codes;
    bool in_groups = codes.group > 0;
    if (takes_groups(p, o, codes, variant)) return groups_tile(p, o, codes, t.tokens);
    if (gpu_is_wide(codes)) t.kernel = GPU_WIDE_GEMM;
    if (gpu_has_matrix(p->device) && !in_groups)
        t.kernel = t.tokens < GPU_GEMM_MATRIX_TOKENS ? GPU_GEMM_NARROW : GPU_GEMM_MATRIX;
    uint32_t times = in_groups && t.tokens == TILE_LONE ? TILE_PROMPT / TILE_LONE : 1;
    t.rows = t.kernel == GPU_GEMM_MATRIX ? GPU_GEMM_MATRIX_ROWS
                                         : rows_of_tile(p, o, t.kernel, in_groups, times);
    if (t.kernel == GPU_WIDE_GEMM && times > 1 &&
        n_tiles_of(p, o, 32) * times < 2 * GPU_WORKGROUPS) {
        t.rows = 16;
        t.tokens = 64;
        t.tokens_each = 4;
    }
    if (t.kernel == GPU_GEMM)
        t.teams = teams_of(p, &t, gpu_blocks(cols(p, o->n->in[0])), in_groups);
    return t;
}

static void set_tile(gpu_dispatch *d, const tile *t) {
    d->rows_each = t->tokens;
    if (t->kernel == GPU_GEMM_MATRIX) return;
    set(d, "TOKENS", t->tokens);
    if (t->each) {
        set(d, "ROWS", t->rows);
        set(d, "EACH", t->each);
        return;
    }
    if (t->step_blocks) {
        set(d, "ROWS", t->rows);
        set(d, "STEP_BLOCKS", t->step_blocks);
        return;
    }
    if (t->kernel == GPU_GEMM_NARROW) {
        set(d, "ROWS", t->rows);
        set(d, "STEP_BLOCKS", t->rows == 128 ? 2 : 4); // as workgroup memory has room
        return;
    }
    set(d, "TOKENS_EACH", t->tokens_each);
    set(d, "ROWS_EACH", t->rows / 8);
    if (t->kernel == GPU_GEMM) set(d, "TEAMS", t->teams);
}

static void add_tiles(tern_plan *p, const outputs *o, const tile *t) {
    const tern_node *n = o->n;
    const int first = o->first, count = o->count;
    const size_t part = o->part;
    static const char *const at[] = {"", "AT1", "AT2"};
    static const char *const rows[] = {"ROWS0", "ROWS1", "ROWS2"};
    static const char *const begin[] = {"", "TILE1", "TILE2"};
    gpu_dispatch *d = add(p, t->kernel, 0, o->chunk ? GPU_ROWS_CHUNK : GPU_ROWS_TOKENS);
    const tern_weight *w = p->weights[n->in[1 + first]];
    gpu_part span = w->parts[part];
    if (!o->chunk) d->kinds = GPU_MANY_STEPS | GPU_PROMPTS;
    set_tile(d, t);
    set(d, "BLOCKS", (double)gpu_blocks(cols(p, n->in[0])));
    set(d, "ADD", o->accumulate);
    set(d, "Y_COLS", (double)w->n_rows);
    set_codes(d, w);
    for (int i = 0; i < count; i++) {
        const gpu_part *at_i = &p->weights[n->in[1 + first + i]]->parts[part];
        if (i > 0) set(d, at[i], (double)((at_i->offset - span.offset) / 16));
        if (i > 0) set(d, begin[i], d->x);
        set(d, rows[i], (double)at_i->n_rows);
        d->x += groups(at_i->n_rows, t->rows);
        span.bytes = at_i->offset + at_i->bytes - span.offset;
    }
    bind_part(d, &span);
    bind_value(p, d, n->in[0]);
    if (count > 1)
        bind_results(p, d, &n->out[first], count);
    else
        set(d, "Y0", (double)span.first_row);
    if (o->chunk) {
        set(d, "OUTPUTS", 1);
        set(d, "CHUNK_ROWS", p->chunk_rows);
        if (n->soft_cap != 0) set(d, "SOFT_CAP", (double)n->soft_cap);
        bind_place(d, GPU_LOGITS, -1);
        d->phase = GPU_PHASE_HEAD;
        return;
    }
    if (count == 1) bind_value(p, d, n->out[first]);
    set_phase(p, d, n->out[first]);
}

// ---- Tiles of gemm_half.wgsl --------------------------------------------------------------------

static bool takes_halves(const tern_plan *p, const outputs *o) {
    const tern_device *d = p->device;
    gpu_codes c = p->weights[o->n->in[1 + o->first]]->codes;
    return gpu_takes_halves(d) && d->matrix_half && c.group > 0 && !o->chunk &&
           d->workgroup_bytes_max >= GPU_GEMM_HALF_BYTES;
}

// Larger tiles are faster, from as many tokens on as make one for each core, or for every second.
static void add_halves(tern_plan *p, const outputs *o) {
    bool is_wide = gpu_is_wide(p->weights[o->n->in[1 + o->first]]->codes);
    gpu_kernel kernel = is_wide ? GPU_WIDE_GEMM_HALF : GPU_GEMM_HALF;
    const tile t[GPU_HALF_COUNTS] = {{.kernel = kernel, .tokens = 64, .rows = 64, .each = 16},
                                     {.kernel = kernel, .tokens = 128, .rows = 64, .each = 32},
                                     {.kernel = kernel, .tokens = 128, .rows = 128, .each = 64}};
    const uint32_t most[] = {GPU_WORKGROUPS / 2 / n_tiles_of(p, o, 64) * 128,
                             GPU_WORKGROUPS / n_tiles_of(p, o, 128) * 128, UINT32_MAX};
    uint32_t least = 1;
    for (size_t i = 0; i < GPU_HALF_COUNTS; i++) {
        if (most[i] < least || most[i] <= GPU_HALF_FROM) continue;
        add_tiles(p, o, &t[i]);
        gpu_dispatch *d = &p->dispatches[p->n_dispatches - 1];
        d->kinds = GPU_LONG_PROMPTS;
        d->rows_min = least;
        d->rows_max = most[i];
        least = most[i] + 1;
    }
}

// For many rows, with the same bits; otherwise as add_gemv.
static void add_gemm(tern_plan *p, const outputs *o) {
    bool halves = takes_halves(p, o);
    if (halves) add_halves(p, o);
    for (size_t i = 0; i < GPU_TILE_COUNTS; i++) {
        if (o->chunk && p->chunk_rows <= GPU_FEW) return;
        if (o->chunk && (uint32_t)p->chunk_rows < tile_counts[i].min) return;
        tile t = tile_of(p, o, i);
        add_tiles(p, o, &t);
        gpu_dispatch *d = &p->dispatches[p->n_dispatches - 1];
        d->rows_min = o->chunk && i == 0 ? GPU_FEW + 1 : tile_counts[i].min;
        d->rows_max = tile_counts[i].max;
        if (halves) d->kinds = GPU_MANY_STEPS | GPU_SHORT_PROMPTS;
    }
}

// How many rows of x a workgroup of float_linear.wgsl multiplies each weight with, and how many
// rows of weights a thread has / 4, by the number of rows of x. All give a row the same bits.
static const struct {
    uint32_t each, fours, min, max;
} row_counts[] = {{1, 1, 1, 1}, {2, 1, 2, 2}, {4, 1, 3, 4}, {8, 1, 5, 8}, {16, 2, 9, UINT32_MAX}};
_Static_assert(sizeof row_counts / sizeof *row_counts == GPU_ROW_COUNTS, "room in the plan");

// vec4s of a row of x that a thread multiplies with 16 bytes of a row of weights.
static uint32_t x_each(const tern_weight *w) {
    return w->form == GPU_FORM_Q8 ? 4 : w->form == GPU_FORM_F16 ? 2 : 1;
}

// Bytes of a workgroup's memory for two steps of 32 threads, and for the sums.
static uint32_t room_of(const tern_plan *p, const tern_weight *w, uint32_t rows) {
    uint32_t sums = p->device->subgroups ? 0 : 4096;
    return 2 * 32 * 16 * x_each(w) * rows + sums;
}
static bool has_room(const tern_plan *p, const tern_weight *w, uint32_t rows) {
    return room_of(p, w, rows) <= p->device->workgroup_bytes_max;
}

typedef struct product {
    tern_vid x, out;
    const tern_weight *w;
    bool accumulate, chunk; // chunk: of the logits
    float soft_cap;
} product;

static void set_float_part(tern_plan *p, const product *f, const gpu_part *part, gpu_dispatch *d) {
    set(d, "ADD", f->accumulate);
    if (f->soft_cap != 0) set(d, "SOFT_CAP", (double)f->soft_cap);
    set(d, "FIRST_ROW", (double)part->first_row);
    set(d, "N_ROWS", (double)part->n_rows);
    set(d, "Y_COLS", (double)f->w->n_rows);
    set(d, "OUTPUTS", f->chunk);
    bind_part(d, part);
    bind_value(p, d, f->x);
    if (f->chunk) {
        bind_place(d, GPU_LOGITS, -1);
        d->phase = GPU_PHASE_HEAD;
    } else
        bind_value(p, d, f->out);
}

static gpu_dispatch *add_float_part(tern_plan *p, const product *f, const gpu_part *part,
                                    gpu_kernel kernel) {
    bool many = kernel == GPU_FLOAT_GEMM;
    gpu_dispatch *d = add(p, kernel, groups(part->n_rows, many ? 64 : 32),
                          f->chunk ? GPU_ROWS_CHUNK : rows_of(p, f->x));
    set_form(f->w, d);
    if (d->rows >= GPU_ROWS_COUNTED) {
        set(d, "COUNTED", true);
        set(d, "X_DIM", d->rows - GPU_ROWS_COUNTED);
    }
    set_float_part(p, f, part, d);
    return d;
}

static gpu_screening screening_of(const tern_plan *p, const product *f) {
    bool can = GPU_SCREENS_HEADS && f->chunk && gpu_screen_can(p, f->w, f->soft_cap);
    return can ? GPU_UNSCREENED : GPU_SCREEN_ANY;
}

// By the number of rows of x; fewer to a workgroup if its memory has no room for more.
static void add_float_gemvs(tern_plan *p, const product *f, const gpu_part *part, bool by_token) {
    for (size_t i = 0; i < GPU_ROW_COUNTS; i++) {
        uint32_t each = row_counts[i].each;
        while (each > 1 && !has_room(p, f->w, each)) each /= 2;
        gpu_dispatch *d = add_float_part(p, f, part, GPU_FLOAT_GEMV);
        if (by_token) d->kinds = GPU_STEPS;
        set(d, "ROWS", each);
        set(d, "FOURS", row_counts[i].fours);
        set(d, "EACH", x_each(f->w));
        d->x = groups(part->n_rows, 32 * row_counts[i].fours);
        d->rows_each = each;
        if (!by_token && !f->chunk) return; // row by row
        set(d, "CHUNK_ROWS", p->chunk_rows);
        d->rows_min = row_counts[i].min;
        d->rows_max = row_counts[i].max;
        d->screen = screening_of(p, f);
    }
}

// The same with codes of four bits and more (wide_float.wgsl).
#define WIDE_FLOAT_TILES 2
static void add_wide_floats(tern_plan *p, const product *f, const gpu_part *part) {
    static const uint32_t rows_each[] = {1, 2, 4, 8};
    int64_t blocks = gpu_blocks(f->w->n_cols);
    uint32_t splits = gpu_wide_float_splits(blocks);
    uint32_t teams = GPU_WIDE_FLOAT_THREADS / (8 * splits);
    for (size_t i = 0; i < sizeof rows_each / sizeof *rows_each; i++) {
        gpu_dispatch *d =
            add(p, GPU_WIDE_FLOAT, groups(part->n_rows, GPU_TILE_ROWS * WIDE_FLOAT_TILES * teams),
                f->chunk ? GPU_ROWS_CHUNK : rows_of(p, f->x));
        set_codes(d, f->w);
        set(d, "BLOCKS", (double)blocks);
        set(d, "SPLITS", splits);
        set(d, "TEAMS", teams);
        set(d, "THREADS", 8 * splits * teams);
        set(d, "ROWS", rows_each[i]);
        set_float_part(p, f, part, d);
        d->rows_each = rows_each[i];
        if (!f->chunk) return; // row by row
        set(d, "CHUNK_ROWS", p->chunk_rows);
        d->rows_min = rows_each[i] / 2 + 1;
        d->rows_max = i + 1 < sizeof rows_each / sizeof *rows_each ? rows_each[i] : UINT32_MAX;
        d->screen = screening_of(p, f);
    }
}

// x W^T for float weights; the logits of some outputs when `chunk`.
static void add_float(tern_plan *p, const product *f) {
    const tern_weight *w = f->w;
    for (size_t i = 0; i < w->n_parts && gpu_is_wide(w->codes); i++)
        add_wide_floats(p, f, &w->parts[i]);
    if (gpu_is_wide(w->codes)) return;
    bool by_token = rows_of(p, f->x) == GPU_ROWS_TOKENS && !f->chunk;
    for (size_t i = 0; i < w->n_parts && gpu_is_counted(p->g, f->x); i++)
        add_float_part(p, f, &w->parts[i], GPU_FLOAT_GEMM)->rows_each = 64;
    if (gpu_is_counted(p->g, f->x)) return;
    for (size_t i = 0; i < w->n_parts; i++) {
        add_float_gemvs(p, f, &w->parts[i], by_token);
        if (!by_token) continue;
        gpu_dispatch *d = add_float_part(p, f, &w->parts[i], GPU_FLOAT_GEMM);
        d->rows_each = 64;
        d->kinds = GPU_PROMPTS;
    }
}

// The screened head; for many rows, where that leaves too much open, the kernel of all rows.
static tern_status add_screened(tern_plan *p, const product *f, tern_weight *w, tern_error *err) {
    // It keeps one more number in a workgroup's memory.
    const uint32_t most = p->device->workgroup_bytes_max;
    const gpu_dispatch *own = &p->dispatches[p->n_dispatches - 1];
    bool is_wide = gpu_is_wide(w->codes);
    while (!is_wide && own->rows_each > 1 && room_of(p, w, own->rows_each) + 16 > most) own--;
    gpu_dispatch open = *own;
    TERN_TRY(gpu_screen_add(p, f->x, w, is_wide ? 1 : x_each(w), err));
    if (p->chunk_rows < GPU_SCREEN_ROWS) return TERN_OK;
    open.what.kernel = is_wide ? GPU_WIDE_FLOAT_OPEN : GPU_FLOAT_GEMV_OPEN;
    set(&open, "LIST", GPU_SCREEN_LIST);
    bind_place(&open, GPU_SCREEN_LISTS, -1);
    open.kinds = GPU_MANY_STEPS;
    open.screen = GPU_SCREENED;
    if (open.x > GPU_WORKGROUPS) open.x = GPU_WORKGROUPS;
    open.rows_min = GPU_SCREEN_ROWS;
    open.rows_max = UINT32_MAX;
    p->dispatches[p->n_dispatches++] = open;
    return TERN_OK;
}

static tern_weight *head_of(tern_weight *w) { return w->head ? w->head : w; }

tern_status gpu_add_logits(tern_plan *p, const tern_node *n, tern_error *err) {
    tern_weight *w = p->weights[n->in[1]];
    if (!has_codes(p, n->in[1])) {
        const product f = {n->in[0], -1, head_of(w), false, true, n->soft_cap};
        add_float(p, &f);
        return screening_of(p, &f) ? add_screened(p, &f, head_of(w), err) : TERN_OK;
    }
    for (size_t part = 0; part < w->n_parts; part++) {
        const outputs o = {n, 0, 1, part, .chunk = true};
        add_gemv(p, &o);
        add_gemm(p, &o);
    }
    return TERN_OK;
}

static tern_status add_linear(tern_plan *p, const tern_node *n, bool accumulate, tern_error *err) {
    for (int i = 0; i < n->n_out;) {
        bool chunk = gpu_is_logits(p->g, n->out[i]);
        if (chunk && n->n_out == 1 && !accumulate) return gpu_add_logits(p, n, err);
        if (!has_codes(p, n->in[1 + i])) {
            tern_weight *w = p->weights[n->in[1 + i]];
            const product f = {n->in[0],   n->out[i], chunk ? head_of(w) : w,
                               accumulate, chunk,     n->soft_cap};
            add_float(p, &f);
            i++;
            continue;
        }
        size_t n_parts = p->weights[n->in[1 + i]]->n_parts;
        int count = accumulate || n_parts > 1 ? 1 : neighbours(p, n, i);
        for (size_t part = 0; part < n_parts; part++) {
            add_gemv(p, &(outputs){n, i, count, part, accumulate, false});
            if (rows_of(p, n->in[0]) != GPU_ROWS_TOKENS) continue;
            int each = fits_span(p, &n->out[i], count) ? count : 1;
            for (int k = i; k < i + count; k += each)
                add_gemm(p, &(outputs){n, k, each, part, accumulate, false});
        }
        i += count;
    }
    return TERN_OK;
}

// A fused top-k computes the logits itself: the plain product for the output "logits" is the same.
static bool made_by_top_k(const tern_graph *g, const tern_node *linear) {
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_LINEAR_TOP_K && g->nodes[i].in[0] == linear->in[0] &&
            g->nodes[i].in[1] == linear->in[1])
            return true;
    return false;
}

tern_status gpu_op_LINEAR(tern_plan *p, const tern_node *n, tern_error *err) {
    if (n->soft_cap != 0 && has_codes(p, n->in[1]) && !gpu_is_logits(p->g, n->out[0]))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: webgpu caps the scores of no matrix of codes but the head",
                         p->g->values[n->in[1]].name);
    return made_by_top_k(p->g, n) ? TERN_OK : add_linear(p, n, false, err);
}

tern_status gpu_op_LINEAR_GROUP(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_linear(p, n, false, err);
}

tern_status gpu_op_LINEAR_ADD(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_linear(p, n, true, err);
}
