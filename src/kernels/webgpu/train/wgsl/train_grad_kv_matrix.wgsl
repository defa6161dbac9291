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
override DY_AT: u32 = ROWS * NEXT;
const P_AT = 2176u; // behind two blocks of 32 rows of 128 dimensions
const S_NEXT = 33u;
const P_NEXT = 34u;
// [query][dimension] of q and of dy, [query][key] of P and then of dS; first the keys and values,
// 64 rows of each.
var<workgroup> now: array<vec2<u32>, 3264>;
var<workgroup> s_now: array<vec4<f32>, 1056>; // [query][key]

fn tile_at(i: u32, key0: u32, kv_head: u32) -> u32 {
    return min(key0 + i / HD4, run.n_tokens - 1u) * LDK + kv_head * HD4 + i % HD4;
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn weights_16(at: u32) -> Left {
    return subgroupMatrixLoad<Left, col_major>(&now, at, P_NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn q_16(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right, row_major>(&now, row * NEXT + d / 4u, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn dy_16(row: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right, row_major>(&now, DY_AT + row * NEXT + d / 4u, NEXT);
}

// Which of its four vec4s a thread takes first depends on it, so that few meet in a bank.
fn turned(lane: u32, n: u32) -> u32 { return (n + lane / 2u) % 4u; }
fn shown4(lane: u32, i: u32) -> vec4<f32> { return s_now[lane / 8u * S_NEXT + lane % 8u * 4u + i]; }
fn keep4(lane: u32, i: u32, x: vec4<f32>) {
    keep(P_AT + lane / 8u * P_NEXT + lane % 8u * 4u + i, x);
}
// Weights of four keys, of which the query sees those from seen.x to before seen.y, counted from
// the thread's first.
fn weights4(lane: u32, n: u32, seen: vec2<i32>, log_sum: f32) -> vec4<f32> {
    let i = turned(lane, n);
    let j = vec4(4 * i32(i)) + vec4(0, 1, 2, 3);
    let is_seen = (j >= vec4(seen.x)) & (j < vec4(seen.y));
    let log = clamp(LOG_SCALE * shown4(lane, i) - log_sum, vec4(-126.0), vec4(0.0));
    let p = select(vec4(0.0), exp2(log), is_seen);
    keep4(lane, i, p);
    return p;
}
fn keep_ds(lane: u32, n: u32, p: vec4<f32>, delta: f32) {
    let i = turned(lane, n);
    keep4(lane, i, p * (shown4(lane, i) - delta) * SCALE);
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
    var keys0 = Right(); // the subgroup's, as columns
    var keys1 = Right();
    var keys2 = Right();
    var keys3 = Right();
    var keys4 = Right();
    var keys5 = Right();
    var keys6 = Right();
    var keys7 = Right();
    var values0 = Right();
    var values1 = Right();
    var values2 = Right();
    var values3 = Right();
    var values4 = Right();
    var values5 = Right();
    var values6 = Right();
    var values7 = Right();
    for (var first = 0u; first < 128u; first += 64u) {
        for (var part = 0u; part < 2u; part++) {
            workgroupBarrier();
            for (var i = lane; i < 64u * HD4; i += 256u) {
                let to = i / HD4 * NEXT + i % HD4;
                if (part == 0u) { keep(to, k[tile_at(i, key0 + first, kv_head)]); }
                if (part == 1u) { keep(to, v[tile_at(i, key0 + first, kv_head)]); }
            }
            workgroupBarrier();
            if (own / 64u * 64u == first && part == 0u) {
                keys0 = keys_16(own % 64u, 0u);
                if (HEAD_DIM > 16u) { keys1 = keys_16(own % 64u, 16u); }
                if (HEAD_DIM > 32u) { keys2 = keys_16(own % 64u, 32u); }
                if (HEAD_DIM > 48u) { keys3 = keys_16(own % 64u, 48u); }
                if (HEAD_DIM > 64u) { keys4 = keys_16(own % 64u, 64u); }
                if (HEAD_DIM > 80u) { keys5 = keys_16(own % 64u, 80u); }
                if (HEAD_DIM > 96u) { keys6 = keys_16(own % 64u, 96u); }
                if (HEAD_DIM > 112u) { keys7 = keys_16(own % 64u, 112u); }
            }
            if (own / 64u * 64u == first && part == 1u) {
                values0 = keys_16(own % 64u, 0u);
                if (HEAD_DIM > 16u) { values1 = keys_16(own % 64u, 16u); }
                if (HEAD_DIM > 32u) { values2 = keys_16(own % 64u, 32u); }
                if (HEAD_DIM > 48u) { values3 = keys_16(own % 64u, 48u); }
                if (HEAD_DIM > 64u) { values4 = keys_16(own % 64u, 64u); }
                if (HEAD_DIM > 80u) { values5 = keys_16(own % 64u, 80u); }
                if (HEAD_DIM > 96u) { values6 = keys_16(own % 64u, 96u); }
                if (HEAD_DIM > 112u) { values7 = keys_16(own % 64u, 112u); }
            }
        }
    }
    var k_sums0 = Sums();
    var k_sums1 = Sums();
    var k_sums2 = Sums();
    var k_sums3 = Sums();
    var k_sums4 = Sums();
    var k_sums5 = Sums();
    var k_sums6 = Sums();
    var k_sums7 = Sums();
    var v_sums0 = Sums();
    var v_sums1 = Sums();
    var v_sums2 = Sums();
    var v_sums3 = Sums();
    var v_sums4 = Sums();
    var v_sums5 = Sums();
    var v_sums6 = Sums();
    var v_sums7 = Sums();
    for (var head = kv_head * GROUP; head < (kv_head + 1u) * GROUP; head++) {
        var next_q0 = q[q_at(lane, 0u, key0, head)];
        var next_q1 = q[q_at(lane, 1u, key0, head)];
        var next_q2 = q[q_at(lane, 2u, key0, head)];
        var next_q3 = q[q_at(lane, 3u, key0, head)];
        var next_dy0 = dy[q_at(lane, 0u, key0, head)];
        var next_dy1 = dy[q_at(lane, 1u, key0, head)];
        var next_dy2 = dy[q_at(lane, 2u, key0, head)];
        var next_dy3 = dy[q_at(lane, 3u, key0, head)];
        for (var row0 = key0; row0 < end; row0 += ROWS) {
            workgroupBarrier(); // the values, or the last queries, have been used
            keep(to_of(lane, 0u), next_q0);
            keep(to_of(lane, 1u), next_q1);
            if (HEAD_DIM > 64u) { keep(to_of(lane, 2u), next_q2); }
            if (HEAD_DIM > 96u) { keep(to_of(lane, 3u), next_q3); }
            keep(DY_AT + to_of(lane, 0u), next_dy0);
            keep(DY_AT + to_of(lane, 1u), next_dy1);
            if (HEAD_DIM > 64u) { keep(DY_AT + to_of(lane, 2u), next_dy2); }
            if (HEAD_DIM > 96u) { keep(DY_AT + to_of(lane, 3u), next_dy3); }
            workgroupBarrier();
            next_q0 = q[q_at(lane, 0u, row0 + ROWS, head)];
            next_q1 = q[q_at(lane, 1u, row0 + ROWS, head)];
            next_q2 = q[q_at(lane, 2u, row0 + ROWS, head)];
            next_q3 = q[q_at(lane, 3u, row0 + ROWS, head)];
            next_dy0 = dy[q_at(lane, 0u, row0 + ROWS, head)];
            next_dy1 = dy[q_at(lane, 1u, row0 + ROWS, head)];
            next_dy2 = dy[q_at(lane, 2u, row0 + ROWS, head)];
            next_dy3 = dy[q_at(lane, 3u, row0 + ROWS, head)];
            var s0 = Sums();
            var s1 = Sums();
            var d0 = Sums();
            var d1 = Sums();
            s0 = add(left_16(0u, NEXT), keys0, s0);
            s1 = add(left_16(16u * NEXT + 0u, NEXT), keys0, s1);
            d0 = add(left_16(DY_AT + 0u, NEXT), values0, d0);
            d1 = add(left_16(DY_AT + 16u * NEXT + 0u, NEXT), values0, d1);
            if (HEAD_DIM > 16u) {
                s0 = add(left_16(4u, NEXT), keys1, s0);
                s1 = add(left_16(16u * NEXT + 4u, NEXT), keys1, s1);
                d0 = add(left_16(DY_AT + 4u, NEXT), values1, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 4u, NEXT), values1, d1);
            }
            if (HEAD_DIM > 32u) {
                s0 = add(left_16(8u, NEXT), keys2, s0);
                s1 = add(left_16(16u * NEXT + 8u, NEXT), keys2, s1);
                d0 = add(left_16(DY_AT + 8u, NEXT), values2, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 8u, NEXT), values2, d1);
            }
            if (HEAD_DIM > 48u) {
                s0 = add(left_16(12u, NEXT), keys3, s0);
                s1 = add(left_16(16u * NEXT + 12u, NEXT), keys3, s1);
                d0 = add(left_16(DY_AT + 12u, NEXT), values3, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 12u, NEXT), values3, d1);
            }
            if (HEAD_DIM > 64u) {
                s0 = add(left_16(16u, NEXT), keys4, s0);
                s1 = add(left_16(16u * NEXT + 16u, NEXT), keys4, s1);
                d0 = add(left_16(DY_AT + 16u, NEXT), values4, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 16u, NEXT), values4, d1);
            }
            if (HEAD_DIM > 80u) {
                s0 = add(left_16(20u, NEXT), keys5, s0);
                s1 = add(left_16(16u * NEXT + 20u, NEXT), keys5, s1);
                d0 = add(left_16(DY_AT + 20u, NEXT), values5, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 20u, NEXT), values5, d1);
            }
            if (HEAD_DIM > 96u) {
                s0 = add(left_16(24u, NEXT), keys6, s0);
                s1 = add(left_16(16u * NEXT + 24u, NEXT), keys6, s1);
                d0 = add(left_16(DY_AT + 24u, NEXT), values6, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 24u, NEXT), values6, d1);
            }
            if (HEAD_DIM > 112u) {
                s0 = add(left_16(28u, NEXT), keys7, s0);
                s1 = add(left_16(16u * NEXT + 28u, NEXT), keys7, s1);
                d0 = add(left_16(DY_AT + 28u, NEXT), values7, d0);
                d1 = add(left_16(DY_AT + 16u * NEXT + 28u, NEXT), values7, d1);
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
            let p1 = weights4(lane, 1u, seen, log_sum);
            let p2 = weights4(lane, 2u, seen, log_sum);
            let p3 = weights4(lane, 3u, seen, log_sum);
            workgroupBarrier();
            show(0u, own, d0);
            show(16u, own, d1);
            for (var j = 0u; j < ROWS; j += 16u) {
                let p = weights_16(P_AT + j * P_NEXT + own / 4u);
                v_sums0 = add(p, dy_16(j, 0u), v_sums0);
                if (HEAD_DIM > 16u) { v_sums1 = add(p, dy_16(j, 16u), v_sums1); }
                if (HEAD_DIM > 32u) { v_sums2 = add(p, dy_16(j, 32u), v_sums2); }
                if (HEAD_DIM > 48u) { v_sums3 = add(p, dy_16(j, 48u), v_sums3); }
                if (HEAD_DIM > 64u) { v_sums4 = add(p, dy_16(j, 64u), v_sums4); }
                if (HEAD_DIM > 80u) { v_sums5 = add(p, dy_16(j, 80u), v_sums5); }
                if (HEAD_DIM > 96u) { v_sums6 = add(p, dy_16(j, 96u), v_sums6); }
                if (HEAD_DIM > 112u) { v_sums7 = add(p, dy_16(j, 112u), v_sums7); }
            }
            workgroupBarrier(); // P has been used
            keep_ds(lane, 0u, p0, stat.y);
            keep_ds(lane, 1u, p1, stat.y);
            keep_ds(lane, 2u, p2, stat.y);
            keep_ds(lane, 3u, p3, stat.y);
            workgroupBarrier();
            for (var j = 0u; j < ROWS; j += 16u) {
                let ds = weights_16(P_AT + j * P_NEXT + own / 4u);
                k_sums0 = add(ds, q_16(j, 0u), k_sums0);
                if (HEAD_DIM > 16u) { k_sums1 = add(ds, q_16(j, 16u), k_sums1); }
                if (HEAD_DIM > 32u) { k_sums2 = add(ds, q_16(j, 32u), k_sums2); }
                if (HEAD_DIM > 48u) { k_sums3 = add(ds, q_16(j, 48u), k_sums3); }
                if (HEAD_DIM > 64u) { k_sums4 = add(ds, q_16(j, 64u), k_sums4); }
                if (HEAD_DIM > 80u) { k_sums5 = add(ds, q_16(j, 80u), k_sums5); }
                if (HEAD_DIM > 96u) { k_sums6 = add(ds, q_16(j, 96u), k_sums6); }
                if (HEAD_DIM > 112u) { k_sums7 = add(ds, q_16(j, 112u), k_sums7); }
            }
        }
    }
    let to = (key0 + own) * LDK * 4u + kv_head * HEAD_DIM;
    subgroupMatrixStore(&dk, to + 0u, k_sums0, false, LDK * 4u);
    subgroupMatrixStore(&dv, to + 0u, v_sums0, false, LDK * 4u);
    if (HEAD_DIM > 16u) {
        subgroupMatrixStore(&dk, to + 16u, k_sums1, false, LDK * 4u);
        subgroupMatrixStore(&dv, to + 16u, v_sums1, false, LDK * 4u);
    }
    if (HEAD_DIM > 32u) {
        subgroupMatrixStore(&dk, to + 32u, k_sums2, false, LDK * 4u);
        subgroupMatrixStore(&dv, to + 32u, v_sums2, false, LDK * 4u);
    }
    if (HEAD_DIM > 48u) {
        subgroupMatrixStore(&dk, to + 48u, k_sums3, false, LDK * 4u);
        subgroupMatrixStore(&dv, to + 48u, v_sums3, false, LDK * 4u);
    }
    if (HEAD_DIM > 64u) {
        subgroupMatrixStore(&dk, to + 64u, k_sums4, false, LDK * 4u);
        subgroupMatrixStore(&dv, to + 64u, v_sums4, false, LDK * 4u);
    }
    if (HEAD_DIM > 80u) {
        subgroupMatrixStore(&dk, to + 80u, k_sums5, false, LDK * 4u);
        subgroupMatrixStore(&dv, to + 80u, v_sums5, false, LDK * 4u);
    }
    if (HEAD_DIM > 96u) {
        subgroupMatrixStore(&dk, to + 96u, k_sums6, false, LDK * 4u);
        subgroupMatrixStore(&dv, to + 96u, v_sums6, false, LDK * 4u);
    }
    if (HEAD_DIM > 112u) {
        subgroupMatrixStore(&dk, to + 112u, k_sums7, false, LDK * 4u);
        subgroupMatrixStore(&dv, to + 112u, v_sums7, false, LDK * 4u);
    }
}
