// Causal depthwise convolution of the rows of each document, and its gradients; the sum of all
// rows, a bias's gradient. w lies as [columns][TAPS], the newest row's tap last.
// Grid: (16 COLS4 / 256, T / 16), a thread four columns of a row.
override COLS4: u32;
override TAPS: u32;  // at most 8
override CHUNK: u32; // tokens whose share of dw is one part

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // or the gradient of y
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> parts: array<f32>;

fn tap(i: u32, j: u32) -> vec4<f32> { // of columns 4i .. 4i + 3
    let at = 4u * i * TAPS + j;
    return vec4(w[at], w[at + TAPS], w[at + 2u * TAPS], w[at + 3u * TAPS]);
}

@compute @workgroup_size(256)
fn conv_seq(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let k = group.x * 256u + lane;
    let row = group.y * 16u + k / COLS4;
    if (k >= 16u * COLS4 || row >= run.n_tokens) { return; }
    let i = k % COLS4;
    let start = spans[row].x;
    var sum = vec4(0.0);
    for (var j = 0u; j < TAPS; j++) {
        let back = TAPS - 1u - j;
        if (row >= start + back) { sum = fma(tap(i, j), x[(row - back) * COLS4 + i], sum); }
    }
    y[row * COLS4 + i] = sum;
}

@compute @workgroup_size(256)
fn conv_grad_x(@builtin(workgroup_id) group: vec3<u32>,
               @builtin(local_invocation_index) lane: u32) {
    let k = group.x * 256u + lane;
    let row = group.y * 16u + k / COLS4;
    if (k >= 16u * COLS4 || row >= run.n_tokens) { return; }
    let i = k % COLS4;
    let end = spans[row].y;
    var sum = vec4(0.0);
    for (var j = 0u; j < TAPS; j++) {
        let later = row + TAPS - 1u - j;
        if (later < end) { sum = fma(tap(i, j), x[later * COLS4 + i], sum); }
    }
    y[row * COLS4 + i] = sum;
}

// Part z of dw. Grid: (COLS4 / 64, T / CHUNK).
var<workgroup> slots: array<vec4<f32>, 256>;
@compute @workgroup_size(256)
fn conv_grad_w(@builtin(workgroup_id) group: vec3<u32>,
               @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 64u + lane % 64u;
    let end = min(run.n_tokens, (group.y + 1u) * CHUNK);
    for (var j = 0u; j < TAPS; j++) {
        let back = TAPS - 1u - j;
        var sum = vec4(0.0);
        if (i < COLS4) {
            for (var row = group.y * CHUNK + lane / 64u; row < end; row += 4u) {
                if (row < spans[row].x + back) { continue; }
                sum = fma(dy[row * COLS4 + i], x[(row - back) * COLS4 + i], sum);
            }
        }
        workgroupBarrier();
        slots[lane] = sum;
        workgroupBarrier();
        if (lane < 64u && i < COLS4) {
            let all = (slots[lane] + slots[lane + 64u]) + (slots[lane + 128u] + slots[lane + 192u]);
            for (var e = 0u; e < 4u; e++) {
                parts[((group.y * COLS4 + i) * 4u + e) * TAPS + j] = all[e];
            }
        }
    }
}

// Part z of the sum of the rows dy. Grid: (COLS4 / 64, T / CHUNK).
@compute @workgroup_size(256)
fn bias_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 64u + lane % 64u;
    let end = min(run.n_tokens, (group.y + 1u) * CHUNK);
    var sum = vec4(0.0);
    if (i < COLS4) {
        for (var row = group.y * CHUNK + lane / 64u; row < end; row += 4u) {
            sum += dy[row * COLS4 + i];
        }
    }
    slots[lane] = sum;
    workgroupBarrier();
    if (lane >= 64u || i >= COLS4) { return; }
    let all = (slots[lane] + slots[lane + 64u]) + (slots[lane + 128u] + slots[lane + 192u]);
    for (var e = 0u; e < 4u; e++) { parts[(group.y * COLS4 + i) * 4u + e] = all[e]; }
}
