// C = A B as in train_gemm.wgsl, by the matrix units: factors are rounded to halves when stored
// into workgroup memory, unless they are halves in memory, too; sums are float32. Sixteen subgroups
// of 32 threads compute 32 x 32 each of 128 x 128, in pieces of 16 x 16, from 64 steps of the
// reduction at a time; the next 64 are loaded while these are multiplied.
//
// Blocks have the same layout in workgroup memory as outside, four halves a vec2, with two more of
// them to a row to spread the banks: 128 rows of 64 steps of the reduction, or 64 steps of 128
// rows. The units transpose them as they load. Whole pieces are written, so M and N are multiples
// of 16, and values of tokens have room for whole blocks past the last one. Grid: (N / 128, M /
// 128, parts of K).
override M: u32; // rows of C; 0: tokens
override N: u32;
override K: u32; // length of the reduction; 0: tokens
override A_BY_K: bool; // A is [K][M]
override B_BY_K: bool; // B is [K][N]
override A_HALF: bool = false; // A is halves, eight a vec4
override B_HALF: bool = false;
override LDA: u32; // vec4s from one row of memory to the next
override LDB: u32;
override LDC: u32;
override CHUNK: u32; // of the reduction: part z goes to rows z * M of C
override ADD: bool;  // to what C holds
override UNSCALE: bool = false; // C is a weight's gradient (train_run.wgsl)

@group(0) @binding(1) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

const NEXT_ROW = 18u;  // vec2s from row to row of [row][k]
const NEXT_STEP = 34u; // from step to step of [k][row]
const BLOCK = 2304u;   // of a block
var<workgroup> memory: array<vec2<u32>, 4608>;

// Where the i-th vec4 of a block is: its row and its place in it, in vec4s of `each` numbers. A
// block has 128 rows of 64 steps of the reduction, or 64 steps of 128 rows.
fn place(i: u32, by_k: bool, each: u32) -> vec2<u32> {
    let n = select(64u, 128u, by_k) / each;
    return vec2(i / n, i % n);
}
fn each_of(half: bool) -> u32 { return select(4u, 8u, half); }

// That vec4 of the block from rows row0 and steps k0 on; nothing past the end of the reduction.
fn load_a(i: u32, row0: u32, m: u32, k0: u32, k_end: u32) -> vec4<u32> {
    let each = each_of(A_HALF);
    let p = place(i, A_BY_K, each);
    if (A_BY_K) {
        let at = row0 / each + p.y;
        if (k0 + p.x >= k_end || at >= LDA) { return vec4(0u); }
        return a[(k0 + p.x) * LDA + at];
    }
    if (k0 + p.y * each >= k_end) { return vec4(0u); }
    return a[min(row0 + p.x, m - 1u) * LDA + k0 / each + p.y];
}
fn load_b(i: u32, row0: u32, k0: u32, k_end: u32) -> vec4<u32> {
    let each = each_of(B_HALF);
    let p = place(i, B_BY_K, each);
    if (B_BY_K) {
        let at = row0 / each + p.y;
        if (k0 + p.x >= k_end || at >= LDB) { return vec4(0u); }
        return b[(k0 + p.x) * LDB + at];
    }
    if (k0 + p.y * each >= k_end) { return vec4(0u); }
    return b[min(row0 + p.x, N - 1u) * LDB + k0 / each + p.y];
}

// Values out of range for a half become the greatest half.
fn store(at: u32, i: u32, by_k: bool, half: bool, v: vec4<u32>) {
    let p = place(i, by_k, each_of(half));
    let to = at + p.x * select(NEXT_ROW, NEXT_STEP, by_k) + p.y * each_of(half) / 4u;
    if (half) {
        memory[to] = v.xy;
        memory[to + 1u] = v.zw;
        return;
    }
    let x = clamp(bitcast<vec4<f32>>(v), vec4(-65504.0), vec4(65504.0));
    memory[to] = bitcast<vec2<u32>>(vec4<f16>(x));
}

// Where a subgroup's pieces are depends on its threads' numbers: uniform, but not provably so,
// hence the check is off.
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn left(row: u32, k: u32) -> Left {
    if (A_BY_K) {
        return subgroupMatrixLoad<Left, col_major>(&memory, k * NEXT_STEP + row / 4u, NEXT_STEP);
    }
    return subgroupMatrixLoad<Left, row_major>(&memory, row * NEXT_ROW + k / 4u, NEXT_ROW);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn right(row: u32, k: u32) -> Right {
    if (B_BY_K) {
        return subgroupMatrixLoad<Right, row_major>(&memory, BLOCK + k * NEXT_STEP + row / 4u,
                                                    NEXT_STEP);
    }
    return subgroupMatrixLoad<Right, col_major>(&memory, BLOCK + row * NEXT_ROW + k / 4u, NEXT_ROW);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn before(row: u32, column: u32, m: u32) -> Sums {
    if (ADD && row < m && column < N) {
        let s = subgroupMatrixLoad<Sums>(&c, row * LDC * 4u + column, false, LDC * 4u);
        if (UNSCALE) { return subgroupMatrixScalarMultiply(s, 1.0 / run.unscale); } // exactly
        return s;
    }
    return Sums();
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn write(part: u32, row: u32, column: u32, m: u32, s: Sums) {
    if (row >= m || column >= N) { return; }
    let at = (part * m + row) * LDC * 4u + column;
    if (UNSCALE) {
        subgroupMatrixStore(&c, at, subgroupMatrixScalarMultiply(s, run.unscale), false, LDC * 4u);
    } else {
        subgroupMatrixStore(&c, at, s, false, LDC * 4u);
    }
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(512)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let m = select(M, run.n_tokens, M == 0u);
    let k_all = select(K, run.n_tokens, K == 0u);
    let n0 = group.x * 128u;
    let m0 = group.y * 128u;
    let k_begin = group.z * CHUNK;
    let k_end = min(k_all, k_begin + CHUNK);
    let row = lane / 128u * 32u; // of the subgroup
    let column = lane / 32u % 4u * 32u;
    var s00 = before(m0 + row, n0 + column, m);
    var s01 = before(m0 + row, n0 + column + 16u, m);
    var s10 = before(m0 + row + 16u, n0 + column, m);
    var s11 = before(m0 + row + 16u, n0 + column + 16u, m);
    var a0 = load_a(lane, m0, m, k_begin, k_end);
    var a1 = load_a(lane + 512u, m0, m, k_begin, k_end);
    var a2 = vec4(0u); // not of halves
    var a3 = vec4(0u);
    var b0 = load_b(lane, n0, k_begin, k_end);
    var b1 = load_b(lane + 512u, n0, k_begin, k_end);
    var b2 = vec4(0u);
    var b3 = vec4(0u);
    if (!A_HALF) {
        a2 = load_a(lane + 1024u, m0, m, k_begin, k_end);
        a3 = load_a(lane + 1536u, m0, m, k_begin, k_end);
    }
    if (!B_HALF) {
        b2 = load_b(lane + 1024u, n0, k_begin, k_end);
        b3 = load_b(lane + 1536u, n0, k_begin, k_end);
    }
    for (var k0 = k_begin; k0 < k_end; k0 += 64u) {
        workgroupBarrier();
        store(0u, lane, A_BY_K, A_HALF, a0);
        store(0u, lane + 512u, A_BY_K, A_HALF, a1);
        store(BLOCK, lane, B_BY_K, B_HALF, b0);
        store(BLOCK, lane + 512u, B_BY_K, B_HALF, b1);
        if (!A_HALF) {
            store(0u, lane + 1024u, A_BY_K, A_HALF, a2);
            store(0u, lane + 1536u, A_BY_K, A_HALF, a3);
        }
        if (!B_HALF) {
            store(BLOCK, lane + 1024u, B_BY_K, B_HALF, b2);
            store(BLOCK, lane + 1536u, B_BY_K, B_HALF, b3);
        }
        workgroupBarrier();
        a0 = load_a(lane, m0, m, k0 + 64u, k_end);
        a1 = load_a(lane + 512u, m0, m, k0 + 64u, k_end);
        b0 = load_b(lane, n0, k0 + 64u, k_end);
        b1 = load_b(lane + 512u, n0, k0 + 64u, k_end);
        if (!A_HALF) {
            a2 = load_a(lane + 1024u, m0, m, k0 + 64u, k_end);
            a3 = load_a(lane + 1536u, m0, m, k0 + 64u, k_end);
        }
        if (!B_HALF) {
            b2 = load_b(lane + 1024u, n0, k0 + 64u, k_end);
            b3 = load_b(lane + 1536u, n0, k0 + 64u, k_end);
        }
        for (var k = 0u; k < 64u; k += 16u) {
            let l0 = left(row, k);
            let l1 = left(row + 16u, k);
            let r0 = right(column, k);
            let r1 = right(column + 16u, k);
            s00 = subgroupMatrixMultiplyAccumulate(l0, r0, s00);
            s01 = subgroupMatrixMultiplyAccumulate(l0, r1, s01);
            s10 = subgroupMatrixMultiplyAccumulate(l1, r0, s10);
            s11 = subgroupMatrixMultiplyAccumulate(l1, r1, s11);
        }
    }
    let m_end = select(M, (m + 127u) / 128u * 128u, M == 0u);
    write(group.z, m0 + row, n0 + column, m_end, s00);
    write(group.z, m0 + row, n0 + column + 16u, m_end, s01);
    write(group.z, m0 + row + 16u, n0 + column, m_end, s10);
    write(group.z, m0 + row + 16u, n0 + column + 16u, m_end, s11);
}
