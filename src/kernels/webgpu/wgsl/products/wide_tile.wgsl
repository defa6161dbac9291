// What gemm.wgsl multiplies, as wide_codes.wgsl says.
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;

// Two words of nibbles and one of higher bits, or four of bytes.
fn codes_at(t: Tile, row: u32, b: u32, i: u32) -> vec4<u32> {
    let r = row % 8u;
    let at = tile_at(t, row) + min(b, BLOCKS - 1u) * CODE_VECS;
    if (BITS == 8u) { return w[at + i * 8u + r]; }
    let half = w[at + i / 2u * 8u + r];
    var high = 0u;
    if (BITS == 5u) { high = w[at + 16u + r / 2u][r % 2u * 2u + i / 2u]; }
    if (BITS == 6u) { high = w[at + 16u + r][i]; }
    if (i % 2u == 1u) { return vec4(half.zw, high, 0u); }
    return vec4(half.xy, high, 0u);
}

fn unpacked(c: vec4<u32>, i: u32) -> vec4<u32> {
    if (BITS == 8u) { return c; }
    return upper_bytes(c.xy, c.z, i);
}
