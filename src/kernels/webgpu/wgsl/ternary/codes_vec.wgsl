// Codes of codes.wgsl read by vectors; `w` is declared by the next file.

// The codes of a block of 64 columns, for a row in the tile that begins at `tile`; codes of one bit
// are in the first two words.
fn codes_of(tile: u32, block: u32, row: u32) -> vec4<u32> {
    if (BITS == 1u) {
        let c = w[tile + block / 2u * 8u + row];
        if (block % 2u == 1u) { return c.zwzw; }
        return c;
    }
    return w[tile + block * 8u + row];
}

// Sixteen of these columns, byte by byte.
fn codes16(c: vec4<u32>, i: u32) -> vec4<u32> {
    if (BITS == 1u) { return unpack(c[i / 2u] >> (4u * (i % 2u))); }
    return unpack(c[i]);
}

fn scale_at(tile: u32, block: u32, row: u32) -> f32 {
    if (GROUP == 0u) { return 1.0; }
    let i = TILE_VECS - TILE_SCALES + block * 64u / SCALE_COLS;
    return unpack2x16float(w[tile + i][row / 2u])[row % 2u];
}
