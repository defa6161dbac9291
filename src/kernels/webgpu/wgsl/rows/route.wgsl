// Which experts a row goes to, and the sum of their results.
override EXPERTS: u32;
override CHOSEN: u32;
override SIGMOIDS: bool; // scores are sigmoids, else a softmax over all
override NORMED: bool;
override EPS: f32;
override FACTOR: f32;
override COLS: u32; // of the sum

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // numbers, then weights
@group(0) @binding(4) var<storage, read_write> chosen: array<f32>; // the same, to be read

fn clamped_exp(v: f32) -> f32 { return exp(clamp(v, -87.0, 87.0)); }

// The greatest x of all experts and 1 / sum of e^(x - greatest); zeros for sigmoids.
fn softmax_of(at: u32) -> vec2<f32> {
    if (SIGMOIDS) { return vec2(0.0, 0.0); }
    var top = x[at];
    for (var i = 1u; i < EXPERTS; i++) { top = max(top, x[at + i]); }
    var sum = 0.0;
    for (var i = 0u; i < EXPERTS; i++) { sum += clamped_exp(x[at + i] - top); }
    return vec2(top, 1.0 / sum);
}

fn score(at: u32, i: u32, all: vec2<f32>) -> f32 {
    if (SIGMOIDS) { return 1.0 / (1.0 + clamped_exp(-x[at + i])); }
    return clamped_exp(x[at + i] - all.x) * all.y;
}

fn is_taken(to: u32, n: u32, i: u32) -> bool {
    for (var j = 0u; j < n; j++) {
        if (u32(y[to + j]) == i) { return true; }
    }
    return false;
}

fn finish(to: u32, sum: f32) {
    var factor = FACTOR;
    if (NORMED) { factor = FACTOR / (sum + EPS); }
    for (var j = 0u; j < CHOSEN; j++) { y[to + CHOSEN + j] *= factor; }
}

// A thread a row. Grid: (1, rows).
@compute @workgroup_size(1)
fn route(@builtin(workgroup_id) id: vec3<u32>) {
    let at = id.y * EXPERTS;
    let to = id.y * 2u * CHOSEN;
    let all = softmax_of(at);
    var sum = 0.0;
    for (var j = 0u; j < CHOSEN; j++) {
        var best = EXPERTS;
        var top = 0.0;
        for (var i = 0u; i < EXPERTS; i++) {
            if (is_taken(to, j, i)) { continue; }
            let value = score(at, i, all);
            if (best == EXPERTS || value > top) {
                best = i;
                top = value;
            }
        }
        y[to + j] = f32(best);
        y[to + CHOSEN + j] = top;
        sum += top;
    }
    finish(to, sum);
}

@compute @workgroup_size(1)
fn route_biased(@builtin(workgroup_id) id: vec3<u32>) {
    let at = id.y * EXPERTS;
    let to = id.y * 2u * CHOSEN;
    let all = softmax_of(at);
    var sum = 0.0;
    for (var j = 0u; j < CHOSEN; j++) {
        var best = EXPERTS;
        var top = 0.0;
        for (var i = 0u; i < EXPERTS; i++) {
            if (is_taken(to, j, i)) { continue; }
            let value = score(at, i, all) + bias[i];
            if (best == EXPERTS || value > top) {
                best = i;
                top = value;
            }
        }
        let weight = score(at, best, all);
        y[to + j] = f32(best);
        y[to + CHOSEN + j] = weight;
        sum += weight;
    }
    finish(to, sum);
}

// Products and sums round one by one, in the order of the route. Grid: (columns / 64, rows).
@compute @workgroup_size(64)
fn mix(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS) { return; }
    var sum = 0.0;
    for (var j = 0u; j < CHOSEN; j++) {
        sum += chosen[id.y * 2u * CHOSEN + CHOSEN + j] * x[(id.y * CHOSEN + j) * COLS + id.x];
    }
    y[id.y * COLS + id.x] = sum;
}
