#include "kernels/webgpu/plan/gpu_shape.h"

#define KEPT_X            8     // in ternary_row.wgsl
#define KEPT_CODES        4     // tiles of a team, all loaded at once
#define WORKGROUP_BYTES   16384 // that every device has
#define WORKGROUP_THREADS 1024  // at most

static uint32_t sum_bytes(const tern_plan *p, const shape *s) {
    uint32_t share = p->device->subgroups ? 32 : 8;
    return s->teams * s->tiles * (s->splits * 8 / share) * 8 * 4;
}

static uint32_t threads_max(const tern_plan *p) {
    uint32_t most = p->device->workgroup_size_max;
    return most < WORKGROUP_THREADS ? most : WORKGROUP_THREADS;
}

// Threads that share a row, for this number of steps.
static uint32_t splits_of(uint32_t blocks, uint32_t steps) {
    return (groups(blocks, steps) + 3) / 4 * 4;
}

// How many tiles the last of several workgroups would lack.
static uint32_t unused(const work *w, const shape *s) {
    uint32_t rest = w->tiles % (s->teams * s->tiles);
    return rest ? s->teams * s->tiles - rest : 0;
}

// In groups each block of a row has a product of its own; the blocks of x have scales and sums.
// With wide codes each group has a product, and beside it its scale and its minimum (PART_NEXT).
static uint32_t wide_rows(const shape *s) { return (s->teams * s->tiles + 1) * GPU_TILE_ROWS; }
static uint32_t product_bytes(const work *w, const shape *s) {
    if (gpu_is_wide(w->codes)) {
        uint32_t each = (uint32_t)gpu_wide_parts(w->codes) * (w->codes.has_minima ? 12 : 8);
        return (uint32_t)gpu_blocks(w->n_cols) * (wide_rows(s) * each + 8);
    }
    return (uint32_t)gpu_blocks(w->n_cols) * (((s->teams * s->tiles) | 1) * GPU_TILE_ROWS * 4 + 8);
}

static bool fits(const tern_plan *p, const shape *s, const work *w) {
    bool in_groups = w->codes.group > 0;
    if (s->tiles == 0 || s->tiles > s->splits) return false;
    uint32_t bytes = s->splits * s->steps * GPU_BLOCK_COLS +                 // row
                     s->threads * 16 / (p->device->subgroups ? 4 : 1) + 256; // norm, packing
    bytes += in_groups ? product_bytes(w, s) : sum_bytes(p, s);
    uint32_t most = in_groups ? p->device->workgroup_bytes_max : WORKGROUP_BYTES;
    return bytes <= most && w->n_cols / 4 <= KEPT_X * s->threads;
}

// For one token. As many teams as there are threads for, unless some teams would have no work; an
// even number of them for pairs.
bool gpu_find_shape(const tern_plan *p, const work *w, shape *best) {
    uint32_t most = threads_max(p), blocks = (uint32_t)gpu_blocks(w->n_cols);
    uint32_t each = w->pairs ? 2 : 1, least = UINT32_MAX;
    shape s = {.steps = groups(8 * blocks, most / each / 32 * 32)};
    s.splits = splits_of(blocks, s.steps);
    for (s.teams = each; s.teams * s.splits * 8 <= most; s.teams += each) {
        if (w->teams && s.teams != w->teams) continue;
        s.threads = s.teams * s.splits * 8;
        s.tiles = groups(w->tiles, s.teams);
        if (s.tiles > KEPT_CODES) s.tiles = KEPT_CODES;
        while (s.tiles > 1 && !fits(p, &s, w)) s.tiles--;
        if (!fits(p, &s, w) || unused(w, &s) > least) continue;
        least = unused(w, &s);
        *best = s;
    }
    return least != UINT32_MAX;
}

uint64_t gpu_few_bytes(const tern_plan *p, const work *w, const shape *s, uint32_t n_tokens) {
    if (!w->codes.group) return n_tokens * (uint64_t)sum_bytes(p, s);
    if (gpu_is_wide(w->codes))
        return s->splits * (uint64_t)gpu_wide_parts(w->codes) * wide_rows(s) * (4 * n_tokens + 8);
    return n_tokens * (uint64_t)s->splits * ((s->teams * s->tiles) | 1) * GPU_TILE_ROWS * 4;
}

// The most that these may take: in groups half of the memory, which leaves more for the rows,
// unless no shape fits that.
static uint64_t few_bytes_max(const tern_plan *p, const work *w) {
    if (!w->codes.group) return WORKGROUP_BYTES;
    return p->device->workgroup_bytes_max / (w->crowds ? 1 : 2);
}

// As many threads for each row as there are, unless their products take too much memory.
static void split_rows(const tern_plan *p, const work *w, shape *s, uint32_t n_tokens,
                       uint32_t most) {
    uint32_t blocks = (uint32_t)gpu_blocks(w->n_cols);
    for (s->steps = groups(blocks, most);; s->steps++) {
        s->splits = splits_of(blocks, s->steps);
        if (s->splits <= 4 || gpu_few_bytes(p, w, s, n_tokens) <= few_bytes_max(p, w)) return;
    }
}

// Whether there are threads for all results and memory for the parts they are added up from.
static bool fits_few(const tern_plan *p, const work *w, const shape *s, uint32_t n_tokens) {
    uint32_t results = n_tokens * 8 * s->teams * s->tiles / (w->pairs ? 2 : 1);
    return results <= s->threads && gpu_few_bytes(p, w, s, n_tokens) <= few_bytes_max(p, w);
}

// For few tokens: all tiles in teams of two, or of another number if that wastes less, and then as
// many threads for each row as fit. A team of one always fits; in groups there are as many as do,
// and no threads if none does.
static shape try_shape_few(const tern_plan *p, const work *w, uint32_t n_tokens) {
    static const uint32_t tiles[] = {2, 3, 4, 1};
    uint32_t shares = groups(n_tokens, FEW_EACH), least = UINT32_MAX;
    uint32_t most = threads_max(p) / 8 / shares;
    uint32_t teams_max = most / 8 * 2; // of four threads a row; even
    shape best = {0};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        if (gpu_is_wide(w->codes) && tiles[i] > 2) continue; // registers for their codes
        shape s = {.tiles = tiles[i], .teams = groups(w->tiles, tiles[i])};
        if (s.teams > teams_max) s.teams = teams_max;
        if (w->pairs && s.teams * s.tiles % 2) s.teams++;
        for (uint32_t fewer = w->pairs && s.tiles % 2 ? 2 : 1;; s.teams -= fewer) {
            split_rows(p, w, &s, n_tokens, most / s.teams / 4 * 4);
            s.threads = 8 * s.splits * s.teams * shares;
            if (!w->codes.group || s.teams <= fewer || fits_few(p, w, &s, n_tokens)) break;
        }
        if (!fits_few(p, w, &s, n_tokens) || unused(w, &s) >= least) continue;
        least = unused(w, &s);
        best = s;
    }
    return best;
}

shape gpu_find_shape_few(const tern_plan *p, const work *w, uint32_t n_tokens) {
    work crowded = *w;
    crowded.crowds = true;
    shape s = try_shape_few(p, w, n_tokens);
    return s.threads > 0 ? s : try_shape_few(p, &crowded, n_tokens);
}
