// Matrices of codes (codes.wgsl) x the int8 rows of many tokens. A workgroup computes a tile, ROWS rows of
// TOKENS tokens: codes are unpacked to int8 in workgroup memory once for all the tile's tokens. The
// tile is multiplied by ternary_gemm_dot.wgsl, on every device, or ternary_gemm_matrix.wgsl, if
// matrix units take int8; the sums are the same integers. Grid: (tiles of all matrices, tokens /
// TOKENS).
//
// Up to three matrices that read the same activations are one dispatch, if they lie in one buffer;
// so do their results, each at its own place.
override BLOCKS: u32; // of 64 columns
override ADD: bool;   // to what is in y
// Of matrix i: where it begins (in vec4s), its first tile, its rows, where its results begin
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

@group(0) @binding(1) var<storage, read> w: array<u32>;
@group(0) @binding(2) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> q_info: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

struct Tile {
    codes: u32, // where its matrix begins, in words
    row0: u32,
    token0: u32,
    n_rows: u32, // of the matrix
    y: u32,
    y_cols: u32,
}

fn tile_of(group: vec3<u32>) -> Tile {
    let token0 = group.y * TOKENS;
    if (group.x >= TILE2) {
        return Tile(4u * AT2, (group.x - TILE2) * ROWS, token0, ROWS2, Y2, ROWS2);
    }
    if (group.x >= TILE1) {
        return Tile(4u * AT1, (group.x - TILE1) * ROWS, token0, ROWS1, Y1, ROWS1);
    }
    return Tile(0u, group.x * ROWS, token0, ROWS0, Y0, Y_COLS);
}

// The word of 16 codes that starts `part` words into block b of a row of the tile. Past the last
// row, the last eight rows repeat; past the last block there is nothing.
fn codes_at(t: Tile, row: u32, b: u32, part: u32) -> u32 {
    if (b >= BLOCKS) { return 0u; }
    let at = tile_at(t, row) + row % 8u * 4u;
    if (BITS == 1u) {
        return w[at + b / 2u * 32u + b % 2u * 2u + part / 2u] >> (4u * (part % 2u));
    }
    return w[at + b * 32u + part];
}

fn tile_at(t: Tile, row: u32) -> u32 {
    let eight = min((t.row0 + row) / 8u, (t.n_rows + 7u) / 8u - 1u);
    return t.codes + 64u + eight * TILE_VECS * 4u;
}

// In groups: a row's scale in a block, and a token's scale and sum.
fn scale_in_block(t: Tile, row: u32, b: u32) -> f32 {
    let i = TILE_VECS - TILE_SCALES + min(b, BLOCKS - 1u) * 64u / SCALE_COLS;
    return unpack2x16float(w[tile_at(t, row) + i * 4u + row % 8u / 2u])[row % 2u];
}
fn info_of_block(t: Tile, token: u32, b: u32) -> vec2<u32> {
    return q_info[min(t.token0 + token, run.n_tokens - 1u) * BLOCKS + min(b, BLOCKS - 1u)];
}

// The same of activations; past the last token, the last one repeats.
fn activations_at(t: Tile, token: u32, b: u32, part: u32) -> vec4<u32> {
    return q[(min(t.token0 + token, run.n_tokens - 1u) * BLOCKS + min(b, BLOCKS - 1u)) * 4u + part];
}

// The codes' offset of one adds the token's integers to every sum; that and the scales:
struct Scale { factor: f32, less: i32 }

fn scale_of(t: Tile, token: u32) -> Scale {
    let info = q_info[min(t.token0 + token, run.n_tokens - 1u)];
    return Scale(bitcast<f32>(w[t.codes]) * bitcast<f32>(info.x), bitcast<i32>(info.y));
}

fn write(t: Tile, row: u32, token: u32, sum: i32, scale: Scale) {
    write_product(t, row, token, f32(sum - scale.less) * scale.factor);
}

fn write_product(t: Tile, row: u32, token: u32, p: f32) {
    if (t.row0 + row >= t.n_rows || t.token0 + token >= run.n_tokens) { return; }
    let to = t.y + (t.token0 + token) * t.y_cols + t.row0 + row;
    if (ADD) { y[to] = y[to] + p; } else { y[to] = p; }
}

@compute @workgroup_size(GEMM_THREADS)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    multiply(tile_of(group), lane);
}
