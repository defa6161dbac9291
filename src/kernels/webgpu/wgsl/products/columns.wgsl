// The columns FIRST .. FIRST + WIDTH - 1 of every GROUP columns of x. Grid: (columns of y / 64,
// rows).
override COLS: u32; // of y
override GROUP: u32;
override FIRST: u32;
override WIDTH: u32;

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> added: array<f32>;

@compute @workgroup_size(64)
fn columns(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS) { return; }
    let group = id.y * (COLS / WIDTH) + id.x / WIDTH;
    y[id.y * COLS + id.x] = x[group * GROUP + FIRST + id.x % WIDTH];
}

// y = x + b of rows of any number of columns (elementwise.wgsl has fours of them).
@compute @workgroup_size(64)
fn odd_bias(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * COLS + id.x;
    if (id.x < COLS) { y[i] = x[i] + added[id.x]; }
}
