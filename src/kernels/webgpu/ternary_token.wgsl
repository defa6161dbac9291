// Norm, int8 quantization and ternary product of a token in one dispatch.
//
// A single token is little work: what takes time is that dispatches wait for each other, and inside
// each the way to memory and back. So every workgroup makes the quantized row anew, in its own
// memory, instead of waiting for a dispatch that makes it once; and the weights are asked for
// before that, so that they are on their way meanwhile.
//
// Matrices lie in tiles of 8 rows as ternary_gemv.wgsl says. A workgroup has TEAMS teams of
// 8 * SPLITS threads. A team takes TILES tiles; SPLITS of its threads share a row, each with the
// blocks of columns b, b + SPLITS ... (STEPS of them). Tiles of up to three matrices are numbered
// through. Grid: (tiles / (TEAMS * TILES), tokens).
override COLS4: u32;  // columns / 4
override NORM: bool;  // else the row is only quantized
override EPS: f32;
override BLOCKS: u32; // of 64 columns
override SPLITS: u32; // a multiple of 4: subgroups do not reach over teams
override STEPS: u32;  // SPLITS * STEPS >= BLOCKS
override TEAMS: u32;
override TILES: u32;
override ACT: u32 = 0u;
// Of matrix i: where it begins (in vec4s; the first at 0), its first tile, its rows
override AT1: u32 = 0u;
override AT2: u32 = 0u;
override TILE1: u32 = 0xffffffffu;
override TILE2: u32 = 0xffffffffu;
override N_TILES: u32;
override ROWS0: u32;
override ROWS1: u32 = 0u;
override ROWS2: u32 = 0u;
// Of the attention whose parts are the row; see attention_token.wgsl
override HEAD4: u32;     // dimensions of a head / 4
override PART: u32;      // positions of a tile
const PARTS_MAX = 8u;    // as in gpu.h

@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y0: array<f32>;
@group(0) @binding(5) var<storage, read_write> y1: array<f32>;
@group(0) @binding(6) var<storage, read_write> y2: array<f32>;
@group(0) @binding(7) var<storage, read_write> part_info: array<vec2<f32>>; // greatest score, sum

// What a thread keeps of the row in registers. Loops over it have constant ends, so that they are
// unrolled and no index is left.
const KEPT_X = 8u; // vec4s
override PER_THREAD: u32 = (COLS4 + THREADS - 1u) / THREADS; // <= KEPT_X

override Q_VECS: u32 = SPLITS * STEPS * 4u;
override ROW_PARTS: u32 = SPLITS * 8u / SHARE;
var<workgroup> q: array<vec4<u32>, Q_VECS>;                      // behind the row's end zeros
var<workgroup> part: array<i32, TEAMS * TILES * ROW_PARTS * 8u>; // [tile][part][row]

struct Lane { team: u32, block: u32, row: u32 }
fn lane_of(lane: u32) -> Lane {
    let l = lane % (8u * SPLITS);
    return Lane(lane / (8u * SPLITS), l / 8u, l % 8u);
}

// Where a tile begins, in vec4s. One behind the last is the last, computed for nothing.
fn tile_at(number: u32) -> u32 {
    let n = min(number, N_TILES - 1u);
    var at = 16u;
    if (n >= TILE1) { at += AT1 - TILE1 * BLOCKS * 8u; }
    if (n >= TILE2) { at += AT2 - AT1 - (TILE2 - TILE1) * BLOCKS * 8u; }
    return at + n * (BLOCKS * 8u);
}

fn scale_of(tile: u32) -> f32 {
    if (tile >= TILE2) { return bitcast<f32>(w[AT2].x); }
    if (tile >= TILE1) { return bitcast<f32>(w[AT1].x); }
    return bitcast<f32>(w[0].x);
}

// The first tile of a team. A product of two matrices takes the same rows of both: the first half
// of the teams is the first's.
override PAIRS: bool = false;
fn first_tile(group: u32, team: u32) -> u32 {
    if (PAIRS) {
        let half = TEAMS / 2u;
        let tile = (group * half + team % half) * TILES;
        return select(tile, TILE1 + tile, team >= half);
    }
    return (group * TEAMS + team) * TILES;
}

// The weights that a thread multiplies are numbered by step and, for each, tile.
override N_CODES: u32 = STEPS * TILES;
fn codes_at(group: u32, l: Lane, k: u32) -> vec4<u32> {
    let block = min(l.block + k / TILES * SPLITS, BLOCKS - 1u);
    return w[tile_at(first_tile(group, l.team) + k % TILES) + block * 8u + l.row];
}

// Four of them are on their way at a time.
struct Codes { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }
fn ask(group: u32, l: Lane) -> Codes {
    var codes: Codes;
    codes.a = codes_at(group, l, 0u);
    if (N_CODES > 1u) { codes.b = codes_at(group, l, 1u); }
    if (N_CODES > 2u) { codes.c = codes_at(group, l, 2u); }
    if (N_CODES > 3u) { codes.d = codes_at(group, l, 3u); }
    return codes;
}

fn greatest(v: vec4<f32>) -> f32 {
    let a = abs(v);
    return max(max(a.x, a.y), max(a.z, a.w));
}

// Fills q and int_total from the row; the result is what the integers are to be multiplied by. BitNet's
// scale makes the greatest of the normed row 127, and is found from the products x * weight, which
// the norm's factor scales all alike.
fn quantize(lane: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>,
            weight: ptr<function, array<vec4<f32>, KEPT_X>>) -> f32 {
    var squares = 0.0;
    var most = 0.0;
    for (var k = 0u; k < PER_THREAD; k++) {
        let v = (*row)[k];
        (*row)[k] = v * (*weight)[k];
        squares += dot(v, v);
        most = max(most, greatest((*row)[k]));
    }
    if (lane == 0u) { atomicStore(&int_total, 0); }
    let all = workgroup_sum_max(lane, squares, most);
    var r = 1.0;
    if (NORM) { r = 1.0 / sqrt(all.x / f32(4u * COLS4) + EPS); }
    let scale = 127.0 / max(all.y * r, 1e-5);
    var sum = 0;
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        var word = 0u;
        if (i < COLS4) {
            let v = vec4<i32>(clamp(round((*row)[k] * r * scale), vec4(-128.0), vec4(127.0)));
            let b = vec4<u32>(v) & vec4(255u);
            word = b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
            sum += v.x + v.y + v.z + v.w;
        }
        let four = word_of_four(lane, word);
        if (lane % 4u == 0u && i / 4u < Q_VECS) { q[i / 4u] = four; }
    }
    for (var i = PER_THREAD * THREADS / 4u + lane; i < Q_VECS; i += THREADS) { q[i] = vec4(0u); }
    add_to_int_total(lane, sum);
    workgroupBarrier();
    return 1.0 / scale;
}

// Codes stay where they are in their byte, 4 and 16 times too large: the sums are divided once.
fn dot16(codes: u32, x: vec4<u32>) -> vec4<i32> {
    return vec4(dot4(codes & 0x03030303u, x.x), dot4(codes & 0x0c0c0c0cu, x.y),
                dot4(codes & 0x30303030u, x.z), dot4((codes >> 6u) & 0x03030303u, x.w));
}

// Leaves weights k times their block of the row in `part`.
struct Block { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }
fn multiply_one(lane: u32, l: Lane, k: u32, codes: vec4<u32>, x: ptr<function, Block>) {
    if (k % TILES == 0u) { // a new step
        let at = (l.block + k / TILES * SPLITS) * 4u;
        *x = Block(q[at], q[at + 1u], q[at + 2u], q[at + 3u]);
    }
    let sum = dot16(codes.x, (*x).a) + dot16(codes.y, (*x).b) + dot16(codes.z, (*x).c) +
              dot16(codes.w, (*x).d);
    let s = sum_of_every_8th(sum.x + (sum.y >> 2u) + (sum.z >> 4u) + sum.w);
    if (lane % SHARE < 8u) {
        let tile = l.team * TILES + k % TILES;
        let at = (tile * ROW_PARTS + l.block * 8u / SHARE) * 8u + l.row;
        if (k < TILES) { part[at] = s; } else { part[at] += s; }
    }
}

// The products of the workgroup's tiles, in parts; see sum_of.
fn multiply(group: u32, lane: u32, l: Lane, asked: Codes) {
    var codes = asked;
    var x: Block;
    for (var k = 0u; k < N_CODES; k += 4u) {
        multiply_one(lane, l, k, codes.a, &x);
        if (k + 4u < N_CODES) { codes.a = codes_at(group, l, k + 4u); }
        if (k + 1u < N_CODES) { multiply_one(lane, l, k + 1u, codes.b, &x); }
        if (k + 5u < N_CODES) { codes.b = codes_at(group, l, k + 5u); }
        if (k + 2u < N_CODES) { multiply_one(lane, l, k + 2u, codes.c, &x); }
        if (k + 6u < N_CODES) { codes.c = codes_at(group, l, k + 6u); }
        if (k + 3u < N_CODES) { multiply_one(lane, l, k + 3u, codes.d, &x); }
        if (k + 7u < N_CODES) { codes.d = codes_at(group, l, k + 7u); }
    }
    workgroupBarrier();
}

// The workgroup's row i, of its tile i / 8. Codes are one too large.
fn sum_of(i: u32) -> f32 {
    var s = -atomicLoad(&int_total);
    for (var p = 0u; p < ROW_PARTS; p++) { s += part[(i / 8u * ROW_PARTS + p) * 8u + i % 8u]; }
    return f32(s);
}

fn load_row(first: u32, lane: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>) {
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        if (i < COLS4) { (*row)[k] = x[first + i]; }
    }
}

fn load_norm(lane: u32, weight: ptr<function, array<vec4<f32>, KEPT_X>>) {
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        (*weight)[k] = vec4(1.0);
        if (NORM && i < COLS4) { (*weight)[k] = norm[i]; }
    }
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
    let unit = quantize(lane, &row, &weight);
    multiply(id.x, lane, l, codes);
    if (lane < 8u * TEAMS * TILES) {
        let y = sum_of(lane) * (scale * unit);
        let r = tile * 8u + lane % 8u;
        if (tile < TILE1) {
            if (r < ROWS0) { y0[id.y * ROWS0 + r] = y; }
        } else if (tile < TILE2) {
            let r1 = r - TILE1 * 8u;
            if (r1 < ROWS1) { y1[id.y * ROWS1 + r1] = y; }
        } else {
            let r2 = r - TILE2 * 8u;
            if (r2 < ROWS2) { y2[id.y * ROWS2 + r2] = y; }
        }
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
    let scales = vec2(scale_of(0u), scale_of(TILE1));
    let unit = quantize(lane, &row, &weight);
    multiply(id.x, lane, l, codes);
    let half = 4u * TEAMS * TILES; // rows of each
    let r = id.x * half + lane;
    if (lane < half && r < ROWS0) {
        let gate = sum_of(lane) * (scales.x * unit);
        let up = sum_of(half + lane) * (scales.y * unit);
        y0[id.y * ROWS0 + r] = activate(ACT, vec4(gate)).x * up;
    }
}

// The product added to what is in y0.
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

fn finish_add(id: vec3<u32>, lane: u32, l: Lane, row: ptr<function, array<vec4<f32>, KEPT_X>>,
              weight: ptr<function, array<vec4<f32>, KEPT_X>>, codes: Codes) {
    let r = id.x * TEAMS * TILES * 8u + lane;
    let to = id.y * ROWS0 + r;
    let is_mine = lane < 8u * TEAMS * TILES && r < ROWS0;
    var residual = 0.0;
    if (is_mine) { residual = y0[to]; }
    let scale = scale_of(0u);
    let unit = quantize(lane, row, weight);
    multiply(id.x, lane, l, codes);
    if (is_mine) { y0[to] = residual + sum_of(lane) * (scale * unit); }
}

// The same for a row that attention has left in parts: each is a sum of values weighted by a
// softmax of its own, with its greatest score and the sum of its weights.
fn join_parts(token: u32, lane: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>) {
    let n_parts = min((run.first_pos + token) / PART + 1u, PARTS_MAX);
    if (n_parts == 1u) { // attention has divided by the sum itself
        load_row(token * PARTS_MAX * COLS4, lane, row);
        return;
    }
    let n_heads = COLS4 / HEAD4;
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = min(lane + k * THREADS, COLS4 - 1u);
        // All parts are asked for before the first is used.
        var parts: array<vec4<f32>, PARTS_MAX>;
        var info: array<vec2<f32>, PARTS_MAX>;
        for (var p = 0u; p < PARTS_MAX; p++) {
            info[p] = vec2(-3.0e38, 0.0);
            if (p < n_parts) {
                info[p] = part_info[(token * PARTS_MAX + p) * n_heads + i / HEAD4];
                parts[p] = x[(token * PARTS_MAX + p) * COLS4 + i];
            }
        }
        var most = info[0].x;
        for (var p = 1u; p < PARTS_MAX; p++) { most = max(most, info[p].x); }
        var sum = 0.0;
        var acc = vec4(0.0);
        for (var p = 0u; p < PARTS_MAX; p++) {
            let e = exp(max(info[p].x - most, -87.0));
            sum += e * info[p].y;
            acc += e * parts[p];
        }
        if (lane + k * THREADS < COLS4) { (*row)[k] = acc / sum; }
    }
}

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
