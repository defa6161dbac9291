// A tile of gemm.wgsl by the matrix units, with codes whose every 16, 32 or 64 columns are scaled by
// themselves. Matrix units add up integers, and no program sees their results before they are
// stored; so each group's sums go through workgroup memory, from which the threads take them, group
// by group, in the order of the specification. This still takes less than half of the time of products
// of four bytes.
//
// A step is STEP_BLOCKS blocks of 64 columns. Eight subgroups of 32 threads share its tasks, each of
// which is a group's columns x 32 rows x TASK_TOKENS tokens, in pieces of 16 x 16. Then a thread has
// one row and every 256 / ROWS-th token. The data of two steps is on its way while one is computed.
//
// Comes before wide_gemm_matrix.wgsl and ternary_gemm_groups.wgsl, which say how codes are read and
// what is done with a group's sum: Codes, codes_at, unpacked, RawScales, raw_scales, RowScales,
// row_scales, PARTS, INFO_PARTS, info_of and add_group.
override TOKENS: u32;      // 16, 32 or 64
override ROWS: u32;        // 32 or 64
override STEP_BLOCKS: u32; // 1, 2 or 4
const GEMM_THREADS = 256u;
const SUBGROUPS = GEMM_THREADS / 32u;
override GROUPS = STEP_BLOCKS * PARTS; // of a step
override TASK_TOKENS = 16u + 16u * u32(TOKENS >= 32u && (TOKENS / 32u) * (ROWS / 32u) * GROUPS >= SUBGROUPS);
override TASKS = TOKENS / TASK_TOKENS * (ROWS / 32u) * GROUPS; // a multiple of SUBGROUPS

// Words of a row or token: a step's columns, and four more, so that the eight rows that a load of the
// matrix units touches at once lie in other banks. Matrix units take 32 columns at a time: behind a
// group of 16 columns of codes there are as many zeros.
override SPREAD = 1u + u32(PARTS == 4u);
override TOKEN_NEXT = 16u * STEP_BLOCKS + 4u;
override CODE_NEXT = 16u * SPREAD * STEP_BLOCKS + 4u;
override CODES_AT = TOKENS * TOKEN_NEXT;
override SUMS_AT = CODES_AT + ROWS * CODE_NEXT;
override SUM_NEXT = ROWS + 8u; // likewise, where results are stored

// Activations, codes, sums [group][token][row]: <= MEMORY, which cannot be an override.
const MEMORY = 11776u;
var<workgroup> memory: array<i32, MEMORY>;
var<workgroup> infos: array<vec4<u32>, STEP_BLOCKS * INFO_PARTS * TOKENS>; // [block][part][token]

alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Sums = subgroup_matrix_result<i32, 16, 16>;

// What a thread loads of a step: of codes and activations 16 columns each, where neighbours have the
// four parts of a block, then the next rows or tokens, then the next block; its row's scales in each
// block; and one token's in one block, if there are that many.
override N_CODES = (ROWS * STEP_BLOCKS * 4u + GEMM_THREADS - 1u) / GEMM_THREADS;
override N_TOKENS = (TOKENS * STEP_BLOCKS * 4u + GEMM_THREADS - 1u) / GEMM_THREADS;
const LOADS_MAX = 4u;
const BLOCKS_MAX = 4u;
struct Load {
    codes: array<Codes, LOADS_MAX>,
    tokens: array<vec4<u32>, LOADS_MAX>,
    scales: array<RawScales, BLOCKS_MAX>,
    info: vec2<u32>,
}

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
    for (var k = 0u; k < STEP_BLOCKS; k++) { l.scales[k] = raw_scales(t, lane % ROWS, b + k); }
    l.info = info_of_block(t, lane % TOKENS, b + lane / TOKENS);
    return l;
}

// Four words of a row or token; threads that meet in a bank write theirs in different orders.
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
        if (j < 4u * ROWS * STEP_BLOCKS) {
            store4(CODES_AT + j / 4u % ROWS * CODE_NEXT + (j / (4u * ROWS) * 16u + part * 4u) * SPREAD,
                   part, unpacked((*l).codes[i], part));
        }
    }
    for (var i = 0u; i < N_TOKENS; i++) {
        let j = lane + GEMM_THREADS * i;
        if (j < 4u * TOKENS * STEP_BLOCKS) {
            store4(j / 4u % TOKENS * TOKEN_NEXT + j / (4u * TOKENS) * 16u + part * 4u, part,
                   (*l).tokens[i]);
        }
    }
}

fn store_infos(lane: u32, info: vec2<u32>) {
    if (lane >= TOKENS * STEP_BLOCKS) { return; }
    for (var p = 0u; p < INFO_PARTS; p++) {
        infos[(lane / TOKENS * INFO_PARTS + p) * TOKENS + lane % TOKENS] = info_of(info, p);
    }
}

fn store_zeros(lane: u32) {
    for (var j = lane; SPREAD == 2u && j < 4u * ROWS * STEP_BLOCKS; j += GEMM_THREADS) {
        store4(CODES_AT + j / 4u % ROWS * CODE_NEXT + (j / (4u * ROWS) * 4u + j % 4u) * 8u + 4u, 0u,
               vec4(0u));
    }
}

// Where a subgroup loads from depends on its threads' numbers: uniform, but not provably so.
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn multiply_step(lane: u32) {
    for (var i = 0u; i < TASKS / SUBGROUPS; i++) {
        let task = lane / 32u + i * SUBGROUPS;
        let row0 = task % (ROWS / 32u) * 32u;
        let group = task / (ROWS / 32u) % GROUPS;
        let token0 = task / (ROWS / 32u * GROUPS) * TASK_TOKENS;
        let block = group / PARTS;
        let p = group % PARTS;
        // In bytes, as the matrix units count.
        let left = token0 * 4u * TOKEN_NEXT + block * 64u + p * (64u / PARTS);
        let right = (CODES_AT + row0 * CODE_NEXT) * 4u + (block * 64u + p * (64u / PARTS)) * SPREAD;
        var s00: Sums; // the first 16 tokens, the first 16 rows
        var s01: Sums;
        var s10: Sums;
        var s11: Sums;
        for (var k = 0u; k < 1u + u32(PARTS == 1u); k++) {
            let r0 = subgroupMatrixLoad<Right>(&memory, right + 32u * k, true, 4u * CODE_NEXT);
            let r1 = subgroupMatrixLoad<Right>(&memory, right + 32u * k + 64u * CODE_NEXT, true,
                                               4u * CODE_NEXT);
            let l0 = subgroupMatrixLoad<Left>(&memory, left + 32u * k, false, 4u * TOKEN_NEXT);
            s00 = subgroupMatrixMultiplyAccumulate(l0, r0, s00);
            s01 = subgroupMatrixMultiplyAccumulate(l0, r1, s01);
            if (TASK_TOKENS > 16u) {
                let l1 = subgroupMatrixLoad<Left>(&memory, left + 32u * k + 64u * TOKEN_NEXT, false,
                                                  4u * TOKEN_NEXT);
                s10 = subgroupMatrixMultiplyAccumulate(l1, r0, s10);
                s11 = subgroupMatrixMultiplyAccumulate(l1, r1, s11);
            }
        }
        let to = SUMS_AT + (group * TOKENS + token0) * SUM_NEXT + row0;
        subgroupMatrixStore(&memory, to, s00, false, SUM_NEXT);
        subgroupMatrixStore(&memory, to + 16u, s01, false, SUM_NEXT);
        if (TASK_TOKENS > 16u) {
            subgroupMatrixStore(&memory, to + 16u * SUM_NEXT, s10, false, SUM_NEXT);
            subgroupMatrixStore(&memory, to + 16u * SUM_NEXT + 16u, s11, false, SUM_NEXT);
        }
    }
}

// The groups of a step in order. A thread's sums are a vec4 or a vec2's worth: few enough that loops
// over them are unrolled and none needs an index.
const OWN_MAX = 4u;
override OWN = (TOKENS * ROWS / GEMM_THREADS + 3u) / 4u;
override TOKENS_APART = GEMM_THREADS / ROWS;
alias Own = array<vec4<f32>, OWN_MAX>;
fn token_of(lane: u32, i: u32) -> u32 { return (lane / ROWS + TOKENS_APART * i) % TOKENS; }
fn add_to(sum: f32, lane: u32, i: u32, k: u32, p: u32, s: RowScales) -> f32 {
    let token = token_of(lane, i);
    let info = infos[(k * INFO_PARTS + p % INFO_PARTS) * TOKENS + token];
    let codes = memory[SUMS_AT + ((k * PARTS + p) * TOKENS + token) * SUM_NEXT + lane % ROWS];
    return add_group(sum, codes, s, p, info);
}
fn add_groups(lane: u32, b: u32, scales: array<RawScales, BLOCKS_MAX>, own: ptr<function, Own>) {
    for (var k = 0u; k < STEP_BLOCKS; k++) {
        if (BLOCKS % STEP_BLOCKS == 0u || b + k < BLOCKS) {
            let s = row_scales(scales[k]);
            for (var p = 0u; p < PARTS; p++) {
                for (var i = 0u; i < OWN; i++) {
                    let o = (*own)[i];
                    (*own)[i] = vec4(add_to(o.x, lane, 4u * i, k, p, s),
                                     add_to(o.y, lane, 4u * i + 1u, k, p, s),
                                     add_to(o.z, lane, 4u * i + 2u, k, p, s),
                                     add_to(o.w, lane, 4u * i + 3u, k, p, s));
                }
            }
        }
    }
}

fn multiply(t: Tile, lane: u32) {
    var own: Own;
    var now = load(t, lane, 0u);
    var next = load(t, lane, STEP_BLOCKS);
    store_zeros(lane);
    for (var b = 0u; b < BLOCKS; b += STEP_BLOCKS) {
        store(lane, &now);
        workgroupBarrier(); // nobody needs the last step's sums any more
        let scales = now.scales;
        store_infos(lane, now.info);
        now = next;
        if (b + 2u * STEP_BLOCKS < BLOCKS) { next = load(t, lane, b + 2u * STEP_BLOCKS); }
        multiply_step(lane);
        workgroupBarrier();
        add_groups(lane, b, scales, &own);
    }
    for (var i = 0u; i < OWN; i++) {
        for (var c = 0u; c < 4u; c++) {
            let j = 4u * i + c;
            if (lane / ROWS + TOKENS_APART * j < TOKENS) {
                write_product(t, lane % ROWS, token_of(lane, j), own[i][c]);
            }
        }
    }
}
