// Sums of the matrix units and the memory they go through in attention's kernels, of prompts and of
// training: `s_now`, S_NEXT floats to a row.
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn show(own: u32, column: u32, s: Sums) {
    subgroupMatrixStore(&s_now, own * S_NEXT + column, s, false, S_NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn sums_16(own: u32, column: u32) -> Sums {
    return subgroupMatrixLoad<Sums>(&s_now, own * S_NEXT + column, false, S_NEXT);
}

// Two threads share a row, 16 numbers each. Which of them a thread takes first depends on the row,
// so that no two threads meet in a bank.
fn columns4(lane: u32, i: u32) -> vec4<u32> {
    return (vec4(i, i + 1u, i + 2u, i + 3u) + lane / 8u) % vec4(16u);
}

// What an online softmax does to earlier sums, which the units cannot scale row by row.
fn scale_rows(lane: u32, by: f32) {
    let at = lane / 2u * S_NEXT + lane % 2u * 16u;
    workgroupBarrier();
    for (var i = 0u; i < 16u; i++) { s_now[at + (i + lane / 8u) % 16u] *= by; }
    workgroupBarrier();
}
