// A tile of gemm_groups.wgsl with codes of codes.wgsl in groups.
alias Codes = u32;
alias RawScales = f32;
alias RowScales = f32;
const PARTS = 1u; // a block of activations has one scale
const INFO_PARTS = 1u;

fn unpacked(c: u32, part: u32) -> vec4<u32> { return unpack(c); }
fn raw_scales(t: Tile, row: u32, b: u32) -> f32 { return scale_in_block(t, row, b); }
fn row_scales(scale: f32) -> f32 { return scale; }

// Its scale, and the sums of the activations.
fn info_of(info: vec2<u32>, p: u32) -> vec4<u32> { return vec4(info, 0u, 0u); }
fn add_group(sum: f32, codes: i32, scale: f32, p: u32, info: vec4<u32>) -> f32 {
    return add_rounded(sum, scaled(sum_of_numbers(codes, info.y), bitcast<f32>(info.x), scale));
}
