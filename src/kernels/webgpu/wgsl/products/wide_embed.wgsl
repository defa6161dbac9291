// y[t] = W[table_row(t)] of a table of codes of wide_codes.wgsl: as embed.wgsl otherwise. Grid:
// (columns / 4 / 64, tokens).
override COLS4: u32;     // columns / 4
override FIRST_ROW: u32; // of the table's part
override N_ROWS: u32;
override BLOCKS: u32 = COLS4 / 16u;

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn embed(@builtin(global_invocation_id) id: vec3<u32>,
         @builtin(local_invocation_index) lane: u32) {
    let row = table_row(id.y, lane) - FIRST_ROW; // wraps around for rows in front
    if (id.x >= COLS4 || row >= N_ROWS) { return; }
    y[id.y * COLS4 + id.x] = four_columns(row, id.x);
}
