// The norms of heads, of queries and of keys, in one dispatch: each as rms_norm of rows.wgsl. Grid:
// (heads of both, rows).
override COLS4: u32; // columns / 4 of a head
override EPS: f32;
override HEADS0: u32;
override HEADS1: u32;

@group(0) @binding(1) var<storage, read_write> x0: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> x1: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight0: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> weight1: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y0: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> y1: array<vec4<f32>>;

@compute @workgroup_size(THREADS)
fn norm_pair(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let is_first = group.x < HEADS0;
    var row = (group.y * HEADS1 + group.x - HEADS0) * COLS4;
    if (is_first) { row = (group.y * HEADS0 + group.x) * COLS4; }
    var squares = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) {
        var v = vec4(0.0);
        if (is_first) { v = x0[row + i]; } else { v = x1[row + i]; }
        squares += dot(v, v);
    }
    let all = workgroup_sum_max(lane, squares, 0.0).x;
    let r = 1.0 / sqrt(all / f32(4u * COLS4) + EPS);
    for (var i = lane; i < COLS4; i += THREADS) {
        if (is_first) { y0[row + i] = x0[row + i] * r * weight0[i]; }
        else { y1[row + i] = x1[row + i] * r * weight1[i]; }
    }
}
