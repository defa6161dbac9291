// Norms and quantization, a workgroup for each row: comes before rows.wgsl and rows_gated.wgsl,
// which define the elements of a row.
//
// Quantized rows are int8, four in a word, padded with zeros to Q_WORDS words; each has its
// 1 / scale and the sum of its integers (which takes the codes' offset of one out of the products).
override COLS4: u32;   // columns / 4
override Q_WORDS: u32; // >= COLS4
override EPS: f32;
override ACT: u32;
override TAKES: bool;  // rms_norm, of the outputs' rows among those of all tokens

@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> q: array<u32>;
@group(0) @binding(6) var<storage, read_write> q_info: array<vec2<u32>>; // 1 / scale, sum

fn greatest(v: vec4<f32>) -> f32 {
    let a = abs(v);
    return max(max(a.x, a.y), max(a.z, a.w));
}

fn rounded(v: vec4<f32>) -> vec4<i32> {
    return vec4<i32>(clamp(round(v), vec4(-128.0), vec4(127.0)));
}

fn packed(v: vec4<i32>) -> u32 {
    let b = vec4<u32>(v) & vec4(255u);
    return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

fn total(v: vec4<i32>) -> i32 { return v.x + v.y + v.z + v.w; }

fn inverse_rms(squares: f32) -> f32 { return 1.0 / sqrt(squares / f32(4u * COLS4) + EPS); }

// Integers up to 128 times at most 2^17 columns are exact in the float sum.
fn write_info(lane: u32, row: u32, scale: f32, sum: i32) {
    workgroupBarrier(); // after the reduction that found the scale
    let s = workgroup_sum_max(lane, f32(sum), 0.0).x;
    if (lane == 0u) { q_info[row] = vec2(bitcast<u32>(1.0 / scale), bitcast<u32>(i32(s))); }
}

// In groups of 64 columns, which 16 neighbouring threads have: four of the row's elements become
// integers, and each group gets its scale and the sums of its halves. All threads call this
// together, those after the row's end with zeros.
override GROUPED: bool = false;
fn write_group(number: u32, lane: u32, i: u32, v: vec4<f32>) {
    let f = factor_and_unit(max_over_16(lane, greatest(v)));
    let n = integers(v, f.x);
    let sums = sum_over_16(lane, in_half(lane, total(n)));
    if (i >= COLS4) { return; }
    q[number * Q_WORDS + i] = packed(n);
    if (i % 16u == 0u) {
        q_info[(number * COLS4 + i) / 16u] = vec2(bitcast<u32>(f.y), bitcast<u32>(sums));
    }
}

fn norm_and_quantize_groups(number: u32, lane: u32, r: f32) {
    for (var begin = 0u; begin < COLS4; begin += THREADS) {
        let i = begin + lane;
        var v = vec4(0.0);
        if (i < COLS4) { v = value(number * COLS4, i) * r * weight[i]; }
        write_group(number, lane, i, v);
    }
}

// The greatest of the normed row is found before the norm's factor is known: the factor scales all
// alike. A thread keeps its first products x * weight in registers, and computes the rest again.
const KEPT = 4u;

// The next file defines value(row, i), four elements of the row that begins there.
fn norm_and_quantize(number: u32, lane: u32) {
    let row = number * COLS4;
    var kept: array<vec4<f32>, KEPT>;
    var squares = 0.0;
    var most = 0.0;
    for (var k = 0u; k < KEPT; k++) {
        let i = lane + k * THREADS;
        if (i < COLS4) {
            let v = value(row, i);
            kept[k] = v * weight[i];
            squares += dot(v, v);
            most = max(most, greatest(kept[k]));
        }
    }
    for (var i = lane + KEPT * THREADS; i < COLS4; i += THREADS) {
        let v = value(row, i);
        squares += dot(v, v);
        most = max(most, greatest(v * weight[i]));
    }
    let all = workgroup_sum_max(lane, squares, most);
    let r = inverse_rms(all.x);
    if (GROUPED) {
        norm_and_quantize_groups(number, lane, r);
        return;
    }
    let scale = 127.0 / max(all.y * r, 1e-5);
    var sum = 0;
    for (var k = 0u; k < KEPT; k++) {
        let i = lane + k * THREADS;
        if (i < Q_WORDS) {
            let v = rounded(kept[k] * r * scale); // zeros past the row's end
            q[number * Q_WORDS + i] = packed(v);
            sum += total(v);
        }
    }
    for (var i = lane + KEPT * THREADS; i < Q_WORDS; i += THREADS) {
        var v = vec4(0);
        if (i < COLS4) { v = rounded(value(row, i) * weight[i] * r * scale); }
        q[number * Q_WORDS + i] = packed(v);
        sum += total(v);
    }
    write_info(lane, number, scale, sum);
}
