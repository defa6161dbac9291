// Cross entropy, a workgroup a row. Grid: (16, T / 16).
override COLS: u32; // of the logits
override LD4: u32;  // vec4s from row to row

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> targets: array<i32>;
@group(0) @binding(3) var<storage, read_write> losses: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec4<f32>>; // log sums
@group(0) @binding(5) var<storage, read_write> gradient: array<vec4<f32>>; // in the logits' place

fn kept(i: u32, v: vec4<f32>, other: f32) -> vec4<f32> { // without what lies past the row
    return select(vec4(other), v, vec4(4u * i) + vec4(0u, 1u, 2u, 3u) < vec4(COLS));
}

@compute @workgroup_size(THREADS)
fn cross_entropy(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 16u + group.x;
    let base = min(row, run.n_tokens - 1u) * LD4;
    var most = -3e38;
    for (var i = lane; i < LD4; i += THREADS) {
        let v = kept(i, x[base + i], -3e38);
        most = max(most, max(max(v.x, v.y), max(v.z, v.w)));
    }
    most = workgroup_sum_max(lane, 0.0, most).y;
    workgroupBarrier(); // between two reductions
    var sum = vec4(0.0);
    for (var i = lane; i < LD4; i += THREADS) {
        sum += kept(i, exp(max(x[base + i] - most, vec4(-87.0))), 0.0);
    }
    let log_sum = most + log(workgroup_sum_max(lane, (sum.x + sum.y) + (sum.z + sum.w), 0.0).x);
    if (lane != 0u || row >= run.n_tokens) { return; }
    let target_id = targets[row];
    var loss = 0.0;
    if (target_id >= 0) {
        let id = min(u32(target_id), COLS - 1u);
        loss = log_sum - x[base + id / 4u][id % 4u];
    }
    losses[row] = vec4(loss, 0.0, 0.0, 0.0);
    sums[row] = vec4(log_sum, 0.0, 0.0, 0.0);
}

@group(0) @binding(6) var<storage, read> sums_of: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> weights: array<f32>; // of the rows' losses
@compute @workgroup_size(THREADS)
fn cross_entropy_grad(@builtin(workgroup_id) group: vec3<u32>,
                      @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 16u + group.x;
    if (row >= run.n_tokens) { return; }
    let base = row * LD4;
    let target_id = targets[row];
    let scale = select(0.0, run.loss_scale * weights[row], target_id >= 0);
    for (var i = lane; i < LD4; i += THREADS) {
        let p_all = exp(clamp(gradient[base + i] - sums_of[row].x, vec4(-87.0), vec4(0.0)));
        var p = kept(i, p_all, 0.0);
        p -= select(vec4(0.0), vec4(1.0), vec4(i32(4u * i)) + vec4(0, 1, 2, 3) == vec4(target_id));
        gradient[base + i] = p * scale;
    }
}

// The losses of a piece (x, in the first of four columns) into those of all. Grid: (T / 256).
@group(0) @binding(8) var<storage, read_write> kept_losses: array<f32>;
@compute @workgroup_size(256)
fn keep_scored(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < run.n_tokens) { kept_losses[run.first + id.x] = x[id.x].x; }
}
