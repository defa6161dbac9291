// The same product as ternary_gemv.wgsl for many tokens: a workgroup makes 64 rows of 128 tokens,
// 4 rows x 8 tokens a thread, from 64 columns at a time in workgroup memory (12 KB). Codes are
// unpacked once for all tokens of the tile. Grid: (rows / 64, tokens / 128).
override BLOCKS: u32;
override ADD: bool;
override AT0: u32;
override ROWS0: u32;
override FIRST_ROW: u32; // of a part of a matrix larger than a binding
override Y_COLS: u32;    // rows of the whole matrix

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> q_info: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> y0: array<f32>;

var<workgroup> codes: array<vec4<u32>, 256>;  // [16 columns of 64][row]
var<workgroup> tokens: array<vec4<u32>, 512>; // [16 columns of 64][token]

fn unpack(c: u32) -> vec4<u32> {
    return vec4(c, c >> 2u, c >> 4u, c >> 6u) & vec4(0x03030303u);
}

fn dot16(c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.x, x.x) + dot4(c.y, x.y) + dot4(c.z, x.z) + dot4(c.w, x.w);
}

@compute @workgroup_size(256)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % 16u;
    let ty = lane / 16u;
    let row0 = group.x * 64u;
    let token0 = group.y * 128u;
    let last_tile = (ROWS0 + 7u) / 8u - 1u;
    var sum0 = vec4(0); // four rows each; a token each
    var sum1 = vec4(0);
    var sum2 = vec4(0);
    var sum3 = vec4(0);
    var sum4 = vec4(0);
    var sum5 = vec4(0);
    var sum6 = vec4(0);
    var sum7 = vec4(0);
    let load_row = lane / 4u; // this thread unpacks 16 columns of one row
    let load_part = lane % 4u;
    let load_tile = min((row0 + load_row) / 8u, last_tile);
    let load_at = AT0 + 16u + load_tile * BLOCKS * 8u + load_row % 8u;
    for (var b = 0u; b < BLOCKS; b++) {
        let c = w[load_at + b * 8u];
        codes[load_part * 64u + load_row] = unpack(c[load_part]);
        for (var i = lane; i < 512u; i += 256u) {
            let token = min(token0 + i / 4u, run.n_tokens - 1u);
            tokens[(i % 4u) * 128u + i / 4u] = q[(token * BLOCKS + b) * 4u + i % 4u];
        }
        workgroupBarrier();
        for (var k = 0u; k < 4u; k++) {
            let c0 = codes[k * 64u + tx];
            let c1 = codes[k * 64u + tx + 16u];
            let c2 = codes[k * 64u + tx + 32u];
            let c3 = codes[k * 64u + tx + 48u];
            var x = tokens[k * 128u + ty];
            sum0 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
            x = tokens[k * 128u + ty + 16u];
            sum1 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
            x = tokens[k * 128u + ty + 32u];
            sum2 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
            x = tokens[k * 128u + ty + 48u];
            sum3 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
            x = tokens[k * 128u + ty + 64u];
            sum4 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
            x = tokens[k * 128u + ty + 80u];
            sum5 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
            x = tokens[k * 128u + ty + 96u];
            sum6 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
            x = tokens[k * 128u + ty + 112u];
            sum7 += vec4(dot16(c0, x), dot16(c1, x), dot16(c2, x), dot16(c3, x));
        }
        workgroupBarrier();
    }
    let row = row0 + tx;
    let token = token0 + ty;
    store(token, row, sum0);
    store(token + 16u, row, sum1);
    store(token + 32u, row, sum2);
    store(token + 48u, row, sum3);
    store(token + 64u, row, sum4);
    store(token + 80u, row, sum5);
    store(token + 96u, row, sum6);
    store(token + 112u, row, sum7);
}

fn store(token: u32, row: u32, sums: vec4<i32>) {
    if (token >= run.n_tokens) { return; }
    let info = q_info[token];
    let scale = bitcast<f32>(w[AT0].x) * bitcast<f32>(info.x);
    let p = vec4<f32>(sums - vec4(bitcast<i32>(info.y))) * scale;
    for (var i = 0u; i < 4u; i++) {
        if (row + 16u * i < ROWS0) {
            let to = token * Y_COLS + FIRST_ROW + row + 16u * i;
            if (ADD) { y0[to] = y0[to] + p[i]; } else { y0[to] = p[i]; }
        }
    }
}
