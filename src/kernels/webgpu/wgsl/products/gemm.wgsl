// Matrices of codes x the int8 rows of many tokens. A workgroup computes a tile, ROWS rows of TOKENS
// tokens: codes are unpacked to int8 in workgroup memory once for all the tile's tokens. The tile is
// multiplied, by multiply(t, thread), in ternary_gemm_dot.wgsl and wide_gemm.wgsl, on every device, or
// in ternary_gemm_matrix.wgsl, if matrix units take int8; the sums are the same integers. Grid:
// (tiles of all matrices, tokens / TOKENS).
//
// Up to three matrices that read the same activations are one dispatch, if they lie in one buffer;
// so do their results, each at its own place.
override BLOCKS: u32; // of 64 columns
override ADD: bool;   // to what is in y
// For matrix i: where it begins (in vec4s), its first tile, its rows, where its results begin
override AT1: u32 = 0u;
override AT2: u32 = 0u;
override TILE1: u32 = 0xffffffffu;
override TILE2: u32 = 0xffffffffu;
override ROWS0: u32;
override ROWS1: u32 = 0u;
override ROWS2: u32 = 0u;
override Y0: u32;
override Y1: u32 = 0u;
override Y2: u32 = 0u;
override Y_COLS: u32; // rows of the whole first matrix, of which this may be a part
override OUTPUTS: bool = false; // rows of x are counted from run.first_output on, those of y from 0
override CHUNK_ROWS: u32 = 1u;  // of y at most, then
override SOFT_CAP: f32 = 0.0;   // of scores; 0: none

@group(0) @binding(2) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> q_info: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

struct Tile {
    codes: u32, // where its matrix begins, in vec4s
    row0: u32,
    token0: u32,
    n_rows: u32, // of the matrix
    y: u32,
    y_cols: u32,
}

fn tile_of(group: vec3<u32>) -> Tile {
    let token0 = group.y * TOKENS;
    if (group.x >= TILE2) {
        return Tile(AT2, (group.x - TILE2) * ROWS, token0, ROWS2, Y2, ROWS2);
    }
    if (group.x >= TILE1) {
        return Tile(AT1, (group.x - TILE1) * ROWS, token0, ROWS1, Y1, ROWS1);
    }
    return Tile(0u, group.x * ROWS, token0, ROWS0, Y0, Y_COLS);
}

// Where a row's tile begins, in vec4s. Past the last row, the last eight rows repeat.
fn tile_at(t: Tile, row: u32) -> u32 {
    let eight = min((t.row0 + row) / 8u, (t.n_rows + 7u) / 8u - 1u);
    return t.codes + 16u + eight * TILE_VECS;
}

fn count_of_tokens() -> u32 {
    if (OUTPUTS) { return min(run.n_outputs - run.first_output, CHUNK_ROWS); }
    return run.n_tokens;
}

// The row of x of a token. Past the last token, the last one repeats.
fn x_row(t: Tile, token: u32) -> u32 {
    let row = min(t.token0 + token, count_of_tokens() - 1u);
    if (OUTPUTS) { return run.first_output + row; }
    return row;
}

// Sixteen columns of a token, and its scale and sum in a block.
fn activations_at(t: Tile, token: u32, b: u32, part: u32) -> vec4<u32> {
    return q[(x_row(t, token) * BLOCKS + min(b, BLOCKS - 1u)) * 4u + part];
}
fn info_of_block(t: Tile, token: u32, b: u32) -> vec2<u32> {
    return q_info[x_row(t, token) * BLOCKS + min(b, BLOCKS - 1u)];
}

fn write_product(t: Tile, row: u32, token: u32, p: f32) {
    if (t.row0 + row >= t.n_rows || t.token0 + token >= count_of_tokens()) { return; }
    let to = t.y + (t.token0 + token) * t.y_cols + t.row0 + row;
    if (ADD) { y[to] = y[to] + p; } else { y[to] = capped_by(SOFT_CAP, vec4(p)).x; }
}

@compute @workgroup_size(GEMM_THREADS)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    multiply(tile_of(group), lane);
}
