// Matrix of codes x int8 vector: y[t][row] = sum of code * q, exact in integers, times the scales.
// codes.wgsl says how they lie. SPLITS threads share a row of a tile, so THREADS is 8 * SPLITS. Grid:
// (tiles of all matrices, tokens).
//
// Up to three matrices that read the same vector are one dispatch, if they lie in one buffer.
override BLOCKS: u32;   // of 64 columns
override SPLITS: u32;
override ADD: bool;     // to what is in y
override FIRST_ROW: u32; // of a part (gemv1)
override Y_COLS: u32;    // rows of the whole matrix
override SOFT_CAP: f32 = 0.0;   // of scores; 0: none (gemv1)
override OUTPUTS: bool = false; // rows of x are counted from run.first_output on (gemv1)
// Of matrix i: where it begins (in vec4s), its first tile, its rows
override AT0: u32;
override AT1: u32;
override AT2: u32;
override TILE1: u32;
override TILE2: u32;
override ROWS0: u32;
override ROWS1: u32;
override ROWS2: u32;

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> q_info: array<vec2<u32>>; // in groups: of each block
@group(0) @binding(4) var<storage, read_write> y0: array<f32>;
@group(0) @binding(5) var<storage, read_write> y1: array<f32>;
@group(0) @binding(6) var<storage, read_write> y2: array<f32>;

var<workgroup> sums: array<i32, THREADS>;
var<workgroup> row_sums: array<i32, 64>;

fn dot16(c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.x, x.x) + dot4(c.y, x.y) + dot4(c.z, x.z) + dot4(c.w, x.w);
}

// Codes times activations of a block.
fn dot64(c: vec4<u32>, token: u32, b: u32) -> i32 {
    let x = (token * BLOCKS + b) * 4u;
    return dot16(codes16(c, 0u), q[x]) + dot16(codes16(c, 1u), q[x + 1u]) +
           dot16(codes16(c, 2u), q[x + 2u]) + dot16(codes16(c, 3u), q[x + 3u]);
}

// Blocks are added up in order, as many at a time as there are threads for.
fn product_in_groups(first: u32, token: u32, lane: u32) -> f32 {
    let row = lane % 8u;
    var sum = 0.0;
    for (var begin = 0u; begin < BLOCKS; begin += SPLITS) {
        let b = begin + lane / 8u;
        var p = 0.0;
        if (b < BLOCKS) {
            let info = q_info[token * BLOCKS + b];
            let s = dot64(codes_of(first, b, row), token, b);
            p = scaled(sum_of_numbers(s, bitcast<i32>(info.y)), bitcast<f32>(info.x),
                       scale_at(first, b, row));
        }
        workgroupBarrier();
        sums[lane] = bitcast<i32>(p);
        workgroupBarrier();
        for (var i = 0u; i < min(SPLITS, BLOCKS - begin); i++) {
            sum = add_rounded(sum, bitcast<f32>(sums[8u * i + row]));
        }
    }
    return sum;
}

// The product for row lane % 8 of the tile; valid in the first 8 threads.
fn product(at: u32, tile: u32, token: u32, lane: u32) -> f32 {
    let first = at + 16u + tile * TILE_VECS;
    if (GROUP > 0u) { return product_in_groups(first, token, lane); }
    var sum = 0;
    for (var b = lane / 8u; b < BLOCKS; b += SPLITS) {
        sum += dot64(codes_of(first, b, lane % 8u), token, b);
    }
    sums[lane] = sum;
    workgroupBarrier();
    if (lane < 64u) { // THREADS >= 64
        var s = 0;
        for (var i = lane; i < THREADS; i += 64u) { s += sums[i]; }
        row_sums[lane] = s;
    }
    workgroupBarrier();
    var s = 0;
    for (var i = lane % 8u; i < 64u; i += 8u) { s += row_sums[i]; }
    let info = q_info[token];
    return f32(s - bitcast<i32>(info.y)) * (bitcast<f32>(w[at].x) * bitcast<f32>(info.x));
}

@compute @workgroup_size(THREADS)
fn gemv1(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var token = group.y;
    if (OUTPUTS) { token += run.first_output; }
    let p = product(AT0, group.x, token, lane);
    let row = group.x * 8u + lane;
    if (lane < 8u && row < ROWS0) {
        let to = group.y * Y_COLS + FIRST_ROW + row;
        if (ADD) { y0[to] = y0[to] + p; } else { y0[to] = capped_by(SOFT_CAP, vec4(p)).x; }
    }
}

@compute @workgroup_size(THREADS)
fn gemv2(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var at = AT0;
    var tile = group.x;
    if (group.x >= TILE1) {
        at = AT1;
        tile = group.x - TILE1;
    }
    let p = product(at, tile, group.y, lane);
    let row = tile * 8u + lane;
    if (lane < 8u) {
        if (group.x < TILE1) {
            if (row < ROWS0) { y0[group.y * ROWS0 + row] = p; }
        } else if (row < ROWS1) { y1[group.y * ROWS1 + row] = p; }
    }
}

@compute @workgroup_size(THREADS)
fn gemv3(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var at = AT0;
    var tile = group.x;
    if (group.x >= TILE2) {
        at = AT2;
        tile = group.x - TILE2;
    } else if (group.x >= TILE1) {
        at = AT1;
        tile = group.x - TILE1;
    }
    let p = product(at, tile, group.y, lane);
    let row = tile * 8u + lane;
    if (lane < 8u) {
        if (group.x < TILE1) {
            if (row < ROWS0) { y0[group.y * ROWS0 + row] = p; }
        } else if (group.x < TILE2) {
            if (row < ROWS1) { y1[group.y * ROWS1 + row] = p; }
        } else if (row < ROWS2) { y2[group.y * ROWS2 + row] = p; }
    }
}
