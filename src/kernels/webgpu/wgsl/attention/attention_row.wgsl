// Attention of one row of a head with an online softmax: a workgroup walks over the positions that
// the row sees in tiles of THREADS / 4, so that any context needs the same small amount of memory.
// Comes after a file that defines where keys and values are (place_of, key2, value2) and what
// becomes of scores (capped), and before one that defines what a row sees.
//
// In a tile four threads share a score, a quarter of the dimensions each. Then the threads share
// the columns of the values: those of one part take every n_parts-th position and keep a softmax of
// their own, with its greatest score and its sum; the parts are combined at the end.
override HEAD_DIM: u32; // even, at most 2 THREADS
override N_HEADS: u32;
override N_KV_HEADS: u32;
override SCALE: f32;
override K_PAIRS: u32 = N_KV_HEADS * HEAD_DIM / 2u;
override HALF: u32 = HEAD_DIM / 2u;
override TILE: u32 = THREADS / 4u;

@group(0) @binding(1) var<storage, read_write> q: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>; // as key2 reads them
@group(0) @binding(3) var<storage, read_write> values: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<f32>>;

var<workgroup> query: array<vec2<f32>, HALF>;
var<workgroup> places: array<u32, TILE>;    // of the tile's positions
var<workgroup> scores: array<f32, THREADS>; // [quarter][position]; at the end: greatest of a part
var<workgroup> sums: array<f32, THREADS>;   // of a part
var<workgroup> accs: array<vec2<f32>, THREADS>;

fn score(i: u32) -> f32 {
    let s = (scores[i] + scores[TILE + i]) + (scores[2u * TILE + i] + scores[3u * TILE + i]);
    return capped(vec4(s)).x;
}

fn weight(s: f32, most: f32) -> f32 { return exp(clamp(s - most, -87.0, 87.0)); }

fn attend(head: u32, query_row: u32, lane: u32, pages: u32, begin: u32, end: u32) {
    let column0 = head / (N_HEADS / N_KV_HEADS) * HALF;
    let row = (query_row * N_HEADS + head) * HALF;
    for (var i = lane; i < HALF; i += THREADS) { query[i] = q[row + i] * SCALE; }
    let each = (HALF + 3u) / 4u;
    let dim0 = min(lane / TILE * each, HALF);
    let dim1 = min(dim0 + each, HALF);
    let n_parts = THREADS / HALF; // threads after the last part have no work
    let part = lane / HALF;
    let column = column0 + lane % HALF;
    var acc = vec2(0.0);
    var sum = 0.0;
    var most = NOTHING;
    for (var first = begin; first < end; first += TILE) {
        let n = min(end - first, TILE);
        var s = vec2(0.0);
        workgroupBarrier(); // the query is loaded, the last tile's scores are used
        if (lane % TILE < n) {
            let place = place_of(pages, first + lane % TILE);
            if (lane < TILE) { places[lane] = place; }
            var i = dim0;
            for (; i + 4u <= dim1; i += 4u) { // four loads in flight at a time
                let k0 = key2(column0 + i, place);
                let k1 = key2(column0 + i + 1u, place);
                let k2 = key2(column0 + i + 2u, place);
                let k3 = key2(column0 + i + 3u, place);
                s += (query[i] * k0 + query[i + 1u] * k1) +
                     (query[i + 2u] * k2 + query[i + 3u] * k3);
            }
            for (; i < dim1; i++) { s += query[i] * key2(column0 + i, place); }
        }
        scores[lane] = s.x + s.y;
        workgroupBarrier();
        if (part < n_parts) {
            var m = most;
            for (var i = part; i < n; i += n_parts) { m = max(m, score(i)); }
            let shrink = weight(most, m);
            most = m;
            acc *= shrink;
            sum *= shrink;
            let last = n - 1u;
            for (var i = part; i < n; i += 4u * n_parts) {
                let i1 = min(i + n_parts, last);
                let i2 = min(i + 2u * n_parts, last);
                let i3 = min(i + 3u * n_parts, last);
                let v0 = value2(column, places[i]);
                let v1 = value2(column, places[i1]);
                let v2 = value2(column, places[i2]);
                let v3 = value2(column, places[i3]);
                let p0 = weight(score(i), m);
                // Past the end: use the last position, whose score may exceed this part's.
                var p1 = weight(score(i1), m);
                var p2 = weight(score(i2), m);
                var p3 = weight(score(i3), m);
                if (i + n_parts >= n) { p1 = 0.0; }
                if (i + 2u * n_parts >= n) { p2 = 0.0; }
                if (i + 3u * n_parts >= n) { p3 = 0.0; }
                sum += (p0 + p1) + (p2 + p3);
                acc += (p0 * v0 + p1 * v1) + (p2 * v2 + p3 * v3);
            }
        }
    }
    workgroupBarrier();
    accs[lane] = acc;
    if (lane % HALF == 0u && part < n_parts) {
        scores[part] = most;
        sums[part] = sum;
    }
    workgroupBarrier();
    if (lane < HALF) {
        var m = scores[0];
        for (var p = 1u; p < n_parts; p++) { m = max(m, scores[p]); }
        acc = vec2(0.0);
        sum = 0.0;
        for (var p = 0u; p < n_parts; p++) {
            let w = weight(scores[p], m);
            acc += w * accs[p * HALF + lane];
            sum += w * sums[p];
        }
        y[row + lane] = acc / sum;
    }
}
