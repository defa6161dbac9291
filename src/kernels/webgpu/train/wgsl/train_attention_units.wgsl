// What the three kernels of attention by the matrix units share. Each has a workgroup of eight
// subgroups for a tile of 128 rows of a head, which stay in registers, and walks over others, 32 at
// a time; the next ones are loaded meanwhile. Factors are halves, in `now`, four a vec2, in which
// its places are counted; scores go through `s_now`, as logarithms to base 2.
override HEAD_DIM: u32; // a multiple of 16, at most 128
override N_HEADS: u32;
override GROUP: u32; // query heads that share a key head
override SCALE: f32;
override LDQ: u32;   // vec4s of a row of q and y
override LDK: u32;   // of k and v
override LDS: u32;   // floats of a row of log sums
override HD4: u32 = HEAD_DIM / 4u;
override NEXT: u32 = HD4 + 2u; // from row to row: the two more spare the banks
override LOG_SCALE: f32 = SCALE * 1.44269504;

fn keep(to: u32, x: vec4<f32>) {
    now[to] = bitcast<vec2<u32>>(vec4<f16>(clamp(x, vec4(-65504.0), vec4(65504.0))));
}

// A thread's shares of 32 rows of a head: of 1,024 vec4s, at most. Where they are, in k and v or in
// q and dy, and in `now`.
fn share(lane: u32, i: u32) -> u32 { return min(lane + 256u * i, 32u * HD4 - 1u); }
fn share_at(lane: u32, i: u32, row0: u32, next: u32, head: u32) -> u32 {
    let at = share(lane, i);
    return min(row0 + at / HD4, run.n_tokens - 1u) * next + head * HD4 + at % HD4;
}
fn kv_at(lane: u32, i: u32, row0: u32, kv_head: u32) -> u32 {
    return share_at(lane, i, row0, LDK, kv_head);
}
fn q_at(lane: u32, i: u32, row0: u32, head: u32) -> u32 {
    return share_at(lane, i, row0, LDQ, head);
}
fn to_of(lane: u32, i: u32) -> u32 {
    let at = share(lane, i);
    return at / HD4 * NEXT + at % HD4;
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn left_16(at: u32, next: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&now, at, next);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn keys_16(key: u32, d: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&now, key * NEXT + d / 4u, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn add(l: Left, r: Right, s: Sums) -> Sums {
    return subgroupMatrixMultiplyAccumulate(l, r, s);
}
