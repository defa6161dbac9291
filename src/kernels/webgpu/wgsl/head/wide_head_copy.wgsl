// Rows of codes of wide_codes.wgsl for head_copy.wgsl.
override COLS4: u32; // columns / 4

struct Column4 { codes: vec4<f32>, factors: vec2<f32> }
fn column4(row: u32, i: u32) -> Column4 {
    let tile = 16u + row / 8u * TILE_VECS;
    let block = i / 16u;
    let part = i % 16u / 4u; // quarter
    let codes = quarter(wide_codes(tile, block, row % 8u), part);
    let s = scales_of(scale_words(tile, block, row % 8u));
    return Column4(bytes4(codes[i % 4u]), factors(s, part * PARTS / 4u));
}

fn weights4(row: u32, i: u32) -> vec4<f32> {
    let c = column4(row, i);
    return c.codes * c.factors.x + c.factors.y * f32(MINIMA);
}

// With minima a weight is a sum of two numbers that may be greater than itself, and x is multiplied
// with each of them.
fn sizes4(row: u32, i: u32) -> vec4<f32> {
    let c = column4(row, i);
    return abs(c.codes * c.factors.x) + abs(c.factors.y) * f32(MINIMA);
}
