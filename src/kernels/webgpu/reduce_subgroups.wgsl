// Sums over a workgroup, by subgroups of SUBGROUP threads, all full.
var<workgroup> part_f: array<vec2<f32>, THREADS / SUBGROUP>;

// The sum of the first values and the greatest of the second.
fn workgroup_sum_max(lane: u32, sum: f32, most: f32) -> vec2<f32> {
    let s = vec2(subgroupAdd(sum), subgroupMax(most));
    workgroupBarrier();
    if (lane % SUBGROUP == 0u) { part_f[lane / SUBGROUP] = s; }
    workgroupBarrier();
    var all = part_f[0];
    for (var i = 1u; i < THREADS / SUBGROUP; i++) {
        all = vec2(all.x + part_f[i].x, max(all.y, part_f[i].y));
    }
    return all;
}
