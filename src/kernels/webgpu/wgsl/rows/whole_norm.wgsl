// A norm whose means are those of all rows and columns of a run. A workgroup finds the mean of a
// row and the squares of its numbers' distances from it; another adds up those of all rows and
// norms one. Grid of both: (1, rows).
override COLS4: u32; // columns / 4
override EPS: f32;
override ROWS: u32; // the dimension of the rows

@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> means: array<vec2<f32>>; // by row: mean, squares
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

fn sum_of(lane: u32, x: f32) -> f32 {
    workgroupBarrier(); // the last one is read
    return workgroup_sum_max(lane, x, 0.0).x;
}

@compute @workgroup_size(THREADS)
fn row_means(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * COLS4;
    var sum = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) { sum += dot(x[row + i], vec4(1.0)); }
    let mean = sum_of(lane, sum) / f32(4u * COLS4);
    var squares = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) {
        let d = x[row + i] - mean;
        squares += dot(d, d);
    }
    squares = sum_of(lane, squares);
    if (lane == 0u) { means[group.y] = vec2(mean, squares); }
}

@compute @workgroup_size(THREADS)
fn whole_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let n = run.counts[ROWS];
    var sum = 0.0;
    for (var i = lane; i < n; i += THREADS) { sum += means[i].x; }
    let mean = sum_of(lane, sum) / f32(n);
    var squares = 0.0;
    for (var i = lane; i < n; i += THREADS) {
        let d = means[i].x - mean;
        squares += means[i].y + f32(4u * COLS4) * d * d;
    }
    let r = 1.0 / sqrt(sum_of(lane, squares) / (f32(n) * f32(4u * COLS4)) + EPS);
    let row = group.y * COLS4;
    for (var i = lane; i < COLS4; i += THREADS) {
        y[row + i] = (x[row + i] - mean) * r * weight[i] + bias[i];
    }
}
