// A causal depthwise convolution along a sequence. Grid: (columns / 4 / 64, rows of the batch).
//
// y[t][c] = act(bias[c] + sum over j of w[c][j] * x[t - (TAPS - 1) + j][c]), a chain of fmas that
// goes up in j, as on the CPU. Rows before the chunk's first are the state's, which is written when
// all rows have read it: by conv_keep in a dispatch of its own, or, for few rows, by conv_few, whose
// threads compute all rows of a chunk.
override COLS4: u32;
override TAPS: u32; // 2 to 8
override ACT: u32;
override BIASED: bool;

@group(0) @binding(1) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<f32>; // [columns][TAPS]
@group(0) @binding(4) var<storage, read_write> state: array<vec4<f32>>; // [slot][TAPS - 1][columns]
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> bias: array<vec4<f32>>;

// Row t of the chunk, counted from the state's first row, which is TAPS - 1 before the chunk's.
fn row_of(chunk: Chunk, t: u32, column: u32) -> vec4<f32> {
    if (t < TAPS - 1u) { return state[(chunk.slot * (TAPS - 1u) + t) * COLS4 + column]; }
    return x[(chunk.first_row + t - (TAPS - 1u)) * COLS4 + column];
}

fn tap(column: u32, j: u32) -> vec4<f32> {
    let at = 4u * column * TAPS + j;
    return vec4(w[at], w[at + TAPS], w[at + 2u * TAPS], w[at + 3u * TAPS]);
}

fn compute(chunk: Chunk, t: u32, column: u32) {
    var sum = vec4(0.0);
    if (BIASED) { sum = bias[column]; }
    for (var j = 0u; j < TAPS; j++) {
        sum = fma(tap(column, j), row_of(chunk, t + j, column), sum);
    }
    y[(chunk.first_row + t) * COLS4 + column] = activate(ACT, sum);
}

@compute @workgroup_size(64)
fn conv(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let chunk = chunks[chunk_of_row(id.y)];
    compute(chunk, id.y - chunk.first_row, id.x);
}

// The state after n rows of the chunk, to a slot. Row t + n comes after row t, so a thread that goes
// up in t reads each row of the state before it writes it.
fn keep(chunk: Chunk, n: u32, slot: u32, column: u32) {
    for (var t = 0u; t < TAPS - 1u; t++) {
        state[(slot * (TAPS - 1u) + t) * COLS4 + column] = row_of(chunk, t + n, column);
    }
}

fn keep_all(chunk: Chunk, column: u32) {
    if (chunk.kept_slot != NOTHING_KEPT) { keep(chunk, chunk.kept_after, chunk.kept_slot, column); }
    keep(chunk, chunk.n_rows, chunk.slot, column);
}

// Grid: (columns / 4 / 64, chunks).
@compute @workgroup_size(64)
fn conv_keep(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    keep_all(chunks[id.y], id.x);
}

// The same grid.
@compute @workgroup_size(64)
fn conv_few(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let chunk = chunks[id.y];
    for (var t = 0u; t < chunk.n_rows; t++) { compute(chunk, t, id.x); }
    keep_all(chunk, id.x);
}
