// dk and dv of attention by the matrix units: the formulas of train_attention_grad.wgsl, the
// layouts of train_attention_matrix.wgsl. 64 keys a workgroup, 32 queries at a time, four threads a
// query. Grid: (T / 64, key heads).
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
@group(0) @binding(7) var<storage, read_write> dk: array<f32>;
@group(0) @binding(8) var<storage, read_write> dv: array<f32>;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

const S_NEXT = 68u;
const P_NEXT = 72u;
var<workgroup> k_now: array<f16, 64u * 72u>;
var<workgroup> v_now: array<f16, 64u * 72u>;
var<workgroup> q_now: array<f16, 32u * 72u>;
var<workgroup> dy_now: array<f16, 32u * 72u>;
var<workgroup> s_now: array<f32, 32u * S_NEXT>;
var<workgroup> p_now: array<f16, 32u * P_NEXT>;
var<workgroup> ds_now: array<f16, 32u * P_NEXT>;

fn half4(v: vec4<f32>) -> vec4<f16> {
    return vec4<f16>(clamp(v, vec4(-65504.0), vec4(65504.0)));
}
fn load_q(lane: u32, row0: u32, head: u32) {
    for (var i = lane; i < 32u * HD4; i += 128u) {
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
    for (var i = lane; i < 32u * HD4; i += 128u) {
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
        v_now[to] = h.x;
        v_now[to + 1u] = h.y;
        v_now[to + 2u] = h.z;
        v_now[to + 3u] = h.w;
    }
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn add(l: Left, r: Right, s: Sums) -> Sums {
    return subgroupMatrixMultiplyAccumulate(l, r, s);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn q_16(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&q_now, row * NEXT + d, false, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn dy_16(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&dy_now, row * NEXT + d, false, NEXT);
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(128)
fn attention_grad_kv(@builtin(workgroup_id) group: vec3<u32>,
                     @builtin(local_invocation_index) lane: u32) {
    let key0 = group.x * 64u;
    let kv_head = group.y;
    let own = lane / 32u * 16u; // the subgroup's keys
    let side = lane % 4u;
    let last = min(key0 + 64u, run.n_tokens) - 1u;
    let end = spans[last].y;
    load_k(lane, key0, kv_head);
    load_v(lane, key0, kv_head);
    var k0 = Sums();
    var k1 = Sums();
    var k2 = Sums();
    var k3 = Sums();
    var v0 = Sums();
    var v1 = Sums();
    var v2 = Sums();
    var v3 = Sums();
    for (var head = kv_head * GROUP; head < (kv_head + 1u) * GROUP; head++) {
        for (var row0 = key0; row0 < end; row0 += 32u) {
            workgroupBarrier();
            load_q(lane, row0, head);
            load_dy(lane, row0, head);
            workgroupBarrier();
            var s0 = Sums();
            var s1 = Sums();
            var d0 = Sums();
            var d1 = Sums();
            for (var d = 0u; d < HEAD_DIM; d += 16u) {
                let b = subgroupMatrixLoad<Right>(&k_now, own * NEXT + d, true, NEXT);
                let a0 = subgroupMatrixLoad<Left>(&q_now, d, false, NEXT);
                s0 = subgroupMatrixMultiplyAccumulate(a0, b, s0);
                let a1 = subgroupMatrixLoad<Left>(&q_now, 16u * NEXT + d, false, NEXT);
                s1 = subgroupMatrixMultiplyAccumulate(a1, b, s1);
                let c = subgroupMatrixLoad<Right>(&v_now, own * NEXT + d, true, NEXT);
                let e0 = subgroupMatrixLoad<Left>(&dy_now, d, false, NEXT);
                d0 = subgroupMatrixMultiplyAccumulate(e0, c, d0);
                let e1 = subgroupMatrixLoad<Left>(&dy_now, 16u * NEXT + d, false, NEXT);
                d1 = subgroupMatrixMultiplyAccumulate(e1, c, d1);
            }
            subgroupMatrixStore(&s_now, own, s0, false, S_NEXT);
            subgroupMatrixStore(&s_now, 16u * S_NEXT + own, s1, false, S_NEXT);
            workgroupBarrier();
            let row = row0 + lane / 4u;
            let known = min(row, run.n_tokens - 1u);
            let stat = stats[known * N_HEADS + head];
            let start = spans[known].x;
            for (var i = 0u; i < 16u; i++) {
                let j = 16u * side + (i + side) % 16u;
                var p = 0.0;
                if (key0 + j <= row && key0 + j >= start && row < run.n_tokens) {
                    p = exp(clamp(s_now[lane / 4u * S_NEXT + j] * SCALE - stat.x, -87.0, 0.0));
                }
                p_now[lane / 4u * P_NEXT + j] = f16(p);
            }
            workgroupBarrier();
            subgroupMatrixStore(&s_now, own, d0, false, S_NEXT);
            subgroupMatrixStore(&s_now, 16u * S_NEXT + own, d1, false, S_NEXT);
            workgroupBarrier();
            for (var i = 0u; i < 16u; i++) {
                let j = 16u * side + (i + side) % 16u;
                let p = f32(p_now[lane / 4u * P_NEXT + j]);
                ds_now[lane / 4u * P_NEXT + j] =
                    f16(p * (s_now[lane / 4u * S_NEXT + j] - stat.y) * SCALE);
            }
            workgroupBarrier();
            for (var j = 0u; j < 32u; j += 16u) {
                let p = subgroupMatrixLoad<Left>(&p_now, j * P_NEXT + own, true, P_NEXT);
                let ds = subgroupMatrixLoad<Left>(&ds_now, j * P_NEXT + own, true, P_NEXT);
                v0 = add(p, dy_16(j, 0u), v0);
                if (HEAD_DIM > 16u) { v1 = add(p, dy_16(j, 16u), v1); }
                if (HEAD_DIM > 32u) { v2 = add(p, dy_16(j, 32u), v2); }
                if (HEAD_DIM > 48u) { v3 = add(p, dy_16(j, 48u), v3); }
                k0 = add(ds, q_16(j, 0u), k0);
                if (HEAD_DIM > 16u) { k1 = add(ds, q_16(j, 16u), k1); }
                if (HEAD_DIM > 32u) { k2 = add(ds, q_16(j, 32u), k2); }
                if (HEAD_DIM > 48u) { k3 = add(ds, q_16(j, 48u), k3); }
            }
        }
    }
    let to = (key0 + own) * LDK * 4u + kv_head * HEAD_DIM;
    subgroupMatrixStore(&dk, to + 0u, k0, false, LDK * 4u);
    if (HEAD_DIM > 16u) { subgroupMatrixStore(&dk, to + 16u, k1, false, LDK * 4u); }
    if (HEAD_DIM > 32u) { subgroupMatrixStore(&dk, to + 32u, k2, false, LDK * 4u); }
    if (HEAD_DIM > 48u) { subgroupMatrixStore(&dk, to + 48u, k3, false, LDK * 4u); }
    subgroupMatrixStore(&dv, to + 0u, v0, false, LDK * 4u);
    if (HEAD_DIM > 16u) { subgroupMatrixStore(&dv, to + 16u, v1, false, LDK * 4u); }
    if (HEAD_DIM > 32u) { subgroupMatrixStore(&dv, to + 32u, v2, false, LDK * 4u); }
    if (HEAD_DIM > 48u) { subgroupMatrixStore(&dv, to + 48u, v3, false, LDK * 4u); }
}
