// How token.wgsl and few.wgsl share out the tiles of matrices of codes, which lie as codes.wgsl
// says. A workgroup has TEAMS teams of 8 * SPLITS threads. A team takes TILES tiles; SPLITS of its
// threads share a row, each with the blocks of columns b, b + SPLITS ... (STEPS of them). Tiles are
// numbered across up to three matrices. Grid, x: tiles / (TEAMS * TILES).
override BLOCKS: u32; // of 64 columns
override SPLITS: u32; // a multiple of 4: subgroups do not reach over teams
override STEPS: u32;  // SPLITS * STEPS >= BLOCKS
override TEAMS: u32;
override TILES: u32;
override ACT: u32 = 0u;
// For matrix i: where it begins (in vec4s; the first at 0), its first tile, its rows
override AT1: u32 = 0u;
override AT2: u32 = 0u;
override TILE1: u32 = 0xffffffffu;
override TILE2: u32 = 0xffffffffu;
override N_TILES: u32;
override ROWS0: u32;
override ROWS1: u32 = 0u;
override ROWS2: u32 = 0u;

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> y0: array<f32>;
@group(0) @binding(5) var<storage, read_write> y1: array<f32>;
@group(0) @binding(6) var<storage, read_write> y2: array<f32>;

// A row's sum comes in this many parts: subgroups have combined those of their threads.
override ROW_PARTS: u32 = SPLITS * 8u / SHARE;
// Rows of a workgroup.
override GROUP_ROWS: u32 = 8u * TEAMS * TILES;

struct Lane { team: u32, block: u32, row: u32 }
fn lane_of(lane: u32) -> Lane {
    let l = lane % (8u * SPLITS);
    return Lane(lane / (8u * SPLITS), l / 8u, l % 8u);
}

// Where a tile begins, in vec4s. Past the end, the last tile is computed again for nothing.
fn tile_at(number: u32) -> u32 {
    let n = min(number, N_TILES - 1u);
    var at = 16u;
    if (n >= TILE1) { at += AT1 - TILE1 * TILE_VECS; }
    if (n >= TILE2) { at += AT2 - AT1 - (TILE2 - TILE1) * TILE_VECS; }
    return at + n * TILE_VECS;
}

fn scale_of(tile: u32) -> f32 {
    if (GROUP > 0u) { return 1.0; }
    if (tile >= TILE2) { return bitcast<f32>(w[AT2].x); }
    if (tile >= TILE1) { return bitcast<f32>(w[AT1].x); }
    return bitcast<f32>(w[0].x);
}

// Tile i of a workgroup in the common numbering. A product of two matrices takes the same rows of
// both: the first half of the workgroup's tiles belongs to the first.
override PAIRS: bool = false;
override GROUP_TILES: u32 = TEAMS * TILES;
fn tile_number(group: u32, i: u32) -> u32 {
    if (PAIRS) {
        let half = GROUP_TILES / 2u;
        if (i >= half) { return TILE1 + group * half + i - half; }
        return group * half + i;
    }
    return group * GROUP_TILES + i;
}

// Row r of the tiles in the common numbering.
fn write(token: u32, r: u32, value: f32) {
    if (r / 8u < TILE1) {
        if (r < ROWS0) { y0[token * ROWS0 + r] = value; }
    } else if (r / 8u < TILE2) {
        let r1 = r - TILE1 * 8u;
        if (r1 < ROWS1) { y1[token * ROWS1 + r1] = value; }
    } else {
        let r2 = r - TILE2 * 8u;
        if (r2 < ROWS2) { y2[token * ROWS2 + r2] = value; }
    }
}

fn gated(gate: f32, up: f32) -> f32 { return activate(ACT, vec4(gate)).x * up; }
