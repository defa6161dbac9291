// A tile of few tokens by the matrix units: ROWS rows, few enough that there are tiles for all of
// the processors, of up to 64 tokens. Eight subgroups of 32 threads each have 32 rows of it, and
// those with the same rows share the columns: each takes SLICES times 32 of a step's, in pieces of
// 16 x 16. At the end their sums are added up, half of the sharers' at a time. Waiting for memory
// takes the time here, so the data of two steps is on its way while one is computed. Workgroup
// memory: 34 KB.
override TOKENS: u32;      // 16, 32 or 64
override ROWS: u32;        // 32, 64 or 128
override STEP_BLOCKS: u32; // of 64 columns: (ROWS + TOKENS) * NEXT <= MEMORY
const GEMM_THREADS = 256u;
const SUBGROUPS = GEMM_THREADS / 32u;
// Words of one row or token: a step's columns, and four more, so that the eight rows that a load of
// the matrix units touches at once lie in other banks.
override NEXT = 16u * STEP_BLOCKS + 4u;
override SHARERS = 32u * SUBGROUPS / ROWS;
override SLICES = 2u * STEP_BLOCKS / SHARERS;
override SUMS_EACH = ROWS * TOKENS / GEMM_THREADS; // of the tile, that a thread adds up
const SUMS_EACH_MAX = 32u;
override N_CODES = ROWS * STEP_BLOCKS * 4u / GEMM_THREADS;
override N_TOKENS = (TOKENS * STEP_BLOCKS * 4u + GEMM_THREADS - 1u) / GEMM_THREADS;
const LOADS_MAX = 4u;

alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Sums = subgroup_matrix_result<i32, 16, 16>;

// Activations of TOKENS tokens, then codes of ROWS rows; at the end [half of the sharers][token][row].
const MEMORY = 8704u;
var<workgroup> memory: array<i32, MEMORY>;

// What a thread loads of a step, 16 columns each: neighbours have the four parts of a block, then the
// next rows or tokens, then the next block.
struct Load { codes: array<u32, LOADS_MAX>, tokens: array<vec4<u32>, LOADS_MAX> }

fn load(t: Tile, lane: u32, b: u32) -> Load {
    var l: Load;
    for (var i = 0u; i < N_CODES; i++) {
        let j = lane + GEMM_THREADS * i;
        l.codes[i] = codes_at(t, j / 4u % ROWS, b + j / (4u * ROWS), j % 4u);
    }
    for (var i = 0u; i < N_TOKENS; i++) {
        let j = lane + GEMM_THREADS * i;
        l.tokens[i] = activations_at(t, j / 4u % TOKENS, b + j / (4u * TOKENS), j % 4u);
    }
    return l;
}

// Four words of one row or token. Eight neighbouring rows lie four banks apart, and so do the four
// parts of a row: threads that meet in such a place write its words in different orders.
fn store4(to: u32, part: u32, x: vec4<u32>) {
    var v = x;
    if ((part & 1u) != 0u) { v = v.yzwx; }
    if ((part & 2u) != 0u) { v = v.zwxy; }
    memory[to + part] = i32(v.x);
    memory[to + (part + 1u) % 4u] = i32(v.y);
    memory[to + (part + 2u) % 4u] = i32(v.z);
    memory[to + (part + 3u) % 4u] = i32(v.w);
}

fn store(lane: u32, l: ptr<function, Load>) {
    let part = lane % 4u;
    for (var i = 0u; i < N_CODES; i++) {
        let j = lane + GEMM_THREADS * i;
        let c = (*l).codes[i];
        store4((TOKENS + j / 4u % ROWS) * NEXT + j / (4u * ROWS) * 16u + part * 4u, part,
               vec4(c, c >> 2u, c >> 4u, c >> 6u) & vec4(0x03030303u));
    }
    for (var i = 0u; i < N_TOKENS; i++) {
        let j = lane + GEMM_THREADS * i;
        if (j < 4u * TOKENS * STEP_BLOCKS) {
            store4(j / 4u % TOKENS * NEXT + j / (4u * TOKENS) * 16u + part * 4u, part,
                   (*l).tokens[i]);
        }
    }
}

// Where a subgroup loads from depends on its threads' numbers: uniform, but not provably so. The sums
// are variables of their own, since an array of them would not stay in registers.
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn multiply(t: Tile, lane: u32) {
    let row0 = lane / 32u * 32u % ROWS; // of the subgroup
    let sharer = lane / ROWS;
    var s00: Sums; // the first 16 tokens, the first 16 rows
    var s01: Sums;
    var s10: Sums;
    var s11: Sums;
    var s20: Sums;
    var s21: Sums;
    var s30: Sums;
    var s31: Sums;
    var next = load(t, lane, 0u);
    var after = load(t, lane, STEP_BLOCKS);
    for (var b = 0u; b < BLOCKS; b += STEP_BLOCKS) {
        workgroupBarrier();
        store(lane, &next);
        workgroupBarrier();
        next = after;
        if (b + 2u * STEP_BLOCKS < BLOCKS) { after = load(t, lane, b + 2u * STEP_BLOCKS); }
        for (var s = 0u; s < SLICES; s++) {
            let left = (sharer * SLICES + s) * 32u; // in bytes, as all here
            let right = left + (TOKENS + row0) * 4u * NEXT;
            let r0 = subgroupMatrixLoad<Right>(&memory, right, true, 4u * NEXT);
            let r1 = subgroupMatrixLoad<Right>(&memory, right + 64u * NEXT, true, 4u * NEXT);
            let l0 = subgroupMatrixLoad<Left>(&memory, left, false, 4u * NEXT);
            s00 = subgroupMatrixMultiplyAccumulate(l0, r0, s00);
            s01 = subgroupMatrixMultiplyAccumulate(l0, r1, s01);
            if (TOKENS > 16u) {
                let l1 = subgroupMatrixLoad<Left>(&memory, left + 64u * NEXT, false, 4u * NEXT);
                s10 = subgroupMatrixMultiplyAccumulate(l1, r0, s10);
                s11 = subgroupMatrixMultiplyAccumulate(l1, r1, s11);
            }
            if (TOKENS > 32u) {
                let l2 = subgroupMatrixLoad<Left>(&memory, left + 128u * NEXT, false, 4u * NEXT);
                s20 = subgroupMatrixMultiplyAccumulate(l2, r0, s20);
                s21 = subgroupMatrixMultiplyAccumulate(l2, r1, s21);
                let l3 = subgroupMatrixLoad<Left>(&memory, left + 192u * NEXT, false, 4u * NEXT);
                s30 = subgroupMatrixMultiplyAccumulate(l3, r0, s30);
                s31 = subgroupMatrixMultiplyAccumulate(l3, r1, s31);
            }
        }
    }
    var own: array<i32, SUMS_EACH_MAX>;
    for (var half = 0u; half < 2u; half++) {
        workgroupBarrier();
        if (sharer / (SHARERS / 2u) == half) {
            let at = sharer % (SHARERS / 2u) * ROWS * TOKENS + row0;
            subgroupMatrixStore(&memory, at, s00, false, ROWS);
            subgroupMatrixStore(&memory, at + 16u, s01, false, ROWS);
            if (TOKENS > 16u) {
                subgroupMatrixStore(&memory, at + 16u * ROWS, s10, false, ROWS);
                subgroupMatrixStore(&memory, at + 16u * ROWS + 16u, s11, false, ROWS);
            }
            if (TOKENS > 32u) {
                subgroupMatrixStore(&memory, at + 32u * ROWS, s20, false, ROWS);
                subgroupMatrixStore(&memory, at + 32u * ROWS + 16u, s21, false, ROWS);
                subgroupMatrixStore(&memory, at + 48u * ROWS, s30, false, ROWS);
                subgroupMatrixStore(&memory, at + 48u * ROWS + 16u, s31, false, ROWS);
            }
        }
        workgroupBarrier();
        for (var i = 0u; i < SUMS_EACH; i++) {
            for (var s = 0u; s < SHARERS / 2u; s++) {
                own[i] += memory[s * ROWS * TOKENS + i * GEMM_THREADS + lane];
            }
        }
    }
    for (var i = 0u; i < SUMS_EACH; i++) {
        let at = i * GEMM_THREADS + lane;
        write(t, at % ROWS, at / ROWS, own[i], scale_of(t, at / ROWS));
    }
}
