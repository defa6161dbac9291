// Attention among the rows of a document by the matrix units, see train_attention.wgsl. Their sums
// cannot be rescaled row by row, so the keys are walked over twice: first for the log of each row's
// sum of exponentials, then for y, with weights that need no further division. 64 queries a
// workgroup of four subgroups, 16 each, and 64 keys at a time; scores go through workgroup memory,
// two threads a row. Which of its scores a thread takes first depends on the row, so that no two
// threads meet in a memory bank. Grid: (T / 64, heads).
override HEAD_DIM: u32; // a multiple of 16, at most 64
override N_HEADS: u32;
override GROUP: u32; // query heads that share a key head
override SCALE: f32;
override LDQ: u32;   // vec4s of a row of q and y
override LDK: u32;   // of k and v
override LDS: u32;   // floats of a row of log sums
override HD4: u32 = HEAD_DIM / 4u;
override NEXT: u32 = HEAD_DIM + 8u; // halves from row to row: the eight more spare the banks

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> log_sums: array<f32>;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

const S_NEXT = 68u;
const P_NEXT = 72u;
var<workgroup> q_now: array<f16, 64u * 72u>;
var<workgroup> k_now: array<f16, 64u * 72u>; // keys, then values
var<workgroup> s_now: array<f32, 64u * S_NEXT>;
var<workgroup> p_now: array<f16, 64u * P_NEXT>;

fn half4(v: vec4<f32>) -> vec4<f16> {
    return vec4<f16>(clamp(v, vec4(-65504.0), vec4(65504.0)));
}
fn load_q(lane: u32, row0: u32, head: u32) {
    for (var i = lane; i < 64u * HD4; i += 128u) {
        let row = i / HD4;
        let h = half4(q[min(row0 + row, run.n_tokens - 1u) * LDQ + head * HD4 + i % HD4] * SCALE);
        let to = row * NEXT + i % HD4 * 4u;
        q_now[to] = h.x;
        q_now[to + 1u] = h.y;
        q_now[to + 2u] = h.z;
        q_now[to + 3u] = h.w;
    }
}
fn load_k(lane: u32, row0: u32, head: u32) {
    for (var i = lane; i < 64u * HD4; i += 128u) {
        let row = i / HD4;
        let h = half4(k[min(row0 + row, run.n_tokens - 1u) * LDK + head * HD4 + i % HD4]);
        let to = row * NEXT + i % HD4 * 4u;
        k_now[to] = h.x;
        k_now[to + 1u] = h.y;
        k_now[to + 2u] = h.z;
        k_now[to + 3u] = h.w;
    }
}
fn load_v(lane: u32, row0: u32, head: u32) {
    for (var i = lane; i < 64u * HD4; i += 128u) {
        let row = i / HD4;
        let h = half4(v[min(row0 + row, run.n_tokens - 1u) * LDK + head * HD4 + i % HD4]);
        let to = row * NEXT + i % HD4 * 4u;
        k_now[to] = h.x;
        k_now[to + 1u] = h.y;
        k_now[to + 2u] = h.z;
        k_now[to + 3u] = h.w;
    }
}

// 16 rows and dimensions of what is in k_now.
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn piece(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&k_now, row * NEXT + d, false, NEXT);
}

// Scores of the subgroup's 16 queries and the 64 keys in k_now.
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn score(own: u32) {
    var s0 = Sums();
    var s1 = Sums();
    var s2 = Sums();
    var s3 = Sums();
    for (var d = 0u; d < HEAD_DIM; d += 16u) {
        let a = subgroupMatrixLoad<Left>(&q_now, own * NEXT + d, false, NEXT);
        let b0 = subgroupMatrixLoad<Right>(&k_now, d, true, NEXT);
        s0 = subgroupMatrixMultiplyAccumulate(a, b0, s0);
        let b1 = subgroupMatrixLoad<Right>(&k_now, 16u * NEXT + d, true, NEXT);
        s1 = subgroupMatrixMultiplyAccumulate(a, b1, s1);
        let b2 = subgroupMatrixLoad<Right>(&k_now, 32u * NEXT + d, true, NEXT);
        s2 = subgroupMatrixMultiplyAccumulate(a, b2, s2);
        let b3 = subgroupMatrixLoad<Right>(&k_now, 48u * NEXT + d, true, NEXT);
        s3 = subgroupMatrixMultiplyAccumulate(a, b3, s3);
    }
    subgroupMatrixStore(&s_now, own * S_NEXT, s0, false, S_NEXT);
    subgroupMatrixStore(&s_now, own * S_NEXT + 16u, s1, false, S_NEXT);
    subgroupMatrixStore(&s_now, own * S_NEXT + 32u, s2, false, S_NEXT);
    subgroupMatrixStore(&s_now, own * S_NEXT + 48u, s3, false, S_NEXT);
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(128)
fn attention_seq(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let row0 = group.x * 64u;
    let head = group.y;
    let own = lane / 32u * 16u;
    let side = lane % 2u; // the half of the keys that this thread has of its row
    let row = row0 + lane / 2u;
    let last = min(row0 + 64u, run.n_tokens) - 1u;
    let start = spans[min(row, last)].x;
    let first_key = spans[row0].x;
    let turn = 2u * side + lane / 16u % 2u;
    load_q(lane, row0, head);
    var most = -1e30;
    var sum = 0.0;
    for (var key0 = first_key; key0 <= last; key0 += 64u) {
        workgroupBarrier();
        load_k(lane, key0, head / GROUP);
        workgroupBarrier();
        score(own);
        workgroupBarrier();
        var now = most;
        for (var i = 0u; i < 32u; i++) {
            let j = 32u * side + (i + turn) % 32u;
            let s = s_now[lane / 2u * S_NEXT + j];
            if (key0 + j <= row && key0 + j >= start) { now = max(now, s); }
        }
        sum *= exp(max(most - now, -87.0));
        most = now;
        for (var i = 0u; i < 32u; i++) {
            let j = 32u * side + (i + turn) % 32u;
            let s = s_now[lane / 2u * S_NEXT + j];
            if (key0 + j <= row && key0 + j >= start) { sum += exp(max(s - most, -87.0)); }
        }
    }
    let other_most = subgroupShuffleXor(most, 1u);
    let other_sum = subgroupShuffleXor(sum, 1u);
    let both = max(most, other_most);
    sum = sum * exp(max(most - both, -87.0)) + other_sum * exp(max(other_most - both, -87.0));
    let log_sum = both + log(sum);
    var o0 = Sums();
    var o1 = Sums();
    var o2 = Sums();
    var o3 = Sums();
    for (var key0 = first_key; key0 <= last; key0 += 64u) {
        workgroupBarrier();
        load_k(lane, key0, head / GROUP);
        workgroupBarrier();
        score(own);
        workgroupBarrier();
        load_v(lane, key0, head / GROUP);
        for (var i = 0u; i < 32u; i++) {
            let j = 32u * side + (i + turn) % 32u;
            var p = 0.0;
            if (key0 + j <= row && key0 + j >= start) {
                p = exp(clamp(s_now[lane / 2u * S_NEXT + j] - log_sum, -87.0, 0.0));
            }
            p_now[lane / 2u * P_NEXT + j] = f16(p);
        }
        workgroupBarrier();
        for (var j = 0u; j < 64u; j += 16u) {
            let p = subgroupMatrixLoad<Left>(&p_now, own * P_NEXT + j, false, P_NEXT);
            o0 = subgroupMatrixMultiplyAccumulate(p, piece(j, 0u), o0);
            if (HEAD_DIM > 16u) { o1 = subgroupMatrixMultiplyAccumulate(p, piece(j, 16u), o1); }
            if (HEAD_DIM > 32u) { o2 = subgroupMatrixMultiplyAccumulate(p, piece(j, 32u), o2); }
            if (HEAD_DIM > 48u) { o3 = subgroupMatrixMultiplyAccumulate(p, piece(j, 48u), o3); }
        }
    }
    let to = (row0 + own) * LDQ * 4u + head * HEAD_DIM;
    subgroupMatrixStore(&y, to + 0u, o0, false, LDQ * 4u);
    if (HEAD_DIM > 16u) { subgroupMatrixStore(&y, to + 16u, o1, false, LDQ * 4u); }
    if (HEAD_DIM > 32u) { subgroupMatrixStore(&y, to + 32u, o2, false, LDQ * 4u); }
    if (HEAD_DIM > 48u) { subgroupMatrixStore(&y, to + 48u, o3, false, LDQ * 4u); }
    if (side == 0u && row <= last) { log_sums[row * LDS + head] = log_sum; }
}
