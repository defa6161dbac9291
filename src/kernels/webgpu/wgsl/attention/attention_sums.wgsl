// Sums of the matrix units and the memory they go through in attention's kernels, of prompts and of
// training: `s_now`, S_NEXT vec4s to a row. Columns are counted in numbers.
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn show(own: u32, column: u32, s: Sums) {
    subgroupMatrixStore<row_major>(&s_now, own * S_NEXT + column / 4u, s, S_NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn sums_16(own: u32, column: u32) -> Sums {
    return subgroupMatrixLoad<Sums, row_major>(&s_now, own * S_NEXT + column / 4u, S_NEXT);
}

// Two threads share a row, four vec4s each: the first of them.
fn own_sums(lane: u32) -> u32 { return lane / 2u * S_NEXT + lane % 2u * 4u; }

// What an online softmax does to earlier sums, which the units cannot scale row by row.
fn scale_rows(lane: u32, by: f32) {
    let at = own_sums(lane);
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) { s_now[at + i] *= by; }
    workgroupBarrier();
}
