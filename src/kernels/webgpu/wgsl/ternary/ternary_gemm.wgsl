// What gemm.wgsl multiplies, as codes.wgsl says: read word by word.
@group(0) @binding(1) var<storage, read> w: array<u32>;

// The word of 16 codes that starts `part` words into block b of a row of the tile. Past the last
// block there is nothing.
fn codes_at(t: Tile, row: u32, b: u32, part: u32) -> u32 {
    if (b >= BLOCKS) { return 0u; }
    let at = 4u * tile_at(t, row) + row % 8u * 4u;
    if (BITS == 1u) {
        return w[at + b / 2u * 32u + b % 2u * 2u + part / 2u] >> (4u * (part % 2u));
    }
    return w[at + b * 32u + part];
}

// In groups: a row's scale in a block.
fn scale_in_block(t: Tile, row: u32, b: u32) -> f32 {
    let i = TILE_VECS - TILE_SCALES + min(b, BLOCKS - 1u) * 64u / SCALE_COLS;
    return unpack2x16float(w[(tile_at(t, row) + i) * 4u + row % 8u / 2u])[row % 2u];
}

// The codes' offset of one adds the token's integers to every sum; that and the scales:
struct Scale { factor: f32, less: i32 }

fn scale_of(t: Tile, token: u32) -> Scale {
    let info = q_info[x_row(t, token)];
    return Scale(bitcast<f32>(w[4u * t.codes]) * bitcast<f32>(info.x), bitcast<i32>(info.y));
}

fn write(t: Tile, row: u32, token: u32, sum: i32, scale: Scale) {
    write_product(t, row, token, f32(sum - scale.less) * scale.factor);
}
