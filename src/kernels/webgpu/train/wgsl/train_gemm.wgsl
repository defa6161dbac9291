// C = A B in float32, for each of the three products of a linear (x: [T, K], W: [N, K]):
//   y = x W^T          A [M][K], B [N][K]
//   dx = dy W          A [M][K], B [K][N]
//   dW += dy^T x       A [K][M], B [K][N], the reduction over T cut into parts that are added later
//
// A workgroup computes 128 x 128 of C, a thread 8 x 8 in four blocks of 4 x 4, eight steps of the
// reduction at a time: while one block of 128 x 8 of A and of B is multiplied out of workgroup
// memory the next one is being loaded into registers. Blocks lie there as [k][row / 4] of vec4;
// data that arrives with k running fastest is transposed when stored. The row is XORed with a bit
// of k so that in neither case two threads wait for one memory bank.
// Grid: (N / 128, M / 128, parts of K).
override M: u32; // rows of C; 0: tokens
override N: u32;
override K: u32; // length of the reduction; 0: tokens
override A_BY_K: bool; // A is [K][M]
override B_BY_K: bool; // B is [K][N]
override LDA: u32; // vec4s from one row of memory to the next
override LDB: u32;
override LDC: u32;
override CHUNK: u32; // of the reduction: part z goes to rows z * M of C
override ADD: bool;  // to what C holds

@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> c: array<vec4<f32>>;

var<workgroup> a_now: array<vec4<f32>, 512>; // two blocks
var<workgroup> b_now: array<vec4<f32>, 512>;

fn load_a(lane: u32, m0: u32, m: u32, k0: u32, k_end: u32) -> vec4<f32> {
    if (A_BY_K) {
        let k = k0 + lane / 32u;
        let m4 = m0 / 4u + lane % 32u;
        if (k >= k_end || m4 >= LDA) { return vec4(0.0); }
        return a[k * LDA + m4];
    }
    let k = k0 + lane % 2u * 4u;
    if (k >= k_end) { return vec4(0.0); }
    return a[min(m0 + lane / 2u, m - 1u) * LDA + k / 4u];
}

fn load_b(lane: u32, n0: u32, k0: u32, k_end: u32) -> vec4<f32> {
    if (B_BY_K) {
        let k = k0 + lane / 32u;
        let n4 = n0 / 4u + lane % 32u;
        if (k >= k_end || n4 >= LDB) { return vec4(0.0); }
        return b[k * LDB + n4];
    }
    let k = k0 + lane % 2u * 4u;
    if (k >= k_end) { return vec4(0.0); }
    return b[min(n0 + lane / 2u, N - 1u) * LDB + k / 4u];
}

fn store_a(lane: u32, at: u32, v: vec4<f32>) {
    if (A_BY_K) {
        a_now[at + lane / 32u * 32u + ((lane % 32u) ^ (lane / 128u * 4u))] = v;
        return;
    }
    let row = lane / 2u;
    let to = at + lane % 2u * 128u + ((row / 4u) ^ (lane % 2u * 4u));
    a_now[to][row % 4u] = v.x;
    a_now[to + 32u][row % 4u] = v.y;
    a_now[to + 64u][row % 4u] = v.z;
    a_now[to + 96u][row % 4u] = v.w;
}

fn store_b(lane: u32, at: u32, v: vec4<f32>) {
    if (B_BY_K) {
        b_now[at + lane / 32u * 32u + ((lane % 32u) ^ (lane / 128u * 4u))] = v;
        return;
    }
    let row = lane / 2u;
    let to = at + lane % 2u * 128u + ((row / 4u) ^ (lane % 2u * 4u));
    b_now[to][row % 4u] = v.x;
    b_now[to + 32u][row % 4u] = v.y;
    b_now[to + 64u][row % 4u] = v.z;
    b_now[to + 96u][row % 4u] = v.w;
}

// Sums begin with what C holds, so that a reduction in two products has the bits of one.
fn before(row: u32, n4: u32, m: u32) -> vec4<f32> {
    if (row >= m || n4 * 4u >= N) { return vec4(0.0); }
    return c[row * LDC + n4];
}

fn write(row: u32, n4: u32, m: u32, part: u32, v: vec4<f32>) {
    if (row < m && n4 * 4u < N) { c[(part * m + row) * LDC + n4] = v; }
}

@compute @workgroup_size(256)
fn gemm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let m = select(M, run.n_tokens, M == 0u);
    let k_all = select(K, run.n_tokens, K == 0u);
    let n0 = group.x * 128u;
    let m0 = group.y * 128u;
    let k_begin = group.z * CHUNK;
    let k_end = min(k_all, k_begin + CHUNK);
    // A warp's threads stand 8 x 4.
    let tx = lane % 8u + lane / 32u % 2u * 8u;
    let ty = lane / 8u % 4u + lane / 64u * 4u;
    let n4 = n0 / 4u + tx;
    let row = m0 + ty * 4u;
    var s: array<vec4<f32>, 16>; // [row of 8][half of 8 columns]
    for (var i = 0u; ADD && i < 4u; i++) {
        s[2u * i] = before(row + i, n4, m);
        s[2u * i + 1u] = before(row + i, n4 + 16u, m);
        s[2u * i + 8u] = before(row + 64u + i, n4, m);
        s[2u * i + 9u] = before(row + 64u + i, n4 + 16u, m);
    }
    var next_a = load_a(lane, m0, m, k_begin, k_end);
    var next_b = load_b(lane, n0, k_begin, k_end);
    var at = 0u;
    store_a(lane, 0u, next_a);
    store_b(lane, 0u, next_b);
    workgroupBarrier();
    for (var k0 = k_begin; k0 < k_end; k0 += 8u) {
        next_a = load_a(lane, m0, m, k0 + 8u, k_end);
        next_b = load_b(lane, n0, k0 + 8u, k_end);
        for (var k = 0u; k < 8u; k++) {
            let flip = k / 4u * 4u;
            let base = at + k * 32u;
            let a0 = a_now[base + (ty ^ flip)];
            let a1 = a_now[base + (ty ^ flip) + 16u];
            let b0 = b_now[base + (tx ^ flip)];
            let b1 = b_now[base + (tx ^ flip) + 16u];
            s[0] = fma(vec4(a0.x), b0, s[0]);
            s[1] = fma(vec4(a0.x), b1, s[1]);
            s[2] = fma(vec4(a0.y), b0, s[2]);
            s[3] = fma(vec4(a0.y), b1, s[3]);
            s[4] = fma(vec4(a0.z), b0, s[4]);
            s[5] = fma(vec4(a0.z), b1, s[5]);
            s[6] = fma(vec4(a0.w), b0, s[6]);
            s[7] = fma(vec4(a0.w), b1, s[7]);
            s[8] = fma(vec4(a1.x), b0, s[8]);
            s[9] = fma(vec4(a1.x), b1, s[9]);
            s[10] = fma(vec4(a1.y), b0, s[10]);
            s[11] = fma(vec4(a1.y), b1, s[11]);
            s[12] = fma(vec4(a1.z), b0, s[12]);
            s[13] = fma(vec4(a1.z), b1, s[13]);
            s[14] = fma(vec4(a1.w), b0, s[14]);
            s[15] = fma(vec4(a1.w), b1, s[15]);
        }
        at = 256u - at;
        store_a(lane, at, next_a);
        store_b(lane, at, next_b);
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        write(row + i, n4, m, group.z, s[2u * i]);
        write(row + i, n4 + 16u, m, group.z, s[2u * i + 1u]);
        write(row + 64u + i, n4, m, group.z, s[2u * i + 8u]);
        write(row + 64u + i, n4 + 16u, m, group.z, s[2u * i + 9u]);
    }
}
