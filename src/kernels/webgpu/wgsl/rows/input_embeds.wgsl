// Input embeddings: rows that come with a batch take the place of its own, or are added to them.
// Grid: (columns / 4 / 64, rows).
override COLS4: u32;
override SIDE: u32; // of the grid of rows
override WIDTH: u32; // columns of an input row
override FIRST: u32; // the first of them that counts

@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> input_rows: array<f32>;
@group(0) @binding(3) var<storage, read> ids: array<i32>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> table: array<vec4<f32>>;

fn four(at: u32) -> vec4<f32> {
    return vec4(input_rows[at], input_rows[at + 1u], input_rows[at + 2u], input_rows[at + 3u]);
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
fn add_input_embeds(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let i = id.y * COLS4 + id.x;
    if (ids[id.y] < 0) {
        y[i] = x[i] + four(id.y * WIDTH + FIRST + 4u * id.x);
    } else {
        y[i] = x[i];
    }
}

// The part of the grid's axis under a triangle: a place at `at` counts fully, one that is `width`
// away not at all.
struct Triangle { at: f32, width: f32, whole: f32, first: u32, last: u32 }

fn share(t: Triangle, i: u32) -> f32 {
    return max(1.0 - abs(f32(i) - t.at) / t.width, 0.0) / t.whole;
}

fn triangle(at: f32, width: f32) -> Triangle {
    let most = f32(SIDE - 1u);
    var t = Triangle(at, width, 1.0, u32(max(at - width, 0.0)), u32(clamp(at + width, 0.0, most)));
    var sum = 0.0;
    for (var i = t.first; i <= t.last; i++) { sum += share(t, i); }
    t.whole = select(1.0, sum, sum > 0.0);
    return t;
}

// Points have a row and a column, or widths, too.
fn triangle_of(row: u32, axis: u32) -> Triangle {
    let at = input_rows[WIDTH * row + axis];
    if (WIDTH == 4u) { return triangle(at, input_rows[WIDTH * row + 2u + axis]); }
    return triangle(clamp(at, 0.0, f32(SIDE - 1u)), 1.0);
}

@compute @workgroup_size(64)
fn add_point(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= COLS4) { return; }
    let rows = triangle_of(id.y, 0u);
    let columns = triangle_of(id.y, 1u);
    let i = id.y * COLS4 + id.x;
    var sum = x[i];
    for (var r = rows.first; r <= rows.last; r++) {
        for (var c = columns.first; c <= columns.last; c++) {
            sum += table[(r * SIDE + c) * COLS4 + id.x] * (share(rows, r) * share(columns, c));
        }
    }
    y[i] = sum;
}
