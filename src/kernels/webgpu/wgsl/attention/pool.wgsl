// One row of each chunk's rows. Grid: (columns / 4 / 64, chunks). A mean adds the rows in their order.
override COLS4: u32;
override KIND: u32;
const MEAN = 0u;
const LAST = 1u;

@group(0) @binding(1) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(64)
fn pool(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let chunk = chunks[id.y];
    var row = chunk.first_row;
    if (KIND == LAST) { row += chunk.n_rows - 1u; }
    var sum = x[row * COLS4 + id.x];
    if (KIND == MEAN) {
        for (var t = 1u; t < chunk.n_rows; t++) { sum += x[(row + t) * COLS4 + id.x]; }
        sum *= 1.0 / f32(chunk.n_rows);
    }
    y[id.y * COLS4 + id.x] = sum;
}
