// What both kernels of the approximate logits bind; each is a tile of ROWS tokens of the
// vocabulary x TOKENS rows of x. Grid: (tiles, rows of x / TOKENS).
override COLS4: u32;
override N_ROWS: u32;
override VECS: u32;       // vec4s of 16 columns of a row of the copy, and of a part of a row of x
override CHUNK_ROWS: u32; // rows of x that a pass over the head has at most

@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> rows: array<vec4<f32>>;  // of head_copy.wgsl
@group(0) @binding(3) var<storage, read> q: array<vec4<u32>>;     // of head_x.wgsl, as all next
@group(0) @binding(4) var<storage, read> infos: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

fn count_of_rows() -> u32 { return min(run.n_outputs - run.first_output, CHUNK_ROWS); }

// The most that the logit can be.
fn write_high(row: u32, token: u32, a: f32) {
    if (row >= N_ROWS || token >= count_of_rows()) { return; }
    y[token * N_ROWS + row] = high_of(a, rows[row], infos[token]);
}
