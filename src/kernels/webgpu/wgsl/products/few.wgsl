// Products with codes of two to eight tokens: their rows, made by quantize_few.wgsl, times weights
// that are read and unpacked once for up to EACH of them. Waiting for a dispatch that makes the
// rows costs less than making each of them in every workgroup; for a single token it is the other
// way round (token.wgsl).
//
// The sums are integers and their further treatment is the same as for a single token, so a token's
// result does not depend, by a bit, on how many came with it. In groups the products of SPLITS blocks
// are added up in order before the next ones are computed. ternary_tiles.wgsl says which tiles
// belong to a thread; TOKENS / EACH copies of all teams, one after the other, each take their share
// of the tokens and read the same weights through the near caches. The byte-product units mostly
// wait for memory: so a workgroup has all of a core's threads, each loads codes before it
// multiplies those that it has, and the rows lie in the workgroup's memory if they fit.
//
// Comes before ternary_few.wgsl and wide_few.wgsl, which define products(group, lane, r, a, b): of rows
// a and b of the workgroup's with the token of r.
override TOKENS: u32;  // 2, 4 or 8; past the end, the last token repeats
override EACH: u32;    // of them that a thread has sums for
override STAGED: bool; // rows in the workgroup's memory
const EACH_MAX = 4u;
const TILES_MAX = 4u;

@group(0) @binding(2) var<storage, read> q: array<vec4<u32>>;      // [token][16 columns]
@group(0) @binding(3) var<storage, read> q_info: array<vec2<u32>>; // 1 / scale, sum; of each block

override ROW_VECS: u32 = BLOCKS * 4u;
override X_VECS: u32 = TOKENS * ROW_VECS * u32(STAGED) + u32(!STAGED);
var<workgroup> x_staged: array<vec4<u32>, X_VECS>; // as q

// All are loaded before the first is stored: the loops are unrolled.
const STAGED_MAX = 8u; // vec4s of a thread
override N_STAGED: u32 = (X_VECS + THREADS - 1u) / THREADS;
fn stage_rows(lane: u32) {
    var x: array<vec4<u32>, STAGED_MAX>;
    for (var k = 0u; k < N_STAGED; k++) {
        let i = lane + k * THREADS;
        x[k] = q[min(i / ROW_VECS, run.n_tokens - 1u) * ROW_VECS + i % ROW_VECS];
    }
    for (var k = 0u; k < N_STAGED; k++) {
        let i = lane + k * THREADS;
        if (i < X_VECS) { x_staged[i] = x[k]; }
    }
    workgroupBarrier();
}

fn columns16(token: u32, i: u32) -> vec4<u32> {
    if (STAGED) { return x_staged[token * ROW_VECS + i]; }
    return q[min(token, run.n_tokens - 1u) * ROW_VECS + i];
}

// What a thread computes for one of the workgroup's `rows` rows and one of the tokens: there are
// threads for all of them.
struct Result { row: u32, token: u32, is_mine: bool, unit: f32, less: i32 }
fn result_of(lane: u32, rows: u32) -> Result {
    let token = lane / rows;
    if (GROUP > 0u) { return Result(lane % rows, token, token < run.n_tokens, 1.0, 0); }
    let info = q_info[min(token, run.n_tokens - 1u)];
    return Result(lane % rows, token, token < run.n_tokens, bitcast<f32>(info.x),
                  bitcast<i32>(info.y));
}

@compute @workgroup_size(THREADS)
fn few_linear3(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let result = result_of(lane, GROUP_ROWS);
    let r = id.x * GROUP_ROWS + result.row;
    let scale = scale_of(r / 8u);
    let p = products(id.x, lane, result, result.row, result.row).x;
    if (result.is_mine) { write(result.token, r, p * (scale * result.unit)); }
}

// act(gate) * up.
@compute @workgroup_size(THREADS)
fn few_glu(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let half = GROUP_ROWS / 2u; // rows of each
    let scales = vec2(scale_of(0u), scale_of(TILE1));
    let result = result_of(lane, half);
    let r = id.x * half + result.row;
    let p = products(id.x, lane, result, result.row, half + result.row) * (scales * result.unit);
    if (result.is_mine && r < ROWS0) { y0[result.token * ROWS0 + r] = gated(p.x, p.y); }
}

// At the end of a block, as in token.wgsl.
override ADD: bool = true;
override FACTOR: f32 = 1.0;

@compute @workgroup_size(THREADS)
fn few_linear_add(@builtin(workgroup_id) id: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    let scale = scale_of(0u);
    let result = result_of(lane, GROUP_ROWS);
    let r = id.x * GROUP_ROWS + result.row;
    let to = result.token * ROWS0 + r;
    let is_mine = result.is_mine && r < ROWS0;
    var residual = 0.0;
    if (ADD && is_mine) { residual = y0[to]; }
    let p = products(id.x, lane, result, result.row, result.row).x;
    if (!is_mine) { return; }
    if (ADD) { y0[to] = residual + p * (scale * result.unit); }
    else { y0[to] = p * (scale * result.unit); }
}

@compute @workgroup_size(THREADS)
fn few_linear_scaled(@builtin(workgroup_id) id: vec3<u32>,
                     @builtin(local_invocation_index) lane: u32) {
    let scale = scale_of(0u);
    let result = result_of(lane, GROUP_ROWS);
    let r = id.x * GROUP_ROWS + result.row;
    let to = result.token * ROWS0 + r;
    let is_mine = result.is_mine && r < ROWS0;
    var residual = 0.0;
    if (is_mine) { residual = y1[to]; }
    let p = products(id.x, lane, result, result.row, result.row).x;
    if (is_mine) { y0[to] = add_rounded(residual, p * (scale * result.unit) * FACTOR); }
}
