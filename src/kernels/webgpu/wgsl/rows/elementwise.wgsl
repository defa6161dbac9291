// Elementwise ops, and selecting the rows whose results are wanted. Grid: (columns / 4 / 64, rows).
override COLS4: u32;
override ACT: u32;
override SCALE: f32;
override GAINS: u32; // columns of gains
override GAIN: u32;  // the one that counts
override BY_COLUMN: bool;

@group(0) @binding(1) var<storage, read_write> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> gains: array<f32>;

@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    if (id.x < COLS4) { y[i] = a[i] + b[i]; }
}

@compute @workgroup_size(64)
fn mul(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    if (id.x < COLS4) { y[i] = a[i] * b[i]; }
}

@compute @workgroup_size(64)
fn glu(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    if (id.x < COLS4) { y[i] = activate(ACT, a[i]) * b[i]; }
}

@compute @workgroup_size(64)
fn act(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    if (id.x < COLS4) { y[i] = activate(ACT, a[i]); }
}

@compute @workgroup_size(64)
fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    if (id.x < COLS4) { y[i] = a[i] * SCALE; }
}

@compute @workgroup_size(64)
fn scale_add(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    if (id.x < COLS4) { y[i] = add_rounded4(a[i], b[i] * SCALE); }
}

@compute @workgroup_size(64)
fn bias(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    if (id.x < COLS4) { y[i] = a[i] + weight[id.x]; }
}

@compute @workgroup_size(64)
fn scale_by(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    var factor = vec4(weight[0].x);
    if (BY_COLUMN) { factor = weight[id.x]; }
    if (id.x < COLS4) { y[i] = a[i] * factor; }
}

@compute @workgroup_size(64)
fn gain(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS4 + id.x;
    let factor = gains[id.y * GAINS + GAIN];
    if (id.x >= COLS4) { return; }
    if (factor == 0.0) { y[i] = vec4(0.0); } else { y[i] = a[i] * factor; }
}

@compute @workgroup_size(64)
fn take_rows(@builtin(global_invocation_id) id: vec3<u32>) {
    let source = output_row(id.y) * COLS4 + id.x;
    if (id.x < COLS4) { y[id.y * COLS4 + id.x] = a[source]; }
}
