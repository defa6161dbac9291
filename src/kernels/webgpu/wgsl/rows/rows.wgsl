// Norms and quantization of plain rows.
override HAS_BIAS: bool = false;
override HAS_WEIGHT: bool = true;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>; // of layer_norm
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

fn value(row: u32, i: u32) -> vec4<f32> { return x[row + i]; }

@compute @workgroup_size(THREADS)
fn norm_quantize(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    norm_and_quantize(group.y, lane);
}

// A row has GROUPS groups of 4 * COLS4 columns, each normed by itself: group.x.
override GROUPS: u32 = 1u;

@compute @workgroup_size(THREADS)
fn rms_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let y_row = (group.y * GROUPS + group.x) * COLS4;
    var row = y_row;
    if (TAKES) { row = (output_row(group.y) * GROUPS + group.x) * COLS4; }
    var squares = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) { squares += dot(x[row + i], x[row + i]); }
    let r = inverse_rms(workgroup_sum_max(lane, squares, 0.0).x);
    for (var i = lane; i < COLS4; i += THREADS) { y[y_row + i] = x[row + i] * r * weight[i]; }
}

// The normed row, added to another: the bits of rms_norm and add.
@group(0) @binding(2) var<storage, read_write> residual: array<vec4<f32>>;
@compute @workgroup_size(THREADS)
fn norm_add(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * COLS4;
    var squares = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) { squares += dot(x[row + i], x[row + i]); }
    let r = inverse_rms(workgroup_sum_max(lane, squares, 0.0).x);
    for (var i = lane; i < COLS4; i += THREADS) {
        y[row + i] = add_rounded4(residual[row + i], x[row + i] * r * weight[i]);
    }
}

// Twice over the row: from sums of x and of its squares alone the deviation of rows far from zero
// would be lost.
@compute @workgroup_size(THREADS)
fn layer_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * COLS4;
    var sum = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) { sum += dot(x[row + i], vec4(1.0)); }
    let mean = workgroup_sum_max(lane, sum, 0.0).x / f32(4u * COLS4);
    var squares = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) {
        let d = x[row + i] - mean;
        squares += dot(d, d);
    }
    workgroupBarrier();
    let r = inverse_rms(workgroup_sum_max(lane, squares, 0.0).x);
    for (var i = lane; i < COLS4; i += THREADS) {
        var v = (x[row + i] - mean) * r;
        if (HAS_WEIGHT) { v *= weight[i]; }
        if (HAS_BIAS) { v += bias[i]; }
        y[row + i] = v;
    }
}

@compute @workgroup_size(THREADS)
fn group_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = (group.y * GROUPS + group.x) * COLS4;
    var squares = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) { squares += dot(x[row + i], x[row + i]); }
    let r = inverse_rms(workgroup_sum_max(lane, squares, 0.0).x);
    for (var i = lane; i < COLS4; i += THREADS) { y[row + i] = x[row + i] * r; }
}

@compute @workgroup_size(THREADS)
fn l2_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * COLS4;
    var squares = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) { squares += dot(x[row + i], x[row + i]); }
    let r = 1.0 / max(sqrt(workgroup_sum_max(lane, squares, 0.0).x), 1e-12);
    for (var i = lane; i < COLS4; i += THREADS) { y[row + i] = x[row + i] * r; }
}

@compute @workgroup_size(THREADS)
fn quantize(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * COLS4;
    if (GROUPED) {
        for (var begin = 0u; begin < COLS4; begin += THREADS) {
            var v = vec4(0.0);
            if (begin + lane < COLS4) { v = x[row + begin + lane]; }
            write_group(group.y, lane, begin + lane, v);
        }
        return;
    }
    var most = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) { most = max(most, greatest(x[row + i])); }
    let scale = 127.0 / max(workgroup_sum_max(lane, 0.0, most).y, 1e-5);
    var sum = 0;
    for (var i = lane; i < Q_WORDS; i += THREADS) {
        var v = vec4(0);
        if (i < COLS4) { v = rounded(x[row + i] * scale); }
        q[group.y * Q_WORDS + i] = packed(v);
        sum += total(v);
    }
    write_info(lane, group.y, scale, sum);
}
