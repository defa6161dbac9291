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
override CHUNK_ROWS: u32 = 1u; // of y at most, then
override ROWS: u32 = 1u; // of x that a workgroup of gemv takes: each weight is read once for them
const ROWS_MAX = 8u;

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

fn dot8(c: vec4<u32>, x0: vec4<f32>, x1: vec4<f32>) -> f32 {
    return dot(halves(c.x, c.y), x0) + dot(halves(c.z, c.w), x1);
}

// 16 columns with int8 weights, before they are scaled.
fn dot16(c: vec4<u32>, x0: vec4<f32>, x1: vec4<f32>, x2: vec4<f32>, x3: vec4<f32>) -> f32 {
    return (dot(bytes4(c.x), x0) + dot(bytes4(c.y), x1)) +
           (dot(bytes4(c.z), x2) + dot(bytes4(c.w), x3));
}

// What all rows of a workgroup are multiplied by, a piece of the columns at a time: from here it
// costs no bandwidth of the caches, which a head needs for itself. A piece is a multiple of what 32
// threads take in one step, so that each thread has the same columns, in the same order, whatever
// the piece: a row of x has the bits that it has with ROWS = 1.
override PIECE: u32 = 256u; // vec4s
override X_NOW: u32 = ROWS * PIECE;
var<workgroup> x_now: array<vec4<f32>, X_NOW>; // [row][vec4], of f16 the even ones first

override HALF_PIECE: u32 = PIECE / 2u;
fn place(i: u32) -> u32 {
    if (IS_F16) { return i % 2u * HALF_PIECE + i / 2u; }
    return i;
}

// A thread's part of the products of four rows of weights, here with n vec4s from `first` on.
fn add_q8(r: vec4<u32>, part: u32, first: u32, n: u32,
          sum: ptr<function, array<vec4<f32>, ROWS_MAX>>) {
    for (var b = part; b < n / 8u; b += 32u) {
        var s: array<vec4<f32>, ROWS_MAX>;
        // SwiftShader keeps what the last turn of the loop left in the array.
        for (var t = 0u; t < ROWS; t++) { s[t] = vec4(0.0); }
        for (var i = 2u * b; i < 2u * b + 2u; i++) {
            let at = first / 4u + i;
            let c0 = w[r.x * ROW4 + at];
            let c1 = w[r.y * ROW4 + at];
            let c2 = w[r.z * ROW4 + at];
            let c3 = w[r.w * ROW4 + at];
            for (var t = 0u; t < ROWS; t++) {
                let x0 = x_now[t * PIECE + 4u * i];
                let x1 = x_now[t * PIECE + 4u * i + 1u];
                let x2 = x_now[t * PIECE + 4u * i + 2u];
                let x3 = x_now[t * PIECE + 4u * i + 3u];
                s[t] += vec4(dot16(c0, x0, x1, x2, x3), dot16(c1, x0, x1, x2, x3),
                             dot16(c2, x0, x1, x2, x3), dot16(c3, x0, x1, x2, x3));
            }
        }
        let block = first / 8u + b;
        let scales = vec4(scale(r.x, block), scale(r.y, block), scale(r.z, block),
                          scale(r.w, block));
        for (var t = 0u; t < ROWS; t++) { (*sum)[t] += s[t] * scales; }
    }
}

fn add_f16(r: vec4<u32>, part: u32, first: u32, n: u32,
           sum: ptr<function, array<vec4<f32>, ROWS_MAX>>) {
    for (var i = part; i < n / 2u; i += 32u) {
        let at = first / 2u + i;
        let c0 = w[r.x * (COLS4 / 2u) + at];
        let c1 = w[r.y * (COLS4 / 2u) + at];
        let c2 = w[r.z * (COLS4 / 2u) + at];
        let c3 = w[r.w * (COLS4 / 2u) + at];
        for (var t = 0u; t < ROWS; t++) {
            let x0 = x_now[t * PIECE + i];
            let x1 = x_now[t * PIECE + HALF_PIECE + i];
            (*sum)[t] += vec4(dot8(c0, x0, x1), dot8(c1, x0, x1), dot8(c2, x0, x1),
                              dot8(c3, x0, x1));
        }
    }
}

fn add_f32(r: vec4<u32>, part: u32, first: u32, n: u32,
           sum: ptr<function, array<vec4<f32>, ROWS_MAX>>) {
    for (var i = part; i < n; i += 32u) {
        let at = first + i;
        let c = mat4x4(bitcast<vec4<f32>>(w[r.x * COLS4 + at]),
                       bitcast<vec4<f32>>(w[r.y * COLS4 + at]),
                       bitcast<vec4<f32>>(w[r.z * COLS4 + at]),
                       bitcast<vec4<f32>>(w[r.w * COLS4 + at]));
        for (var t = 0u; t < ROWS; t++) {
            let x0 = x_now[t * PIECE + i];
            (*sum)[t] += vec4(dot(c[0], x0), dot(c[1], x0), dot(c[2], x0), dot(c[3], x0));
        }
    }
}

// 32 rows of weights a workgroup; 32 threads share 4 rows. Grid: (rows / 32, rows of x / ROWS).
@compute @workgroup_size(256)
fn gemv(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.x * 32u + lane / 32u * 4u;
    let last = N_ROWS - 1u;
    let part = lane % 32u;
    let y_row = group.y * ROWS;
    var token = y_row;
    var count = 1u; // of ROWS, those that there are
    if (OUTPUTS) { token += run.first_output; }
    if (ROWS > 1u) {
        count = run.n_tokens;
        if (OUTPUTS) { count = min(run.n_outputs - run.first_output, CHUNK_ROWS); }
        count = min(count - y_row, ROWS);
    }
    let rows = min(vec4(row, row + 1u, row + 2u, row + 3u), vec4(last));
    var sum: array<vec4<f32>, ROWS_MAX>;
    for (var first = 0u; first < COLS4; first += PIECE) {
        let n = min(PIECE, COLS4 - first);
        workgroupBarrier(); // nobody reads the last piece any more
        for (var t = 0u; t < count; t++) {
            for (var i = lane; i < n; i += 256u) {
                x_now[t * PIECE + place(i)] = x[(token + t) * COLS4 + first + i];
            }
        }
        workgroupBarrier();
        if (IS_Q8) {
            add_q8(rows, part, first, n, &sum);
        } else if (IS_F16) {
            add_f16(rows, part, first, n, &sum);
        } else {
            add_f32(rows, part, first, n, &sum);
        }
    }
    for (var t = 0u; t < ROWS; t++) {
        let s = sum_of_32(lane, sum[t]);
        if (t < count && part < 4u && row + part < N_ROWS) {
            write((y_row + t) * Y_COLS + FIRST_ROW + row + part, s[part]);
        }
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
