// dq of attention by the matrix units: the formulas of train_attention_grad.wgsl, the layouts of
// train_attention_matrix.wgsl. 64 queries a workgroup, 32 keys at a time; scores and then dP go
// through the same memory. Grid: (T / 64, heads).
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
@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(6) var<storage, read> stats: array<vec2<f32>>; // [T][heads]: log sum, delta
@group(0) @binding(7) var<storage, read_write> dq: array<f32>;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

const S_NEXT = 36u;
const P_NEXT = 40u;
var<workgroup> q_now: array<f16, 64u * 72u>;
var<workgroup> dy_now: array<f16, 64u * 72u>;
var<workgroup> k_now: array<f16, 32u * 72u>;
var<workgroup> v_now: array<f16, 32u * 72u>;
var<workgroup> s_now: array<f32, 64u * S_NEXT>;
var<workgroup> p_now: array<f16, 64u * P_NEXT>; // P, then dS

fn half4(v: vec4<f32>) -> vec4<f16> {
    return vec4<f16>(clamp(v, vec4(-65504.0), vec4(65504.0)));
}
fn load_q(lane: u32, row0: u32, head: u32) {
    for (var i = lane; i < 64u * HD4; i += 128u) {
        let row = i / HD4;
        let h = half4(q[min(row0 + row, run.n_tokens - 1u) * LDQ + head * HD4 + i % HD4]);
        let to = row * NEXT + i % HD4 * 4u;
        q_now[to] = h.x;
        q_now[to + 1u] = h.y;
        q_now[to + 2u] = h.z;
        q_now[to + 3u] = h.w;
    }
}
fn load_dy(lane: u32, row0: u32, head: u32) {
    for (var i = lane; i < 64u * HD4; i += 128u) {
        let row = i / HD4;
        let h = half4(dy[min(row0 + row, run.n_tokens - 1u) * LDQ + head * HD4 + i % HD4]);
        let to = row * NEXT + i % HD4 * 4u;
        dy_now[to] = h.x;
        dy_now[to + 1u] = h.y;
        dy_now[to + 2u] = h.z;
        dy_now[to + 3u] = h.w;
    }
}
fn load_k(lane: u32, row0: u32, head: u32) {
    for (var i = lane; i < 32u * HD4; i += 128u) {
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
    for (var i = lane; i < 32u * HD4; i += 128u) {
        let row = i / HD4;
        let h = half4(v[min(row0 + row, run.n_tokens - 1u) * LDK + head * HD4 + i % HD4]);
        let to = row * NEXT + i % HD4 * 4u;
        v_now[to] = h.x;
        v_now[to + 1u] = h.y;
        v_now[to + 2u] = h.z;
        v_now[to + 3u] = h.w;
    }
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn piece(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&k_now, row * NEXT + d, false, NEXT);
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(128)
fn attention_grad_q(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let row0 = group.x * 64u;
    let head = group.y;
    let own = lane / 32u * 16u;
    let side = lane % 2u;
    let row = row0 + lane / 2u;
    let last = min(row0 + 64u, run.n_tokens) - 1u;
    let start = spans[min(row, last)].x;
    let stat = stats[min(row, last) * N_HEADS + head];
    let first_key = spans[row0].x;
    let turn = side + lane / 16u % 2u * 2u;
    load_q(lane, row0, head);
    load_dy(lane, row0, head);
    var o0 = Sums();
    var o1 = Sums();
    var o2 = Sums();
    var o3 = Sums();
    for (var key0 = first_key; key0 <= last; key0 += 32u) {
        workgroupBarrier();
        load_k(lane, key0, head / GROUP);
        load_v(lane, key0, head / GROUP);
        workgroupBarrier();
        var s0 = Sums();
        var s1 = Sums();
        var d0 = Sums();
        var d1 = Sums();
        for (var d = 0u; d < HEAD_DIM; d += 16u) {
            let a = subgroupMatrixLoad<Left>(&q_now, own * NEXT + d, false, NEXT);
            let b0 = subgroupMatrixLoad<Right>(&k_now, d, true, NEXT);
            s0 = subgroupMatrixMultiplyAccumulate(a, b0, s0);
            let b1 = subgroupMatrixLoad<Right>(&k_now, 16u * NEXT + d, true, NEXT);
            s1 = subgroupMatrixMultiplyAccumulate(a, b1, s1);
            let da = subgroupMatrixLoad<Left>(&dy_now, own * NEXT + d, false, NEXT);
            let c0 = subgroupMatrixLoad<Right>(&v_now, d, true, NEXT);
            d0 = subgroupMatrixMultiplyAccumulate(da, c0, d0);
            let c1 = subgroupMatrixLoad<Right>(&v_now, 16u * NEXT + d, true, NEXT);
            d1 = subgroupMatrixMultiplyAccumulate(da, c1, d1);
        }
        subgroupMatrixStore(&s_now, own * S_NEXT, s0, false, S_NEXT);
        subgroupMatrixStore(&s_now, own * S_NEXT + 16u, s1, false, S_NEXT);
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            let j = 16u * side + (i + turn) % 16u;
            var p = 0.0;
            if (key0 + j <= row && key0 + j >= start) {
                p = exp(clamp(s_now[lane / 2u * S_NEXT + j] * SCALE - stat.x, -87.0, 0.0));
            }
            p_now[lane / 2u * P_NEXT + j] = f16(p);
        }
        workgroupBarrier();
        subgroupMatrixStore(&s_now, own * S_NEXT, d0, false, S_NEXT);
        subgroupMatrixStore(&s_now, own * S_NEXT + 16u, d1, false, S_NEXT);
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            let j = 16u * side + (i + turn) % 16u;
            let p = f32(p_now[lane / 2u * P_NEXT + j]);
            p_now[lane / 2u * P_NEXT + j] =
                f16(p * (s_now[lane / 2u * S_NEXT + j] - stat.y) * SCALE);
        }
        workgroupBarrier();
        for (var j = 0u; j < 32u; j += 16u) {
            let ds = subgroupMatrixLoad<Left>(&p_now, own * P_NEXT + j, false, P_NEXT);
            o0 = subgroupMatrixMultiplyAccumulate(ds, piece(j, 0u), o0);
            if (HEAD_DIM > 16u) { o1 = subgroupMatrixMultiplyAccumulate(ds, piece(j, 16u), o1); }
            if (HEAD_DIM > 32u) { o2 = subgroupMatrixMultiplyAccumulate(ds, piece(j, 32u), o2); }
            if (HEAD_DIM > 48u) { o3 = subgroupMatrixMultiplyAccumulate(ds, piece(j, 48u), o3); }
        }
    }
    let to = (row0 + own) * LDQ * 4u + head * HEAD_DIM;
    subgroupMatrixStore(&dq, to + 0u, o0, false, LDQ * 4u);
    if (HEAD_DIM > 16u) { subgroupMatrixStore(&dq, to + 16u, o1, false, LDQ * 4u); }
    if (HEAD_DIM > 32u) { subgroupMatrixStore(&dq, to + 32u, o2, false, LDQ * 4u); }
    if (HEAD_DIM > 48u) { subgroupMatrixStore(&dq, to + 48u, o3, false, LDQ * 4u); }
}
