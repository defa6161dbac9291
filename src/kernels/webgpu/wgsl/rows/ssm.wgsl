// A selective state space (Mamba-2). Grid: (heads * blocks of COLS columns of the state, chunks).
//
// For each row of a chunk, with S [N][columns] of the head:
//     dt = softplus(raw + dt_bias), S = S * e^(A dt), S = fma(B, dt * x, S), y = fma(D, x, S^T C).
// A thread has one column of S, which lies in the workgroup's memory from the chunk's first row to
// its last; S^T C is a chain of fmas that goes up over the N rows, as on the CPU.
override N: u32;      // rows of the state
override P: u32;      // columns: dimensions of a head
override HEADS: u32;
override GROUPS: u32; // of heads that share B and C
override COLS: u32;   // of a workgroup, at most THREADS
override BLOCKS: u32; // of COLS columns in P
override STRIDE: u32 = HEADS * P + 2u * GROUPS * N; // of a row of x|B|C

@group(0) @binding(1) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(2) var<storage, read_write> xbc: array<f32>;
@group(0) @binding(3) var<storage, read_write> dt: array<f32>;
@group(0) @binding(4) var<storage, read> heads: array<vec4<f32>>; // A, D, dt_bias
@group(0) @binding(5) var<storage, read_write> state: array<f32>; // [slot][HEADS][N][P]
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

var<workgroup> s: array<f32, N * COLS>;

fn advance(lane: u32, row: u32, head: u32, column: u32) {
    let at = row * STRIDE;
    let b = at + HEADS * P + head / (HEADS / GROUPS) * N;
    let step = softplus(dt[row * HEADS + head] + heads[head].z);
    let decay = poly_exp(heads[head].x * step);
    let x = xbc[at + head * P + column];
    let d = step * x;
    var sum = 0.0;
    for (var i = 0u; i < N; i++) {
        let now = fma(xbc[b + i], d, s[i * COLS + lane] * decay);
        s[i * COLS + lane] = now;
        sum = fma(now, xbc[b + GROUPS * N + i], sum);
    }
    y[(row * HEADS + head) * P + column] = fma(heads[head].y, x, sum);
}

fn state_at(slot: u32, head: u32, i: u32, column: u32) -> u32 {
    return ((slot * HEADS + head) * N + i) * P + column;
}

fn store_block(lane: u32, slot: u32, head: u32, first_column: u32) {
    workgroupBarrier();
    for (var i = lane; i < N * COLS; i += THREADS) {
        let column = first_column + i % COLS;
        if (column < P) { state[state_at(slot, head, i / COLS, column)] = s[i]; }
    }
    workgroupBarrier();
}

var<workgroup> the_chunk: Chunk; // the same for all threads, so that barriers may depend on it

@compute @workgroup_size(THREADS)
fn ssm(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { the_chunk = chunks[id.y]; }
    let chunk = workgroupUniformLoad(&the_chunk);
    let head = id.x / BLOCKS;
    let first_column = id.x % BLOCKS * COLS;
    let mine = lane < COLS && first_column + lane < P;
    for (var i = lane; i < N * COLS; i += THREADS) {
        let column = first_column + i % COLS;
        if (column < P) { s[i] = state[state_at(chunk.slot, head, i / COLS, column)]; }
    }
    workgroupBarrier();
    for (var t = 0u; t < chunk.n_rows; t++) {
        if (mine) { advance(lane, chunk.first_row + t, head, first_column + lane); }
        if (chunk.kept_slot != NOTHING_KEPT && t + 1u == chunk.kept_after) {
            store_block(lane, chunk.kept_slot, head, first_column);
        }
    }
    store_block(lane, chunk.slot, head, first_column);
}
