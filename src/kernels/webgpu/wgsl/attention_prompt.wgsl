// Causal attention of many tokens with an online softmax (FlashAttention's order of computing,
// arXiv:2205.14135): a workgroup takes 32 tokens of a head over the positions in tiles of 64, so
// that keys and values are read once for 32 tokens, and no score is ever in memory. Grid: (heads,
// tokens / 32); the last tokens, which see most, go first.
//
// Each group of 32 threads works on four tokens. In a tile a thread scores two positions for them,
// turns the scores into weights, and then adds the weighted values of all the tile's positions for
// two pairs of columns. Heads have at most 128 dimensions here. Workgroup memory: 24 KB, and 4 KB
// for subgroups if there are any.
// subgroups do where there are some.
override HEAD_DIM: u32; // even
override N_HEADS: u32;
override N_KV_HEADS: u32;
override SCALE: f32;
override K_PAIRS: u32 = N_KV_HEADS * HEAD_DIM / 2u;

@group(0) @binding(1) var<storage, read_write> q: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> keys: array<u32>; // see cache.wgsl
@group(0) @binding(3) var<storage, read> values: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<f32>>;

const TOKENS = 32u;
const TILE = 64u;

var<workgroup> queries: array<vec4<f32>, TOKENS * 32u>; // [token][four dimensions]
var<workgroup> weights: array<vec4<f32>, 8u * TILE>;    // [32 threads][position]: of four tokens

fn weight(s: vec4<f32>, most: vec4<f32>) -> vec4<f32> { return exp(max(s - most, vec4(-87.0))); }

const NOTHING = -3.0e38;

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

// Scores of two positions for four tokens; the head's keys begin at column0.
struct Scores { first: vec4<f32>, second: vec4<f32> }

fn scores_of(column0: u32, first: u32, second: u32, unit: u32) -> Scores {
    let pairs = HEAD_DIM / 2u;
    var s = Scores(vec4(0.0), vec4(0.0));
    for (var i = 0u; i < pairs; i += 8u) {
        var k: array<vec4<f32>, 8>; // loads under way at a time: a pair of each position
        for (var j = 0u; j < 8u; j++) {
            // Past the last pair, repeat it; the query has zeros there.
            let pair = column0 + min(i + j, pairs - 1u);
            k[j] = vec4(key2(pair, first), key2(pair, second));
        }
        for (var j = 0u; j < 8u; j += 2u) {
            let at = unit * 128u + (i + j) / 2u;
            let a = vec4(k[j].xy, k[j + 1u].xy);
            let b = vec4(k[j].zw, k[j + 1u].zw);
            let q0 = queries[at];
            let q1 = queries[at + 32u];
            let q2 = queries[at + 64u];
            let q3 = queries[at + 96u];
            s.first += vec4(dot(q0, a), dot(q1, a), dot(q2, a), dot(q3, a));
            s.second += vec4(dot(q0, b), dot(q1, b), dot(q2, b), dot(q3, b));
        }
    }
    return s;
}

@compute @workgroup_size(256)
fn attention_prompt(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) n_groups: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let pairs = HEAD_DIM / 2u;
    let head = group.x;
    let token0 = (n_groups.y - 1u - group.y) * TOKENS;
    let column0 = head / (N_HEADS / N_KV_HEADS) * pairs;
    let n_seen = run.first_pos + min(token0 + TOKENS, run.n_tokens); // by the last of the tokens
    load_queries(lane, head, token0);
    let unit = lane / 32u;
    let me = lane % 32u;
    let row = token0 + unit * 4u; // first of the four tokens
    let pair0 = column0 + min(me, pairs - 1u);
    let pair1 = column0 + min(me + 32u, pairs - 1u);
    var acc: array<vec4<f32>, 4>; // two pairs of columns of four tokens
    var most = vec4(NOTHING);
    var sum = vec4(0.0); // of this thread's weights
    for (var first = 0u; first < n_seen; first += TILE) {
        let n = min(n_seen - first, TILE);
        workgroupBarrier(); // the queries are loaded, the last tile's weights used
        var s = scores_of(column0, first + min(me, n - 1u), first + min(me + 32u, n - 1u), unit);
        // A token sees the positions up to its own. Next to -3e38 any score vanishes.
        let ahead = vec4(i32(first + me) - i32(run.first_pos + row)) - vec4(0, 1, 2, 3);
        s.first += NOTHING * vec4<f32>(ahead > vec4(0));
        s.second += NOTHING * vec4<f32>(ahead > vec4(-32));
        let m = max(most, max4_of_32(lane, max(s.first, s.second)));
        let shrink = weight(most, m);
        most = m;
        s.first = weight(s.first, m);
        s.second = weight(s.second, m);
        sum = sum * shrink + (s.first + s.second);
        weights[unit * TILE + me] = s.first;
        weights[unit * TILE + me + 32u] = s.second;
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) { acc[i] *= shrink[i]; }
        for (var i = 0u; i < n; i += 8u) {
            var v: array<vec4<f32>, 8>; // loads under way at a time
            for (var j = 0u; j < 8u; j++) {
                let position = first + min(i + j, n - 1u);
                v[j] = vec4(value2(pair0, position), value2(pair1, position));
            }
            for (var j = 0u; j < 8u; j++) {
                let p = weights[unit * TILE + i + j]; // nothing after n
                acc[0] += p.x * v[j];
                acc[1] += p.y * v[j];
                acc[2] += p.z * v[j];
                acc[3] += p.w * v[j];
            }
        }
    }
    sum = sum_of_32(lane, sum);
    for (var i = 0u; i < 4u; i++) {
        let to = ((row + i) * N_HEADS + head) * pairs + me;
        if (row + i < run.n_tokens && me < pairs) { y[to] = acc[i].xy / sum[i]; }
        if (row + i < run.n_tokens && me + 32u < pairs) { y[to + 32u] = acc[i].zw / sum[i]; }
    }
}
