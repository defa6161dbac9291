// The chain of fma by which codes of wide_codes.wgsl are multiplied with floats, for every kernel whose
// results must have the same bits.
override BLOCKS: u32; // of 64 columns
@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;

fn fma4(c: u32, x: vec4<f32>, sum: f32) -> f32 {
    let v = bytes4(c);
    return fma(v.w, x.w, fma(v.z, x.z, fma(v.y, x.y, fma(v.x, x.x, sum))));
}

// The factors of a code of this group, which is in the upper bits of its byte, and of the sum of x.
fn factors(s: Scales, p: u32) -> vec2<f32> {
    let unit = 1.0 / f32(1u << SHIFT);
    return vec2(s.scale[p] * unit, f32(OFFSET) * s.scale[p] - s.minimum[p]);
}

// Sixteen columns: their codes times x.
fn dot_of_16(codes: vec4<u32>, x0: vec4<f32>, x1: vec4<f32>, x2: vec4<f32>, x3: vec4<f32>) -> f32 {
    let first = fma4(codes.y, x1, fma4(codes.x, x0, 0.0));
    return fma4(codes.w, x3, fma4(codes.z, x2, first));
}
fn sum_of_16(x0: vec4<f32>, x1: vec4<f32>, x2: vec4<f32>, x3: vec4<f32>) -> f32 {
    let all = x0 + x1 + x2 + x3;
    return all.x + all.y + all.z + all.w;
}
// f: what factors gives; total: the sum of x, which counts if there are minima.
fn add_16(sum: f32, f: vec2<f32>, dot: f32, total: f32) -> f32 {
    let product = fma(f.x, dot, sum);
    if (MINIMA) { return fma(f.y, total, product); }
    return product;
}
