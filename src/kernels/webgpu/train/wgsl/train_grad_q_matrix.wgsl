// dq of attention by the matrix units: the formulas of train_attention_grad.wgsl, the layouts of
// train_attention_matrix.wgsl. 128 queries a workgroup, 32 keys at a time; scores and then dP go
// through the same memory. Grid: (T / 128, heads).
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(6) var<storage, read> stats: array<vec2<f32>>; // [T][heads]: log sum, delta
@group(0) @binding(7) var<storage, read_write> dq: array<f32>;

const KEYS = 32u;
const V_AT = 2304u; // KEYS rows of 72 halves
const P_AT = 4608u;
const S_NEXT = 36u;
const P_NEXT = 40u;
// [key][dimension], [key][dimension] of values, [query][key] of dS; first the queries, then dy.
var<workgroup> now: array<f16, 9728>;
var<workgroup> s_now: array<f32, 4608>; // [query][key]

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn values_16(key: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&now, V_AT + key * NEXT + d, true, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn rows_16(key: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&now, key * NEXT + d, false, NEXT);
}

fn shown4(lane: u32, o: vec4<u32>) -> vec4<f32> {
    let at = lane / 2u * S_NEXT + lane % 2u * 16u;
    return vec4(s_now[at + o.x], s_now[at + o.y], s_now[at + o.z], s_now[at + o.w]);
}
// Weights of four keys, of which the row sees those from seen.x to before seen.y, counted from the
// thread's first.
fn weights4(lane: u32, i: u32, seen: vec2<i32>, log_sum: f32) -> vec4<f32> {
    let o = columns4(lane, i);
    let j = vec4<i32>(o);
    let is_seen = (j >= vec4(seen.x)) & (j < vec4(seen.y));
    let log = clamp(LOG_SCALE * shown4(lane, o) - log_sum, vec4(-126.0), vec4(0.0));
    return select(vec4(0.0), exp2(log), is_seen);
}
fn keep_ds(lane: u32, i: u32, p: vec4<f32>, delta: f32) {
    let o = columns4(lane, i);
    let to = P_AT + lane / 2u * P_NEXT + lane % 2u * 16u;
    let ds = half4(p * (shown4(lane, o) - delta) * SCALE);
    now[to + o.x] = ds.x;
    now[to + o.y] = ds.y;
    now[to + o.z] = ds.z;
    now[to + o.w] = ds.w;
}

fn write_32(lane: u32, column0: u32, row0: u32, head: u32) {
    let row = row0 + lane / 2u;
    let to = row * LDQ * 4u + head * HEAD_DIM + column0;
    for (var i = 0u; i < 16u; i++) {
        let j = lane % 2u * 16u + (i + lane / 8u) % 16u;
        if (row < run.n_tokens && column0 + j < HEAD_DIM) {
            dq[to + j] = s_now[lane / 2u * S_NEXT + j];
        }
    }
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(256)
fn attention_grad_q(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let row0 = group.x * 128u;
    let head = group.y;
    let own = lane / 32u * 16u;
    let row = row0 + lane / 2u;
    let last = min(row0 + 128u, run.n_tokens) - 1u;
    let start = spans[min(row, last)].x;
    let stat = stats[min(row, last) * N_HEADS + head];
    let log_sum = stat.x * 1.44269504;
    let first_key = spans[row0].x;
    let kv_head = head / GROUP;
    for (var i = lane; i < 128u * HD4; i += 256u) {
        let r = min(row0 + i / HD4, run.n_tokens - 1u);
        keep(i / HD4 * NEXT + i % HD4 * 4u, q[r * LDQ + head * HD4 + i % HD4]);
    }
    var k0 = k[kv_at(lane, 0u, first_key, kv_head)];
    var k1 = k[kv_at(lane, 1u, first_key, kv_head)];
    var v0 = v[kv_at(lane, 0u, first_key, kv_head)];
    var v1 = v[kv_at(lane, 1u, first_key, kv_head)];
    workgroupBarrier();
    let q0 = left_16(own * NEXT, NEXT);
    var q1 = Left();
    var q2 = Left();
    var q3 = Left();
    if (HEAD_DIM > 16u) { q1 = left_16(own * NEXT + 16u, NEXT); }
    if (HEAD_DIM > 32u) { q2 = left_16(own * NEXT + 32u, NEXT); }
    if (HEAD_DIM > 48u) { q3 = left_16(own * NEXT + 48u, NEXT); }
    workgroupBarrier();
    for (var i = lane; i < 128u * HD4; i += 256u) {
        let r = min(row0 + i / HD4, run.n_tokens - 1u);
        keep(i / HD4 * NEXT + i % HD4 * 4u, dy[r * LDQ + head * HD4 + i % HD4]);
    }
    workgroupBarrier();
    let e0 = left_16(own * NEXT, NEXT);
    var e1 = Left();
    var e2 = Left();
    var e3 = Left();
    if (HEAD_DIM > 16u) { e1 = left_16(own * NEXT + 16u, NEXT); }
    if (HEAD_DIM > 32u) { e2 = left_16(own * NEXT + 32u, NEXT); }
    if (HEAD_DIM > 48u) { e3 = left_16(own * NEXT + 48u, NEXT); }
    var o0 = Sums();
    var o1 = Sums();
    var o2 = Sums();
    var o3 = Sums();
    for (var key0 = first_key; key0 <= last; key0 += KEYS) {
        workgroupBarrier(); // dy, or the last keys, have been used
        keep(to_of(lane, 0u), k0);
        keep(to_of(lane, 1u), k1);
        keep(V_AT + to_of(lane, 0u), v0);
        keep(V_AT + to_of(lane, 1u), v1);
        workgroupBarrier();
        k0 = k[kv_at(lane, 0u, key0 + KEYS, kv_head)];
        k1 = k[kv_at(lane, 1u, key0 + KEYS, kv_head)];
        v0 = v[kv_at(lane, 0u, key0 + KEYS, kv_head)];
        v1 = v[kv_at(lane, 1u, key0 + KEYS, kv_head)];
        var s0 = add(q0, keys_16(0u, 0u), Sums());
        var s1 = add(q0, keys_16(16u, 0u), Sums());
        var d0 = add(e0, values_16(0u, 0u), Sums());
        var d1 = add(e0, values_16(16u, 0u), Sums());
        if (HEAD_DIM > 16u) {
            s0 = add(q1, keys_16(0u, 16u), s0);
            s1 = add(q1, keys_16(16u, 16u), s1);
            d0 = add(e1, values_16(0u, 16u), d0);
            d1 = add(e1, values_16(16u, 16u), d1);
        }
        if (HEAD_DIM > 32u) {
            s0 = add(q2, keys_16(0u, 32u), s0);
            s1 = add(q2, keys_16(16u, 32u), s1);
            d0 = add(e2, values_16(0u, 32u), d0);
            d1 = add(e2, values_16(16u, 32u), d1);
        }
        if (HEAD_DIM > 48u) {
            s0 = add(q3, keys_16(0u, 48u), s0);
            s1 = add(q3, keys_16(16u, 48u), s1);
            d0 = add(e3, values_16(0u, 48u), d0);
            d1 = add(e3, values_16(16u, 48u), d1);
        }
        show(own, 0u, s0);
        show(own, 16u, s1);
        workgroupBarrier();
        let at = i32(key0 + lane % 2u * 16u);
        let seen = vec2(i32(start) - at, i32(row) + 1 - at);
        let p0 = weights4(lane, 0u, seen, log_sum);
        let p1 = weights4(lane, 4u, seen, log_sum);
        let p2 = weights4(lane, 8u, seen, log_sum);
        let p3 = weights4(lane, 12u, seen, log_sum);
        workgroupBarrier();
        show(own, 0u, d0);
        show(own, 16u, d1);
        workgroupBarrier();
        keep_ds(lane, 0u, p0, stat.y);
        keep_ds(lane, 4u, p1, stat.y);
        keep_ds(lane, 8u, p2, stat.y);
        keep_ds(lane, 12u, p3, stat.y);
        workgroupBarrier();
        for (var j = 0u; j < KEYS; j += 16u) {
            let ds = left_16(P_AT + own * P_NEXT + j, P_NEXT);
            o0 = add(ds, rows_16(j, 0u), o0);
            if (HEAD_DIM > 16u) { o1 = add(ds, rows_16(j, 16u), o1); }
            if (HEAD_DIM > 32u) { o2 = add(ds, rows_16(j, 32u), o2); }
            if (HEAD_DIM > 48u) { o3 = add(ds, rows_16(j, 48u), o3); }
        }
    }
    workgroupBarrier();
    show(own, 0u, o0);
    show(own, 16u, o1);
    workgroupBarrier();
    write_32(lane, 0u, row0, head);
    if (HEAD_DIM > 32u) {
        workgroupBarrier();
        show(own, 0u, o2);
        show(own, 16u, o3);
        workgroupBarrier();
        write_32(lane, 32u, row0, head);
    }
}
