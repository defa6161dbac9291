// Ternary products of two to eight tokens: a thread reads and unpacks its weights once and
// multiplies them with the rows of all tokens, which quantize_few.wgsl has made. A dispatch that
// waits for those rows costs less than making each of them in every workgroup; for a single token
// it is the other way round (ternary_token.wgsl).
//
// The sums are integers and what is made of them is the same as for a single token, so a token's
// result does not depend, by a bit, on how many came with it. Rows of 16 bytes are read straight
// from memory, through the near caches: the threads of a workgroup that share them are neighbours,
// and eight rows of 6912 columns are more than a workgroup's memory. Which tiles are a thread's is
// the matter of ternary_tiles.wgsl.
override TOKENS: u32;  // 2, 4 or 8; behind the last of the run it stands again
override AT_ONCE: u32; // of them that the threads of a row put their sums together for; a divisor
const TOKENS_MAX = 8u;
const TILES_MAX = 4u;

@group(0) @binding(2) var<storage, read> q: array<vec4<u32>>;      // [token][16 columns]
@group(0) @binding(3) var<storage, read> q_info: array<vec2<u32>>; // 1 / scale, sum

// [token][tile][part][row of 8]
var<workgroup> part: array<i32, AT_ONCE * GROUP_ROWS * ROW_PARTS>;

alias Sums = array<array<i32, TILES_MAX>, TOKENS_MAX>;

fn unpack(c: u32) -> vec4<u32> {
    return vec4(c, c >> 2u, c >> 4u, c >> 6u) & vec4(0x03030303u);
}

// Added one behind the other, as the instructions do it.
fn dot16(sum: i32, c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.w, x.w) + (dot4(c.z, x.z) + (dot4(c.y, x.y) + (dot4(c.x, x.x) + sum)));
}

// The sums of a thread. Loops over tokens and tiles have constant ends, so that they are unrolled
// and the sums stay in registers.
fn multiply(group: u32, l: Lane) -> Sums {
    var sums: Sums;
    let first = first_tile(group, l.team);
    let last = run.n_tokens - 1u;
    for (var block = l.block; block < BLOCKS; block += SPLITS) {
        var codes: array<vec4<u32>, TILES_MAX>;
        for (var k = 0u; k < TILES; k++) {
            codes[k] = w[tile_at(first + k) + block * 8u + l.row];
        }
        for (var i = 0u; i < 4u; i++) { // of 16 columns each
            var c: array<vec4<u32>, TILES_MAX>;
            for (var k = 0u; k < TILES; k++) { c[k] = unpack(codes[k][i]); }
            for (var t = 0u; t < TOKENS; t++) {
                let x = q[(min(t, last) * BLOCKS + block) * 4u + i];
                for (var k = 0u; k < TILES; k++) { sums[t][k] = dot16(sums[t][k], c[k], x); }
            }
        }
    }
    return sums;
}

// Leaves the sums of the tokens from `first` on in `part`.
fn leave_parts(lane: u32, l: Lane, first: u32, sums: ptr<function, Sums>) {
    workgroupBarrier(); // those before have been read
    for (var t = 0u; t < AT_ONCE; t++) {
        for (var k = 0u; k < TILES; k++) {
            let s = sum_of_every_8th((*sums)[first + t][k]);
            let tile = t * TEAMS * TILES + l.team * TILES + k;
            if (lane % SHARE < 8u) {
                part[(tile * ROW_PARTS + l.block * 8u / SHARE) * 8u + l.row] = s;
            }
        }
    }
    workgroupBarrier();
}

// What a thread makes of a row of the workgroup once the sums of AT_ONCE tokens are there: TILES *
// AT_ONCE <= SPLITS, so that there are threads for all of them.
struct Result { t: u32, row: u32, token: u32, is_mine: bool, unit: f32, less: i32 }
fn result_of(lane: u32, first: u32, rows: u32) -> Result {
    let t = lane / rows;
    let token = first + t;
    let info = q_info[min(token, run.n_tokens - 1u)];
    return Result(t, lane % rows, token, t < AT_ONCE && token < run.n_tokens,
                  bitcast<f32>(info.x), bitcast<i32>(info.y));
}

// The sum of the workgroup's row i. Codes are one too large.
fn sum_of(r: Result, i: u32) -> f32 {
    var s = -r.less;
    let tile = r.t * TEAMS * TILES + i / 8u;
    for (var p = 0u; p < ROW_PARTS; p++) { s += part[(tile * ROW_PARTS + p) * 8u + i % 8u]; }
    return f32(s);
}

@compute @workgroup_size(THREADS)
fn few_linear3(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    var sums = multiply(id.x, l);
    for (var first = 0u; first < TOKENS; first += AT_ONCE) {
        let result = result_of(lane, first, GROUP_ROWS);
        let r = id.x * GROUP_ROWS + result.row;
        let scale = scale_of(r / 8u);
        leave_parts(lane, l, first, &sums);
        if (result.is_mine) {
            write(result.token, r, sum_of(result, result.row) * (scale * result.unit));
        }
    }
}

// act(gate) * up.
@compute @workgroup_size(THREADS)
fn few_glu(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    let half = GROUP_ROWS / 2u; // rows of each
    let scales = vec2(scale_of(0u), scale_of(TILE1));
    var sums = multiply(id.x, l);
    for (var first = 0u; first < TOKENS; first += AT_ONCE) {
        let result = result_of(lane, first, half);
        let r = id.x * half + result.row;
        leave_parts(lane, l, first, &sums);
        if (result.is_mine && r < ROWS0) {
            let gate = sum_of(result, result.row) * (scales.x * result.unit);
            let up = sum_of(result, half + result.row) * (scales.y * result.unit);
            y0[result.token * ROWS0 + r] = gated(gate, up);
        }
    }
}

// The product added to what is in y0.
@compute @workgroup_size(THREADS)
fn few_linear_add(@builtin(workgroup_id) id: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    let l = lane_of(lane);
    let scale = scale_of(0u);
    var sums = multiply(id.x, l);
    for (var first = 0u; first < TOKENS; first += AT_ONCE) {
        let result = result_of(lane, first, GROUP_ROWS);
        let r = id.x * GROUP_ROWS + result.row;
        let to = result.token * ROWS0 + r;
        let is_mine = result.is_mine && r < ROWS0;
        var residual = 0.0;
        if (is_mine) { residual = y0[to]; }
        leave_parts(lane, l, first, &sums);
        if (is_mine) { y0[to] = residual + sum_of(result, result.row) * (scale * result.unit); }
    }
}
