// The products of experts, and their gradients. A row's experts are the first CHOSEN numbers of its
// route; x has one row for all of them, or one for each; w: [experts][N_OUT][4 IN4].
override CHOSEN: u32;
override IN4: u32;    // vec4s of an expert's row of x
override N_OUT: u32;  // columns of an expert's result
override SHARED: bool; // x; of the gradient, whether it is the sum over the experts
override LDX4: u32;
override LDY: u32;
override LD_ROUTE: u32;

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> route: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> dy: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

fn expert(row: u32, j: u32) -> u32 { return u32(route[row * LD_ROUTE + j]); }
fn x_at(row: u32, j: u32) -> u32 {
    if (SHARED) { return row * LDX4; }
    return row * LDX4 + j * IN4;
}

fn result(row: u32, i: u32) -> f32 {
    if (i >= CHOSEN * N_OUT) { return 0.0; }
    let j = i / N_OUT;
    let source = x_at(row, j);
    let at = (expert(row, j) * N_OUT + i % N_OUT) * IN4;
    var sum = vec4(0.0);
    for (var k = 0u; k < IN4; k++) { sum = fma(x[source + k], w[at + k], sum); }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
// Four columns of a row a thread. Grid: (4 LDY / 256, T / 16).
@compute @workgroup_size(256)
fn experts(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let k = group.x * 256u + lane;
    let row = group.y * 16u + k / (LDY / 4u);
    if (k >= 4u * LDY || row >= run.n_tokens) { return; }
    let i = 4u * (k % (LDY / 4u));
    y[row * (LDY / 4u) + i / 4u] =
        vec4(result(row, i), result(row, i + 1u), result(row, i + 2u), result(row, i + 3u));
}

// dx of four columns of a row. Grid: (16 LDX4 / 256, T / 16).
@compute @workgroup_size(256)
fn experts_grad_x(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    let k = group.x * 256u + lane;
    let row = group.y * 16u + k / LDX4;
    if (k >= 16u * LDX4 || row >= run.n_tokens) { return; }
    let i = k % LDX4;
    let own = i / IN4;
    var sum = vec4(0.0);
    for (var j = 0u; j < CHOSEN; j++) {
        if (!SHARED && j != own) { continue; }
        let source = row * LDY + j * N_OUT;
        let at = expert(row, j) * N_OUT * IN4 + i % IN4;
        for (var o = 0u; o < N_OUT; o++) { sum = fma(vec4(dy[source + o]), w[at + o * IN4], sum); }
    }
    y[row * LDX4 + i] = sum;
}

// dW += of four numbers, over all rows that chose the expert. Grid: (IN4 / 64, N_OUT, experts).
@compute @workgroup_size(64)
fn experts_grad_w(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 64u + lane;
    if (i >= IN4) { return; }
    var sum = vec4(0.0);
    for (var row = 0u; row < run.n_tokens; row++) {
        for (var j = 0u; j < CHOSEN; j++) {
            if (expert(row, j) != group.z) { continue; }
            sum = fma(vec4(dy[row * LDY + j * N_OUT + group.y]), x[x_at(row, j) + i], sum);
        }
    }
    y[(group.z * N_OUT + group.y) * IN4 + i] += sum * run.unscale;
}
