// y[t][row] = dot(x[t], W[row]). A large matrix comes in parts of whole rows, each with its own
// dispatch.
override ADD: bool;
override SOFT_CAP: f32 = 0.0; // of scores; 0: none
override FIRST_ROW: u32; // of the part
override N_ROWS: u32;
override Y_COLS: u32;    // rows of the whole matrix
override OUTPUTS: bool;  // rows of x are counted from run.first_output on, those of y from 0
override CHUNK_ROWS: u32 = 1u; // of y at most, then
override ROWS: u32 = 1u; // of x that a workgroup of gemv takes: each weight is read once for them
override FOURS: u32 = 1u; // rows of weights / 4 that a thread of it has, 1 or 2
const ROWS_MAX = 16u;
override COUNTED: bool = false; // rows of x are those of the dimension X_DIM, not tokens
override X_DIM: u32 = 0u;

@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn n_rows_of_x() -> u32 {
    if (COUNTED) { return run.counts[X_DIM]; }
    return run.n_tokens;
}

fn write(to: u32, value: f32) {
    if (ADD) { y[to] = y[to] + value; } else { y[to] = capped_by(SOFT_CAP, vec4(value)).x; }
}

// ---- Few rows of x -----------------------------------------------------------------------------
//
// 32 threads share four rows of weights (float_dot.wgsl), or eight if many rows of x are to be
// multiplied with them, in steps of EACH vec4s of columns for each thread. A thread loads the next
// step's before it uses this one's, so that memory is always busy. A step's columns of all rows of x
// are in workgroup memory, and the next step's are stored there meanwhile: reading them straight from
// memory would take cache bandwidth that a head needs for itself.
//
// The sum of a row of x with a row of weights is the same chain of fma in the same thread, and the
// same tree over the threads, whatever ROWS is: the bits are those of ROWS = 1.

override STEP: u32 = 32u * EACH;    // vec4s of a row of x
override X_NOW: u32 = ROWS * STEP;
override X_EACH: u32 = (X_NOW + 255u) / 256u; // of these, what a thread moves
const X_EACH_MAX = 4u; // 8 rows of int8, 16 of f16
var<workgroup> x_now: array<vec4<f32>, 2u * X_NOW>; // [step % 2][row][of EACH][thread]

fn ask_x(lane: u32, token: u32, count: u32, step: u32,
         next: ptr<function, array<vec4<f32>, X_EACH_MAX>>) {
    for (var k = 0u; k < X_EACH; k++) {
        let i = lane + 256u * k;
        let row = token + min(i / STEP, count - 1u);
        (*next)[k] = x[row * COLS4 + min(step * STEP + i % STEP, COLS4 - 1u)];
    }
}

fn keep_x(lane: u32, step: u32, next: ptr<function, array<vec4<f32>, X_EACH_MAX>>) {
    for (var k = 0u; k < X_EACH; k++) {
        let i = lane + 256u * k;
        let col = i % STEP;
        if (i < X_NOW) {
            x_now[step % 2u * X_NOW + i - col + col % EACH * 32u + col / EACH] = (*next)[k];
        }
    }
}

alias Fours = array<Weights, 2>;
alias Sums = array<array<vec4<f32>, ROWS_MAX>, 2>; // [four rows of weights][row of x]

fn ask_fours(row: u32, unit: u32) -> Fours {
    var w: Fours;
    for (var f = 0u; f < FOURS; f++) {
        let first = vec4(row + 4u * f) + vec4(0u, 1u, 2u, 3u);
        w[f] = ask_weights(min(first, vec4(N_ROWS - 1u)), unit);
    }
    return w;
}

fn add_products(now: ptr<function, Fours>, x_at: u32, sums: ptr<function, Sums>) {
    for (var k = 0u; k < EACH; k++) {
        var m: array<mat4x4<f32>, 2>;
        for (var f = 0u; f < FOURS; f++) { m[f] = columns4((*now)[f], k); }
        for (var t = 0u; t < ROWS; t++) {
            let v = x_now[x_at + t * STEP + k * 32u];
            for (var f = 0u; f < FOURS; f++) { (*sums)[f][t] = fma4(m[f], v, (*sums)[f][t]); }
        }
    }
}

// Each thread gets one of the sums of four rows of weights with at most eight rows of x, possibly
// the same one as its neighbours.
override SUMMED = min(ROWS, 8u);
fn write_sums(lane: u32, row: u32, y_row: u32, count: u32, sums: ptr<function, Sums>) {
    let n = lane % 32u * SUMMED / 8u;
    for (var f = 0u; f < FOURS; f++) {
        for (var first = 0u; first < ROWS; first += SUMMED) {
            var some: array<vec4<f32>, 8>;
            for (var t = 0u; t < SUMMED; t++) { some[t] = (*sums)[f][first + t]; }
            let s = sums_of_32(lane, SUMMED, &some);
            let to = row + 4u * f + n % 4u;
            let token = first + n / 4u;
            if (lane % (8u / SUMMED) == 0u && token < count && to < N_ROWS) {
                write((y_row + token) * Y_COLS + FIRST_ROW + to, s);
            }
        }
    }
}

// 32 FOURS rows of weights a workgroup. Grid: (rows / (32 FOURS), rows of x / ROWS); those with the
// same weights are neighbours in time, so that all but one find them in a cache.
fn multiply(tile: u32, y_row: u32, lane: u32) {
    let row = (tile * 8u + lane / 32u) * 4u * FOURS;
    let part = lane % 32u;
    var token = y_row;
    var count = 1u; // how many of the ROWS exist
    if (OUTPUTS) { token += run.first_output; }
    if (ROWS > 1u) {
        count = n_rows_of_x();
        if (OUTPUTS) { count = min(run.n_outputs - run.first_output, CHUNK_ROWS); }
        count = min(count - y_row, ROWS);
    }
    var sums: Sums;
    var x_next: array<vec4<f32>, X_EACH_MAX>;
    var weights = ask_fours(row, part);
    ask_x(lane, token, count, 0u, &x_next);
    keep_x(lane, 0u, &x_next);
    workgroupBarrier();
    for (var i = 0u; i * 32u < UNITS; i++) {
        var now = weights;
        if ((i + 1u) * 32u < UNITS) {
            ask_x(lane, token, count, i + 1u, &x_next);
            weights = ask_fours(row, (i + 1u) * 32u + part);
        }
        if (i * 32u + part < UNITS) { add_products(&now, i % 2u * X_NOW + part, &sums); }
        keep_x(lane, i + 1u, &x_next);
        workgroupBarrier();
    }
    write_sums(lane, row, y_row, count, &sums);
}

@compute @workgroup_size(256)
fn gemv(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let number = id.y * n_groups.x + id.x;
    multiply(number / n_groups.y, number % n_groups.y * ROWS, lane);
}

// The same where, in one of the rows of x, more tokens may be the greatest than a list of
// head_pick.wgsl has room for. Mostly there is no such row, so a workgroup checks once for many
// tiles.
override LIST: u32 = 0u;
@group(0) @binding(4) var<storage, read> listed: array<u32>; // of each row
var<workgroup> is_open: u32;

@compute @workgroup_size(256)
fn gemv_open(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_groups: vec3<u32>,
             @builtin(local_invocation_index) lane: u32) {
    let number = id.y * n_groups.x + id.x;
    let y_row = number % n_groups.y * ROWS;
    let count = min(run.n_outputs - run.first_output, CHUNK_ROWS);
    if (lane == 0u) { is_open = 0u; }
    workgroupBarrier();
    if (lane < ROWS && y_row + lane < count && listed[y_row + lane] > LIST) { is_open = 1u; }
    if (workgroupUniformLoad(&is_open) == 0u) { return; }
    for (var tile = number / n_groups.y; tile * 32u * FOURS < N_ROWS; tile += n_groups.x) {
        multiply(tile, y_row, lane);
    }
}

// ---- Many --------------------------------------------------------------------------------------

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
    let load_token = min(token0 + lane / 4u, n_rows_of_x() - 1u);
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
            if (token < n_rows_of_x() && row < N_ROWS) {
                write(token * Y_COLS + FIRST_ROW + row, sum[t][r]);
            }
        }
    }
}
