// dk and dv of attention by the matrix units: the formulas of train_attention_grad.wgsl, the
// layouts of train_attention_matrix.wgsl. A workgroup of eight subgroups has 128 keys, 16 each, and
// walks over the queries of all heads that share them, 32 at a time, eight threads a query; the
// next are loaded meanwhile. Grid: (T / 128, key heads).
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(6) var<storage, read> stats: array<vec2<f32>>; // [T][heads]: log sum, delta
@group(0) @binding(7) var<storage, read_write> dk: array<f32>;
@group(0) @binding(8) var<storage, read_write> dv: array<f32>;

const ROWS = 32u;
const DY_AT = 2304u; // ROWS rows of 72 halves
const P_AT = 4608u;
const DS_AT = 8960u; // ROWS rows of P_NEXT
const S_NEXT = 132u;
const P_NEXT = 136u;
// [query][dimension] of q and of dy, [query][key] of P and of dS; first the keys, then the values.
var<workgroup> now: array<f16, 13312>;
var<workgroup> s_now: array<f32, 4224>; // [query][key]

fn tile_at(i: u32, key0: u32, kv_head: u32) -> u32 {
    return min(key0 + i / HD4, run.n_tokens - 1u) * LDK + kv_head * HD4 + i % HD4;
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn weights_16(at: u32) -> Left {
    return subgroupMatrixLoad<Left>(&now, at, true, P_NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn q_16(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&now, row * NEXT + d, false, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn dy_16(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&now, DY_AT + row * NEXT + d, false, NEXT);
}

// Which of its 16 numbers a thread takes first depends on it, so that few meet in a bank.
fn turned4(lane: u32, i: u32) -> vec4<u32> {
    return (vec4(i, i + 1u, i + 2u, i + 3u) + lane / 2u % 4u) % vec4(16u);
}
fn shown4(lane: u32, o: vec4<u32>) -> vec4<f32> {
    let at = lane / 8u * S_NEXT + lane % 8u * 16u;
    return vec4(s_now[at + o.x], s_now[at + o.y], s_now[at + o.z], s_now[at + o.w]);
}
fn keep4(to: u32, o: vec4<u32>, x: vec4<f32>) {
    let h = half4(x);
    now[to + o.x] = h.x;
    now[to + o.y] = h.y;
    now[to + o.z] = h.z;
    now[to + o.w] = h.w;
}
// Weights of four keys, of which the query sees those from seen.x to before seen.y, counted from
// the thread's first.
fn weights4(lane: u32, i: u32, seen: vec2<i32>, log_sum: f32) -> vec4<f32> {
    let o = turned4(lane, i);
    let j = vec4<i32>(o);
    let is_seen = (j >= vec4(seen.x)) & (j < vec4(seen.y));
    let log = clamp(LOG_SCALE * shown4(lane, o) - log_sum, vec4(-126.0), vec4(0.0));
    let p = select(vec4(0.0), exp2(log), is_seen);
    keep4(P_AT + lane / 8u * P_NEXT + lane % 8u * 16u, o, p);
    return p;
}
fn keep_ds(lane: u32, i: u32, p: vec4<f32>, delta: f32) {
    let o = turned4(lane, i);
    let ds = p * (shown4(lane, o) - delta) * SCALE;
    keep4(DS_AT + lane / 8u * P_NEXT + lane % 8u * 16u, o, ds);
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(256)
fn attention_grad_kv(@builtin(workgroup_id) group: vec3<u32>,
                     @builtin(local_invocation_index) lane: u32) {
    let key0 = group.x * 128u;
    let kv_head = group.y;
    let own = lane / 32u * 16u; // the subgroup's keys
    let last = min(key0 + 128u, run.n_tokens) - 1u;
    let end = spans[last].y;
    for (var i = lane; i < 128u * HD4; i += 256u) {
        keep(i / HD4 * NEXT + i % HD4 * 4u, k[tile_at(i, key0, kv_head)]);
    }
    workgroupBarrier();
    let a0 = keys_16(own, 0u); // the subgroup's keys, as columns
    var a1 = Right();
    var a2 = Right();
    var a3 = Right();
    if (HEAD_DIM > 16u) { a1 = keys_16(own, 16u); }
    if (HEAD_DIM > 32u) { a2 = keys_16(own, 32u); }
    if (HEAD_DIM > 48u) { a3 = keys_16(own, 48u); }
    workgroupBarrier();
    for (var i = lane; i < 128u * HD4; i += 256u) {
        keep(i / HD4 * NEXT + i % HD4 * 4u, v[tile_at(i, key0, kv_head)]);
    }
    workgroupBarrier();
    let b0 = keys_16(own, 0u); // its values
    var b1 = Right();
    var b2 = Right();
    var b3 = Right();
    if (HEAD_DIM > 16u) { b1 = keys_16(own, 16u); }
    if (HEAD_DIM > 32u) { b2 = keys_16(own, 32u); }
    if (HEAD_DIM > 48u) { b3 = keys_16(own, 48u); }
    var k0 = Sums();
    var k1 = Sums();
    var k2 = Sums();
    var k3 = Sums();
    var v0 = Sums();
    var v1 = Sums();
    var v2 = Sums();
    var v3 = Sums();
    for (var head = kv_head * GROUP; head < (kv_head + 1u) * GROUP; head++) {
        var q0 = q[q_at(lane, 0u, key0, head)];
        var q1 = q[q_at(lane, 1u, key0, head)];
        var e0 = dy[q_at(lane, 0u, key0, head)];
        var e1 = dy[q_at(lane, 1u, key0, head)];
        for (var row0 = key0; row0 < end; row0 += ROWS) {
            workgroupBarrier(); // the values, or the last queries, have been used
            keep(to_of(lane, 0u), q0);
            keep(to_of(lane, 1u), q1);
            keep(DY_AT + to_of(lane, 0u), e0);
            keep(DY_AT + to_of(lane, 1u), e1);
            workgroupBarrier();
            q0 = q[q_at(lane, 0u, row0 + ROWS, head)];
            q1 = q[q_at(lane, 1u, row0 + ROWS, head)];
            e0 = dy[q_at(lane, 0u, row0 + ROWS, head)];
            e1 = dy[q_at(lane, 1u, row0 + ROWS, head)];
            var s0 = add(left_16(0u, NEXT), a0, Sums());
            var s1 = add(left_16(16u * NEXT, NEXT), a0, Sums());
            var d0 = add(left_16(DY_AT, NEXT), b0, Sums());
            var d1 = add(left_16(DY_AT + 16u * NEXT, NEXT), b0, Sums());
            if (HEAD_DIM > 16u) {
                s0 = add(left_16(16u, NEXT), a1, s0);
                s1 = add(left_16(16u * NEXT + 16u, NEXT), a1, s1);
                d0 = add(left_16(DY_AT + 16u, NEXT), b1, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 16u, NEXT), b1, d1);
            }
            if (HEAD_DIM > 32u) {
                s0 = add(left_16(32u, NEXT), a2, s0);
                s1 = add(left_16(16u * NEXT + 32u, NEXT), a2, s1);
                d0 = add(left_16(DY_AT + 32u, NEXT), b2, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 32u, NEXT), b2, d1);
            }
            if (HEAD_DIM > 48u) {
                s0 = add(left_16(48u, NEXT), a3, s0);
                s1 = add(left_16(16u * NEXT + 48u, NEXT), a3, s1);
                d0 = add(left_16(DY_AT + 48u, NEXT), b3, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 48u, NEXT), b3, d1);
            }
            show(0u, own, s0);
            show(16u, own, s1);
            workgroupBarrier();
            let row = row0 + lane / 8u;
            let known = min(row, run.n_tokens - 1u);
            let stat = stats[known * N_HEADS + head];
            let at = i32(key0 + lane % 8u * 16u);
            let seen = vec2(i32(spans[known].x) - at, select(0, i32(row) + 1 - at, row == known));
            let log_sum = stat.x * 1.44269504;
            let p0 = weights4(lane, 0u, seen, log_sum);
            let p1 = weights4(lane, 4u, seen, log_sum);
            let p2 = weights4(lane, 8u, seen, log_sum);
            let p3 = weights4(lane, 12u, seen, log_sum);
            workgroupBarrier();
            show(0u, own, d0);
            show(16u, own, d1);
            workgroupBarrier();
            keep_ds(lane, 0u, p0, stat.y);
            keep_ds(lane, 4u, p1, stat.y);
            keep_ds(lane, 8u, p2, stat.y);
            keep_ds(lane, 12u, p3, stat.y);
            workgroupBarrier();
            for (var j = 0u; j < ROWS; j += 16u) {
                let p = weights_16(P_AT + j * P_NEXT + own);
                let ds = weights_16(DS_AT + j * P_NEXT + own);
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
