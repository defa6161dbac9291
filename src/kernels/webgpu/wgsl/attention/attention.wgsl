// Attention of a row over the positions of its own sequence. Grid: (heads, rows).
@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    attend(group.x, group.y, lane, pages_of(group.y), first_seen(position_of(group.y)),
           end_of(group.y));
}
