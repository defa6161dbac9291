// Rows of x for head_screen_*.wgsl: as 8-bit integers, one part with a unit for each 64 columns,
// or two with one for the row (head_bound.wgsl). Also: no tokens are left open yet. Grid: (1,
// rows).
override COLS4: u32;
override Q_WORDS: u32; // of a part of a row, zeros after its end
override PARTS: u32;   // 1 or 2
const MOST = 16256.0;  // 127 * 128

@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> q: array<u32>;
@group(0) @binding(3) var<storage, read_write> infos: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> units: array<f32>; // [row][block of 64], of one part
@group(0) @binding(5) var<storage, read_write> lists: array<u32>;

fn packed(v: vec4<i32>) -> u32 {
    let b = bitcast<vec4<u32>>(v) & vec4(0xffu);
    return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

fn greatest(v: vec4<f32>) -> f32 {
    let m = max(abs(v.xy), abs(v.zw));
    return max(m.x, m.y);
}

// Writes four columns of x; returns what is left of them. most: the greatest of their block or row.
fn put(row: u32, i: u32, v: vec4<f32>, most: f32) -> vec4<f32> {
    var factor = 0.0;
    if (PARTS == 1u) {
        var unit = 0.0;
        if (most > 1e-30) {
            factor = 127.0 / most;
            unit = most * 0.007874016;
        }
        let c = integers(v, factor);
        q[row * Q_WORDS + i] = packed(c);
        if (i % 16u == 0u) { units[row * (Q_WORDS / 16u) + i / 16u] = unit; }
        return v - unit * vec4<f32>(c);
    }
    if (most > 1e-30) { factor = MOST / most; }
    let c = vec4<i32>(clamp(round(v * factor), vec4(-MOST), vec4(MOST)));
    let high = (c + vec4(64)) >> vec4(7u);
    q[row * 2u * Q_WORDS + i] = packed(high);
    q[(row * 2u + 1u) * Q_WORDS + i] = packed(c - high * 128);
    return v - unit_of_row(most) * vec4<f32>(c);
}
fn unit_of_row(most: f32) -> f32 {
    if (most > 1e-30) { return most * 6.1515746e-5; }
    return 0.0;
}

@compute @workgroup_size(THREADS)
fn head_x(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begin = (run.first_output + id.y) * COLS4;
    var squares = 0.0; // anything, if a number is too great
    var most = 0.0;
    for (var i = lane; i < COLS4; i += THREADS) {
        let v = x[begin + i];
        if (is_far(v)) { most = BIG; } else { most = max(most, greatest(v)); }
        squares += dot(v, v);
    }
    let all = workgroup_sum_max(lane, squares, most);
    let far = all.y == BIG;
    var rests = 0.0;
    for (var first = 0u; first < Q_WORDS; first += THREADS) {
        let i = first + lane;
        var v = vec4(0.0);
        if (i < COLS4 && !far) { v = x[begin + i]; }
        var top = all.y;
        if (PARTS == 1u) { top = max_over_16(lane, greatest(v)); }
        if (far) { top = 0.0; }
        if (i < Q_WORDS) {
            let r = put(id.y, i, v, top);
            rests += dot(r, r);
        }
    }
    workgroupBarrier();
    let rest = workgroup_sum_max(lane, rests, 0.0).x;
    if (lane != 0u) { return; }
    let l = length_up(all.x);
    let e = length_up(rest) + l * 4.7683716e-7;
    let rounding = ROUNDING * (l + e);
    infos[id.y] = vec4(l + e + rounding, e + rounding, unit_of_row(all.y), 0.0);
    if (far) { infos[id.y] = vec4(0.0, 0.0, 0.0, FAR); }
    lists[id.y] = 0u;
}
