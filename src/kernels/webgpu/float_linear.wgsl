// y[t][row] = dot(x[t], W[row]) for weights of f16 pairs, of f32, or of int8 with an f16 scale for
// each 32 columns (the integers of a row first, then its scales). A large matrix comes in parts of
// whole rows, each with its own dispatch.
override COLS4: u32;     // columns / 4
override IS_F16: bool;
override IS_Q8: bool;
override ROW4: u32 = 1u; // vec4s of a row with scales
override ADD: bool;
override FIRST_ROW: u32; // of the part
override N_ROWS: u32;
override Y_COLS: u32;    // rows of the whole matrix
override OUTPUTS: bool;  // rows of x are counted from run.first_output on, those of y from 0

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn halves(low: u32, high: u32) -> vec4<f32> {
    return vec4(unpack2x16float(low), unpack2x16float(high));
}

fn write(to: u32, value: f32) {
    if (ADD) { y[to] = y[to] + value; } else { y[to] = value; }
}

fn scale(row: u32, block: u32) -> f32 {
    let i = COLS4 + block / 2u;
    return unpack2x16float(w[row * ROW4 + i / 4u][i % 4u])[block % 2u];
}

fn weights4(row: u32, i: u32) -> vec4<f32> {
    if (IS_Q8) { return bytes4(w[row * ROW4 + i / 4u][i % 4u]) * scale(row, i / 8u); }
    if (IS_F16) {
        let v = w[(row * COLS4 + i) / 2u];
        if (i % 2u == 0u) { return halves(v.x, v.y); }
        return halves(v.z, v.w);
    }
    return bitcast<vec4<f32>>(w[row * COLS4 + i]);
}

// The product of 8 f16 columns from vec4 i of a row on, or of 4 f32.
fn some(row: u32, i: u32, x0: vec4<f32>, x1: vec4<f32>) -> f32 {
    if (IS_F16) {
        let v = w[row * (COLS4 / 2u) + i];
        return dot(halves(v.x, v.y), x0) + dot(halves(v.z, v.w), x1);
    }
    return dot(bitcast<vec4<f32>>(w[row * COLS4 + i]), x0);
}

// 16 columns with int8 weights, before they are scaled.
fn dot16(c: vec4<u32>, x0: vec4<f32>, x1: vec4<f32>, x2: vec4<f32>, x3: vec4<f32>) -> f32 {
    return (dot(bytes4(c.x), x0) + dot(bytes4(c.y), x1)) +
           (dot(bytes4(c.z), x2) + dot(bytes4(c.w), x3));
}

// A thread's part of the products of four rows.
fn sum_q8(r: vec4<u32>, token: u32, part: u32) -> vec4<f32> {
    var sum = vec4(0.0);
    for (var b = part; b < COLS4 / 8u; b += 32u) {
        var s = vec4(0.0);
        for (var i = 2u * b; i < 2u * b + 2u; i++) {
            let at = token * COLS4 + 4u * i;
            let x0 = x[at];
            let x1 = x[at + 1u];
            let x2 = x[at + 2u];
            let x3 = x[at + 3u];
            s += vec4(dot16(w[r.x * ROW4 + i], x0, x1, x2, x3),
                      dot16(w[r.y * ROW4 + i], x0, x1, x2, x3),
                      dot16(w[r.z * ROW4 + i], x0, x1, x2, x3),
                      dot16(w[r.w * ROW4 + i], x0, x1, x2, x3));
        }
        sum += s * vec4(scale(r.x, b), scale(r.y, b), scale(r.z, b), scale(r.w, b));
    }
    return sum;
}

fn sum_floats(r: vec4<u32>, token: u32, part: u32) -> vec4<f32> {
    let n = select(COLS4, COLS4 / 2u, IS_F16);
    var sum = vec4(0.0);
    for (var i = part; i < n; i += 32u) {
        var x0: vec4<f32>;
        var x1: vec4<f32>;
        if (IS_F16) {
            x0 = x[token * COLS4 + 2u * i];
            x1 = x[token * COLS4 + 2u * i + 1u];
        } else {
            x0 = x[token * COLS4 + i];
        }
        sum += vec4(some(r.x, i, x0, x1), some(r.y, i, x0, x1), some(r.z, i, x0, x1),
                    some(r.w, i, x0, x1));
    }
    return sum;
}

// 32 rows a workgroup; 32 threads share 4 rows, so that x is read a quarter as often. Grid:
// (rows / 32, tokens).
@compute @workgroup_size(256)
fn gemv(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.x * 32u + lane / 32u * 4u;
    let last = N_ROWS - 1u;
    let part = lane % 32u;
    var token = group.y;
    if (OUTPUTS) { token += run.first_output; }
    let rows = min(vec4(row, row + 1u, row + 2u, row + 3u), vec4(last));
    var sum: vec4<f32>;
    if (IS_Q8) {
        sum = sum_q8(rows, token, part);
    } else {
        sum = sum_floats(rows, token, part);
    }
    sum = sum_of_32(lane, sum);
    if (part < 4u && row + part < N_ROWS) {
        write(group.y * Y_COLS + FIRST_ROW + row + part, sum[part]);
    }
}

// 64 rows x 64 tokens a workgroup, 4 x 4 a thread, 16 columns at a time. Grid: (rows / 64,
// tokens / 64).
var<workgroup> rows_now: array<vec4<f32>, 256>;   // [4 columns of 16][row]
var<workgroup> tokens_now: array<vec4<f32>, 256>; // [4 columns of 16][token]

@compute @workgroup_size(256)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let tx = lane % 16u;
    let ty = lane / 16u;
    let row0 = group.x * 64u;
    let token0 = group.y * 64u;
    let load_row = min(row0 + lane / 4u, N_ROWS - 1u);
    let load_token = min(token0 + lane / 4u, run.n_tokens - 1u);
    let part = lane % 4u;
    var sum: array<vec4<f32>, 4>;
    for (var i = 0u; i < COLS4; i += 4u) {
        var a = vec4(0.0);
        var b = vec4(0.0);
        if (i + part < COLS4) {
            a = weights4(load_row, i + part);
            b = x[load_token * COLS4 + i + part];
        }
        rows_now[part * 64u + lane / 4u] = a;
        tokens_now[part * 64u + lane / 4u] = b;
        workgroupBarrier();
        for (var k = 0u; k < 4u; k++) {
            let w0 = rows_now[k * 64u + tx];
            let w1 = rows_now[k * 64u + tx + 16u];
            let w2 = rows_now[k * 64u + tx + 32u];
            let w3 = rows_now[k * 64u + tx + 48u];
            for (var t = 0u; t < 4u; t++) {
                let v = tokens_now[k * 64u + ty + 16u * t];
                sum[t] += vec4(dot(w0, v), dot(w1, v), dot(w2, v), dot(w3, v));
            }
        }
        workgroupBarrier();
    }
    for (var t = 0u; t < 4u; t++) {
        let token = token0 + ty + 16u * t;
        for (var r = 0u; r < 4u; r++) {
            let row = row0 + tx + 16u * r;
            if (token < run.n_tokens && row < N_ROWS) {
                write(token * Y_COLS + FIRST_ROW + row, sum[t][r]);
            }
        }
    }
}
