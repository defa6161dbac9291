// Pieces of the columns times a factor each. Grid: (columns / 64, rows).
override COLS: u32;
override END0: u32; // where the pieces end; the fifth is the rest
override END1: u32;
override END2: u32;
override END3: u32;
override FACTOR0: f32;
override FACTOR1: f32;
override FACTOR2: f32;
override FACTOR3: f32;
override FACTOR4: f32;

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn scale_pieces(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS) { return; }
    var factor = FACTOR4;
    if (id.x < END0) { factor = FACTOR0; }
    else if (id.x < END1) { factor = FACTOR1; }
    else if (id.x < END2) { factor = FACTOR2; }
    else if (id.x < END3) { factor = FACTOR3; }
    y[id.y * COLS + id.x] = x[id.y * COLS + id.x] * factor;
}
