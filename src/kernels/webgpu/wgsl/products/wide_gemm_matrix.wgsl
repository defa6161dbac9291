// A tile of gemm_groups.wgsl with codes of wide_codes.wgsl.
alias Codes = vec4<u32>;
alias RawScales = ScaleWords;
alias RowScales = Scales;

fn raw_scales(t: Tile, row: u32, b: u32) -> ScaleWords {
    return scale_words(tile_at(t, row), min(b, BLOCKS - 1u), row % 8u);
}
fn row_scales(words: ScaleWords) -> Scales { return scales_of(words); }

// What a group's sum needs of a token: the unit of a code in the upper bits of its byte, what OFFSET
// adds, and, for the minimum, minus the sum of the activations.
override INFO_PARTS: u32 = 1u + u32(MINIMA) * (PARTS - 1u);
fn info_of(info: vec2<u32>, p: u32) -> vec4<u32> {
    let unit = bitcast<f32>(info.x) * (1.0 / f32(1u << SHIFT));
    if (!MINIMA) { return vec4(bitcast<u32>(unit), 0u, 0u, 0u); }
    let less = (OFFSET << SHIFT) * sums_of_parts(info.y)[p];
    return vec4(bitcast<u32>(unit), bitcast<u32>(less), bitcast<u32>(minus_of(info)[p]), 0u);
}

fn add_group(sum: f32, codes: i32, s: Scales, p: u32, info: vec4<u32>) -> f32 {
    let unit = bitcast<f32>(info.x);
    if (!MINIMA) { return fma_once(s.scale[p], f32(codes) * unit, sum); }
    let product = fma_once(s.scale[p], f32(codes + bitcast<i32>(info.y)) * unit, sum);
    return fma_once(s.minimum[p], bitcast<f32>(info.z), product);
}
