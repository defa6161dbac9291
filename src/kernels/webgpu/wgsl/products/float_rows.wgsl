// Rows of weights of f16 pairs, of f32, or of int8 with an f16 scale for each 32 columns (the integers
// of a row first, then its scales). Comes before the kernels that multiply with them.
override COLS4: u32;     // columns / 4
override IS_F16: bool;
override IS_Q8: bool;
override ROW4: u32 = 1u; // vec4s of a row with scales

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;

fn halves(low: u32, high: u32) -> vec4<f32> {
    return vec4(unpack2x16float(low), unpack2x16float(high));
}

fn scale(row: u32, block: u32) -> f32 {
    let i = COLS4 + block / 2u;
    return unpack2x16float(w[row * ROW4 + i / 4u][i % 4u])[block % 2u];
}

fn weights4(row: u32, i: u32) -> vec4<f32> {
    if (IS_Q8) { return bytes4(w[row * ROW4 + i / 4u][i % 4u]) * scale(row, i / 8u); }
    if (IS_F16) {
        let v = w[(row * COLS4 + i) / 2u];
        if (i % 2u == 0u) { return halves(v.x, v.y); }
        return halves(v.z, v.w);
    }
    return bitcast<vec4<f32>>(w[row * COLS4 + i]);
}
fn sizes4(row: u32, i: u32) -> vec4<f32> { return weights4(row, i); }
