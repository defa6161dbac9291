// Which experts a row goes to, the sum of their results, and the gradients of both: see
// tern_route_attrs. A route is [CHOSEN indices | CHOSEN weights]. Rows of values lie LD... numbers
// apart; what pads them is 0.
override EXPERTS: u32 = 0u;
override CHOSEN: u32 = 0u;
override SIGMOIDS: bool = false; // scores are sigmoids, else a softmax over all
override NORMED: bool = false;
override BIASED: bool = false; // the choice
override EPS: f32 = 0.0;
override FACTOR: f32 = 0.0;
override COLS: u32 = 0u; // of the sum
override LD: u32 = 0u;       // of scores, or of the sum
override LD_WIDE: u32 = 0u;  // of the experts' results
override LD_ROUTE: u32 = 0u;

@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read> chosen: array<f32>; // a route
@group(0) @binding(4) var<storage, read> dy: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

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
fn factor_of(sum: f32) -> f32 {
    if (NORMED) { return FACTOR / (sum + EPS); }
    return FACTOR;
}

// A thread a row. Grid: (T / 64).
@compute @workgroup_size(64)
fn route(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= run.n_tokens) { return; }
    let at = id.x * LD;
    let to = id.x * LD_ROUTE;
    let all = softmax_of(at);
    var sum = 0.0;
    for (var j = 0u; j < CHOSEN; j++) {
        var best = EXPERTS;
        var top = 0.0;
        for (var i = 0u; i < EXPERTS; i++) {
            var taken = false;
            for (var k = 0u; k < j; k++) { taken = taken || u32(y[to + k]) == i; }
            if (taken) { continue; }
            var value = score(at, i, all);
            if (BIASED) { value += bias[i]; }
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
    for (var j = 0u; j < CHOSEN; j++) { y[to + CHOSEN + j] *= factor_of(sum); }
    for (var i = 2u * CHOSEN; i < LD_ROUTE; i++) { y[to + i] = 0.0; }
}

// dx of the scores; dy: the gradient of the route. Grid: (T / 64).
@compute @workgroup_size(64)
fn route_grad(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= run.n_tokens) { return; }
    let at = id.x * LD;
    let source = id.x * LD_ROUTE;
    let all = softmax_of(at);
    var sum = 0.0;
    var along = 0.0;
    for (var j = 0u; j < CHOSEN; j++) { sum += score(at, u32(chosen[source + j]), all); }
    for (var j = 0u; NORMED && j < CHOSEN; j++) {
        along += dy[source + CHOSEN + j] * score(at, u32(chosen[source + j]), all) / (sum + EPS);
    }
    for (var i = 0u; i < LD; i++) { y[at + i] = 0.0; }
    var dot_scores = 0.0;
    for (var j = 0u; j < CHOSEN; j++) {
        let e = u32(chosen[source + j]);
        let ds = factor_of(sum) * (dy[source + CHOSEN + j] - along);
        y[at + e] = ds;
        dot_scores += ds * score(at, e, all);
    }
    for (var i = 0u; i < EXPERTS; i++) {
        let s = score(at, i, all);
        if (SIGMOIDS) { y[at + i] *= s * (1.0 - s); } else { y[at + i] = s * (y[at + i] - dot_scores); }
    }
}

// The number of this thread among those of 16 rows of LD columns. Grid: (16 LD / 256, T / 16).
struct Place { row: u32, i: u32, here: bool }
fn place(group: vec3<u32>, lane: u32, ld: u32) -> Place {
    let k = group.x * 256u + lane;
    let row = group.y * 16u + k / ld;
    return Place(row, k % ld, k < 16u * ld && row < run.n_tokens);
}

@compute @workgroup_size(256)
fn mix(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane, LD);
    if (!p.here) { return; }
    var sum = 0.0;
    for (var j = 0u; p.i < COLS && j < CHOSEN; j++) {
        sum += chosen[p.row * LD_ROUTE + CHOSEN + j] * x[p.row * LD_WIDE + j * COLS + p.i];
    }
    y[p.row * LD + p.i] = sum;
}

// dx of mix. Grid: (16 LD_WIDE / 256, T / 16).
@compute @workgroup_size(256)
fn mix_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane, LD_WIDE);
    if (!p.here) { return; }
    var dx = 0.0;
    if (p.i < CHOSEN * COLS) {
        dx = chosen[p.row * LD_ROUTE + CHOSEN + p.i / COLS] * dy[p.row * LD + p.i % COLS];
    }
    y[p.row * LD_WIDE + p.i] = dx;
}

// That of the weights: a workgroup a row. Grid: (16, T / 16).
@compute @workgroup_size(256)
fn mix_grad_route(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 16u + group.x;
    let base = min(row, run.n_tokens - 1u);
    for (var j = 0u; j < CHOSEN; j++) {
        var sum = 0.0;
        for (var i = lane; i < COLS; i += 256u) {
            sum = fma(x[base * LD_WIDE + j * COLS + i], dy[base * LD + i], sum);
        }
        let all = workgroup_sum_max(lane, sum, 0.0).x;
        if (lane == 0u && row < run.n_tokens) { y[row * LD_ROUTE + CHOSEN + j] = all; }
    }
    let ends = lane < CHOSEN || (lane >= 2u * CHOSEN && lane < LD_ROUTE);
    if (ends && row < run.n_tokens) { y[row * LD_ROUTE + lane] = 0.0; }
}
