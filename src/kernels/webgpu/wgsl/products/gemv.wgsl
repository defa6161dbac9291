// Matrix of codes x int8 vector. Comes before ternary_gemv.wgsl and wide_gemv.wgsl, which define
// product(at, tile, token, lane): that of row lane % 8 of a tile, valid in the first 8 threads. SPLITS
// threads share a row of a tile, so THREADS is 8 * SPLITS. Grid: (tiles of all matrices, tokens).
//
// Up to three matrices that read the same vector are one dispatch, if they lie in one buffer.
override BLOCKS: u32;   // of 64 columns
override SPLITS: u32;
override ADD: bool;     // to what is in y
override FIRST_ROW: u32; // of a part (gemv1)
override Y_COLS: u32;    // rows of the whole matrix
override SOFT_CAP: f32 = 0.0;   // of scores; 0: none (gemv1)
override OUTPUTS: bool = false; // rows of x are counted from run.first_output on (gemv1)
// For matrix i: where it begins (in vec4s), its first tile, its rows
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
