// Causal attention of many tokens with an online softmax (FlashAttention's order of computing,
// arXiv:2205.14135): a workgroup takes 32 tokens of a head over the positions in tiles of 64, so
// that keys and values are read once for 32 tokens, and no score is ever in memory. Grid: (heads,
// tokens / 32); the last tokens, which see most, begin first.
//
// In a tile,
// 1. each of eight subgroups of threads scores 32 positions, one a thread, for eight tokens;
// 2. thread t takes every score of token t % 32 for eight of the positions, finds the greatest
//    with the other seven threads of the token, and makes the scores weights;
// 3. each subgroup adds the weighted values to its four tokens' results, a thread to the pairs of
//    columns t % 32 and t % 32 + 32.
// Heads have at most 128 dimensions here. Workgroup memory: 27 KB.
override HEAD_DIM: u32; // even
override N_HEADS: u32;
override N_KV_HEADS: u32;
override SCALE: f32;
override KV_F16: bool;

@group(0) @binding(1) var<storage, read_write> q: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> keys: array<u32>;   // [pair][position]
@group(0) @binding(3) var<storage, read> values: array<u32>; // [position][pair]
@group(0) @binding(4) var<storage, read_write> y: array<vec2<f32>>;

const TOKENS = 32u;
const TILE = 64u;
const NEXT = 36u; // from one position's weights to the next's: for 32 tokens, and against conflicts

var<workgroup> queries: array<vec4<f32>, TOKENS * 32u>; // [token][four dimensions]
var<workgroup> weights: array<f32, TILE * NEXT>;        // [position][token]
var<workgroup> parts: array<f32, 256>;                  // [eighth of the positions][token]
var<workgroup> shrinks: array<f32, TOKENS>;             // of what was added up so far

fn four_weights(i: u32) -> vec4<f32> {
    return vec4(weights[i], weights[i + 1u], weights[i + 2u], weights[i + 3u]);
}

fn set_four(i: u32, v: vec4<f32>) {
    weights[i] = v.x;
    weights[i + 1u] = v.y;
    weights[i + 2u] = v.z;
    weights[i + 3u] = v.w;
}

fn key2(i: u32) -> vec2<f32> {
    if (KV_F16) { return unpack2x16float(keys[i]); }
    return bitcast<vec2<f32>>(vec2(keys[2u * i], keys[2u * i + 1u]));
}

fn value2(i: u32) -> vec2<f32> {
    if (KV_F16) { return unpack2x16float(values[i]); }
    return bitcast<vec2<f32>>(vec2(values[2u * i], values[2u * i + 1u]));
}

fn weight(s: f32, most: f32) -> f32 { return exp(max(s - most, -87.0)); }

const NOTHING = -3.0e38;

// Scores of one position for eight tokens from `row` on.
struct Scores { low: vec4<f32>, high: vec4<f32> }

fn scores_of(key: u32, row: u32) -> Scores {
    let pairs = HEAD_DIM / 2u;
    var low = vec4(0.0);
    var high = vec4(0.0);
    for (var i = 0u; i < pairs; i += 2u) {
        // Behind an odd number of pairs the last key stands again; the query has zeros there.
        let k = vec4(key2(key + i * run.n_context),
                     key2(key + min(i + 1u, pairs - 1u) * run.n_context));
        let at = row * 32u + i / 2u;
        low += vec4(dot(queries[at], k), dot(queries[at + 32u], k), dot(queries[at + 64u], k),
                    dot(queries[at + 96u], k));
        high += vec4(dot(queries[at + 128u], k), dot(queries[at + 160u], k),
                     dot(queries[at + 192u], k), dot(queries[at + 224u], k));
    }
    return Scores(low, high);
}

fn load_queries(lane: u32, head: u32, token0: u32) {
    let pairs = HEAD_DIM / 2u;
    for (var i = lane; i < TOKENS * 32u; i += 256u) {
        let token = min(token0 + i / 32u, run.n_tokens - 1u);
        let pair = i % 32u * 2u;
        let begin = (token * N_HEADS + head) * pairs + pair;
        var v = vec4(0.0);
        if (pair < pairs) { v = vec4(q[begin], 0.0, 0.0); }
        if (pair + 1u < pairs) { v = vec4(v.xy, q[begin + 1u]); }
        queries[i] = v * SCALE;
    }
}

@compute @workgroup_size(256)
fn attention_prompt(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) n_groups: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let pairs = HEAD_DIM / 2u;
    let head = group.x;
    let token0 = (n_groups.y - 1u - group.y) * TOKENS;
    let column0 = head / (N_HEADS / N_KV_HEADS) * pairs;
    let stride = N_KV_HEADS * pairs;
    // What the last of the tokens sees; the first of them sees all but the last of it.
    let n_seen = run.first_pos + min(token0 + TOKENS, run.n_tokens);
    load_queries(lane, head, token0);
    let unit = lane / 32u;
    let me = lane % 32u;
    let position = unit % 2u * 32u + me;  // that it scores
    let row0 = unit / 2u * 8u;            // for these tokens
    let pair0 = column0 + min(me, pairs - 1u);
    let pair1 = column0 + min(me + 32u, pairs - 1u);
    var acc: array<vec4<f32>, 4>; // two pairs of columns of four tokens
    var most = NOTHING;           // of token `me`
    var sum = 0.0;                // of its weights for an eighth of the positions
    for (var first = 0u; first < n_seen; first += TILE) {
        let n = min(n_seen - first, TILE);
        workgroupBarrier(); // the queries are there, and the last tile's weights are read
        let at = first + min(position, n - 1u);
        let s = scores_of(column0 * run.n_context + at, row0);
        // Token row0 + i sees the positions up to its own.
        let ahead = vec4<i32>(i32(first + position) - i32(run.first_pos + token0 + row0)) -
                    vec4(0, 1, 2, 3);
        set_four(position * NEXT + row0, select(s.low, vec4(NOTHING), ahead > vec4(0)));
        set_four(position * NEXT + row0 + 4u, select(s.high, vec4(NOTHING), ahead > vec4(4)));
        workgroupBarrier();
        var mine: array<f32, 8>;
        var m = NOTHING;
        for (var i = 0u; i < 8u; i++) {
            mine[i] = weights[(unit * 8u + i) * NEXT + me];
            m = max(m, mine[i]);
        }
        parts[lane] = m;
        workgroupBarrier();
        m = most;
        for (var i = 0u; i < 8u; i++) { m = max(m, parts[i * 32u + me]); }
        let shrink = weight(most, m);
        most = m;
        sum *= shrink;
        for (var i = 0u; i < 8u; i++) {
            let p = weight(mine[i], m);
            weights[(unit * 8u + i) * NEXT + me] = p;
            sum += p;
        }
        if (unit == 0u) { shrinks[me] = shrink; }
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) { acc[i] *= shrinks[unit * 4u + i]; }
        for (var i = 0u; i < n; i += 4u) { // four loads under way at a time
            for (var j = 0u; j < 4u; j++) {
                let begin = (first + min(i + j, n - 1u)) * stride;
                let v = vec4(value2(begin + pair0), value2(begin + pair1));
                let p = four_weights((i + j) * NEXT + unit * 4u); // nothing behind n
                acc[0] += p.x * v;
                acc[1] += p.y * v;
                acc[2] += p.z * v;
                acc[3] += p.w * v;
            }
        }
    }
    workgroupBarrier();
    parts[lane] = sum;
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        let row = unit * 4u + i;
        var all = 0.0;
        for (var k = 0u; k < 8u; k++) { all += parts[k * 32u + row]; }
        let to = ((token0 + row) * N_HEADS + head) * pairs;
        if (token0 + row < run.n_tokens) {
            if (me < pairs) { y[to + me] = acc[i].xy / all; }
            if (me + 32u < pairs) { y[to + me + 32u] = acc[i].zw / all; }
        }
    }
}
