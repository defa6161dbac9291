// A tile of gemm.wgsl with codes of wide_codes.wgsl by products of four bytes, on every device. A thread
// computes ROWS_EACH rows x TOKENS_EACH tokens; the data of the next block of 64 columns is loaded
// while this one is computed. Each group's integers are scaled where they are, in order.
override TOKENS: u32;      // of a tile
override TOKENS_EACH: u32; // 4 or 8
override ROWS_EACH: u32;   // 2 to 4
const TOKENS_EACH_MAX = 8u;
const ROWS_EACH_MAX = 4u;
const SUMS_MAX = TOKENS_EACH_MAX * ROWS_EACH_MAX;

override ROWS = 8u * ROWS_EACH;
override THREADS_Y = TOKENS / TOKENS_EACH; // at least 4
override GEMM_THREADS = 8u * THREADS_Y;    // at least ROWS and TOKENS
// What a thread loads of a block: 16 columns each of some rows and tokens.
override N_CODES = (4u * ROWS_EACH + THREADS_Y - 1u) / THREADS_Y;
override N_TOKENS = TOKENS_EACH / 2u;
const N_CODES_MAX = ROWS_EACH_MAX;
const N_TOKENS_MAX = TOKENS_EACH_MAX / 2u;

// From 16 columns to the next 16, in vec4s: two more, so that four threads that store the columns of
// one row do so to other banks.
override ROWS_NEXT = ROWS + 2u;
override TOKENS_NEXT = TOKENS + 2u;
override TOKENS_AT = 4u * ROWS_NEXT;
override STAGE = 4u * (ROWS_NEXT + TOKENS_NEXT);

var<workgroup> stage: array<vec4<u32>, STAGE>; // [16 columns of 64][row], then the same of tokens
var<workgroup> scales: array<vec2<f32>, PARTS * ROWS>; // [group][row]: scale, minimum
var<workgroup> infos: array<vec2<u32>, TOKENS>;

// Each thread also loads one row's scales, and one token's, if there are that many.
struct Load {
    codes: array<vec4<u32>, N_CODES_MAX>,
    tokens: array<vec4<u32>, N_TOKENS_MAX>,
    scales: ScaleWords,
    info: vec2<u32>,
}

// Loops have constant ends, so that they are unrolled and no index remains.
fn load(t: Tile, lane: u32, b: u32) -> Load {
    var l: Load;
    for (var i = 0u; i < N_CODES; i++) {
        let item = lane + GEMM_THREADS * i;
        l.codes[i] = codes_at(t, min(item / 4u, ROWS - 1u), b, lane % 4u);
    }
    for (var i = 0u; i < N_TOKENS; i++) {
        l.tokens[i] = activations_at(t, (lane + GEMM_THREADS * i) / 4u, b, lane % 4u);
    }
    let row = min(lane, ROWS - 1u);
    l.scales = scale_words(tile_at(t, row), min(b, BLOCKS - 1u), row % 8u);
    l.info = info_of_block(t, min(lane, TOKENS - 1u), b);
    return l;
}

fn store(lane: u32, l: ptr<function, Load>) {
    let i = lane % 4u;
    for (var k = 0u; k < N_CODES; k++) {
        let row = (lane + GEMM_THREADS * k) / 4u;
        if (row < ROWS) { stage[i * ROWS_NEXT + row] = unpacked((*l).codes[k], i); }
    }
    for (var k = 0u; k < N_TOKENS; k++) {
        stage[TOKENS_AT + i * TOKENS_NEXT + (lane + GEMM_THREADS * k) / 4u] = (*l).tokens[k];
    }
    if (lane < ROWS) {
        let s = scales_of((*l).scales);
        for (var p = 0u; p < PARTS; p++) {
            scales[p * ROWS + lane] = vec2(s.scale[p], s.minimum[p]);
        }
    }
    if (lane < TOKENS) { infos[lane] = (*l).info; }
}

alias Sums = array<i32, SUMS_MAX>; // [token][row]
alias Products = array<f32, SUMS_MAX>;

// Sixteen columns.
fn multiply_quarter(lane: u32, k: u32, sums: ptr<function, Sums>) {
    let codes = k * ROWS_NEXT + lane % 8u;
    let tokens = TOKENS_AT + k * TOKENS_NEXT + lane / 8u;
    var c: array<vec4<u32>, ROWS_EACH_MAX>;
    for (var r = 0u; r < ROWS_EACH; r++) { c[r] = stage[codes + 8u * r]; }
    for (var i = 0u; i < TOKENS_EACH; i++) {
        let x = stage[tokens + THREADS_Y * i];
        for (var r = 0u; r < ROWS_EACH; r++) {
            let s = i * ROWS_EACH + r;
            (*sums)[s] = dot16((*sums)[s], c[r], x);
        }
    }
}

// Sums of less than 2^22 begin at the integer that looks like 1.5 * 2^23, and so look like that
// number and the sum. They are 1 << SHIFT times too large; what OFFSET adds is in them from the
// beginning.
const ZERO = 0x4b400000;
const ZERO_VALUE = 12582912.0;
fn begin_part(lane: u32, p: u32, sums: ptr<function, Sums>) {
    for (var i = 0u; i < TOKENS_EACH; i++) {
        var first = ZERO;
        if (OFFSET != 0) {
            let own = sums_of_parts(infos[lane / 8u + THREADS_Y * i].y)[p];
            first += (OFFSET << SHIFT) * own;
        }
        for (var r = 0u; r < ROWS_EACH; r++) { (*sums)[i * ROWS_EACH + r] = first; }
    }
}

// Part p's integers are multiplied with its scales.
fn add_part(lane: u32, p: u32, sums: ptr<function, Sums>, products: ptr<function, Products>) {
    let each = 1.0 / f32(1u << SHIFT);
    var scale: array<vec2<f32>, ROWS_EACH_MAX>;
    for (var r = 0u; r < ROWS_EACH; r++) { scale[r] = scales[p * ROWS + lane % 8u + 8u * r]; }
    for (var i = 0u; i < TOKENS_EACH; i++) {
        let info = infos[lane / 8u + THREADS_Y * i];
        let unit = bitcast<f32>(info.x) * each;
        var minus = 0.0;
        if (MINIMA) { minus = minus_of(info)[p]; }
        for (var r = 0u; r < ROWS_EACH; r++) {
            let s = i * ROWS_EACH + r;
            let sum = bitcast<f32>((*sums)[s]) - ZERO_VALUE;
            (*products)[s] = fma_once(scale[r].x, sum * unit, (*products)[s]);
            if (MINIMA) { (*products)[s] = fma_once(scale[r].y, minus, (*products)[s]); }
        }
    }
}

fn multiply(t: Tile, lane: u32) {
    var sums: Sums;
    var products: Products;
    var l = load(t, lane, 0u);
    for (var b = 0u; b < BLOCKS; b++) {
        workgroupBarrier();
        store(lane, &l);
        workgroupBarrier();
        if (b + 1u < BLOCKS) { l = load(t, lane, b + 1u); }
        for (var k = 0u; k < 4u; k++) {
            if (k * PARTS % 4u == 0u) { begin_part(lane, k * PARTS / 4u, &sums); }
            multiply_quarter(lane, k, &sums);
            let ended = (k + 1u) * PARTS; // quarters of parts
            if (ended % 4u == 0u) { add_part(lane, ended / 4u - 1u, &sums, &products); }
        }
    }
    for (var i = 0u; i < TOKENS_EACH; i++) {
        for (var r = 0u; r < ROWS_EACH; r++) {
            write_product(t, lane % 8u + 8u * r, lane / 8u + THREADS_Y * i,
                          products[i * ROWS_EACH + r]);
        }
    }
}
