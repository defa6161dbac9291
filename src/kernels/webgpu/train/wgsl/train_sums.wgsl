// Sums over everything, in a fixed order, and what depends on them: the weights' mean, the norm of
// the gradients, the optimizer's step.
override N4: u32;    // vec4s
override N: u32;     // numbers
override COLS: u32;  // of a value of T rows
override LD: u32;
override CHUNK: u32; // tokens that a part stands for
override DECAYS: bool;
override FACTOR: f32; // of the rate
override BACK: bool; // a sum of gradients of values
override PARTS: u32; // of a sum over a whole array, at most 64

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> parts: array<f32>;
@group(0) @binding(3) var<storage, read> parts_of: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> state: array<f32>;
@group(0) @binding(6) var<storage, read> rows: array<f32>;
@group(0) @binding(7) var<storage, read_write> y_half: array<vec2<u32>>; // instead of y

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

// Part p of the sum of absolute values or squares. Grid: (PARTS).
@compute @workgroup_size(256)
fn abs_parts(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var sum = vec4(0.0);
    for (var i = group.x * 256u + lane; i < N4; i += PARTS * 256u) { sum += abs(x[i]); }
    let all = workgroup_sum_max(lane, total(sum), 0.0).x;
    if (lane == 0u) { parts[group.x] = all; }
}
@compute @workgroup_size(256)
fn square_parts(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) lane: u32) {
    var sum = vec4(0.0);
    for (var i = group.x * 256u + lane; i < N4; i += PARTS * 256u) { sum = fma(x[i], x[i], sum); }
    let all = workgroup_sum_max(lane, total(sum), 0.0).x;
    if (lane == 0u) { parts[group.x] = all; }
}
fn sum_of_parts(lane: u32) -> f32 {
    var part = 0.0;
    if (lane < PARTS) { part = parts_of[lane]; }
    return workgroup_sum_max(lane, part, 0.0).x;
}

// W -> clamp(round(W / mean|W|)) mean|W|. Grid: (N4 / 1024).
fn ternary(w: vec4<f32>, mean: f32) -> vec4<f32> {
    return clamp(round(w / (mean + 1e-6)), vec4(-1.0), vec4(1.0)) * mean;
}
@compute @workgroup_size(256)
fn ternarize(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let mean = sum_of_parts(lane) / f32(N);
    for (var k = 0u; k < 4u; k++) {
        let i = group.x * 1024u + k * 256u + lane;
        if (i < N4) { y[i] = ternary(x[i], mean); }
    }
}
@compute @workgroup_size(256)
fn ternarize_half(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    let mean = sum_of_parts(lane) / f32(N);
    for (var k = 0u; k < 4u; k++) {
        let i = group.x * 1024u + k * 256u + lane;
        if (i < N4) { y_half[i] = halves(ternary(x[i], mean)); }
    }
}

// state += the sum of the parts. Grid: (1).
@compute @workgroup_size(256)
fn sum_parts(@builtin(local_invocation_index) lane: u32) {
    let sum = sum_of_parts(lane);
    if (lane == 0u) { state[0] += sum; }
}

// state += sum of a value of T rows and few columns. Grid: (1).
@compute @workgroup_size(256)
fn sum_rows(@builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var t = lane; t < run.n_tokens; t += 256u) {
        for (var i = 0u; i < COLS; i++) { sum += rows[t * LD + i]; }
    }
    let all = workgroup_sum_max(lane, sum, 0.0).x;
    if (lane != 0u) { return; }
    if (BACK) { state[0] += all * run.unscale; } else { state[0] += all; }
}

// The gradient y += sum of its parts of N4 vec4, one for each CHUNK tokens. Grid: (N4 / 64).
var<workgroup> slots: array<vec4<f32>, 256>;
@compute @workgroup_size(256)
fn add_parts(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 64u + lane % 64u;
    let n = (run.n_tokens + CHUNK - 1u) / CHUNK;
    var sum = vec4(0.0);
    if (i < N4) {
        for (var z = lane / 64u; z < n; z += 4u) { sum += x[z * N4 + i]; }
    }
    slots[lane] = sum;
    workgroupBarrier();
    if (lane < 64u && i < N4) {
        let all = (slots[lane] + slots[lane + 64u]) + (slots[lane + 128u] + slots[lane + 192u]);
        y[i] += all * run.unscale;
    }
}

@compute @workgroup_size(256)
fn zero(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var k = 0u; k < 4u; k++) {
        let i = group.x * 1024u + k * 256u + lane;
        if (i < N4) { y[i] = vec4(0.0); }
    }
}

// A step of AdamW (train.h); x: gradient, rows: the square of all gradients' norm.
@group(0) @binding(7) var<storage, read_write> m: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> v: array<vec4<f32>>;
@compute @workgroup_size(256)
fn adamw(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let norm = sqrt(rows[0]);
    var scale = 1.0;
    if (run.clip > 0.0 && norm > run.clip) { scale = run.clip / norm; }
    for (var k = 0u; k < 4u; k++) {
        let i = group.x * 1024u + k * 256u + lane;
        if (i >= N4) { return; }
        let g = x[i] * scale;
        let mean = run.beta1 * m[i] + (1.0 - run.beta1) * g;
        let square = run.beta2 * v[i] + (1.0 - run.beta2) * g * g;
        m[i] = mean;
        v[i] = square;
        var step = mean * run.correction1 / (sqrt(square * run.correction2) + run.eps);
        if (DECAYS) { step += run.decay * y[i]; }
        y[i] -= run.rate * FACTOR * step;
    }
}
