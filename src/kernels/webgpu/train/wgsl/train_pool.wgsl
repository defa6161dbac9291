// A vector of each document: the mean, the last or the first of its rows. Grid: (16 COLS4 / 256,
// T / 16), a thread four columns of a row; the threads of a document's first row make its vector, so
// that a sum has one order.
override COLS4: u32;
override KIND: u32; // 0: mean, 1: last, 2: first

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>; // or the gradient of the vectors
@group(0) @binding(2) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(3) var<storage, read> targets: array<i32>; // its vector, -1: none
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(256)
fn pool_seq(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let k = group.x * 256u + lane;
    let row = group.y * 16u + k / COLS4;
    if (k >= 16u * COLS4 || row >= run.n_tokens) { return; }
    let i = k % COLS4;
    let span = spans[row];
    let vector = targets[row];
    if (row != span.x || vector < 0) { return; }
    var sum = x[select(row, span.y - 1u, KIND == 1u) * COLS4 + i];
    if (KIND == 0u) {
        for (var t = row + 1u; t < span.y; t++) { sum += x[t * COLS4 + i]; }
        sum *= 1.0 / f32(span.y - row);
    }
    y[u32(vector) * COLS4 + i] = sum;
}

@compute @workgroup_size(256)
fn pool_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let k = group.x * 256u + lane;
    let row = group.y * 16u + k / COLS4;
    if (k >= 16u * COLS4 || row >= run.n_tokens) { return; }
    let i = k % COLS4;
    let span = spans[row];
    let vector = targets[row];
    var factor = run.loss_scale / f32(span.y - span.x);
    if (KIND != 0u) {
        factor = select(0.0, run.loss_scale, row == select(span.x, span.y - 1u, KIND == 1u));
    }
    y[row * COLS4 + i] = select(vec4(0.0), x[u32(max(vector, 0)) * COLS4 + i] * factor, vector >= 0);
}
