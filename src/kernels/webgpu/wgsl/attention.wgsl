// Attention of a row over the positions of its own sequence. Grid: (heads, rows).
@compute @workgroup_size(THREADS)
fn attention(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let sees = seen_by(group.y);
    attend(group.x, group.y, lane, pages_of(group.y), sees.x, sees.y);
}
