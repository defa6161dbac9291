// Sums over a workgroup, by subgroups of 32 threads, all full.
var<workgroup> part_f: array<vec2<f32>, (THREADS + 31u) / 32u>;

// The sum of the first values and the greatest of the second.
fn workgroup_sum_max(lane: u32, sum: f32, most: f32) -> vec2<f32> {
    let s = vec2(subgroupAdd(sum), subgroupMax(most));
    workgroupBarrier();
    if (lane % 32u == 0u) { part_f[lane / 32u] = s; }
    workgroupBarrier();
    var all = part_f[0];
    for (var i = 1u; i < (THREADS + 31u) / 32u; i++) {
        all = vec2(all.x + part_f[i].x, max(all.y, part_f[i].y));
    }
    return all;
}

// The sum over 32 neighbouring threads.
fn sum_of_32(lane: u32, value: vec4<f32>) -> vec4<f32> { return subgroupAdd(value); }

// The greatest of 32 neighbouring threads, of four values at once or of one.
fn max4_of_32(lane: u32, value: vec4<f32>) -> vec4<f32> { return subgroupMax(value); }
fn max_of_32(lane: u32, value: f32) -> f32 { return subgroupMax(value); }
