// A tile by products of four bytes: 4 rows x 8 tokens a thread, from 64 columns at a time. What the
// next step needs is on its way while this one is computed. Workgroup memory: 12.3 KB.
const ROWS = 64u;
const TOKENS = 128u;
const GEMM_THREADS = 256u;
// From 16 columns to the next 16, in vec4s: two more, so that four threads that store the columns of
// one row do so to other banks.
const ROWS_NEXT = 66u;
const TOKENS_NEXT = 130u;

var<workgroup> codes: array<vec4<u32>, 4u * ROWS_NEXT>;    // [16 columns of 64][row]
var<workgroup> tokens: array<vec4<u32>, 4u * TOKENS_NEXT>; // [16 columns of 64][token]

fn unpack(c: u32) -> vec4<u32> {
    return vec4(c, c >> 2u, c >> 4u, c >> 6u) & vec4(0x03030303u);
}

// Added one behind the other, as the instructions do it.
fn dot16(sum: i32, c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.w, x.w) + (dot4(c.z, x.z) + (dot4(c.y, x.y) + (dot4(c.x, x.x) + sum)));
}

fn multiply(t: Tile, lane: u32) {
    let tx = lane % 16u;
    let ty = lane / 16u;
    let part = lane % 4u;
    let row = lane / 4u; // which it loads, and two tokens
    var c = codes_at(t, row, 0u, part);
    var x0 = activations_at(t, row, 0u, part);
    var x1 = activations_at(t, row + 64u, 0u, part);
    var sums: array<vec4<i32>, 8>; // of a token each
    for (var b = 0u; b < BLOCKS; b++) {
        workgroupBarrier();
        codes[part * ROWS_NEXT + row] = unpack(c);
        tokens[part * TOKENS_NEXT + row] = x0;
        tokens[part * TOKENS_NEXT + row + 64u] = x1;
        workgroupBarrier();
        if (b + 1u < BLOCKS) {
            c = codes_at(t, row, b + 1u, part);
            x0 = activations_at(t, row, b + 1u, part);
            x1 = activations_at(t, row + 64u, b + 1u, part);
        }
        for (var k = 0u; k < 4u; k++) {
            let c0 = codes[k * ROWS_NEXT + tx];
            let c1 = codes[k * ROWS_NEXT + tx + 16u];
            let c2 = codes[k * ROWS_NEXT + tx + 32u];
            let c3 = codes[k * ROWS_NEXT + tx + 48u];
            for (var i = 0u; i < 8u; i++) {
                let x = tokens[k * TOKENS_NEXT + ty + 16u * i];
                let s = sums[i];
                sums[i] = vec4(dot16(s.x, c0, x), dot16(s.y, c1, x), dot16(s.z, c2, x),
                               dot16(s.w, c3, x));
            }
        }
    }
    for (var i = 0u; i < 8u; i++) {
        let token = ty + 16u * i;
        let scale = scale_of(t, token);
        for (var r = 0u; r < 4u; r++) { write(t, tx + 16u * r, token, sums[i][r], scale); }
    }
}
