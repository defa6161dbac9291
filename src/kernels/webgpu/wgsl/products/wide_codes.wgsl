// How codes of four bits and more lie in tiles, and what they mean: comes before every kernel that
// multiplies with them. `w` is declared by the next file.
//
// A tile has 8 rows, as in codes.wgsl, and 256 bytes stand in front of a matrix, too. A tile is
//   - the codes: for each 64 columns [half][row] of vec4<u32>. Byte b of word i of a half has
//     columns 32 half + 8i + b and 8i + 4 + b in its lower and upper nibble; the higher bits
//     follow: for five bits [row] of 2 words, a half each, bit j of byte b being column 4j + b's;
//     for six bits [row] of 4 words, of 16 columns each, bits 2j and 2j + 1. Codes of eight bits
//     are [quarter][row] of vec4<u32>, a byte a column.
//   - the scales: for each 64 columns [row] of a word, see scales_of; [2][row] where those of two
//     groups and their minima are 16 bits each;
//   - the front, if SUPER > 0: for each SUPER columns [row] of two numbers of 16 bits, which a group's
//     signed bytes are multiplied with.
//
// Codes are signed: stored codes less OFFSET. A product equals the CPU's (dot_wide in
// grouped_scalar.c), operation by operation, group by group:
//
//     sum = fma(scale, f32(sum of codes * q) * x_scale, sum)
//     sum = fma(minimum, f32(minus the sum of q) * x_scale, sum)     if there are minima
//
// so its bits depend neither on the kernel nor on the device (`tern diagnose` says if a device's fma
// rounds twice).
override BITS: u32;          // 4, 5, 6 or 8
override PARTS: u32;         // groups of 64 columns: 1, 2 or 4
override SUPER: u32 = 0u;
override MINIMA: bool = false;
override OFFSET: i32 = 0;
override BF16: bool = false; // numbers of 16 bits, else F16
const GROUP = 64u;           // columns that activations share a scale

override CODE_VECS: u32 = BITS * 4u; // of a tile's block of 64 columns
override SCALE_WORDS: u32 = 1u + u32(MINIMA && PARTS == 2u && SUPER == 0u);
override SCALES_AT: u32 = BLOCKS * CODE_VECS;
override FRONT_AT: u32 = SCALES_AT + BLOCKS * 2u * SCALE_WORDS;
override SUPER_COLS: u32 = SUPER + u32(SUPER == 0u); // a divisor
override TILE_VECS: u32 = FRONT_AT + u32(SUPER > 0u) * (BLOCKS * 64u / SUPER_COLS) * 2u;

// ---- Codes -------------------------------------------------------------------------------------

// Those of a block of 64 columns of a row: two halves and their higher bits, or four quarters.
struct Wide { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }
fn wide_codes(tile: u32, block: u32, row: u32) -> Wide {
    let at = tile + block * CODE_VECS;
    var c: Wide;
    c.a = w[at + row];
    c.b = w[at + 8u + row];
    if (BITS == 5u) {
        let high = at + 16u + row / 2u;
        c.c = vec4(w[high][row % 2u * 2u], w[high][row % 2u * 2u + 1u], 0u, 0u);
    }
    if (BITS == 6u || BITS == 8u) { c.c = w[at + 16u + row]; }
    if (BITS == 8u) { c.d = w[at + 24u + row]; }
    return c;
}

// Sixteen codes byte by byte, each in the upper bits of its byte, by what quarter i of a block has:
// two words of nibbles and the word that has the higher bits.
override SHIFT: u32 = 8u - BITS;
fn upper_bytes(nibbles: vec2<u32>, high: u32, i: u32) -> vec4<u32> {
    let c = vec4(nibbles.x << 4u, nibbles.x, nibbles.y << 4u, nibbles.y);
    if (BITS == 4u) { return c & vec4(0xf0f0f0f0u); }
    if (BITS == 5u) {
        let top = vec4(high) << (vec4(7u, 6u, 5u, 4u) - vec4(i % 2u * 4u));
        return ((c >> vec4(1u)) & vec4(0x78787878u)) | (top & vec4(0x80808080u));
    }
    let top = vec4(high) << vec4(6u, 4u, 2u, 0u);
    return ((c >> vec4(2u)) & vec4(0x3c3c3c3cu)) | (top & vec4(0xc0c0c0c0u));
}

// Quarter i of a block; i is a constant.
fn quarter(c: Wide, i: u32) -> vec4<u32> {
    if (BITS == 8u) {
        if (i == 0u) { return c.a; }
        if (i == 1u) { return c.b; }
        if (i == 2u) { return c.c; }
        return c.d;
    }
    var half = c.a;
    if (i >= 2u) { half = c.b; }
    var nibbles = half.xy;
    if (i % 2u == 1u) { nibbles = half.zw; }
    var high = c.c[i];
    if (BITS == 5u) { high = c.c[i / 2u]; }
    return upper_bytes(nibbles, high, i);
}

// ---- Scales ------------------------------------------------------------------------------------

fn numbers(word: u32) -> vec2<f32> {
    return vec2(number16(BF16, word & 0xffffu), number16(BF16, word >> 16u));
}

// The scales and minima of the groups of a block.
struct Scales { scale: vec4<f32>, minimum: vec4<f32> }

fn word_of(at: u32, n: u32) -> u32 { return w[at + n / 4u][n % 4u]; }
struct ScaleWords { a: u32, b: u32, front: u32 }
fn scale_words(tile: u32, block: u32, row: u32) -> ScaleWords {
    let n = block * SCALE_WORDS * 8u + row;
    var s = ScaleWords(word_of(tile + SCALES_AT, n), 0u, 0u);
    if (SCALE_WORDS == 2u) { s.b = word_of(tile + SCALES_AT, n + 8u); }
    if (SUPER > 0u) { s.front = word_of(tile + FRONT_AT, block * 64u / SUPER_COLS * 8u + row); }
    return s;
}

fn scales_of(s: ScaleWords) -> Scales {
    if (SUPER > 0u) {
        let factor = numbers(s.front);
        let v = bytes4(s.a);
        if (PARTS == 4u) { return Scales(v * factor.x, vec4(0.0)); }
        return Scales(vec4(v.xy * factor.x, 0.0, 0.0), vec4(v.zw * factor.y, 0.0, 0.0));
    }
    let a = numbers(s.a);
    if (PARTS == 1u) { return Scales(vec4(a.x, 0.0, 0.0, 0.0), vec4(a.y, 0.0, 0.0, 0.0)); }
    return Scales(vec4(a, 0.0, 0.0), vec4(numbers(s.b), 0.0, 0.0));
}

// Columns 4 at .. 4 at + 3 of a row: the numbers that a file's codes stand for, exactly.
fn four_columns(row: u32, at: u32) -> vec4<f32> {
    let tile = 16u + row / 8u * TILE_VECS;
    let block = at / 16u;
    let i = at % 16u / 4u; // quarter
    let codes = quarter(wide_codes(tile, block, row % 8u), i);
    let s = scales_of(scale_words(tile, block, row % 8u));
    let p = i * PARTS / 4u;
    // The code is in the upper bits of its byte.
    let v = bytes4(codes[at % 4u]) / f32(1u << SHIFT) + f32(OFFSET);
    return v * s.scale[p] - s.minimum[p];
}

// ---- Products ----------------------------------------------------------------------------------

// Added one after the other, as the instruction does it.
fn dot16(sum: i32, c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.w, x.w) + (dot4(c.z, x.z) + (dot4(c.y, x.y) + (dot4(c.x, x.x) + sum)));
}

// The sums of the activations of a block's groups; not needed for four groups.
fn sums_of_parts(halves: u32) -> vec4<i32> {
    let two = sums_of_halves(halves);
    if (PARTS == 1u) { return vec4(two.x + two.y, 0, 0, 0); }
    return vec4(two, 0, 0);
}

// The products that fma takes, from the sums of a block's quarters.
fn products_of(quarters: vec4<i32>, info: vec2<u32>) -> vec4<f32> {
    var sum = quarters;
    if (PARTS == 2u) { sum = vec4(sum.x + sum.y, sum.z + sum.w, 0, 0); }
    if (PARTS == 1u) { sum.x += sum.y + sum.z + sum.w; }
    sum = sum >> vec4(SHIFT);
    if (OFFSET != 0) { sum += OFFSET * sums_of_parts(info.y); }
    return vec4<f32>(sum) * bitcast<f32>(info.x);
}
fn minus_of(info: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(-sums_of_parts(info.y)) * bitcast<f32>(info.x);
}
