// Attention of many consecutive tokens with an online softmax (FlashAttention's order of computing,
// arXiv:2205.14135): a workgroup takes a tile of up to TOKENS tokens of one sequence, for a head,
// over the positions in tiles of 64, so that keys and values are read once for all of them, and no
// score is ever in memory. Grid: (heads, tiles of tokens); the last ones, which see most, go first.
//
// Each group of 32 threads works on four tokens. In a tile a thread scores two positions for them,
// turns the scores into weights, and then adds the weighted values of all the tile's positions for
// two pairs of columns of each 128. What a token gets does not depend on the others of its tile:
// positions are cut into tiles from 0 on, and those that it does not see weigh 0.
//
// Workgroup memory: 24 KB for 128 threads and 256 dimensions, half of it for 128, half of the
// threads for 512; and 16 bytes a thread, where there are no subgroups.
override HEAD_DIM: u32; // even, at most 512
override N_HEADS: u32;
override N_KV_HEADS: u32;
override SCALE: f32;
override K_PAIRS: u32 = N_KV_HEADS * HEAD_DIM / 2u;
override TOKENS: u32 = THREADS / 8u;
override ROUNDS: u32 = (HEAD_DIM + 127u) / 128u;
override DIMS4: u32 = 32u * ROUNDS;

@group(0) @binding(1) var<storage, read_write> q: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> keys: array<u32>; // see cache.wgsl
@group(0) @binding(3) var<storage, read> values: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<f32>>;

const TILE = 64u;
const ROUNDS_MAX = 4u;

var<workgroup> queries: array<vec4<f32>, TOKENS * DIMS4>;       // [token][four dimensions]
var<workgroup> weights: array<vec4<f32>, THREADS / 32u * TILE>; // [32 threads][position]: of four

fn weight(s: vec4<f32>, most: vec4<f32>) -> vec4<f32> { return exp(max(s - most, vec4(-87.0))); }

fn load_queries(lane: u32, head: u32, token0: u32, n_tokens: u32) {
    let pairs = HEAD_DIM / 2u;
    for (var i = lane; i < TOKENS * DIMS4; i += THREADS) {
        let token = token0 + min(i / DIMS4, n_tokens - 1u);
        let pair = i % DIMS4 * 2u;
        let begin = (token * N_HEADS + head) * pairs + pair;
        var v = vec4(0.0);
        if (pair < pairs) { v = vec4(q[begin], 0.0, 0.0); }
        if (pair + 1u < pairs) { v = vec4(v.xy, q[begin + 1u]); }
        queries[i] = v * SCALE;
    }
}

// Scores of two places for four tokens; the head's keys begin at column0.
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
            let at = unit * 4u * DIMS4 + (i + j) / 2u;
            let a = vec4(k[j].xy, k[j + 1u].xy);
            let b = vec4(k[j].zw, k[j + 1u].zw);
            let q0 = queries[at];
            let q1 = queries[at + DIMS4];
            let q2 = queries[at + 2u * DIMS4];
            let q3 = queries[at + 3u * DIMS4];
            s.first += vec4(dot(q0, a), dot(q1, a), dot(q2, a), dot(q3, a));
            s.second += vec4(dot(q0, b), dot(q1, b), dot(q2, b), dot(q3, b));
        }
    }
    return Scores(capped(s.first), capped(s.second));
}

// 1 where four tokens, the first of them `behind` positions after this one, see it; else 0.
fn seen(behind: i32) -> vec4<f32> {
    let away = vec4(behind) + vec4(0, 1, 2, 3);
    var m = vec4(1.0);
    if (CAUSAL) { m *= vec4<f32>(away >= vec4(0)); }
    if (WINDOW > 0u) {
        m *= vec4<f32>(away < vec4(i32(WINDOW))) * vec4<f32>(-away < vec4(i32(ahead())));
    }
    return m;
}

// The same for texts with images: the four see up to where `ends` says.
fn seen_before(position: u32, behind: i32, ends: vec4<u32>) -> vec4<f32> {
    var m = vec4<f32>(vec4(position) < ends);
    if (WINDOW > 0u) { m *= vec4<f32>(vec4(behind) + vec4(0, 1, 2, 3) < vec4(i32(WINDOW))); }
    return m;
}

@compute @workgroup_size(THREADS)
fn attention_prompt(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) n_groups: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let pairs = HEAD_DIM / 2u;
    let head = group.x;
    let tile = run.tiles_at + 2u * (n_groups.y - 1u - group.y);
    let token0 = run.tables[tile];
    let n_tokens = run.tables[tile + 1u];
    let pages = pages_of(token0);
    let position0 = position_of(token0);
    let column0 = head / (N_HEADS / N_KV_HEADS) * pairs;
    // What any of the tokens sees.
    let begin = first_seen(position0);
    let end = end_of(token0 + n_tokens - 1u);
    load_queries(lane, head, token0, n_tokens);
    let unit = lane / 32u;
    let me = lane % 32u;
    let row = unit * 4u; // first of the four tokens
    var ends: vec4<u32>;
    for (var i = 0u; IMAGES && i < 4u; i++) {
        ends[i] = end_of(token0 + min(row + i, n_tokens - 1u));
    }
    var acc: array<array<vec4<f32>, ROUNDS_MAX>, 4>; // of each token two pairs of columns a round
    var most = vec4(NOTHING);
    var sum = vec4(0.0); // of this thread's weights
    for (var first = begin / TILE * TILE; first < end; first += TILE) {
        let n = min(end - first, TILE);
        // Pages before `begin` may be gone: there, and past the end, use a neighbour's place.
        let low = max(first, begin);
        let place0 = place_of(pages, max(first + min(me, n - 1u), low));
        let place1 = place_of(pages, max(first + min(me + 32u, n - 1u), low));
        workgroupBarrier(); // the queries are loaded, the last tile's weights used
        var s = scores_of(column0, place0, place1, unit);
        let behind = i32(position0 + row) - i32(first + me);
        var seen0 = seen(behind) * f32(me < n);
        var seen1 = seen(behind - 32) * f32(me + 32u < n);
        if (IMAGES) {
            seen0 = seen_before(first + me, behind, ends) * f32(me < n);
            seen1 = seen_before(first + me + 32u, behind - 32, ends) * f32(me + 32u < n);
        }
        s.first += NOTHING * (1.0 - seen0);
        s.second += NOTHING * (1.0 - seen1);
        let m = max(most, max4_of_32(lane, max(s.first, s.second)));
        let shrink = weight(most, m);
        most = m;
        s.first = weight(s.first, m) * seen0;
        s.second = weight(s.second, m) * seen1;
        sum = sum * shrink + (s.first + s.second);
        weights[unit * TILE + me] = s.first;
        weights[unit * TILE + me + 32u] = s.second;
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {
            for (var r = 0u; r < ROUNDS; r++) { acc[i][r] *= shrink[i]; }
        }
        // A tile is two pages.
        let base0 = place_of(pages, low) / PAGE * PAGE;
        let base1 = place_of(pages, max(first + min(32u, n - 1u), low)) / PAGE * PAGE;
        for (var i = (low - first) / 8u * 8u; i < n; i += 8u) {
            let base = base0 + u32(i >= 32u) * (base1 - base0);
            for (var r = 0u; r < ROUNDS; r++) {
                let pair0 = column0 + min(me + 64u * r, pairs - 1u);
                let pair1 = column0 + min(me + 64u * r + 32u, pairs - 1u);
                var v: array<vec4<f32>, 8>; // loads under way at a time
                for (var j = 0u; j < 8u; j++) {
                    let place = base + max(first + min(i + j, n - 1u), low) % PAGE;
                    v[j] = vec4(value2(pair0, place), value2(pair1, place));
                }
                for (var j = 0u; j < 8u; j++) {
                    let p = weights[unit * TILE + i + j]; // 0 outside of low .. n - 1
                    acc[0][r] += p.x * v[j];
                    acc[1][r] += p.y * v[j];
                    acc[2][r] += p.z * v[j];
                    acc[3][r] += p.w * v[j];
                }
            }
        }
    }
    sum = sum_of_32(lane, sum);
    for (var i = 0u; i < 4u; i++) {
        for (var r = 0u; r < ROUNDS; r++) {
            let column = me + 64u * r;
            let to = ((token0 + row + i) * N_HEADS + head) * pairs + column;
            if (row + i < n_tokens && column < pairs) { y[to] = acc[i][r].xy / sum[i]; }
            if (row + i < n_tokens && column + 32u < pairs) { y[to + 32u] = acc[i][r].zw / sum[i]; }
        }
    }
}
