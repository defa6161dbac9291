// Rows of a frozen matrix that stays as codes, or as numbers of 16 bits, become floats for the ops
// that read them: those that its file stands for, to the bit. Sixteen rows a workgroup in y; `w` is a
// part of the matrix, and rows of other parts are left to their dispatches. The next file has
// four_columns. Grid: (16 COLS4 / 256, rows / 16).
override COLS4: u32;
override FIRST: u32;     // the first row that is wanted
override COUNT: u32;     // how many; 0: tokens
override LISTED: bool;   // they are those that `list` names
override FIRST_ROW: u32; // of the part
override N_ROWS: u32;
override BLOCKS: u32 = (COLS4 + 15u) / 16u;

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> list: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(256)
fn decode(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 256u + lane;
    let at = group.y * 16u * COLS4 + i;
    let count = select(COUNT, run.n_tokens, COUNT == 0u);
    if (i >= 16u * COLS4 || at >= count * COLS4) { return; }
    var row = FIRST + at / COLS4;
    if (LISTED) { row = list[row]; }
    row -= FIRST_ROW; // wraps around for rows in front
    if (row < N_ROWS) { y[at] = four_columns(row, at % COLS4); }
}
