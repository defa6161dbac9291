// Weights rounded as a file of an element type holds them: the rules of base/dtype/dtype_round.c,
// with sums in another order. 32 threads a group of GROUP numbers, eight groups at once, 4096
// numbers a workgroup. Grid: (N / 4096).
override N: u32; // numbers, a multiple of GROUP
override GROUP: u32; // 32, 64, 128 or 256
override KIND: u32; // 0: trits, 1: bits, 2: q4_0, 3: q8_0

@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// To f16 and back; to the nearest, of two the even one. Below 2^-14 its steps are 2^-24.
fn as_half(v: f32) -> f32 {
    let size = min(abs(v), 65504.0);
    if (size < 0x1p-14) { return sign(v) * round(size * 0x1p24) * 0x1p-24; }
    let bits = bitcast<u32>(size);
    return sign(v) * bitcast<f32>((bits + 0xfffu + ((bits >> 13u) & 1u)) & 0xffffe000u);
}

var<private> mine: array<f32, 8>;

// Mean of the sizes above `least`; 0: there are none.
fn mean_above(lane: u32, n: u32, least: f32) -> f32 {
    var sums = vec4(0.0);
    for (var k = 0u; k < n; k++) {
        if (abs(mine[k]) > least) { sums += vec4(abs(mine[k]), 1.0, 0.0, 0.0); }
    }
    sums = sum_of_32(lane, sums);
    if (sums.y == 0.0) { return 0.0; }
    return sums.x / sums.y;
}

// The number of greatest size, with its sign.
fn extreme(lane: u32) -> f32 {
    let most = max_of_32(lane, mine[0]);
    let least = -max_of_32(lane, -mine[0]);
    return select(least, most, most >= -least);
}

fn rounded(v: f32, scale: f32, low: f32, high: f32) -> f32 {
    if (scale == 0.0) { return 0.0; }
    return clamp(round(v * (1.0 / scale)), low, high) * scale;
}

@compute @workgroup_size(256)
fn fake_quantize(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let n = GROUP / 32u;
    for (var part = 0u; part < 512u / GROUP; part++) {
        let first = group.x * 4096u + (part * 8u + lane / 32u) * GROUP + lane % 32u;
        for (var i = 0u; i < n; i++) { mine[i] = x[min(first + i * 32u, N - 1u)]; }
        var scale = 0.0;
        if (KIND == 0u) {
            scale = 1.5 * mean_above(lane, n, -1.0);
            for (var turn = 0u; turn < 8u; turn++) { scale = mean_above(lane, n, scale / 2.0); }
        } else if (KIND == 1u) {
            scale = mean_above(lane, n, -1.0);
        } else if (KIND == 2u) {
            scale = extreme(lane) / -8.0;
        } else {
            scale = abs(extreme(lane)) / 127.0;
        }
        scale = as_half(scale);
        for (var i = 0u; i < n && first + i * 32u < N; i++) {
            let v = mine[i];
            var out = select(scale, -scale, v < 0.0);
            if (KIND == 0u && abs(v) <= scale / 2.0) { out = 0.0; }
            if (KIND == 2u) { out = rounded(v, scale, -8.0, 7.0); }
            if (KIND == 3u) { out = rounded(v, scale, -127.0, 127.0); }
            y[first + i * 32u] = out + run.unrounded * (v - out);
        }
    }
}

// Factors of products as halves: rows as they are, or rows that become columns, of which a
// workgroup turns 64 rows of 32 columns. Rows past the last are 0 then, since reductions over them
// take eight steps at a time. Grids: (16 COLS4 / 256, rows / 16), (columns / 32, rows / 64).
override COLS4: u32;
override COUNT: u32; // rows; 0: those of the run
override LD4: u32;   // rows in memory / 4

@group(0) @binding(3) var<storage, read> rows: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> rows_half: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> y_half: array<vec2<u32>>;

const NEXT = 65u;
var<workgroup> tile: array<f32, 2080>;

fn n_rows() -> u32 { return select(COUNT, run.n_tokens, COUNT == 0u); }

@compute @workgroup_size(256)
fn round_half(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 256u + lane;
    let at = group.y * 16u * COLS4 + i;
    if (i < 16u * COLS4 && at < n_rows() * COLS4) { y_half[at] = halves(rows[at]); }
}

struct Place { at: u32, to: u32, here: bool }
fn place(group: vec3<u32>, i: u32) -> Place {
    let row = group.y * 64u + i / 8u;
    let column = group.x * 8u + i % 8u;
    return Place(row * COLS4 + column, i % 8u * 4u * NEXT + i / 8u,
                 row < n_rows() && column < COLS4);
}
fn keep(to: u32, v: vec4<f32>) {
    for (var k = 0u; k < 4u; k++) { tile[to + k * NEXT] = v[k]; }
}
fn write(group: vec3<u32>, lane: u32) {
    workgroupBarrier();
    for (var i = lane; i < 512u; i += 256u) {
        let column = group.x * 32u + i / 16u;
        let row4 = group.y * 16u + i % 16u;
        let at = i / 16u * NEXT + i % 16u * 4u;
        if (column < COLS4 * 4u && row4 < LD4) {
            let v = vec4(tile[at], tile[at + 1u], tile[at + 2u], tile[at + 3u]);
            y_half[column * LD4 + row4] = halves(v);
        }
    }
}

@compute @workgroup_size(256)
fn turn(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = lane; i < 512u; i += 256u) {
        let p = place(group, i);
        var v = vec4(0.0);
        if (p.here) { v = rows[p.at]; }
        keep(p.to, v);
    }
    write(group, lane);
}
@compute @workgroup_size(256)
fn turn_half(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = lane; i < 512u; i += 256u) {
        let p = place(group, i);
        var v = vec4(0.0);
        if (p.here) {
            let h = rows_half[p.at];
            v = vec4(unpack2x16float(h.x), unpack2x16float(h.y));
        }
        keep(p.to, v);
    }
    write(group, lane);
}
