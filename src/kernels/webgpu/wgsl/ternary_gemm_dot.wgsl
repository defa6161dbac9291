// A tile by products of four bytes: 5 rows x 8 tokens a thread, from 64 columns at a time. The data
// of the next step is loaded while this one is computed. The tile is no larger than keeps the
// arithmetic busy: a few large tiles would leave some of the processors idle at the end. Workgroup
// memory: 11 KB.
const ROWS = 40u;
const TOKENS = 128u;
const GEMM_THREADS = 128u;
const ROWS_EACH = 5u;
const TOKENS_EACH = 8u;
// From 16 columns to the next 16, in vec4s: two more, so that four threads that store the columns of
// one row do so to other banks.
const ROWS_NEXT = ROWS + 2u;
const TOKENS_NEXT = TOKENS + 2u;

var<workgroup> codes: array<vec4<u32>, 4u * ROWS_NEXT>;    // [16 columns of 64][row]
var<workgroup> tokens: array<vec4<u32>, 4u * TOKENS_NEXT>; // [16 columns of 64][token]

fn unpack(c: u32) -> vec4<u32> {
    return vec4(c, c >> 2u, c >> 4u, c >> 6u) & vec4(0x03030303u);
}

// Added one after the other, as the instruction does it.
fn dot16(sum: i32, c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.w, x.w) + (dot4(c.z, x.z) + (dot4(c.y, x.y) + (dot4(c.x, x.x) + sum)));
}

// What a thread loads into workgroup memory: 16 columns of a row, of an eighth row by the first 32
// threads, and of four tokens.
struct Load { codes: u32, more: u32, tokens: array<vec4<u32>, 4> }

fn load(t: Tile, lane: u32, b: u32) -> Load {
    var l: Load;
    l.codes = codes_at(t, lane / 4u, b, lane % 4u);
    if (lane < 32u) { l.more = codes_at(t, 32u + lane / 4u, b, lane % 4u); }
    for (var i = 0u; i < 4u; i++) {
        l.tokens[i] = activations_at(t, lane / 4u + 32u * i, b, lane % 4u);
    }
    return l;
}

fn multiply(t: Tile, lane: u32) {
    let tx = lane % 8u;
    let ty = lane / 8u;
    let codes_to = lane % 4u * ROWS_NEXT + lane / 4u;
    let tokens_to = lane % 4u * TOKENS_NEXT + lane / 4u;
    var sums: array<array<i32, ROWS_EACH>, TOKENS_EACH>;
    var l = load(t, lane, 0u);
    for (var b = 0u; b < BLOCKS; b++) {
        workgroupBarrier();
        codes[codes_to] = unpack(l.codes);
        if (lane < 32u) { codes[codes_to + 32u] = unpack(l.more); }
        for (var i = 0u; i < 4u; i++) { tokens[tokens_to + 32u * i] = l.tokens[i]; }
        workgroupBarrier();
        if (b + 1u < BLOCKS) { l = load(t, lane, b + 1u); }
        for (var k = 0u; k < 4u; k++) {
            var c: array<vec4<u32>, ROWS_EACH>;
            for (var r = 0u; r < ROWS_EACH; r++) { c[r] = codes[k * ROWS_NEXT + tx + 8u * r]; }
            for (var i = 0u; i < TOKENS_EACH; i++) {
                let x = tokens[k * TOKENS_NEXT + ty + 16u * i];
                for (var r = 0u; r < ROWS_EACH; r++) { sums[i][r] = dot16(sums[i][r], c[r], x); }
            }
        }
    }
    for (var i = 0u; i < TOKENS_EACH; i++) {
        let token = ty + 16u * i;
        let scale = scale_of(t, token);
        for (var r = 0u; r < ROWS_EACH; r++) { write(t, tx + 8u * r, token, sums[i][r], scale); }
    }
}
