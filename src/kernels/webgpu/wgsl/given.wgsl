// What is given with a batch put among its rows. Grid: (columns / 4 / 64, rows).
override COLS4: u32;
override SIDE: u32; // of the grid of rows
override WIDTH: u32; // columns of a row that is given
override FIRST: u32; // the first of them that counts

@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> given: array<f32>;
@group(0) @binding(3) var<storage, read> ids: array<i32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> table: array<vec4<f32>>;

fn four(at: u32) -> vec4<f32> {
    return vec4(given[at], given[at + 1u], given[at + 2u], given[at + 3u]);
}

@compute @workgroup_size(64)
fn replace(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let i = id.y * COLS4 + id.x;
    if (ids[id.y] < 0) {
        y[i] = four(id.y * WIDTH + 4u * id.x);
    } else {
        y[i] = x[i];
    }
}

@compute @workgroup_size(64)
fn add_given(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let i = id.y * COLS4 + id.x;
    if (ids[id.y] < 0) {
        y[i] = x[i] + four(id.y * WIDTH + FIRST + 4u * id.x);
    } else {
        y[i] = x[i];
    }
}

// The lower neighbour of a coordinate in the grid, and how far from it that is.
fn lower(at: f32) -> vec2<f32> {
    let inside = clamp(at, 0.0, f32(SIDE - 1u));
    return vec2(floor(inside), fract(inside));
}

@compute @workgroup_size(64)
fn add_point(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let down = lower(given[2u * id.y]);
    let right = lower(given[2u * id.y + 1u]);
    let y0 = u32(down.x);
    let x0 = u32(right.x);
    let y1 = min(y0 + 1u, SIDE - 1u);
    let x1 = min(x0 + 1u, SIDE - 1u);
    let above = table[(y0 * SIDE + x0) * COLS4 + id.x] * (1.0 - right.y) +
                table[(y0 * SIDE + x1) * COLS4 + id.x] * right.y;
    let below = table[(y1 * SIDE + x0) * COLS4 + id.x] * (1.0 - right.y) +
                table[(y1 * SIDE + x1) * COLS4 + id.x] * right.y;
    let i = id.y * COLS4 + id.x;
    y[i] = x[i] + above * (1.0 - down.y) + below * down.y;
}
