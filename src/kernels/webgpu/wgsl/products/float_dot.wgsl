// How 32 threads multiply four rows of weights with one row of x: each takes 16 bytes of each of
// them, then those 32 further on, and adds up a chain of fma. Comes before the kernels that do.
override EACH: u32 = 1u; // 2 of f16, 4 of int8
override UNITS: u32 = COLS4 / EACH; // vec4<u32>s of a row of weights, without scales

struct Weights { // of four rows, and of int8 the scales
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
    scales: vec4<f32>,
}

fn ask_weights(r: vec4<u32>, unit: u32) -> Weights {
    let i = min(unit, UNITS - 1u);
    if (IS_Q8) {
        return Weights(w[r.x * ROW4 + i], w[r.y * ROW4 + i], w[r.z * ROW4 + i], w[r.w * ROW4 + i],
                       vec4(scale(r.x, i / 2u), scale(r.y, i / 2u), scale(r.z, i / 2u),
                            scale(r.w, i / 2u)));
    }
    return Weights(w[r.x * UNITS + i], w[r.y * UNITS + i], w[r.z * UNITS + i], w[r.w * UNITS + i],
                   vec4(1.0));
}

// Four columns of EACH of a row; integers times scales are exact.
fn unpacked(c: vec4<u32>, scale: f32, k: u32) -> vec4<f32> {
    if (IS_Q8) { return bytes4(c[k]) * scale; }
    if (IS_F16) { return halves(c[2u * k], c[2u * k + 1u]); }
    return bitcast<vec4<f32>>(c);
}

// The same of four rows, by column.
fn columns4(w: Weights, k: u32) -> mat4x4<f32> {
    return transpose(mat4x4(unpacked(w.a, w.scales.x, k), unpacked(w.b, w.scales.y, k),
                            unpacked(w.c, w.scales.z, k), unpacked(w.d, w.scales.w, k)));
}

fn fma4(m: mat4x4<f32>, v: vec4<f32>, sum: vec4<f32>) -> vec4<f32> {
    let s = fma(m[1], vec4(v.y), fma(m[0], vec4(v.x), sum));
    return fma(m[3], vec4(v.w), fma(m[2], vec4(v.z), s));
}
