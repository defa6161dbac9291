// y[t][row] = dot(x[t], W[row]) with codes of wide_codes.wgsl as floats: heads, whose logits take float
// activations. SPLITS threads share TILES rows, 8 apart, with the blocks of columns b, b + SPLITS ...;
// a workgroup has TEAMS such teams of 8 * SPLITS threads, and multiplies each weight with ROWS rows of
// x. A row's sum is the same chain of fma, whatever ROWS is. Grid: (rows of W / workgroup's, rows of x /
// ROWS).
override SPLITS: u32;
override TEAMS: u32;
override ROWS: u32; // at most 8
override ADD: bool;
override SOFT_CAP: f32 = 0.0; // of scores; 0: none
override FIRST_ROW: u32;      // of a part
override N_ROWS: u32;
override Y_COLS: u32;         // rows of the whole matrix
override OUTPUTS: bool;       // rows of x are counted from run.first_output on, those of y from 0
override CHUNK_ROWS: u32 = 1u; // of y at most, then
const ROWS_MAX = 8u;
const TILES = 2u;

@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

override N_SUMS: u32 = TILES * THREADS;
var<workgroup> sums: array<f32, N_SUMS>; // [tile][thread]

alias Acc = array<array<f32, TILES>, ROWS_MAX>;
fn add_block(tiles: array<u32, TILES>, row: u32, b: u32, token: u32, count: u32,
             acc: ptr<function, Acc>) {
    var c: array<Wide, TILES>;
    var s: array<Scales, TILES>;
    for (var k = 0u; k < TILES; k++) {
        c[k] = wide_codes(tiles[k], b, row);
        s[k] = scales_of(scale_words(tiles[k], b, row));
    }
    for (var i = 0u; i < 4u; i++) { // of 16 columns each
        var codes: array<vec4<u32>, TILES>;
        var f: array<vec2<f32>, TILES>;
        for (var k = 0u; k < TILES; k++) {
            codes[k] = quarter(c[k], i);
            f[k] = factors(s[k], i * PARTS / 4u);
        }
        for (var t = 0u; t < ROWS; t++) {
            let at = ((token + min(t, count - 1u)) * BLOCKS + b) * 16u + i * 4u;
            let x0 = x[at];
            let x1 = x[at + 1u];
            let x2 = x[at + 2u];
            let x3 = x[at + 3u];
            let total = sum_of_16(x0, x1, x2, x3);
            for (var k = 0u; k < TILES; k++) {
                let dot = dot_of_16(codes[k], x0, x1, x2, x3);
                (*acc)[t][k] = add_16((*acc)[t][k], f[k], dot, total);
            }
        }
    }
}

fn write(to: u32, value: f32) {
    if (ADD) { y[to] = y[to] + value; } else { y[to] = capped_by(SOFT_CAP, vec4(value)).x; }
}

fn multiply(group: u32, y_row: u32, lane: u32) {
    let team = lane / (8u * SPLITS);
    let in_team = lane % (8u * SPLITS);
    var token = y_row;
    var count = 1u; // how many of the ROWS exist
    if (OUTPUTS) { token += run.first_output; }
    if (ROWS > 1u) {
        count = run.n_tokens;
        if (OUTPUTS) { count = min(run.n_outputs - run.first_output, CHUNK_ROWS); }
        count = min(count - y_row, ROWS);
    }
    var tiles: array<u32, TILES>;
    for (var k = 0u; k < TILES; k++) {
        let tile = min((group * TEAMS + team) * TILES + k, (N_ROWS + 7u) / 8u - 1u);
        tiles[k] = 16u + tile * TILE_VECS;
    }
    var acc: Acc;
    for (var b = in_team / 8u; b < BLOCKS; b += SPLITS) {
        add_block(tiles, in_team % 8u, b, token, count, &acc);
    }
    // Row `own` of the workgroup's: of tile own / 8 % TILES of a team.
    let own = lane % (8u * TILES * TEAMS);
    let place = own / 8u % TILES * THREADS + own / (8u * TILES) * 8u * SPLITS + own % 8u;
    let to = group * 8u * TILES * TEAMS + own;
    for (var t = 0u; t < ROWS; t++) {
        workgroupBarrier();
        for (var k = 0u; k < TILES; k++) { sums[k * THREADS + lane] = acc[t][k]; }
        workgroupBarrier();
        if (lane == own && to < N_ROWS && t < count) {
            var sum = 0.0;
            for (var i = 0u; i < SPLITS; i++) { sum += sums[place + 8u * i]; }
            write((y_row + t) * Y_COLS + FIRST_ROW + to, sum);
        }
    }
}

@compute @workgroup_size(THREADS)
fn linear(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_groups: vec3<u32>,
          @builtin(local_invocation_index) lane: u32) {
    let number = id.y * n_groups.x + id.x; // those with the same weights are neighbours in time
    multiply(number / n_groups.y, number % n_groups.y * ROWS, lane);
}

// The same where, in one of the rows of x, more tokens may be the greatest than a list of
// head_pick.wgsl has room for.
override LIST: u32 = 0u;
@group(0) @binding(4) var<storage, read> listed: array<u32>; // of each row
var<workgroup> is_open: u32;

@compute @workgroup_size(THREADS)
fn linear_open(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_groups: vec3<u32>,
               @builtin(local_invocation_index) lane: u32) {
    let number = id.y * n_groups.x + id.x;
    let y_row = number % n_groups.y * ROWS;
    let count = min(run.n_outputs - run.first_output, CHUNK_ROWS);
    if (lane == 0u) { is_open = 0u; }
    workgroupBarrier();
    if (lane < ROWS && y_row + lane < count && listed[y_row + lane] > LIST) { is_open = 1u; }
    if (workgroupUniformLoad(&is_open) == 0u) { return; }
    let each = 8u * TILES * TEAMS;
    for (var group = number / n_groups.y; group * each < N_ROWS; group += n_groups.x) {
        multiply(group, y_row, lane);
        workgroupBarrier();
    }
}
