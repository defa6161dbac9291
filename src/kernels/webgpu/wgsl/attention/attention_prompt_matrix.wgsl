// Attention of attention_prompt.wgsl on the matrix units, from a cache in f16: a workgroup computes
// a tile of TOKENS tokens for a head, 16 tokens a subgroup, over the positions page by page.
//
// The units multiply halves and add up floats. Keys and values are halves. A query or a weight x is
// the sum of two, hi (its upper 11 bits) and lo = x - hi, which hold 22 bits of it: the results are
// those of floats, for twice the products.
//
// The units cannot scale their sums row by row, as an online softmax must when it meets a greater
// score. So a token keeps its reference, the score whose weight is 1, until one weighs more than
// 2^LEEWAY; then all sums go through workgroup memory and are scaled there, those of other tokens
// by 1. The units also add up the weights, so that their order is the same for each token: what one
// gets depends on its own scores alone, not on its tile, nor on TOKENS.
//
// A page's words are loaded while the page before it is computed. Workgroup memory: 47 KB.
override TOKENS: u32 = THREADS / 2u; // 64 or 128
override HEAD_DIM: u32; // a multiple of 16, at most 128
override N_HEADS: u32;
override N_KV_HEADS: u32;
override SCALE: f32;
override K_PAIRS: u32 = N_KV_HEADS * HEAD_DIM / 2u;
override PAIRS: u32 = HEAD_DIM / 2u;
override FOURS: u32 = HEAD_DIM / 4u;
override EIGHTS: u32 = HEAD_DIM / 8u;
override PAGE_WORDS: u32 = PAGE * PAIRS; // of a head's keys
override ROUNDS: u32 = (PAGE_WORDS + 4u * THREADS - 1u) / (4u * THREADS);
override LOG_SCALE: f32 = SCALE * 1.44269504; // scores are logarithms to base 2

@group(0) @binding(1) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> keys: array<u32>; // see cache.wgsl
@group(0) @binding(3) var<storage, read> values: array<u32>;
@group(0) @binding(3) var<storage, read> value_fours: array<vec4<u32>>; // the same
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

const LEEWAY = 11.0;   // weights of 2^12 and their parts are halves
const MOST_LOG = 12.0; // of a weight
// Vectors from row to row: some more than there are, so that rows begin in different banks.
override NEXT: u32 = HEAD_DIM / 4u + 2u;
const S_NEXT = 9u;
const P_NEXT = 10u;
const LO_AT = 128u * P_NEXT;
const V_AT = 2u * LO_AT;

// Of a page, four halves a vec2: keys, [position][dimension], then in their place weights, [hi, lo]
// [token][position]; at V_AT values, [position][dimension].
var<workgroup> now: array<vec2<u32>, V_AT + PAGE * 34u>;
var<workgroup> s_now: array<vec4<f32>, 128u * S_NEXT>; // scores, [token][position]
var<workgroup> shrink: array<f32, 128>;                // what a token's sums are scaled by
var<workgroup> grown: vec4<u32>;                       // x: whether any are

fn halves(x: vec4<f32>) -> vec2<u32> { return bitcast<vec2<u32>>(vec4<f16>(x)); }

// The upper bits of floats. Not f32(f16(x)): compilers take that for x.
fn high(x: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) & vec4(0xffffe000u));
}

// hi or lo of 64 of the tile's queries, as [token][dimension] where a page will be.
fn keep_queries(lane: u32, head: u32, token0: u32, n_tokens: u32, first: u32, is_low: bool) {
    for (var i = lane; i < 64u * FOURS; i += THREADS) {
        let token = token0 + min(first + i / FOURS, n_tokens - 1u);
        let exact = q[(token * N_HEADS + head) * FOURS + i % FOURS];
        let x = clamp(exact, vec4(-65504.0), vec4(65504.0));
        let hi = high(x);
        now[i / FOURS * NEXT + i % FOURS] = halves(select(hi, x - hi, is_low));
    }
}

fn page_of(pages: u32, position: u32) -> u32 {
    return run.tables[pages + position / PAGE * PAGE_GROUPS + PAGE_GROUP];
}

// A thread's shares of a page: four pairs of a position each. Of keys neighbouring threads have
// neighbouring positions, of values the next pairs.
alias Words = array<vec4<u32>, 4>;
override IS_WHOLE: bool = PAGE_WORDS % (4u * THREADS) == 0u; // else some have none of their last
fn share(lane: u32, r: u32) -> u32 {
    let i = lane + THREADS * r;
    if (IS_WHOLE) { return i; }
    return min(i, PAGE_WORDS / 4u - 1u);
}

fn ask_keys(lane: u32, page: u32, column0: u32) -> Words {
    let first = (page * KEY_ROWS + column0) * PAGE;
    var words: Words;
    for (var r = 0u; r < ROUNDS; r++) {
        let i = share(lane, r);
        let at = first + i / PAGE * 4u * PAGE + i % PAGE;
        words[r] = vec4(keys[at], keys[at + PAGE], keys[at + 2u * PAGE], keys[at + 3u * PAGE]);
    }
    return words;
}

fn ask_values(lane: u32, page: u32, column0: u32) -> Words {
    let first = (page * PAGE * K_PAIRS + column0) / 4u;
    var words: Words;
    for (var r = 0u; r < ROUNDS; r++) {
        let i = share(lane, r);
        words[r] = value_fours[first + i / EIGHTS * (K_PAIRS / 4u) + i % EIGHTS];
    }
    return words;
}

// Two vec2s; which of them comes first depends on the thread, so that few meet in a bank.
fn keep_words(lane: u32, to: u32, x: vec4<u32>) {
    let other = lane / 8u % 2u == 1u;
    now[to + u32(other)] = select(x.xy, x.zw, other);
    now[to + u32(!other)] = select(x.zw, x.xy, other);
}

// Values from position n of the page on are not there: whatever they are, a weight of 0 must make 0
// of them.
fn keep_page(lane: u32, n: u32, k: ptr<function, Words>, v: ptr<function, Words>) {
    for (var r = 0u; r < ROUNDS; r++) {
        let i = share(lane, r);
        keep_words(lane, i % PAGE * NEXT + i / PAGE * 2u, (*k)[r]);
        let value = select((*v)[r], vec4(0u), i / EIGHTS >= n);
        keep_words(lane, V_AT + i / EIGHTS * NEXT + i % EIGHTS * 2u, value);
    }
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn query_16(own: u32, d: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&now, own * NEXT + d / 4u, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn keys_16(d: u32, position: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&now, position * NEXT + d / 4u, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn values_16(position: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right, row_major>(&now, V_AT + position * NEXT + d / 4u, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn weights_16(at: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&now, at, P_NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn add2(hi: Left, lo: Left, r: Right, s: Sums) -> Sums {
    return subgroupMatrixMultiplyAccumulate(hi, r, subgroupMatrixMultiplyAccumulate(lo, r, s));
}
fn logs_of(raw: vec4<f32>) -> vec4<f32> {
    if (SOFT_CAP == 0.0) { return raw * LOG_SCALE; }
    return capped(raw * SCALE) * 1.44269504;
}

fn keep_weights(at: u32, p: vec4<f32>) {
    let hi = high(p);
    now[at] = halves(hi);
    now[LO_AT + at] = halves(p - hi);
}

// Four of a thread's scores; the greatest so far. The two threads of a row take theirs in other
// orders, so that they meet in no bank.
fn weigh4(lane: u32, n: u32, seen: vec2<i32>, reference: f32, most: vec4<f32>) -> vec4<f32> {
    let i = n ^ (lane & 1u);
    let s = logs_of(s_now[own_sums(lane) + i]);
    let j = vec4(4 * i32(i)) + vec4(0, 1, 2, 3);
    let is_seen = (j >= vec4(seen.x)) & (j < vec4(seen.y));
    let log = clamp(s - reference, vec4(-126.0), vec4(MOST_LOG));
    keep_weights(lane / 2u * P_NEXT + lane % 2u * 4u + i, select(vec4(0.0), exp2(log), is_seen));
    return max(most, select(vec4(NOTHING), s, is_seen));
}
fn weigh16(lane: u32, seen: vec2<i32>, reference: f32) -> f32 {
    var most = vec4(NOTHING);
    for (var n = 0u; n < 4u; n++) { most = weigh4(lane, n, seen, reference, most); }
    let two = max(most.xy, most.zw);
    return max(two.x, two.y);
}

struct Row { begin: u32, end: u32, reference: f32 } // what a token sees

// Scores of a page become weights.
fn weigh(lane: u32, first: u32, row: ptr<function, Row>) {
    let at = i32(first + lane % 2u * 16u);
    let seen = vec2(i32((*row).begin) - at, i32((*row).end) - at);
    let own = weigh16(lane, seen, (*row).reference);
    let most = max(own, subgroupShuffleXor(own, 1u));
    var by = 1.0;
    if (most > (*row).reference + LEEWAY) {
        if ((*row).reference > NOTHING) { // else all is 0 yet
            by = exp2(max((*row).reference - most, -126.0));
            grown.x = 1u;
        }
        (*row).reference = most;
        _ = weigh16(lane, seen, most);
    }
    shrink[lane / 2u] = by;
}

// 32 columns of a tile's results, from s_now.
fn write_32(lane: u32, column0: u32, token0: u32, n_tokens: u32, head: u32, by: f32) {
    let row = lane / 2u;
    let column4 = column0 / 4u + lane % 2u * 4u;
    for (var i = 0u; i < 4u; i++) {
        if (row < n_tokens && column4 + i < FOURS) {
            y[((token0 + row) * N_HEADS + head) * FOURS + column4 + i] =
                s_now[own_sums(lane) + i] * by;
        }
    }
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
@compute @workgroup_size(THREADS)
fn attention_prompt(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(num_workgroups) n_groups: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    let tile = run.tiles_at + 2u * (n_groups.y - 1u - group.y);
    let token0 = run.tables[tile];
    let n_tokens = run.tables[tile + 1u];
    let pages = pages_of(token0);
    let column0 = head / (N_HEADS / N_KV_HEADS) * PAIRS;
    // What any of the tokens sees.
    let begin = first_seen(position_of(token0)) / PAGE * PAGE;
    let end = end_of(token0 + n_tokens - 1u);
    let own = lane / 32u * 16u; // first of the subgroup's tokens
    let token = token0 + min(lane / 2u, n_tokens - 1u);
    var row = Row(first_seen(position_of(token)), end_of(token), NOTHING);
    var k = ask_keys(lane, page_of(pages, begin), column0);
    var v = ask_values(lane, page_of(pages, begin), column0);

    var h0 = Left();
    var l0 = Left();
    var h1 = Left();
    var l1 = Left();
    var h2 = Left();
    var l2 = Left();
    var h3 = Left();
    var l3 = Left();
    var h4 = Left();
    var l4 = Left();
    var h5 = Left();
    var l5 = Left();
    var h6 = Left();
    var l6 = Left();
    var h7 = Left();
    var l7 = Left();
    for (var at = 0u; at < TOKENS; at += 64u) {
        workgroupBarrier();
        keep_queries(lane, head, token0, n_tokens, at, false);
        workgroupBarrier();
        if (own / 64u * 64u == at) {
            h0 = query_16(own % 64u, 0u);
            if (HEAD_DIM > 16u) { h1 = query_16(own % 64u, 16u); }
            if (HEAD_DIM > 32u) { h2 = query_16(own % 64u, 32u); }
            if (HEAD_DIM > 48u) { h3 = query_16(own % 64u, 48u); }
            if (HEAD_DIM > 64u) { h4 = query_16(own % 64u, 64u); }
            if (HEAD_DIM > 80u) { h5 = query_16(own % 64u, 80u); }
            if (HEAD_DIM > 96u) { h6 = query_16(own % 64u, 96u); }
            if (HEAD_DIM > 112u) { h7 = query_16(own % 64u, 112u); }
        }
        workgroupBarrier();
        keep_queries(lane, head, token0, n_tokens, at, true);
        workgroupBarrier();
        if (own / 64u * 64u == at) {
            l0 = query_16(own % 64u, 0u);
            if (HEAD_DIM > 16u) { l1 = query_16(own % 64u, 16u); }
            if (HEAD_DIM > 32u) { l2 = query_16(own % 64u, 32u); }
            if (HEAD_DIM > 48u) { l3 = query_16(own % 64u, 48u); }
            if (HEAD_DIM > 64u) { l4 = query_16(own % 64u, 64u); }
            if (HEAD_DIM > 80u) { l5 = query_16(own % 64u, 80u); }
            if (HEAD_DIM > 96u) { l6 = query_16(own % 64u, 96u); }
            if (HEAD_DIM > 112u) { l7 = query_16(own % 64u, 112u); }
        }
    }
    var o0 = Sums();
    var o1 = Sums();
    var o2 = Sums();
    var o3 = Sums();
    var o4 = Sums();
    var o5 = Sums();
    var o6 = Sums();
    var o7 = Sums();
    var sums = Sums(); // of weights, in each column
    let ones = Right(1.0);
    var page = page_of(pages, min(begin + PAGE, end - 1u));
    for (var first = begin; first < end; first += PAGE) {
        workgroupBarrier(); // the queries, or the last page, have been used
        keep_page(lane, end - first, &k, &v);
        if (lane == 0u) { grown.x = 0u; }
        workgroupBarrier();
        if (first + PAGE < end) {
            k = ask_keys(lane, page, column0);
            v = ask_values(lane, page, column0);
            page = page_of(pages, min(first + 2u * PAGE, end - 1u));
        }
        var s0 = add2(h0, l0, keys_16(0u, 0u), Sums());
        var s1 = add2(h0, l0, keys_16(0u, 16u), Sums());
        if (HEAD_DIM > 16u) {
            s0 = add2(h1, l1, keys_16(16u, 0u), s0);
            s1 = add2(h1, l1, keys_16(16u, 16u), s1);
        }
        if (HEAD_DIM > 32u) {
            s0 = add2(h2, l2, keys_16(32u, 0u), s0);
            s1 = add2(h2, l2, keys_16(32u, 16u), s1);
        }
        if (HEAD_DIM > 48u) {
            s0 = add2(h3, l3, keys_16(48u, 0u), s0);
            s1 = add2(h3, l3, keys_16(48u, 16u), s1);
        }
        if (HEAD_DIM > 64u) {
            s0 = add2(h4, l4, keys_16(64u, 0u), s0);
            s1 = add2(h4, l4, keys_16(64u, 16u), s1);
        }
        if (HEAD_DIM > 80u) {
            s0 = add2(h5, l5, keys_16(80u, 0u), s0);
            s1 = add2(h5, l5, keys_16(80u, 16u), s1);
        }
        if (HEAD_DIM > 96u) {
            s0 = add2(h6, l6, keys_16(96u, 0u), s0);
            s1 = add2(h6, l6, keys_16(96u, 16u), s1);
        }
        if (HEAD_DIM > 112u) {
            s0 = add2(h7, l7, keys_16(112u, 0u), s0);
            s1 = add2(h7, l7, keys_16(112u, 16u), s1);
        }
        show(own, 0u, s0);
        show(own, 16u, s1);
        workgroupBarrier();
        weigh(lane, first, &row);
        if (workgroupUniformLoad(&grown).x != 0u) {
            let by = shrink[lane / 2u];
            show(own, 0u, o0);
            show(own, 16u, o1);
            scale_rows(lane, by);
            o0 = sums_16(own, 0u);
            o1 = sums_16(own, 16u);
            workgroupBarrier();
            show(own, 0u, sums);
            scale_rows(lane, by);
            sums = sums_16(own, 0u);
            if (HEAD_DIM > 32u) {
                workgroupBarrier();
                show(own, 0u, o2);
                show(own, 16u, o3);
                scale_rows(lane, by);
                o2 = sums_16(own, 0u);
                o3 = sums_16(own, 16u);
            }
            if (HEAD_DIM > 64u) {
                workgroupBarrier();
                show(own, 0u, o4);
                show(own, 16u, o5);
                scale_rows(lane, by);
                o4 = sums_16(own, 0u);
                o5 = sums_16(own, 16u);
            }
            if (HEAD_DIM > 96u) {
                workgroupBarrier();
                show(own, 0u, o6);
                show(own, 16u, o7);
                scale_rows(lane, by);
                o6 = sums_16(own, 0u);
                o7 = sums_16(own, 16u);
            }
        }
        for (var i = 0u; i < PAGE; i += 16u) {
            let hi = weights_16(own * P_NEXT + i / 4u);
            let lo = weights_16(LO_AT + own * P_NEXT + i / 4u);
            sums = add2(hi, lo, ones, sums);
            o0 = add2(hi, lo, values_16(i, 0u), o0);
            if (HEAD_DIM > 16u) { o1 = add2(hi, lo, values_16(i, 16u), o1); }
            if (HEAD_DIM > 32u) { o2 = add2(hi, lo, values_16(i, 32u), o2); }
            if (HEAD_DIM > 48u) { o3 = add2(hi, lo, values_16(i, 48u), o3); }
            if (HEAD_DIM > 64u) { o4 = add2(hi, lo, values_16(i, 64u), o4); }
            if (HEAD_DIM > 80u) { o5 = add2(hi, lo, values_16(i, 80u), o5); }
            if (HEAD_DIM > 96u) { o6 = add2(hi, lo, values_16(i, 96u), o6); }
            if (HEAD_DIM > 112u) { o7 = add2(hi, lo, values_16(i, 112u), o7); }
        }
    }
    workgroupBarrier();
    show(own, 0u, sums);
    workgroupBarrier();
    let by = 1.0 / s_now[lane / 2u * S_NEXT].x;
    workgroupBarrier();
    show(own, 0u, o0);
    show(own, 16u, o1);
    workgroupBarrier();
    write_32(lane, 0u, token0, n_tokens, head, by);
    if (HEAD_DIM > 32u) {
        workgroupBarrier();
        show(own, 0u, o2);
        show(own, 16u, o3);
        workgroupBarrier();
        write_32(lane, 32u, token0, n_tokens, head, by);
    }
    if (HEAD_DIM > 64u) {
        workgroupBarrier();
        show(own, 0u, o4);
        show(own, 16u, o5);
        workgroupBarrier();
        write_32(lane, 64u, token0, n_tokens, head, by);
    }
    if (HEAD_DIM > 96u) {
        workgroupBarrier();
        show(own, 0u, o6);
        show(own, 16u, o7);
        workgroupBarrier();
        write_32(lane, 96u, token0, n_tokens, head, by);
    }
}
