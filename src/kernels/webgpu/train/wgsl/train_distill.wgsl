// Distillation: the student's logits beside its teacher's, a workgroup a row. Grid: (16, T / 16).
override COLS: u32;        // of the student's logits
override LD4: u32;         // vec4s from row to row
override COMMON: u32;      // of the teacher's that are compared
override TEACHER_LD4: u32;
override RATIO: f32;
override TEMPERATURE: f32;

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> targets: array<i32>;
@group(0) @binding(3) var<storage, read> teacher: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>; // losses, or the gradient
@group(0) @binding(5) var<storage, read_write> divergences: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> agreements: array<vec4<f32>>;
// Log sums of the logits, of those over the temperature, and of the teacher's over it.
@group(0) @binding(7) var<storage, read_write> sums: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> weights: array<f32>; // of the rows' losses

fn kept(i: u32, v: vec4<f32>, other: f32, cols: u32) -> vec4<f32> { // of the row alone
    return select(vec4(other), v, vec4(4u * i) + vec4(0u, 1u, 2u, 3u) < vec4(cols));
}
fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn largest(v: vec4<f32>) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }

fn student_log_sum(lane: u32, base: u32, most: f32, factor: f32) -> f32 {
    var sum = vec4(0.0);
    for (var i = lane; i < LD4; i += THREADS) {
        sum += kept(i, exp(max((x[base + i] - most) * factor, vec4(-87.0))), 0.0, COLS);
    }
    workgroupBarrier(); // between two reductions
    return most * factor + log(workgroup_sum_max(lane, total(sum), 0.0).x);
}
fn teacher_log_sum(lane: u32, base: u32, most: f32, factor: f32) -> f32 {
    var sum = vec4(0.0);
    for (var i = lane; 4u * i < COMMON; i += THREADS) {
        sum += kept(i, exp(max((teacher[base + i] - most) * factor, vec4(-87.0))), 0.0, COMMON);
    }
    workgroupBarrier();
    return most * factor + log(workgroup_sum_max(lane, total(sum), 0.0).x);
}

@compute @workgroup_size(THREADS)
fn distill(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 16u + group.x;
    let at = min(row, run.n_tokens - 1u);
    let base = at * LD4;
    let other = at * TEACHER_LD4;
    let factor = 1.0 / TEMPERATURE;
    var most = -3e38;
    var wanted = -3e38;
    for (var i = lane; i < LD4; i += THREADS) {
        most = max(most, largest(kept(i, x[base + i], -3e38, COLS)));
    }
    for (var i = lane; 4u * i < COMMON; i += THREADS) {
        wanted = max(wanted, largest(kept(i, teacher[other + i], -3e38, COMMON)));
    }
    most = workgroup_sum_max(lane, 0.0, most).y;
    workgroupBarrier();
    wanted = workgroup_sum_max(lane, 0.0, wanted).y;
    let s = student_log_sum(lane, base, most, 1.0);
    let soft = student_log_sum(lane, base, most, factor);
    let q = teacher_log_sum(lane, other, wanted, factor);
    var sum = vec4(0.0);
    var agree = 0.0;
    for (var i = lane; 4u * i < COMMON; i += THREADS) {
        let a = x[base + i];
        let b = teacher[other + i];
        let p = exp(clamp(b * factor - q, vec4(-87.0), vec4(0.0)));
        sum += kept(i, p * ((b - a) * factor), 0.0, COMMON);
        let same = select(vec4(0.0), vec4(1.0), (a == vec4(most)) & (b == vec4(wanted)));
        agree = max(agree, largest(kept(i, same, 0.0, COMMON)));
    }
    workgroupBarrier();
    let found = workgroup_sum_max(lane, total(sum), agree);
    if (lane != 0u || row >= run.n_tokens) { return; }
    let target_id = targets[row];
    var loss = 0.0;
    if (target_id >= 0) {
        let id = min(u32(target_id), COLS - 1u);
        loss = s - x[base + id / 4u][id % 4u];
    }
    y[row] = vec4(loss, 0.0, 0.0, 0.0);
    divergences[row] = vec4(found.x + (soft - q), 0.0, 0.0, 0.0);
    agreements[row] = vec4(found.y, 0.0, 0.0, 0.0);
    sums[row] = vec4(s, soft, q, 0.0);
}

@compute @workgroup_size(THREADS)
fn distill_grad(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) lane: u32) {
    let row = group.y * 16u + group.x;
    if (row >= run.n_tokens) { return; }
    let base = row * LD4;
    let other = row * TEACHER_LD4;
    let factor = 1.0 / TEMPERATURE;
    let target_id = targets[row];
    let scale = select(0.0, run.loss_scale * weights[row], target_id >= 0);
    let hard = (1.0 - RATIO) * scale;
    let gentle = RATIO * TEMPERATURE * scale;
    let logs = sums[row];
    for (var i = lane; i < LD4; i += THREADS) {
        let a = y[base + i];
        var p = kept(i, exp(clamp(a - logs.x, vec4(-87.0), vec4(0.0))), 0.0, COLS);
        p -= select(vec4(0.0), vec4(1.0), vec4(i32(4u * i)) + vec4(0, 1, 2, 3) == vec4(target_id));
        var d = kept(i, exp(clamp(a * factor - logs.y, vec4(-87.0), vec4(0.0))), 0.0, COLS);
        if (4u * i < COMMON) {
            let b = teacher[other + i] * factor - logs.z;
            d -= kept(i, exp(clamp(b, vec4(-87.0), vec4(0.0))), 0.0, COMMON);
        }
        y[base + i] = p * hard + d * gentle;
    }
}
