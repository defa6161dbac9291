// y[t] = the WIDTH numbers of x from t * EVERY - BEFORE on, zeros where x has none; tiled: by column
// of x, which has COLS. Grid: (WIDTH / 64, rows).
override WIDTH: u32;
override EVERY: u32;
override COLS: u32;
override BEFORE: u32;
override X_ROWS: u32; // the dimension of x's rows
override TAPS: u32; // rows of x in a window; 1: its numbers stay in their order

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn windows(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= WIDTH) { return; }
    let at = id.y * EVERY + id.x % TAPS * COLS + id.x / TAPS;
    var value = 0.0;
    if (at >= BEFORE && at - BEFORE < run.counts[X_ROWS] * COLS) { value = x[at - BEFORE]; }
    y[id.y * WIDTH + id.x] = value;
}
