// Quantized rows of steps, a workgroup for each, for the products of few.wgsl or, for many rows, of
// gemm.wgsl: as rows_base.wgsl writes them, with the bits that token.wgsl makes. Grid: (1, rows).
override ACT: u32 = 0u;
override Q_VECS: u32; // of a row, with the zeros after its end
override GROUP: u32 = 0u; // as in codes.wgsl

@group(0) @binding(1) var<storage, read_write> up: array<vec4<f32>>; // x is the gate
@group(0) @binding(4) var<storage, read_write> q: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> q_info: array<vec2<u32>>; // 1 / scale, sum

fn set_info(i: u32, info: vec2<u32>) { q_info[i] = info; }

fn write_row(token: u32, lane: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>,
             weight: ptr<function, array<vec4<f32>, KEPT_X>>) {
    let unit = quantize(lane, token * Q_VECS, row, weight);
    if (GROUP > 0u) { return; }
    let sum = int_sum(lane);
    if (lane == 0u) { q_info[token] = vec2(bitcast<u32>(unit), bitcast<u32>(sum)); }
}

@compute @workgroup_size(THREADS)
fn row_quantize(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_row(id.y * COLS4, lane, &row);
    load_norm(lane, &weight);
    write_row(id.y, lane, &row, &weight);
}

// The same for a row act(gate) * up; `gated` of ternary_tiles.wgsl does it for few rows.
@compute @workgroup_size(THREADS)
fn glu_quantize(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_row(id.y * COLS4, lane, &row);
    load_norm(lane, &weight);
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        if (i < COLS4) { row[k] = activate(ACT, row[k]) * up[id.y * COLS4 + i]; }
    }
    write_row(id.y, lane, &row, &weight);
}

// The same for a row that attention has left in parts.
@compute @workgroup_size(THREADS)
fn parts_quantize(@builtin(workgroup_id) id: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_norm(lane, &weight);
    join_parts(id.y, lane, &row);
    write_row(id.y, lane, &row, &weight);
}
