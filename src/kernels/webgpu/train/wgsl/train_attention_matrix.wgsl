// Attention among the rows of a document by the matrix units, see train_attention.wgsl. A workgroup
// of eight subgroups has 128 queries of a head, 16 a subgroup, and walks over the keys, 32 at a
// time; the next keys and values are loaded meanwhile.
//
// The units' sums cannot be rescaled row by row. So a row keeps its reference, the score whose
// weight is 1, until one weighs more than 2^LEEWAY; then all sums go through workgroup memory and
// are scaled there. Scores are logarithms to base 2. The units also add up the weights, as products
// with ones. Grid: (T / 128, heads).
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> log_sums: array<f32>;

const KEYS = 32u;
override V_AT: u32 = KEYS * NEXT;
const P_AT = 2176u; // behind two blocks of 32 rows of 128 dimensions
const S_NEXT = 9u;
const P_NEXT = 10u;
const LEEWAY = 11.0;
const MOST_LOG = 12.0; // of a weight, which is a half
const NOTHING = -3.0e38;
// [key][dimension], [key][dimension] of values, [query][key] of weights; first half of the queries
// and the other half.
var<workgroup> now: array<vec2<u32>, 3456>;
var<workgroup> s_now: array<vec4<f32>, 1152>; // [query][key]
var<workgroup> shrink: array<f32, 128>; // what a row's sums are scaled by
var<workgroup> grown: vec4<u32>;        // x: whether any are

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn values_16(key: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right, row_major>(&now, V_AT + key * NEXT + d / 4u, NEXT);
}
// Of 32 keys, of which the row sees those from seen.x to before seen.y, counted from the thread's
// first.
fn weigh16(lane: u32, seen: vec2<i32>, reference: f32) -> f32 {
    let at = own_sums(lane);
    let to = P_AT + lane / 2u * P_NEXT + lane % 2u * 4u;
    var most = vec4(NOTHING);
    for (var n = 0u; n < 4u; n++) {
        let i = n ^ (lane & 1u); // so that two threads of a row meet in no bank
        let s = LOG_SCALE * s_now[at + i];
        let j = vec4(4 * i32(i)) + vec4(0, 1, 2, 3);
        let is_seen = (j >= vec4(seen.x)) & (j < vec4(seen.y));
        let log = clamp(s - reference, vec4(-126.0), vec4(MOST_LOG));
        keep(to + i, select(vec4(0.0), exp2(log), is_seen));
        most = max(most, select(vec4(NOTHING), s, is_seen));
    }
    let two = max(most.xy, most.zw);
    return max(two.x, two.y);
}

// The row's new reference.
fn weigh(lane: u32, seen: vec2<i32>, reference: f32) -> f32 {
    let own = weigh16(lane, seen, reference);
    let most = max(own, subgroupShuffleXor(own, 1u));
    let grows = most > reference + LEEWAY;
    var by = 1.0;
    if (grows && reference > NOTHING) { // else all is 0 yet
        by = exp2(max(reference - most, -126.0));
        grown.x = 1u;
    }
    shrink[lane / 2u] = by;
    if (!grows) { return reference; }
    _ = weigh16(lane, seen, most);
    return most;
}

fn write_32(lane: u32, column0: u32, row0: u32, head: u32, by: f32) {
    let row = row0 + lane / 2u;
    let column4 = column0 / 4u + lane % 2u * 4u;
    for (var i = 0u; i < 4u; i++) {
        if (row < run.n_tokens && column4 + i < HD4) {
            y[row * LDQ + head * HD4 + column4 + i] = s_now[own_sums(lane) + i] * by;
        }
    }
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(256)
fn attention_seq(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let row0 = group.x * 128u;
    let head = group.y;
    let own = lane / 32u * 16u;
    let row = row0 + lane / 2u;
    let last = min(row0 + 128u, run.n_tokens) - 1u;
    let start = spans[min(row, last)].x;
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
    for (var first = 0u; first < 128u; first += 64u) {
        workgroupBarrier();
        for (var i = lane; i < 64u * HD4; i += 256u) {
            let r = min(row0 + first + i / HD4, run.n_tokens - 1u);
            keep(i / HD4 * NEXT + i % HD4, q[r * LDQ + head * HD4 + i % HD4]);
        }
        workgroupBarrier();
        if (own / 64u * 64u == first) {
            queries0 = left_16(own % 64u * NEXT, NEXT);
            if (HEAD_DIM > 16u) { queries1 = left_16(own % 64u * NEXT + 4u, NEXT); }
            if (HEAD_DIM > 32u) { queries2 = left_16(own % 64u * NEXT + 8u, NEXT); }
            if (HEAD_DIM > 48u) { queries3 = left_16(own % 64u * NEXT + 12u, NEXT); }
            if (HEAD_DIM > 64u) { queries4 = left_16(own % 64u * NEXT + 16u, NEXT); }
            if (HEAD_DIM > 80u) { queries5 = left_16(own % 64u * NEXT + 20u, NEXT); }
            if (HEAD_DIM > 96u) { queries6 = left_16(own % 64u * NEXT + 24u, NEXT); }
            if (HEAD_DIM > 112u) { queries7 = left_16(own % 64u * NEXT + 28u, NEXT); }
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
    let ones = Right(1.0);
    var sums = Sums(); // of weights, in each column
    var o0 = Sums();
    var o1 = Sums();
    var o2 = Sums();
    var o3 = Sums();
    var o4 = Sums();
    var o5 = Sums();
    var o6 = Sums();
    var o7 = Sums();
    var reference = NOTHING;
    for (var key0 = first_key; key0 <= last; key0 += KEYS) {
        workgroupBarrier(); // the queries, or the last keys, have been used
        keep(to_of(lane, 0u), next_k0);
        keep(to_of(lane, 1u), next_k1);
        if (HEAD_DIM > 64u) { keep(to_of(lane, 2u), next_k2); }
        if (HEAD_DIM > 96u) { keep(to_of(lane, 3u), next_k3); }
        keep(V_AT + to_of(lane, 0u), next_v0);
        keep(V_AT + to_of(lane, 1u), next_v1);
        if (HEAD_DIM > 64u) { keep(V_AT + to_of(lane, 2u), next_v2); }
        if (HEAD_DIM > 96u) { keep(V_AT + to_of(lane, 3u), next_v3); }
        if (lane == 0u) { grown.x = 0u; }
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
        s0 = add(queries0, keys_16(0u, 0u), s0);
        s1 = add(queries0, keys_16(16u, 0u), s1);
        if (HEAD_DIM > 16u) {
            s0 = add(queries1, keys_16(0u, 16u), s0);
            s1 = add(queries1, keys_16(16u, 16u), s1);
        }
        if (HEAD_DIM > 32u) {
            s0 = add(queries2, keys_16(0u, 32u), s0);
            s1 = add(queries2, keys_16(16u, 32u), s1);
        }
        if (HEAD_DIM > 48u) {
            s0 = add(queries3, keys_16(0u, 48u), s0);
            s1 = add(queries3, keys_16(16u, 48u), s1);
        }
        if (HEAD_DIM > 64u) {
            s0 = add(queries4, keys_16(0u, 64u), s0);
            s1 = add(queries4, keys_16(16u, 64u), s1);
        }
        if (HEAD_DIM > 80u) {
            s0 = add(queries5, keys_16(0u, 80u), s0);
            s1 = add(queries5, keys_16(16u, 80u), s1);
        }
        if (HEAD_DIM > 96u) {
            s0 = add(queries6, keys_16(0u, 96u), s0);
            s1 = add(queries6, keys_16(16u, 96u), s1);
        }
        if (HEAD_DIM > 112u) {
            s0 = add(queries7, keys_16(0u, 112u), s0);
            s1 = add(queries7, keys_16(16u, 112u), s1);
        }
        show(own, 0u, s0);
        show(own, 16u, s1);
        workgroupBarrier();
        let at = i32(key0 + lane % 2u * 16u);
        reference = weigh(lane, vec2(i32(start) - at, i32(row) + 1 - at), reference);
        if (workgroupUniformLoad(&grown).x != 0u) {
            let by = shrink[lane / 2u];
            show(own, 0u, sums);
            scale_rows(lane, by);
            sums = sums_16(own, 0u);
            workgroupBarrier();
            show(own, 0u, o0);
            scale_rows(lane, by);
            o0 = sums_16(own, 0u);
            if (HEAD_DIM > 16u) {
                workgroupBarrier();
                show(own, 0u, o1);
                scale_rows(lane, by);
                o1 = sums_16(own, 0u);
            }
            if (HEAD_DIM > 32u) {
                workgroupBarrier();
                show(own, 0u, o2);
                scale_rows(lane, by);
                o2 = sums_16(own, 0u);
            }
            if (HEAD_DIM > 48u) {
                workgroupBarrier();
                show(own, 0u, o3);
                scale_rows(lane, by);
                o3 = sums_16(own, 0u);
            }
            if (HEAD_DIM > 64u) {
                workgroupBarrier();
                show(own, 0u, o4);
                scale_rows(lane, by);
                o4 = sums_16(own, 0u);
            }
            if (HEAD_DIM > 80u) {
                workgroupBarrier();
                show(own, 0u, o5);
                scale_rows(lane, by);
                o5 = sums_16(own, 0u);
            }
            if (HEAD_DIM > 96u) {
                workgroupBarrier();
                show(own, 0u, o6);
                scale_rows(lane, by);
                o6 = sums_16(own, 0u);
            }
            if (HEAD_DIM > 112u) {
                workgroupBarrier();
                show(own, 0u, o7);
                scale_rows(lane, by);
                o7 = sums_16(own, 0u);
            }
        }
        for (var j = 0u; j < KEYS; j += 16u) {
            let p = left_16(P_AT + own * P_NEXT + j / 4u, P_NEXT);
            sums = add(p, ones, sums);
            o0 = add(p, values_16(j, 0u), o0);
            if (HEAD_DIM > 16u) { o1 = add(p, values_16(j, 16u), o1); }
            if (HEAD_DIM > 32u) { o2 = add(p, values_16(j, 32u), o2); }
            if (HEAD_DIM > 48u) { o3 = add(p, values_16(j, 48u), o3); }
            if (HEAD_DIM > 64u) { o4 = add(p, values_16(j, 64u), o4); }
            if (HEAD_DIM > 80u) { o5 = add(p, values_16(j, 80u), o5); }
            if (HEAD_DIM > 96u) { o6 = add(p, values_16(j, 96u), o6); }
            if (HEAD_DIM > 112u) { o7 = add(p, values_16(j, 112u), o7); }
        }
    }
    workgroupBarrier();
    show(own, 0u, sums);
    workgroupBarrier();
    let sum = s_now[lane / 2u * S_NEXT].x;
    if (lane % 2u == 0u && row <= last) {
        log_sums[row * LDS + head] = (reference + log2(sum)) * 0.69314718;
    }
    workgroupBarrier();
    show(own, 0u, o0);
    if (HEAD_DIM > 16u) { show(own, 16u, o1); }
    workgroupBarrier();
    write_32(lane, 0u, row0, head, 1.0 / sum);
    if (HEAD_DIM > 32u) {
        workgroupBarrier();
        show(own, 0u, o2);
        if (HEAD_DIM > 48u) { show(own, 16u, o3); }
        workgroupBarrier();
        write_32(lane, 32u, row0, head, 1.0 / sum);
    }
    if (HEAD_DIM > 64u) {
        workgroupBarrier();
        show(own, 0u, o4);
        if (HEAD_DIM > 80u) { show(own, 16u, o5); }
        workgroupBarrier();
        write_32(lane, 64u, row0, head, 1.0 / sum);
    }
    if (HEAD_DIM > 96u) {
        workgroupBarrier();
        show(own, 0u, o6);
        if (HEAD_DIM > 112u) { show(own, 16u, o7); }
        workgroupBarrier();
        write_32(lane, 96u, row0, head, 1.0 / sum);
    }
}
