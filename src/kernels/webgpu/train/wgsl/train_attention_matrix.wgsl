// Attention among the rows of a document by the matrix units, see train_attention.wgsl. A workgroup
// of eight subgroups has 128 queries of a head, 16 a subgroup, and walks over the keys, 32 at a
// time; the next keys and values are loaded meanwhile.
//
// The units' sums cannot be rescaled row by row. So a row keeps its reference, the score whose
// weight is 1, until one weighs more than 2^LEEWAY; then all sums go through workgroup memory and
// are scaled there. Scores are logarithms to base 2. The units also add up the weights, as products
// with ones. Arrays begin at multiples of 16 bytes, as the units' loads need it.
// Grid: (T / 128, heads).
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> log_sums: array<f32>;

const KEYS = 32u;
const V_AT = 2304u; // KEYS rows of 72 halves
const P_AT = 4608u;
const S_NEXT = 36u;
const P_NEXT = 40u;
const LEEWAY = 11.0;
const MOST_LOG = 12.0; // of a weight, which is a half
const NOTHING = -3.0e38;
// [key][dimension], [key][dimension] of values, [query][key] of weights; first the queries.
var<workgroup> now: array<f16, 9728>;
var<workgroup> s_now: array<f32, 4608>; // [query][key]
var<workgroup> shrink: array<f32, 128>; // what a row's sums are scaled by
var<workgroup> grown: vec4<u32>;        // x: whether any are

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn values_16(key: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right>(&now, V_AT + key * NEXT + d, false, NEXT);
}
// Of 32 keys, of which the row sees those from seen.x to before seen.y, counted from the thread's
// first.
fn weigh16(lane: u32, seen: vec2<i32>, reference: f32) -> f32 {
    let at = lane / 2u * S_NEXT + lane % 2u * 16u;
    let to = P_AT + lane / 2u * P_NEXT + lane % 2u * 16u;
    var most = vec4(NOTHING);
    for (var i = 0u; i < 16u; i += 4u) {
        let o = columns4(lane, i);
        let raw = vec4(s_now[at + o.x], s_now[at + o.y], s_now[at + o.z], s_now[at + o.w]);
        let s = LOG_SCALE * raw;
        let j = vec4<i32>(o);
        let is_seen = (j >= vec4(seen.x)) & (j < vec4(seen.y));
        let log = clamp(s - reference, vec4(-126.0), vec4(MOST_LOG));
        let p = vec4<f16>(select(vec4(0.0), exp2(log), is_seen));
        now[to + o.x] = p.x;
        now[to + o.y] = p.y;
        now[to + o.z] = p.z;
        now[to + o.w] = p.w;
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
    let to = row * LDQ * 4u + head * HEAD_DIM + column0;
    for (var i = 0u; i < 16u; i++) {
        let j = lane % 2u * 16u + (i + lane / 8u) % 16u;
        if (row < run.n_tokens && column0 + j < HEAD_DIM) {
            y[to + j] = s_now[lane / 2u * S_NEXT + j] * by;
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
    let ones = Right(1.0);
    var sums = Sums(); // of weights, in each column
    var o0 = Sums();
    var o1 = Sums();
    var o2 = Sums();
    var o3 = Sums();
    var reference = NOTHING;
    for (var key0 = first_key; key0 <= last; key0 += KEYS) {
        workgroupBarrier(); // the queries, or the last keys, have been used
        keep(to_of(lane, 0u), k0);
        keep(to_of(lane, 1u), k1);
        keep(V_AT + to_of(lane, 0u), v0);
        keep(V_AT + to_of(lane, 1u), v1);
        if (lane == 0u) { grown.x = 0u; }
        workgroupBarrier();
        k0 = k[kv_at(lane, 0u, key0 + KEYS, kv_head)];
        k1 = k[kv_at(lane, 1u, key0 + KEYS, kv_head)];
        v0 = v[kv_at(lane, 0u, key0 + KEYS, kv_head)];
        v1 = v[kv_at(lane, 1u, key0 + KEYS, kv_head)];
        var s0 = add(q0, keys_16(0u, 0u), Sums());
        var s1 = add(q0, keys_16(16u, 0u), Sums());
        if (HEAD_DIM > 16u) {
            s0 = add(q1, keys_16(0u, 16u), s0);
            s1 = add(q1, keys_16(16u, 16u), s1);
        }
        if (HEAD_DIM > 32u) {
            s0 = add(q2, keys_16(0u, 32u), s0);
            s1 = add(q2, keys_16(16u, 32u), s1);
        }
        if (HEAD_DIM > 48u) {
            s0 = add(q3, keys_16(0u, 48u), s0);
            s1 = add(q3, keys_16(16u, 48u), s1);
        }
        show(own, 0u, s0);
        show(own, 16u, s1);
        workgroupBarrier();
        let at = i32(key0 + lane % 2u * 16u);
        reference = weigh(lane, vec2(i32(start) - at, i32(row) + 1 - at), reference);
        if (workgroupUniformLoad(&grown).x != 0u) {
            let by = shrink[lane / 2u];
            show(own, 0u, o0);
            show(own, 16u, sums);
            scale_rows(lane, by);
            o0 = sums_16(own, 0u);
            sums = sums_16(own, 16u);
            if (HEAD_DIM > 16u) {
                workgroupBarrier();
                show(own, 0u, o1);
                show(own, 16u, o2);
                scale_rows(lane, by);
                o1 = sums_16(own, 0u);
                o2 = sums_16(own, 16u);
            }
            if (HEAD_DIM > 48u) {
                workgroupBarrier();
                show(own, 0u, o3);
                scale_rows(lane, by);
                o3 = sums_16(own, 0u);
            }
        }
        for (var j = 0u; j < KEYS; j += 16u) {
            let p = left_16(P_AT + own * P_NEXT + j, P_NEXT);
            sums = add(p, ones, sums);
            o0 = add(p, values_16(j, 0u), o0);
            if (HEAD_DIM > 16u) { o1 = add(p, values_16(j, 16u), o1); }
            if (HEAD_DIM > 32u) { o2 = add(p, values_16(j, 32u), o2); }
            if (HEAD_DIM > 48u) { o3 = add(p, values_16(j, 48u), o3); }
        }
    }
    workgroupBarrier();
    show(own, 0u, sums);
    workgroupBarrier();
    let sum = s_now[lane / 2u * S_NEXT];
    if (lane % 2u == 0u && row <= last) {
        log_sums[row * LDS + head] = (reference + log2(sum)) * 0.69314718;
    }
    workgroupBarrier();
    show(own, 0u, o0);
    show(own, 16u, o1);
    workgroupBarrier();
    write_32(lane, 0u, row0, head, 1.0 / sum);
    if (HEAD_DIM > 32u) {
        workgroupBarrier();
        show(own, 0u, o2);
        show(own, 16u, o3);
        workgroupBarrier();
        write_32(lane, 32u, row0, head, 1.0 / sum);
    }
}
