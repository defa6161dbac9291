// Attention of a row over the positions of its own sequence. Grid: (heads, rows).
@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let position = position_of(group.y);
    attend(group.x, group.y, lane, pages_of(group.y), first_seen(position),
           end_seen(position, n_positions_of(group.y)));
}
