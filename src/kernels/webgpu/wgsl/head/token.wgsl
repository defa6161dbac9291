// Norm, int8 quantization and product with codes of a token in one dispatch.
//
// A single token is little work: the time goes into dispatches that wait for each other, and inside
// each the way to memory and back. So every workgroup makes the quantized row anew, in its own
// memory, instead of waiting for a dispatch that makes it once; and it loads the weights before
// that, so that they arrive meanwhile. The row is made by ternary_row.wgsl; ternary_tiles.wgsl says
// which tiles belong to a thread. Grid: (see there, tokens).
//
// Comes before ternary_token.wgsl and wide_token.wgsl, which define ask(), what a thread loads first,
// multiply() and sum_of(), that of a row of the workgroup's.
override Q_VECS: u32 = SPLITS * STEPS * 4u;
var<workgroup> q: array<vec4<u32>, Q_VECS>; // zeros past the row's end
override N_INFOS: u32 = u32(GROUP > 0u) * BLOCKS + u32(GROUP == 0u);
var<workgroup> infos: array<vec2<u32>, N_INFOS>; // of each block of the row: scale, sums of halves
fn set_info(i: u32, info: vec2<u32>) { infos[i] = info; }

// In groups it is taken out of each block instead.
fn sum_of_row(lane: u32) -> i32 {
    if (GROUP > 0u) { return 0; }
    return int_sum(lane);
}

// Up to three products of one row.
@compute @workgroup_size(THREADS)
fn norm_linear3(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_row(id.y * COLS4, lane, &row);
    load_norm(lane, &weight);
    let codes = ask(id.x, l);
    let tile = id.x * TEAMS * TILES + lane / 8u;
    let scale = scale_of(tile);
    let unit = quantize(lane, 0u, &row, &weight);
    multiply(id.x, lane, l, codes);
    let row_sum = sum_of_row(lane);
    if (lane < GROUP_ROWS) {
        write(id.y, tile * 8u + lane % 8u, sum_of(lane, row_sum) * (scale * unit));
    }
}

// act(gate) * up.
@compute @workgroup_size(THREADS)
fn norm_glu(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_row(id.y * COLS4, lane, &row);
    load_norm(lane, &weight);
    let codes = ask(id.x, l);
    finish_glu(id, lane, l, &row, &weight, codes);
}

// The same for a row that is normed and added first; the first workgroup keeps the sum.
@compute @workgroup_size(THREADS)
fn add_norm_glu(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_row(id.y * COLS4, lane, &row);
    load_norm(lane, &weight);
    let codes = ask(id.x, l);
    add_normed(id.y * COLS4, lane, id.x == 0u, &row);
    finish_glu(id, lane, l, &row, &weight, codes);
}

fn finish_glu(id: vec3<u32>, lane: u32, l: Lane, row: ptr<function, array<vec4<f32>, KEPT_X>>,
              weight: ptr<function, array<vec4<f32>, KEPT_X>>, codes: Codes) {
    let scales = vec2(scale_of(0u), scale_of(TILE1));
    let unit = quantize(lane, 0u, row, weight);
    multiply(id.x, lane, l, codes);
    let row_sum = sum_of_row(lane);
    let half = GROUP_ROWS / 2u; // rows of each
    let r = id.x * half + lane;
    if (lane < half && r < ROWS0) {
        let gate = sum_of(lane, row_sum) * (scales.x * unit);
        let up = sum_of(half + lane, row_sum) * (scales.y * unit);
        y0[id.y * ROWS0 + r] = gated(gate, up);
    }
}

// At the end of a block a product is added to what is in y0, or stands alone, or is added to what is
// in y1, times a factor.
override ADD: bool = true;
override FACTOR: f32 = 1.0;

// Where a thread's result goes.
struct Place { to: u32, is_mine: bool }
fn place_in(id: vec3<u32>, lane: u32) -> Place {
    let r = id.x * GROUP_ROWS + lane;
    return Place(id.y * ROWS0 + r, lane < GROUP_ROWS && r < ROWS0);
}

// What the integers of its product are multiplied with, and the row's sum. The products are then
// written out where they are added: only so are they fused with the sum, or not, as in few.wgsl.
struct Finished { factor: f32, row_sum: i32 }
fn finish(group: u32, lane: u32, l: Lane, row: ptr<function, array<vec4<f32>, KEPT_X>>,
          weight: ptr<function, array<vec4<f32>, KEPT_X>>, codes: Codes) -> Finished {
    let scale = scale_of(0u);
    let unit = quantize(lane, 0u, row, weight);
    multiply(group, lane, l, codes);
    return Finished(scale * unit, sum_of_row(lane));
}

fn finish_add(id: vec3<u32>, lane: u32, l: Lane, row: ptr<function, array<vec4<f32>, KEPT_X>>,
              weight: ptr<function, array<vec4<f32>, KEPT_X>>, codes: Codes) {
    let place = place_in(id, lane);
    var residual = 0.0;
    if (ADD && place.is_mine) { residual = y0[place.to]; }
    let f = finish(id.x, lane, l, row, weight, codes);
    if (!place.is_mine) { return; }
    if (ADD) { y0[place.to] = residual + sum_of(lane, f.row_sum) * f.factor; }
    else { y0[place.to] = sum_of(lane, f.row_sum) * f.factor; }
}

fn finish_scaled(id: vec3<u32>, lane: u32, l: Lane, row: ptr<function, array<vec4<f32>, KEPT_X>>,
                 weight: ptr<function, array<vec4<f32>, KEPT_X>>, codes: Codes) {
    let place = place_in(id, lane);
    var residual = 0.0;
    if (place.is_mine) { residual = y1[place.to]; }
    let f = finish(id.x, lane, l, row, weight, codes);
    if (!place.is_mine) { return; }
    y0[place.to] = add_rounded(residual, sum_of(lane, f.row_sum) * f.factor * FACTOR);
}

@compute @workgroup_size(THREADS)
fn norm_linear_add(@builtin(workgroup_id) id: vec3<u32>,
                   @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_row(id.y * COLS4, lane, &row);
    load_norm(lane, &weight);
    let codes = ask(id.x, l);
    finish_add(id, lane, l, &row, &weight, codes);
}

@compute @workgroup_size(THREADS)
fn norm_linear_scaled(@builtin(workgroup_id) id: vec3<u32>,
                      @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_row(id.y * COLS4, lane, &row);
    load_norm(lane, &weight);
    let codes = ask(id.x, l);
    finish_scaled(id, lane, l, &row, &weight, codes);
}

// The same for a row that attention has left in parts.
@compute @workgroup_size(THREADS)
fn parts_linear_add(@builtin(workgroup_id) id: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_norm(lane, &weight);
    let codes = ask(id.x, l);
    join_parts(id.y, lane, &row);
    finish_add(id, lane, l, &row, &weight, codes);
}

@compute @workgroup_size(THREADS)
fn parts_linear_scaled(@builtin(workgroup_id) id: vec3<u32>,
                       @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var row: array<vec4<f32>, KEPT_X>;
    var weight: array<vec4<f32>, KEPT_X>;
    load_norm(lane, &weight);
    let codes = ask(id.x, l);
    join_parts(id.y, lane, &row);
    finish_scaled(id, lane, l, &row, &weight, codes);
}
