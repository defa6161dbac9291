// Four columns of a row of codes.wgsl, whose one scale is in front, or of 16-bit numbers.
override HALVES: bool = false;
override BF16: bool = false;

fn four_columns(row: u32, i: u32) -> vec4<f32> {
    if (HALVES) {
        let at = row * COLS4 + i;
        let words = vec2(w[at / 2u][at % 2u * 2u], w[at / 2u][at % 2u * 2u + 1u]);
        return vec4(number16(BF16, words.x & 0xffffu), number16(BF16, words.x >> 16u),
                    number16(BF16, words.y & 0xffffu), number16(BF16, words.y >> 16u));
    }
    let tile = 16u + row / 8u * TILE_VECS;
    var scale = bitcast<f32>(w[0].x);
    if (GROUP > 0u) {
        let two = w[tile + TILE_VECS - TILE_SCALES + i * 4u / SCALE_COLS][row % 8u / 2u];
        scale = number16(false, (two >> (row % 2u * 16u)) & 0xffffu);
    }
    let each = 8u / BITS; // fours of columns in a word
    let codes = w[tile + i / each / 4u * 8u + row % 8u][i / each % 4u] >> (i % each * BITS);
    if (BITS == 1u) { return (2.0 * bytes4(codes & 0x01010101u) - 1.0) * scale; }
    return (bytes4(codes & 0x03030303u) - 1.0) * scale;
}
