// dq of attention by the matrix units: the formulas of train_attention_grad.wgsl, the layouts of
// train_attention_matrix.wgsl. 128 queries a workgroup, 32 keys at a time; scores and then dP go
// through the same memory. Grid: (T / 128, heads).
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(6) var<storage, read> stats: array<vec2<f32>>; // [T][heads]: log sum, delta
@group(0) @binding(7) var<storage, read_write> dq: array<vec4<f32>>;

const KEYS = 32u;
override V_AT: u32 = KEYS * NEXT;
const P_AT = 2176u; // behind two blocks of 32 rows of 128 dimensions
const S_NEXT = 9u;
const P_NEXT = 10u;
// [key][dimension], [key][dimension] of values, [query][key] of dS; first the queries and dy, 64
// rows of each.
var<workgroup> now: array<vec2<u32>, 3456>;
var<workgroup> s_now: array<vec4<f32>, 1152>; // [query][key]

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn values_16(key: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&now, V_AT + key * NEXT + d / 4u, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn rows_16(key: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right, row_major>(&now, key * NEXT + d / 4u, NEXT);
}

// Two threads of a row take their vec4s in other orders, so that they meet in no bank.
fn turned(lane: u32, n: u32) -> u32 { return n ^ (lane & 1u); }
// Weights of four keys, of which the row sees those from seen.x to before seen.y, counted from the
// thread's first.
fn weights4(lane: u32, n: u32, seen: vec2<i32>, log_sum: f32) -> vec4<f32> {
    let i = turned(lane, n);
    let j = vec4(4 * i32(i)) + vec4(0, 1, 2, 3);
    let is_seen = (j >= vec4(seen.x)) & (j < vec4(seen.y));
    let log = clamp(LOG_SCALE * s_now[own_sums(lane) + i] - log_sum, vec4(-126.0), vec4(0.0));
    return select(vec4(0.0), exp2(log), is_seen);
}
fn keep_ds(lane: u32, n: u32, p: vec4<f32>, delta: f32) {
    let i = turned(lane, n);
    let to = P_AT + lane / 2u * P_NEXT + lane % 2u * 4u + i;
    keep(to, p * (s_now[own_sums(lane) + i] - delta) * SCALE);
}

fn write_32(lane: u32, column0: u32, row0: u32, head: u32) {
    let row = row0 + lane / 2u;
    let column4 = column0 / 4u + lane % 2u * 4u;
    for (var i = 0u; i < 4u; i++) {
        if (row < run.n_tokens && column4 + i < HD4) {
            dq[row * LDQ + head * HD4 + column4 + i] = s_now[own_sums(lane) + i];
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
    var queries0 = Left();
    var queries1 = Left();
    var queries2 = Left();
    var queries3 = Left();
    var queries4 = Left();
    var queries5 = Left();
    var queries6 = Left();
    var queries7 = Left();
    var outer0 = Left(); // dy
    var outer1 = Left();
    var outer2 = Left();
    var outer3 = Left();
    var outer4 = Left();
    var outer5 = Left();
    var outer6 = Left();
    var outer7 = Left();
    for (var first = 0u; first < 128u; first += 64u) {
        for (var part = 0u; part < 2u; part++) {
            workgroupBarrier();
            for (var i = lane; i < 64u * HD4; i += 256u) {
                let r = min(row0 + first + i / HD4, run.n_tokens - 1u);
                let at = r * LDQ + head * HD4 + i % HD4;
                if (part == 0u) { keep(i / HD4 * NEXT + i % HD4, q[at]); }
                if (part == 1u) { keep(i / HD4 * NEXT + i % HD4, dy[at]); }
            }
            workgroupBarrier();
            if (own / 64u * 64u == first && part == 0u) {
                queries0 = left_16(own % 64u * NEXT, NEXT);
                if (HEAD_DIM > 16u) { queries1 = left_16(own % 64u * NEXT + 4u, NEXT); }
                if (HEAD_DIM > 32u) { queries2 = left_16(own % 64u * NEXT + 8u, NEXT); }
                if (HEAD_DIM > 48u) { queries3 = left_16(own % 64u * NEXT + 12u, NEXT); }
                if (HEAD_DIM > 64u) { queries4 = left_16(own % 64u * NEXT + 16u, NEXT); }
                if (HEAD_DIM > 80u) { queries5 = left_16(own % 64u * NEXT + 20u, NEXT); }
                if (HEAD_DIM > 96u) { queries6 = left_16(own % 64u * NEXT + 24u, NEXT); }
                if (HEAD_DIM > 112u) { queries7 = left_16(own % 64u * NEXT + 28u, NEXT); }
            }
            if (own / 64u * 64u == first && part == 1u) {
                outer0 = left_16(own % 64u * NEXT, NEXT);
                if (HEAD_DIM > 16u) { outer1 = left_16(own % 64u * NEXT + 4u, NEXT); }
                if (HEAD_DIM > 32u) { outer2 = left_16(own % 64u * NEXT + 8u, NEXT); }
                if (HEAD_DIM > 48u) { outer3 = left_16(own % 64u * NEXT + 12u, NEXT); }
                if (HEAD_DIM > 64u) { outer4 = left_16(own % 64u * NEXT + 16u, NEXT); }
                if (HEAD_DIM > 80u) { outer5 = left_16(own % 64u * NEXT + 20u, NEXT); }
                if (HEAD_DIM > 96u) { outer6 = left_16(own % 64u * NEXT + 24u, NEXT); }
                if (HEAD_DIM > 112u) { outer7 = left_16(own % 64u * NEXT + 28u, NEXT); }
            }
        }
    }
    var next_k0 = k[kv_at(lane, 0u, first_key, kv_head)];
    var next_k1 = k[kv_at(lane, 1u, first_key, kv_head)];
    var next_k2 = k[kv_at(lane, 2u, first_key, kv_head)];
    var next_k3 = k[kv_at(lane, 3u, first_key, kv_head)];
    var next_v0 = v[kv_at(lane, 0u, first_key, kv_head)];
    var next_v1 = v[kv_at(lane, 1u, first_key, kv_head)];
    var next_v2 = v[kv_at(lane, 2u, first_key, kv_head)];
    var next_v3 = v[kv_at(lane, 3u, first_key, kv_head)];
    var o0 = Sums();
    var o1 = Sums();
    var o2 = Sums();
    var o3 = Sums();
    var o4 = Sums();
    var o5 = Sums();
    var o6 = Sums();
    var o7 = Sums();
    for (var key0 = first_key; key0 <= last; key0 += KEYS) {
        workgroupBarrier(); // dy, or the last keys, have been used
        keep(to_of(lane, 0u), next_k0);
        keep(to_of(lane, 1u), next_k1);
        if (HEAD_DIM > 64u) { keep(to_of(lane, 2u), next_k2); }
        if (HEAD_DIM > 96u) { keep(to_of(lane, 3u), next_k3); }
        keep(V_AT + to_of(lane, 0u), next_v0);
        keep(V_AT + to_of(lane, 1u), next_v1);
        if (HEAD_DIM > 64u) { keep(V_AT + to_of(lane, 2u), next_v2); }
        if (HEAD_DIM > 96u) { keep(V_AT + to_of(lane, 3u), next_v3); }
        workgroupBarrier();
        next_k0 = k[kv_at(lane, 0u, key0 + KEYS, kv_head)];
        next_k1 = k[kv_at(lane, 1u, key0 + KEYS, kv_head)];
        next_k2 = k[kv_at(lane, 2u, key0 + KEYS, kv_head)];
        next_k3 = k[kv_at(lane, 3u, key0 + KEYS, kv_head)];
        next_v0 = v[kv_at(lane, 0u, key0 + KEYS, kv_head)];
        next_v1 = v[kv_at(lane, 1u, key0 + KEYS, kv_head)];
        next_v2 = v[kv_at(lane, 2u, key0 + KEYS, kv_head)];
        next_v3 = v[kv_at(lane, 3u, key0 + KEYS, kv_head)];
        var s0 = Sums();
        var s1 = Sums();
        var d0 = Sums();
        var d1 = Sums();
        s0 = add(queries0, keys_16(0u, 0u), s0);
        s1 = add(queries0, keys_16(16u, 0u), s1);
        d0 = add(outer0, values_16(0u, 0u), d0);
        d1 = add(outer0, values_16(16u, 0u), d1);
        if (HEAD_DIM > 16u) {
            s0 = add(queries1, keys_16(0u, 16u), s0);
            s1 = add(queries1, keys_16(16u, 16u), s1);
            d0 = add(outer1, values_16(0u, 16u), d0);
            d1 = add(outer1, values_16(16u, 16u), d1);
        }
        if (HEAD_DIM > 32u) {
            s0 = add(queries2, keys_16(0u, 32u), s0);
            s1 = add(queries2, keys_16(16u, 32u), s1);
            d0 = add(outer2, values_16(0u, 32u), d0);
            d1 = add(outer2, values_16(16u, 32u), d1);
        }
        if (HEAD_DIM > 48u) {
            s0 = add(queries3, keys_16(0u, 48u), s0);
            s1 = add(queries3, keys_16(16u, 48u), s1);
            d0 = add(outer3, values_16(0u, 48u), d0);
            d1 = add(outer3, values_16(16u, 48u), d1);
        }
        if (HEAD_DIM > 64u) {
            s0 = add(queries4, keys_16(0u, 64u), s0);
            s1 = add(queries4, keys_16(16u, 64u), s1);
            d0 = add(outer4, values_16(0u, 64u), d0);
            d1 = add(outer4, values_16(16u, 64u), d1);
        }
        if (HEAD_DIM > 80u) {
            s0 = add(queries5, keys_16(0u, 80u), s0);
            s1 = add(queries5, keys_16(16u, 80u), s1);
            d0 = add(outer5, values_16(0u, 80u), d0);
            d1 = add(outer5, values_16(16u, 80u), d1);
        }
        if (HEAD_DIM > 96u) {
            s0 = add(queries6, keys_16(0u, 96u), s0);
            s1 = add(queries6, keys_16(16u, 96u), s1);
            d0 = add(outer6, values_16(0u, 96u), d0);
            d1 = add(outer6, values_16(16u, 96u), d1);
        }
        if (HEAD_DIM > 112u) {
            s0 = add(queries7, keys_16(0u, 112u), s0);
            s1 = add(queries7, keys_16(16u, 112u), s1);
            d0 = add(outer7, values_16(0u, 112u), d0);
            d1 = add(outer7, values_16(16u, 112u), d1);
        }
        show(own, 0u, s0);
        show(own, 16u, s1);
        workgroupBarrier();
        let at = i32(key0 + lane % 2u * 16u);
        let seen = vec2(i32(start) - at, i32(row) + 1 - at);
        let p0 = weights4(lane, 0u, seen, log_sum);
        let p1 = weights4(lane, 1u, seen, log_sum);
        let p2 = weights4(lane, 2u, seen, log_sum);
        let p3 = weights4(lane, 3u, seen, log_sum);
        workgroupBarrier();
        show(own, 0u, d0);
        show(own, 16u, d1);
        workgroupBarrier();
        keep_ds(lane, 0u, p0, stat.y);
        keep_ds(lane, 1u, p1, stat.y);
        keep_ds(lane, 2u, p2, stat.y);
        keep_ds(lane, 3u, p3, stat.y);
        workgroupBarrier();
        for (var j = 0u; j < KEYS; j += 16u) {
            let ds = left_16(P_AT + own * P_NEXT + j / 4u, P_NEXT);
            o0 = add(ds, rows_16(j, 0u), o0);
            if (HEAD_DIM > 16u) { o1 = add(ds, rows_16(j, 16u), o1); }
            if (HEAD_DIM > 32u) { o2 = add(ds, rows_16(j, 32u), o2); }
            if (HEAD_DIM > 48u) { o3 = add(ds, rows_16(j, 48u), o3); }
            if (HEAD_DIM > 64u) { o4 = add(ds, rows_16(j, 64u), o4); }
            if (HEAD_DIM > 80u) { o5 = add(ds, rows_16(j, 80u), o5); }
            if (HEAD_DIM > 96u) { o6 = add(ds, rows_16(j, 96u), o6); }
            if (HEAD_DIM > 112u) { o7 = add(ds, rows_16(j, 112u), o7); }
        }
    }
    workgroupBarrier();
    show(own, 0u, o0);
    if (HEAD_DIM > 16u) { show(own, 16u, o1); }
    workgroupBarrier();
    write_32(lane, 0u, row0, head);
    if (HEAD_DIM > 32u) {
        workgroupBarrier();
        show(own, 0u, o2);
        if (HEAD_DIM > 48u) { show(own, 16u, o3); }
        workgroupBarrier();
        write_32(lane, 32u, row0, head);
    }
    if (HEAD_DIM > 64u) {
        workgroupBarrier();
        show(own, 0u, o4);
        if (HEAD_DIM > 80u) { show(own, 16u, o5); }
        workgroupBarrier();
        write_32(lane, 64u, row0, head);
    }
    if (HEAD_DIM > 96u) {
        workgroupBarrier();
        show(own, 0u, o6);
        if (HEAD_DIM > 112u) { show(own, 16u, o7); }
        workgroupBarrier();
        write_32(lane, 96u, row0, head);
    }
}
