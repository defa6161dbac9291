// A tile of gemm_half.wgsl with codes of wide_codes.wgsl.
alias Codes = vec4<u32>;
alias RawScales = ScaleWords;

fn raw_scales(t: Tile, row: u32, b: u32) -> ScaleWords {
    return scale_words(tile_at(t, row), b, row % 8u);
}
fn signed_bytes(c: vec4<u32>, part: u32) -> vec4<u32> { return unpacked(c, part); }

// What a byte of a quarter is multiplied with, and what is added.
fn weights_of(words: ScaleWords, part: u32) -> vec2<f32> {
    let s = scales_of(words);
    let p = part * PARTS / 4u;
    if (!MINIMA) { return vec2(s.scale[p] / f32(1u << SHIFT), 0.0); }
    return vec2(s.scale[p] / f32(1u << SHIFT), f32(OFFSET) * s.scale[p] - s.minimum[p]);
}
