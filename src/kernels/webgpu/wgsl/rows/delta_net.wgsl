// The gated delta rule. Grid: (value heads * blocks of COLS columns of the state, chunks).
//
// For each row of a chunk, with S [DK][columns] of the head:
//     q, k = x * (1 / sqrt(sum x^2 + EPS)), q = q * (1 / sqrt(DK)),
//     S = S * decay, d = beta * (v - S^T k), S = fma(k, d, S), y = S^T q.
// A thread has one column of S, which lies in the workgroup's memory from the chunk's first row to
// its last, so the state is read once and written once; S^T k and S^T q are chains of fmas that go
// up over the DK rows, as on the CPU. All threads load and store the block, and make the gates and
// unit vectors of a tile of rows.
override DK4: u32;       // dimensions of a key / 4, rounded up
override DK: u32;
override DV: u32;        // of a value
override K_HEADS: u32;
override V_HEADS: u32;
override TILED: bool;    // value head n reads key head n % K_HEADS instead of n * K_HEADS / V_HEADS
override EPS: f32;
override COLS: u32;      // of a workgroup, at most THREADS
override ROWS: u32;      // of a tile
override BLOCKS: u32;    // of COLS columns in DV

@group(0) @binding(1) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(2) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(3) var<storage, read_write> a: array<f32>;
@group(0) @binding(4) var<storage, read_write> b: array<f32>;
@group(0) @binding(5) var<storage, read> heads: array<vec2<f32>>; // A and dt_bias
@group(0) @binding(6) var<storage, read_write> state: array<f32>; // [slot][V_HEADS][DK][DV]
@group(0) @binding(7) var<storage, read_write> y: array<f32>;

var<workgroup> s: array<vec4<f32>, DK4 * COLS>;        // [DK / 4][COLS], zeros after DK
var<workgroup> unit: array<vec4<f32>, 2u * ROWS * DK4>; // q, then k, of each row
var<workgroup> squares: array<f32, 2u * ROWS * 16u>;
var<workgroup> gates: array<vec2<f32>, ROWS>;          // decay, beta

// Where the columns of a row's query and key begin.
fn query_at(row: u32, head: u32) -> u32 {
    var j = head / (V_HEADS / K_HEADS);
    if (TILED) { j = head % K_HEADS; }
    return row * (2u * K_HEADS * DK + V_HEADS * DV) + j * DK;
}

// Number i of a vector of the tile: vectors 0 .. ROWS - 1 are queries, the others keys.
fn number(vector: u32, i: u32, first_row: u32, head: u32) -> f32 {
    let at = query_at(first_row + vector % ROWS, head) + vector / ROWS * K_HEADS * DK;
    if (i >= DK) { return 0.0; }
    return qkv[at + i];
}

// Gates and unit vectors of n rows. Barriers: before, s and unit are not in use; after, all see it.
fn prepare(lane: u32, first_row: u32, n: u32, head: u32) {
    for (var i = lane; i < n; i += THREADS) {
        let at = (first_row + i) * V_HEADS + head;
        let decay = poly_exp(heads[head].x * softplus(a[at] + heads[head].y));
        gates[i] = vec2(decay, 1.0 / (1.0 + poly_exp(-b[at])));
    }
    for (var i = lane; i < 2u * ROWS * 16u; i += THREADS) {
        var sum = 0.0;
        if (i / 16u % ROWS < n) {
            for (var k = i % 16u; k < DK; k += 16u) {
                let x = number(i / 16u, k, first_row, head);
                sum = fma(x, x, sum);
            }
        }
        squares[i] = sum;
    }
    workgroupBarrier();
    for (var i = lane; i < 2u * ROWS * DK4; i += THREADS) {
        let vector = i / DK4;
        if (vector % ROWS < n) {
            let k = i % DK4 * 4u;
            let x = vec4(number(vector, k, first_row, head), number(vector, k + 1u, first_row, head),
                         number(vector, k + 2u, first_row, head),
                         number(vector, k + 3u, first_row, head));
            var scaled = x * (1.0 / sqrt(sum_of_16(vector * 16u) + EPS));
            if (vector < ROWS) { scaled *= 1.0 / sqrt(f32(DK)); }
            unit[i] = scaled;
        }
    }
    workgroupBarrier();
}

// In the order of the CPU's v16_sum.
fn sum_of_16(at: u32) -> f32 {
    var of_8: array<f32, 8>;
    for (var i = 0u; i < 8u; i++) { of_8[i] = squares[at + i] + squares[at + i + 8u]; }
    return ((of_8[0] + of_8[4]) + (of_8[2] + of_8[6])) + ((of_8[1] + of_8[5]) + (of_8[3] + of_8[7]));
}

// One row: v's number of this column, and the column's result.
fn advance(lane: u32, i: u32, v: f32) -> f32 {
    let q = i * DK4;
    let k = (ROWS + i) * DK4;
    var sk = 0.0;
    for (var j = 0u; j < DK4; j++) {
        let at = j * COLS + lane;
        let now = s[at] * gates[i].x;
        let other = unit[k + j];
        s[at] = now;
        sk = fma(now.w, other.w, fma(now.z, other.z, fma(now.y, other.y, fma(now.x, other.x, sk))));
    }
    let d = vec4(gates[i].y * (v - sk));
    var result = 0.0;
    for (var j = 0u; j < DK4; j++) {
        let at = j * COLS + lane;
        let now = fma(unit[k + j], d, s[at]);
        let other = unit[q + j];
        s[at] = now;
        result =
            fma(now.w, other.w, fma(now.z, other.z, fma(now.y, other.y, fma(now.x, other.x, result))));
    }
    return result;
}

// Where row k of a column of a head's state is.
fn state_at(slot: u32, head: u32, k: u32, column: u32) -> u32 {
    return ((slot * V_HEADS + head) * DK + k) * DV + column;
}

// The block of columns from first_column on, four rows at a time: a vec4 is one thread's.
fn load_block(lane: u32, slot: u32, head: u32, first_column: u32) {
    for (var i = lane; i < DK4 * COLS; i += THREADS) {
        let column = first_column + i % COLS;
        var x = vec4(0.0);
        for (var j = 0u; j < 4u; j++) {
            let k = i / COLS * 4u + j;
            if (k < DK && column < DV) { x[j] = state[state_at(slot, head, k, column)]; }
        }
        s[i] = x;
    }
    workgroupBarrier();
}

fn store_block(lane: u32, slot: u32, head: u32, first_column: u32) {
    workgroupBarrier();
    for (var i = lane; i < DK4 * COLS; i += THREADS) {
        let column = first_column + i % COLS;
        let x = s[i];
        for (var j = 0u; j < 4u; j++) {
            let k = i / COLS * 4u + j;
            if (k < DK && column < DV) { state[state_at(slot, head, k, column)] = x[j]; }
        }
    }
}

var<workgroup> the_chunk: Chunk; // the same for all threads, so that barriers may depend on it

@compute @workgroup_size(THREADS)
fn delta_net(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { the_chunk = chunks[id.y]; }
    let chunk = workgroupUniformLoad(&the_chunk);
    let head = id.x / BLOCKS;
    let first_column = id.x % BLOCKS * COLS;
    let column = first_column + lane;
    let mine = lane < COLS && column < DV;
    load_block(lane, chunk.slot, head, first_column);
    var t = 0u;
    while (t < chunk.n_rows) {
        var n = min(ROWS, chunk.n_rows - t);
        if (t < chunk.kept_after) { n = min(n, chunk.kept_after - t); }
        prepare(lane, chunk.first_row + t, n, head);
        if (mine) {
            for (var i = 0u; i < n; i++) {
                let row = chunk.first_row + t + i;
                let v = qkv[query_at(row, 0u) + 2u * K_HEADS * DK + head * DV + column];
                y[(row * V_HEADS + head) * DV + column] = advance(lane, i, v);
            }
        }
        t += n;
        if (chunk.kept_slot != NOTHING_KEPT && t == chunk.kept_after) {
            store_block(lane, chunk.kept_slot, head, first_column);
        }
        workgroupBarrier();
    }
    store_block(lane, chunk.slot, head, first_column);
}
