// A tile of gemm_half.wgsl with codes of codes.wgsl in groups.
alias Codes = u32;
alias RawScales = f32;

fn raw_scales(t: Tile, row: u32, b: u32) -> f32 { return scale_in_block(t, row, b); }
fn signed_bytes(c: u32, part: u32) -> vec4<u32> { return unpack(c); }

// What a code is multiplied with, and what is added: codes are one too large, or half as large and
// a half too large.
fn weights_of(scale: f32, part: u32) -> vec2<f32> {
    if (BITS == 1u) { return vec2(2.0 * scale, -scale); }
    return vec2(scale, -scale);
}
