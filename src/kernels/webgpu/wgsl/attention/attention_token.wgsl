// Rotary embedding, store into the cache and attention in one dispatch, of chunks of one to eight
// tokens: any number of sequences, each with its own positions and pages. Grid: (heads, parts,
// rows).
//
// The positions that a row sees are cut into tiles of PART, which begin at multiples of that; part
// p of a head takes the tiles p, p + n_parts ... and leaves a sum of values weighted by its
// own softmax, with its greatest score and the sum of its weights. The reader of the row joins the
// parts (ternary_row.wgsl). So a long context takes more workgroups, not longer ones, up to
// PARTS_MAX parts.
//
// The cache is read only up to the chunk's first position. From there on every workgroup computes
// the keys and values that its row needs, as the cache's words, so that they equal to the bit
// what later batches read: no workgroup waits for what another one stores. Each row's are stored by
// one workgroup of each key/value head. The layout of the cache is in cache.wgsl. Places of the
// first tile are looked up before the query is made, those of the next while this one's are used:
// so the page table costs no wait of its own.
override HEAD_DIM: u32; // a multiple of 4
override N_HEADS: u32;
override N_KV_HEADS: u32;
override N_ROT: u32;
override HALVES: bool;
override SCALE: f32;
override PART: u32; // at most THREADS
override PARTS_MAX: u32;
override TOKENS: u32;   // of a chunk at most; 1: and of the batch
override INFO_AT: u32; // where in y the greatest scores and sums are

@group(0) @binding(1) var<storage, read> angles: array<vec2<f32>>;
// Queries, keys and values: for each where its rows begin, how long they are, and how many numbers
// lie from head to head.
@group(0) @binding(2) var<storage, read_write> qkv: array<f32>;
override Q_AT: u32;
override K_AT: u32;
override V_AT: u32;
override Q_ROW: u32;
override K_ROW: u32;
override V_ROW: u32;
override Q_HEAD: u32;
override K_HEAD: u32;
override V_HEAD: u32;
// Norms of heads, of queries and of keys, with the bits of norm_pair.wgsl: 1: before they are
// rotated, 2: after that. Then biases, of all heads of queries, of keys, of values.
@group(0) @binding(3) var<storage, read> vectors: array<f32>;
override NORMS: u32 = 0u;
override EPS: f32 = 0.0;
override BIASES: bool = false;
override Q_BIAS: u32 = u32(NORMS > 0u) * 2u * HEAD_DIM;
override K_BIAS: u32 = Q_BIAS + N_HEADS * HEAD_DIM;
override V_BIAS: u32 = K_BIAS + N_KV_HEADS * HEAD_DIM;
@group(0) @binding(5) var<storage, read_write> keys: array<u32>;
@group(0) @binding(6) var<storage, read_write> values: array<u32>;
@group(0) @binding(7) var<storage, read_write> y: array<vec2<f32>>; // [part][head][pair]; INFO_AT

override HALF: u32 = HEAD_DIM / 2u;
override K_PAIRS: u32 = N_KV_HEADS * HALF;
override KEY_SLICES: u32 = THREADS / PART;   // of the pairs; a thread scores one position in one
override VALUE_SLICES: u32 = THREADS / HALF; // of the positions; a thread sums one pair in one
override KEY_STEPS: u32 = (HALF + KEY_SLICES - 1u) / KEY_SLICES;      // <= KEPT
override VALUE_STEPS: u32 = (PART + VALUE_SLICES - 1u) / VALUE_SLICES; // <= KEPT
// Whether a slice's positions always lie in one page.
override IN_A_PAGE: bool = PAGE % VALUE_STEPS == 0u && PART % VALUE_STEPS == 0u;

// Words of keys and values that a thread loads before it needs them, and keeps in registers.
const KEPT = 16u;

var<workgroup> query: array<vec2<f32>, HALF>;
var<workgroup> own: array<vec2<u32>, TOKENS * 2u * HALF>; // [token of the chunk][key, value][pair]
var<workgroup> scores: array<f32, THREADS>; // [slice][position]; then the weights
var<workgroup> accs: array<vec2<f32>, THREADS>;
var<workgroup> sums: array<f32, VALUE_SLICES>; // of a slice's weights

// What a number of a head is read from: the row, the head, and what its norm divides by.
struct Head { row: u32, of_key: bool, head: u32, inverse: f32 }

fn raw(h: Head, d: u32) -> f32 {
    if (h.of_key) {
        var x = qkv[K_AT + h.row * K_ROW + h.head * K_HEAD + d];
        if (BIASES) { x += vectors[K_BIAS + h.head * HEAD_DIM + d]; }
        return x;
    }
    var x = qkv[Q_AT + h.row * Q_ROW + h.head * Q_HEAD + d];
    if (BIASES) { x += vectors[Q_BIAS + h.head * HEAD_DIM + d]; }
    return x;
}

fn norm_weight(h: Head, d: u32) -> f32 { return vectors[u32(h.of_key) * HEAD_DIM + d]; }

fn element(h: Head, d: u32) -> f32 {
    if (NORMS == 1u) { return raw(h, d) * h.inverse * norm_weight(h, d); }
    return raw(h, d);
}

// Element d; pairs are (i, i + N_ROT / 2) or (2i, 2i + 1).
fn rotated(h: Head, d: u32) -> f32 {
    let here = element(h, d);
    if (d >= N_ROT) { return here; }
    let rot = N_ROT / 2u;
    var other = d + 1u - 2u * (d % 2u);
    var pair = d / 2u;
    var is_second = d % 2u == 1u;
    if (HALVES) {
        is_second = d >= rot;
        let back = u32(is_second) * rot;
        pair = d - back;
        other = d + rot - 2u * back;
    }
    let a = angles[(run.rows_before + h.row) * rot + pair];
    var turned = element(h, other) * a.y;
    if (!is_second) { turned = -turned; }
    return here * a.x + turned;
}

fn finished(h: Head, d: u32) -> f32 {
    if (NORMS == 2u) { return rotated(h, d) * h.inverse * norm_weight(h, d); }
    return rotated(h, d);
}
fn finished2(h: Head, pair: u32) -> vec2<f32> {
    return vec2(finished(h, 2u * pair), finished(h, 2u * pair + 1u));
}

// The factors of the norms: the query's, then those of the chunk's keys up to the row.
var<workgroup> inverse: array<f32, TOKENS + 1u>;
fn find_norms(lane: u32, row: u32, token: u32, head: u32) {
    for (var i = 0u; i <= token + 1u; i++) {
        var h = Head(row, false, head, 1.0);
        if (i > 0u) { h = Head(row - token + i - 1u, true, head / (N_HEADS / N_KV_HEADS), 1.0); }
        var x = vec4(0.0);
        if (lane < HEAD_DIM / 4u) {
            for (var k = 0u; k < 4u; k++) {
                if (NORMS == 2u) { x[k] = rotated(h, 4u * lane + k); }
                else { x[k] = raw(h, 4u * lane + k); }
            }
        }
        let all = workgroup_sum_max(lane, dot(x, x), 0.0).x;
        if (lane == 0u) { inverse[i] = 1.0 / sqrt(all / f32(HEAD_DIM) + EPS); }
        workgroupBarrier();
    }
}

// The words of the pair at `i` of own, which still holds floats: in Q8_0 16 pairs share a scale.
fn quantized(i: u32) -> vec2<u32> {
    var most = 0.0;
    for (var k = 0u; k < 16u; k++) {
        let pair = abs(bitcast<vec2<f32>>(own[i / 16u * 16u + k]));
        most = max(most, max(pair.x, pair.y));
    }
    let first = i / 2u * 2u;
    return encoded(bitcast<vec4<f32>>(vec4(own[first], own[first + 1u])), most);
}

// The pair at `i` of own, as floats; the chunk begins at row0.
fn own_pair(row0: u32, kv_head: u32, i: u32) -> vec2<f32> {
    let token = i / (2u * HALF);
    let pair = i % HALF;
    if (i / HALF % 2u == 1u) {
        let at = V_AT + (row0 + token) * V_ROW + kv_head * V_HEAD + 2u * pair;
        var x = vec2(qkv[at], qkv[at + 1u]);
        if (BIASES) {
            let b = V_BIAS + kv_head * HEAD_DIM + 2u * pair;
            x += vec2(vectors[b], vectors[b + 1u]);
        }
        return x;
    }
    return finished2(Head(row0 + token, true, kv_head, inverse[token + 1u]), pair);
}

// Fills the query and, up to the row, the chunk's own words; visible after the next barrier.
fn rotate(lane: u32, row: u32, token: u32, head: u32) {
    let kv_head = head / (N_HEADS / N_KV_HEADS);
    let n_own = (token + 1u) * 2u * HALF;
    if (NORMS > 0u) { find_norms(lane, row, token, head); }
    for (var first = 0u; first < HALF + n_own; first += THREADS) {
        let i = first + lane;
        if (i < HALF) {
            query[i] = finished2(Head(row, false, head, inverse[0]), i) * SCALE;
        }
        let at = i - HALF; // wraps around in front
        let is_own = at < n_own;
        var x = vec2(0.0);
        if (is_own) { x = own_pair(row - token, kv_head, at); }
        if (CACHE == CACHE_Q8_0) {
            if (is_own) { own[at] = bitcast<vec2<u32>>(x); }
            workgroupBarrier();
            var words = vec2(0u);
            if (is_own) { words = quantized(at); }
            workgroupBarrier();
            if (is_own) { own[at] = words; }
        } else if (is_own) {
            own[at] = encoded(vec4(x, 0.0, 0.0), 0.0);
        }
    }
}

fn weight(s: f32, most: f32) -> f32 { return exp(max(s - most, -87.0)); }

@compute @workgroup_size(THREADS)
fn attention_token(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(local_invocation_index) lane: u32) {
    var row = 0u;
    var token = 0u; // of the chunk
    if (TOKENS > 1u) {
        row = group.z;
        token = row - chunk_begin(row);
    }
    let head = group.x;
    let n_sharing = N_HEADS / N_KV_HEADS;
    let kv_head = head / n_sharing;
    let column0 = kv_head * HALF;
    let last = position_of(row); // the row's own
    let n_cached = last - token;
    let begin = first_seen(last);
    let pages = pages_of(row);
    let tile0 = begin / PART;
    let n_tiles = last / PART + 1u - tile0;
    let n_parts = min(n_tiles, PARTS_MAX);
    if (TOKENS > 1u && group.y >= n_parts) { return; } // only other rows have this part
    let position = lane % PART;
    let key_slice = lane / PART;
    let pair = lane % HALF;
    let value_slice = lane / HALF;

    var key_kept: array<vec2<u32>, KEPT>;
    var value_kept: array<vec2<u32>, KEPT>;
    let tile_first = (tile0 + group.y) * PART;
    var key_place = place_of(pages, clamp(tile_first + position, begin, last));
    let value_tile_first = tile_first + value_slice * VALUE_STEPS;
    var value_page = place_of(pages, clamp(value_tile_first, begin, last)) / PAGE;
    rotate(lane, row, token, head);
    var acc = vec2(0.0);
    var sum = 0.0;
    var most = NOTHING;
    for (var tile = group.y; tile < n_tiles; tile += n_parts) {
        let first = (tile0 + tile) * PART;
        let p = first + position;
        if (p >= begin && p < n_cached) {
            for (var i = 0u; i < KEY_STEPS; i++) {
                let at = min(key_slice * KEY_STEPS + i, HALF - 1u);
                key_kept[i] = key_words(column0 + at, key_place);
            }
        }
        let value_first = first + value_slice * VALUE_STEPS;
        if (value_first < n_cached && value_first + VALUE_STEPS > begin) {
            for (var i = 0u; i < VALUE_STEPS; i++) {
                // Positions that are not seen repeat others, and weigh nothing.
                let at = max(min(value_first + i, n_cached - 1u), begin);
                var place = value_page * PAGE + at % PAGE;
                if (!IN_A_PAGE) { place = place_of(pages, at); }
                value_kept[i] = value_words(column0 + pair, place);
            }
        }
        let next = first + n_parts * PART;
        key_place = place_of(pages, clamp(next + position, begin, last));
        value_page = place_of(pages, clamp(next + value_slice * VALUE_STEPS, begin, last)) / PAGE;
        workgroupBarrier(); // the query and the batch's own words are ready
        var s = vec2(0.0);
        if (p >= begin && p <= last) {
            for (var i = 0u; i < KEY_STEPS; i++) {
                let at = key_slice * KEY_STEPS + i;
                if (at < HALF) {
                    var words = key_kept[i];
                    if (p >= n_cached) { words = own[(p - n_cached) * 2u * HALF + at]; }
                    s += query[at] * decoded(words, at);
                }
            }
        }
        if (key_slice < KEY_SLICES) { scores[lane] = s.x + s.y; }
        workgroupBarrier();
        var score = NOTHING;
        if (lane < PART && first + lane >= begin && first + lane <= last) {
            score = scores[lane];
            for (var i = 1u; i < KEY_SLICES; i++) { score += scores[i * PART + lane]; }
            score = capped(vec4(score)).x;
        }
        let tile_most = max(most, workgroup_sum_max(lane, 0.0, score).y);
        let shrink = weight(most, tile_most);
        most = tile_most;
        var e = 0.0;
        if (score > NOTHING) { e = weight(score, most); }
        if (lane < PART) { scores[lane] = e; }
        sum *= shrink;
        acc *= shrink;
        workgroupBarrier();
        if (value_slice < VALUE_SLICES && value_first <= last &&
            value_first + VALUE_STEPS > begin) {
            for (var i = 0u; i < VALUE_STEPS; i++) {
                let at = value_slice * VALUE_STEPS + i;
                if (at < PART) {
                    var words = value_kept[i];
                    if (first + at >= n_cached) {
                        let t = min(first + at, last) - n_cached; // past it weights are 0
                        words = own[(2u * t + 1u) * HALF + pair];
                    }
                    acc += scores[at] * decoded(words, pair);
                    sum += scores[at];
                }
            }
        }
    }
    accs[lane] = acc;
    if (pair == 0u && value_slice < VALUE_SLICES) { sums[value_slice] = sum; }
    workgroupBarrier();
    if (lane < HALF) {
        let part = row * PARTS_MAX + group.y;
        var a = accs[lane];
        var all = sums[0];
        for (var i = 1u; i < VALUE_SLICES; i++) {
            a += accs[i * HALF + lane];
            all += sums[i];
        }
        if (n_parts == 1u) { a /= all; }
        y[(part * N_HEADS + head) * HALF + lane] = a;
        if (lane == 0u) { y[INFO_AT + part * N_HEADS + head] = vec2(most, all); }
        if (head % n_sharing == 0u && (n_tiles - 1u) % n_parts == group.y) {
            let place = place_of(pages, last);
            store_key(column0 + lane, place, own[2u * token * HALF + lane]);
            store_value(column0 + lane, place, own[(2u * token + 1u) * HALF + lane]);
        }
    }
}
