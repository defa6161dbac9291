// Causal attention with an online softmax: a workgroup for each head of each token goes over the
// positions in tiles of 128, so that any context needs the same little memory. Grid: (heads, tokens).
//
// In a tile each of 128 threads makes one score, then the threads share the columns of the values:
// a thread adds two columns over every 2nd (4th, ...) position, and these parts are added at the end.
override HEAD_DIM: u32; // even, at most 256
override N_HEADS: u32;
override N_KV_HEADS: u32;
override SCALE: f32;
override KV_F16: bool;

@group(0) @binding(1) var<storage, read_write> q: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<f32>>;

const TILE = 128u;
var<workgroup> query: array<vec2<f32>, 128>;
var<workgroup> weights: array<f32, 128>;
var<workgroup> scores: array<f32, 128>;
var<workgroup> partial: array<vec2<f32>, 128>;

fn key2(i: u32) -> vec2<f32> {
    if (KV_F16) { return unpack2x16float(keys[i]); }
    return bitcast<vec2<f32>>(vec2(keys[2u * i], keys[2u * i + 1u]));
}

fn value2(i: u32) -> vec2<f32> {
    if (KV_F16) { return unpack2x16float(values[i]); }
    return bitcast<vec2<f32>>(vec2(values[2u * i], values[2u * i + 1u]));
}

const NOTHING = -3.0e38;

@compute @workgroup_size(128)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let half = HEAD_DIM / 2u;
    let head = group.x;
    let kv_head = head / (N_HEADS / N_KV_HEADS);
    let stride = N_KV_HEADS * half;
    let n_seen = run.first_pos + group.y + 1u;
    let row = (group.y * N_HEADS + head) * half;
    for (var i = lane; i < half; i += TILE) { query[i] = q[row + i] * SCALE; }
    // Threads 0 .. half - 1 take all positions when half > 64, else several share a column.
    let n_parts = max(TILE / half, 1u);
    let part = lane / half;
    let column = lane % half;
    var acc = vec2(0.0);
    var sum = 0.0;
    var most = NOTHING;
    for (var first = 0u; first < n_seen; first += TILE) {
        let pos = first + lane;
        var score = NOTHING;
        workgroupBarrier(); // the query is there, and the last tile's weights are read
        if (pos < n_seen) {
            var s = vec2(0.0);
            let at = pos * stride + kv_head * half;
            for (var i = 0u; i < half; i++) { s += query[i] * key2(at + i); }
            score = s.x + s.y;
        }
        scores[lane] = score;
        workgroupBarrier();
        var tile_most = most;
        for (var i = 0u; i < TILE; i++) { tile_most = max(tile_most, scores[i]); }
        weights[lane] = select(0.0, exp(max(score - tile_most, -87.0)), pos < n_seen);
        let shrink = exp(max(most - tile_most, -87.0));
        most = tile_most;
        acc *= shrink;
        sum *= shrink;
        workgroupBarrier();
        let n = min(n_seen - first, TILE);
        if (part < n_parts) {
            for (var i = part; i < n; i += n_parts) {
                let p = weights[i];
                sum += p;
                acc += p * value2((first + i) * stride + kv_head * half + column);
            }
        }
    }
    // Every part has added the weights of its own positions.
    partial[lane] = acc;
    scores[lane] = sum;
    workgroupBarrier();
    if (lane < half) {
        for (var p = 1u; p < n_parts; p++) {
            acc += partial[lane + p * half];
            sum += scores[lane + p * half];
        }
        y[row + lane] = acc / sum;
    }
}
