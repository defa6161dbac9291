// Approximate logits by the matrix units: a subgroup of 32 threads computes 32 tokens of the
// vocabulary x 16 rows of x, the upper and the lower parts of these, in pieces of 16 x 16, from
// 128 columns at a time. The data of the next step is loaded while this one is computed. Workgroup
// memory: 36 KB.
const ROWS = 128u;
override TOKENS: u32; // 16, 32 or 64
override SCREEN_THREADS = 8u * TOKENS;
override CODES_EACH = 8u * ROWS / SCREEN_THREADS; // vec4s of a step's rows that a thread loads
const CODES_MAX = 8u;
// Words of one row: 128 columns, and four more, so that the eight rows that a load of the matrix
// units touches at once lie in other banks.
const NEXT = 36u;
override CODES_AT = 2u * TOKENS * NEXT;

alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Sums = subgroup_matrix_result<i32, 16, 16>;

// For each 16 rows of x the upper parts, then the lower ones; after all of them the rows of the
// copy. At the end sums of 16 rows of x x 32 tokens for each subgroup.
const MEMORY = 9216u;
var<workgroup> memory: array<i32, MEMORY>;

struct Load { codes: array<vec4<u32>, CODES_MAX>, x: array<vec4<u32>, 2> }

// Eight neighbouring threads have the 128 columns of a row.
fn load(id: vec3<u32>, lane: u32, step: u32) -> Load {
    var l: Load;
    for (var i = 0u; i < CODES_EACH; i++) {
        let row = min(id.x * ROWS + (lane + SCREEN_THREADS * i) / 8u, N_ROWS - 1u);
        l.codes[i] = codes[row * VECS + step * 8u + lane % 8u];
    }
    for (var i = 0u; i < 2u; i++) {
        let j = (lane + SCREEN_THREADS * i) / 8u;
        let token = min(id.y * TOKENS + j / 32u * 16u + j % 16u, count_of_rows() - 1u);
        l.x[i] = q[(token * 2u + j / 16u % 2u) * VECS + step * 8u + lane % 8u];
    }
    return l;
}

// Four words of a row. Threads that meet in a bank, of four neighbouring rows, write theirs in
// different orders.
fn store4(to: u32, turn: u32, x: vec4<u32>) {
    var v = x;
    if ((turn & 1u) != 0u) { v = v.yzwx; }
    if ((turn & 2u) != 0u) { v = v.zwxy; }
    memory[to + turn] = i32(v.x);
    memory[to + (turn + 1u) % 4u] = i32(v.y);
    memory[to + (turn + 2u) % 4u] = i32(v.z);
    memory[to + (turn + 3u) % 4u] = i32(v.w);
}

fn store(lane: u32, l: ptr<function, Load>) {
    let to = lane / 8u * NEXT + lane % 8u * 4u;
    let turn = lane / 8u % 4u;
    for (var i = 0u; i < CODES_EACH; i++) {
        store4(CODES_AT + to + SCREEN_THREADS / 8u * i * NEXT, turn, (*l).codes[i]);
    }
    for (var i = 0u; i < 2u; i++) {
        store4(to + SCREEN_THREADS / 8u * i * NEXT, turn, (*l).x[i]);
    }
}

// Where a subgroup loads from depends on its threads' numbers: uniform, but not provably so.
@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(SCREEN_THREADS)
fn screen(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let sixteen = lane / 128u; // of the subgroup
    let row0 = lane / 32u % 4u * 32u;
    let me = lane % 32u;
    var h0: Sums; // of the upper parts: the first 16 tokens of the vocabulary
    var h1: Sums;
    var l0: Sums;
    var l1: Sums;
    var next = load(id, lane, 0u);
    for (var step = 0u; step < VECS / 8u; step++) {
        workgroupBarrier();
        store(lane, &next);
        workgroupBarrier();
        if (step + 1u < VECS / 8u) { next = load(id, lane, step + 1u); }
        for (var k = 0u; k < 128u; k += 32u) { // bytes of a row
            let left = sixteen * 32u * 4u * NEXT + k;
            let right = (2u * TOKENS + row0) * 4u * NEXT + k;
            let high = subgroupMatrixLoad<Left>(&memory, left, false, 4u * NEXT);
            let low = subgroupMatrixLoad<Left>(&memory, left + 64u * NEXT, false, 4u * NEXT);
            let r0 = subgroupMatrixLoad<Right>(&memory, right, true, 4u * NEXT);
            let r1 = subgroupMatrixLoad<Right>(&memory, right + 64u * NEXT, true, 4u * NEXT);
            h0 = subgroupMatrixMultiplyAccumulate(high, r0, h0);
            h1 = subgroupMatrixMultiplyAccumulate(high, r1, h1);
            l0 = subgroupMatrixMultiplyAccumulate(low, r0, l0);
            l1 = subgroupMatrixMultiplyAccumulate(low, r1, l1);
        }
    }
    let own = lane / 32u * 512u;
    workgroupBarrier();
    subgroupMatrixStore(&memory, own, h0, false, 32u);
    subgroupMatrixStore(&memory, own + 16u, h1, false, 32u);
    workgroupBarrier();
    var upper: array<i32, 16>;
    for (var i = 0u; i < 16u; i++) { upper[i] = memory[own + 32u * i + me]; }
    workgroupBarrier();
    subgroupMatrixStore(&memory, own, l0, false, 32u);
    subgroupMatrixStore(&memory, own + 16u, l1, false, 32u);
    workgroupBarrier();
    let row = id.x * ROWS + row0 + me;
    let step = rows[min(row, N_ROWS - 1u)].x;
    for (var i = 0u; i < 16u; i++) {
        let token = id.y * TOKENS + sixteen * 16u + i;
        let sum = f32(upper[i]) * 128.0 + f32(memory[own + 32u * i + me]);
        write_high(row, token, sum * (step * infos[min(token, count_of_rows() - 1u)].z));
    }
}
