// Codecs, which make sound of codes: convolutions of all columns along a sequence, those of larger
// steps among them, and what stands between them. A token of the batch has TIMES rows of x. Rows
// before a chunk's first are those of its state, which is written when all rows have read it, by
// tails_keep in a dispatch of its own.
override COLS: u32; // of x
override OUT: u32; // columns of y
override TIMES: u32;
override BEFORE: u32; // rows of the state
override TAPS: u32;
override DILATION: u32;
override RATE: u32; // rows of y that upsample_conv makes of one
override GROUPS: u32; // of the columns, of which each makes columns of its own
override LEVELS0: u32; // of the first digit of a code
override LEVELS1: u32;
override LEVELS2: u32;
override LEVELS3: u32;
override LEVELS4: u32;
override DIGITS: u32;

@group(0) @binding(1) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read_write> state: array<f32>; // [slot][BEFORE][COLS]
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read> bias: array<f32>;
@group(0) @binding(7) var<storage, read> codes: array<i32>;

// ---- What a row looks back to ------------------------------------------------------------------

// A row of x, counted from its chunk's first row, which is `first` of the batch.
struct Place {
    t: i32,
    first: u32,
    slot: u32,
}

fn place_of(row: u32) -> Place {
    let chunk = chunks[chunk_of_row(row / TIMES)];
    let first = chunk.first_row * TIMES;
    return Place(i32(row - first), first, chunk.slot);
}

// The number `rows` rows after a place, or before it if negative.
fn number(place: Place, rows: i32, column: u32) -> f32 {
    let t = place.t + rows;
    if (t < 0) { return state[(place.slot * BEFORE + u32(t + i32(BEFORE))) * COLS + column]; }
    return x[(place.first + u32(t)) * COLS + column];
}

// The state after n rows of the chunk, to a slot. Row t + n comes after row t, so a thread that goes
// up in t reads each row of the state before it writes it.
fn keep(chunk: Chunk, n: u32, slot: u32, column: u32) {
    let end = Place(i32(n), chunk.first_row * TIMES, chunk.slot);
    for (var t = 0u; t < BEFORE; t++) {
        state[(slot * BEFORE + t) * COLS + column] = number(end, i32(t) - i32(BEFORE), column);
    }
}

// Grid: (columns / 64, chunks).
@compute @workgroup_size(64)
fn tails_keep(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS) { return; }
    let chunk = chunks[id.y];
    if (chunk.kept_slot != NOTHING_KEPT) {
        keep(chunk, chunk.kept_after * TIMES, chunk.kept_slot, id.x);
    }
    keep(chunk, chunk.n_rows * TIMES, chunk.slot, id.x);
}

// ---- Convolutions ------------------------------------------------------------------------------

// y[t][o] = bias[o] + sum over taps j and columns i of
// w[j][i][o] * x[t - BEFORE + j * DILATION][i], a chain of fmas that goes up in j, and in i for
// each j, wherever a tile begins. A workgroup has a tile of 32 rows and 32 outputs, a thread four by
// four of it; it takes 16 columns of a tap at a time into its memory. Grid: (outputs / 32, rows /
// 32).
const TILE = 32u;
const STEP = 16u;
var<workgroup> places: array<Place, 32>;
var<workgroup> xs: array<vec4<f32>, 128>; // [STEP][rows / 4]
var<workgroup> ws: array<vec4<f32>, 128>; // [STEP][outputs / 4]

fn weight_of(tap: u32, column: u32, output: u32) -> f32 {
    if (column >= COLS || output >= OUT) { return 0.0; }
    return w[(tap * COLS + column) * OUT + output];
}

fn weights_of(tap: u32, column: u32, output: u32) -> vec4<f32> {
    return vec4(weight_of(tap, column, output), weight_of(tap, column, output + 1u),
                weight_of(tap, column, output + 2u), weight_of(tap, column, output + 3u));
}

// Numbers of four rows of the tile.
fn numbers(row: u32, tap: u32, column: u32) -> vec4<f32> {
    let rows = i32(tap * DILATION) - i32(BEFORE);
    if (column >= COLS) { return vec4(0.0); }
    return vec4(number(places[row], rows, column), number(places[row + 1u], rows, column),
                number(places[row + 2u], rows, column), number(places[row + 3u], rows, column));
}

fn fill(lane: u32, tap: u32, column: u32, first_output: u32) {
    for (var j = 0u; j < 2u; j++) {
        let row4 = lane / STEP + 4u * j;
        xs[lane % STEP * 8u + row4] = numbers(4u * row4, tap, column + lane % STEP);
        let k = lane / 8u + 8u * j;
        ws[k * 8u + lane % 8u] = weights_of(tap, column + k, first_output + 4u * (lane % 8u));
    }
}

fn bias_of(output: u32) -> f32 {
    if (output >= OUT) { return 0.0; }
    return bias[output];
}

fn put(row: u32, output: u32, sums: vec4<f32>) {
    if (row >= run.n_tokens * TIMES) { return; }
    for (var i = 0u; i < 4u; i++) {
        if (output + i < OUT) { y[row * OUT + output + i] = sums[i]; }
    }
}

@compute @workgroup_size(64)
fn conv1d(@builtin(workgroup_id) group: vec3<u32>,
               @builtin(local_invocation_index) lane: u32) {
    let first_output = group.x * TILE;
    if (lane < TILE) { // what lies past the end is computed as the last row is
        places[lane] = place_of(min(group.y * TILE + lane, run.n_tokens * TIMES - 1u));
    }
    workgroupBarrier();
    let row = lane / 8u;
    let output = first_output + 4u * (lane % 8u);
    let begin = vec4(bias_of(output), bias_of(output + 1u), bias_of(output + 2u),
                     bias_of(output + 3u));
    var sum0 = begin;
    var sum1 = begin;
    var sum2 = begin;
    var sum3 = begin;
    for (var tap = 0u; tap < TAPS; tap++) {
        for (var column = 0u; column < COLS; column += STEP) {
            fill(lane, tap, column, first_output);
            workgroupBarrier();
            for (var k = 0u; k < STEP; k++) {
                let v = xs[k * 8u + row];
                let weights = ws[k * 8u + lane % 8u];
                sum0 = fma(vec4(v.x), weights, sum0);
                sum1 = fma(vec4(v.y), weights, sum1);
                sum2 = fma(vec4(v.z), weights, sum2);
                sum3 = fma(vec4(v.w), weights, sum3);
            }
            workgroupBarrier(); // all is read
        }
    }
    let first = group.y * TILE + 4u * row;
    put(first, output, sum0);
    put(first + 1u, output, sum1);
    put(first + 2u, output, sum2);
    put(first + 3u, output, sum3);
}

// Rows t * RATE + p of y, from rows t - 1 and t of x:
// y[o] = bias[o] + sum over the columns i of o's group of w[i][o'][p + RATE] * x[t - 1][i] +
// w[i][o'][p] * x[t][i], fmas in this order, o' counted in the group. Grid: (numbers of y that a
// token has / 64, tokens).
@compute @workgroup_size(64)
fn upsample_conv(@builtin(global_invocation_id) id: vec3<u32>) {
    let each = RATE * OUT;
    if (id.x >= TIMES * each) { return; }
    let place = place_of(id.y * TIMES + id.x / each);
    let p = id.x % each / OUT;
    let output = id.x % OUT;
    let outputs = OUT / GROUPS;
    let columns = COLS / GROUPS;
    let first = output / outputs * columns;
    var sum = bias[output];
    for (var i = first; i < first + columns; i++) {
        let at = (i * outputs + output % outputs) * 2u * RATE + p;
        sum = fma(w[at + RATE], number(place, -1, i), sum);
        sum = fma(w[at], number(place, 0, i), sum);
    }
    y[id.y * TIMES * each + id.x] = sum;
}

// ---- Elementwise -------------------------------------------------------------------------------

// sin(x)^2, as the CPU has it: WGSL's sin is only good near zero. pi is cut into three parts, the
// first of so few bits that its multiples are exact without fma.
fn sin_squared(v: f32) -> f32 {
    let n = round(v * 0.31830988618379067);
    let near = ((v - n * 3.140625) - n * 0.000967502593994140625) - n * 1.5099579909783764e-7;
    let r = clamp(near, -1.5708, 1.5708);
    let s = r * r;
    let p = (((-2.408019e-8 * s + 2.7536464e-6) * s - 1.9841087e-4) * s + 8.333333e-3) * s -
        0.16666667;
    let sine = r + r * s * p;
    return sine * sine;
}

// The first half of the columns x + sin(alpha x)^2 / alpha, the others max(x, 0.01 x); alpha is w.
// Grid: (numbers that a token has / 64, tokens).
@compute @workgroup_size(64)
fn half_snake(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= TIMES * COLS) { return; }
    let i = id.y * TIMES * COLS + id.x;
    let column = id.x % COLS;
    let v = x[i];
    if (column < COLS / 2u) { y[i] = v + sin_squared(w[column] * v) / (w[column] + 1e-9); }
    else { y[i] = max(v, 0.01 * v); }
}

fn levels_of(digit: u32) -> u32 {
    switch (digit) {
        case 0u: { return LEVELS0; }
        case 1u: { return LEVELS1; }
        case 2u: { return LEVELS2; }
        case 3u: { return LEVELS3; }
        default: { return LEVELS4; }
    }
}

// Digit j of a code as a number of -1 to 1. Grid: (OUT / 64, tokens).
@compute @workgroup_size(64)
fn code_digits(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= OUT) { return; }
    var rest = max(codes[id.y * (OUT / DIGITS) + id.x / DIGITS], 0);
    for (var j = 0u; j < id.x % DIGITS; j++) { rest /= i32(levels_of(j)); }
    let levels = i32(levels_of(id.x % DIGITS));
    y[id.y * OUT + id.x] = f32(rest % levels - levels / 2) / f32(max(levels / 2, 1));
}
