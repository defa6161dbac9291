// How codes lie in tiles, and what they mean: comes before every kernel that multiplies with them.
//
// A matrix is cut into tiles of 8 rows; a tile is [column block of 64][row of 8] of vec4<u32>, so
// that neighbouring threads read neighbouring 16 bytes. Word i of such a vector has, in bits 2j and
// 2j + 1 of byte b, code + 1 of column 16i + 4j + b: shifted and masked it lies byte by byte as the
// int8 activations do. Codes of one bit lie in the same way in vectors of 128 columns: bit j of
// byte b of word i is column 32i + 4j + b, 1 for +1 and 0 for -1. A matrix larger than a binding
// comes in parts of whole tiles, each with its own dispatch.
//
// In front of a matrix are 256 bytes; the first four are its scale. Where each GROUP columns have a
// scale of their own, it does not count; their scales follow the codes of a tile as f16,
// [group][row of 8]. Then activations have a scale for each block of 64 columns, too, and a product
// equals the CPU's (grouped_scalar.c), operation by operation:
//
//     sum = sum + w_scale * (f32(sum of integers of the block) * x_scale)    block by block
//
// so its bits depend neither on the kernel nor on the device, but for f16 scales below 2^-14, which
// a device may take for zero.
override BITS: u32 = 2u;
override GROUP: u32 = 0u; // 64 or 128; 0: the matrix has one scale

override SCALE_COLS: u32 = GROUP + u32(GROUP == 0u); // a divisor
override TILE_SCALES: u32 = u32(GROUP > 0u) * (BLOCKS * 64u / SCALE_COLS); // vec4s of a tile
override TILE_VECS: u32 = BLOCKS * 4u * BITS + TILE_SCALES;

// Sixteen columns' codes, byte by byte: `c` is their word, or that of 32 shifted to theirs.
fn unpack(c: u32) -> vec4<u32> {
    if (BITS == 1u) { return vec4(c, c >> 1u, c >> 2u, c >> 3u) & vec4(0x01010101u); }
    return vec4(c, c >> 2u, c >> 4u, c >> 6u) & vec4(0x03030303u);
}

// What the sum of codes times activations stands for: codes are one too large, or half as large and
// a half too large. halves: the sums of the activations.
fn sum_of_numbers(codes_sum: i32, halves: u32) -> i32 {
    let two = sums_of_halves(halves);
    let less = two.x + two.y;
    if (BITS == 1u) { return 2 * codes_sum - less; }
    return codes_sum - less;
}

// A block's part of the sum: from its integers, and the activations' and the weights' scale.
fn scaled(sum: i32, x_scale: f32, w_scale: f32) -> f32 { return w_scale * (f32(sum) * x_scale); }
