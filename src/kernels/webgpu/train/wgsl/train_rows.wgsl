// Ops on whole rows, of T rows: 32 threads a row, eight rows a workgroup. Grid: (T / 8). A norm by
// head has GROUPS rows to a token, which share w. Grid: (T / 8, GROUPS).
override COLS4: u32; // of a row, a multiple of 4 columns
override GROUPS: u32 = 1u;
override EPS: f32;
override ADD: bool = false; // to the gradient: what else x got
override CHUNK: u32; // tokens whose share of dw is one part
override PLAIN: bool = false;    // a norm without a weight
override BIASED: bool = false; // a LayerNorm with a bias, which lies in dy
override CENTERED: bool = false; // dw of a LayerNorm

@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> residual: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
// 1 / sqrt(mean x^2 + eps) of each row; then, of a LayerNorm, where x is centered, the means
@group(0) @binding(6) var<storage, read_write> root: array<f32>;
@group(0) @binding(7) var<storage, read> root_of: array<f32>;
@group(0) @binding(8) var<storage, read_write> y_half: array<vec2<u32>>; // instead of y

fn row_of(group: vec3<u32>, lane: u32) -> u32 {
    return (group.x * 8u + lane / 32u) * GROUPS + group.y;
}
fn n_rows() -> u32 { return run.n_tokens * GROUPS; }
fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

fn weight(i: u32) -> vec4<f32> {
    if (PLAIN) { return vec4(1.0); }
    return w[i];
}
fn inverse_root(sum: f32) -> f32 { return 1.0 / sqrt(sum / f32(4u * COLS4) + EPS); }

fn norm_of(row: u32, lane: u32) -> f32 {
    var squares = vec4(0.0);
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        let v = x[row * COLS4 + i];
        squares = fma(v, v, squares);
    }
    return inverse_root(total(sum_of_32(lane, squares)));
}

@compute @workgroup_size(256)
fn rms_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let base = min(row, n_rows() - 1u);
    let r = norm_of(base, lane);
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        y[row * COLS4 + i] = x[row * COLS4 + i] * r * weight(i);
    }
}

// Values that int8 codes stand for: round(x s) / s, s = 127 / max|x|.
fn rounded(v: vec4<f32>, s: f32) -> vec4<f32> {
    return clamp(round(v * s), vec4(-128.0), vec4(127.0)) / s;
}
fn greatest(v: vec4<f32>) -> f32 {
    let m = abs(v);
    return max(max(m.x, m.y), max(m.z, m.w));
}

fn scale_of(row: u32, lane: u32) -> f32 {
    var most = 0.0;
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        most = max(most, greatest(x[row * COLS4 + i]));
    }
    return 127.0 / max(max_of_32(lane, most), 1e-5);
}
fn scale_of_norm(row: u32, lane: u32, r: f32) -> f32 {
    var most = 0.0;
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        most = max(most, greatest(x[row * COLS4 + i] * r * w[i]));
    }
    return 127.0 / max(max_of_32(lane, most), 1e-5);
}

@compute @workgroup_size(256)
fn quantize(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let s = scale_of(min(row, n_rows() - 1u), lane);
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        y[row * COLS4 + i] = rounded(x[row * COLS4 + i], s);
    }
}
@compute @workgroup_size(256)
fn quantize_half(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let s = scale_of(min(row, n_rows() - 1u), lane);
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        y_half[row * COLS4 + i] = halves(rounded(x[row * COLS4 + i], s));
    }
}

@compute @workgroup_size(256)
fn norm_quantize(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let base = min(row, n_rows() - 1u);
    let r = norm_of(base, lane);
    let s = scale_of_norm(base, lane, r);
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        y[row * COLS4 + i] = rounded(x[row * COLS4 + i] * r * w[i], s);
    }
}
@compute @workgroup_size(256)
fn norm_quantize_half(@builtin(workgroup_id) group: vec3<u32>,
                      @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let base = min(row, n_rows() - 1u);
    let r = norm_of(base, lane);
    let s = scale_of_norm(base, lane, r);
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        y_half[row * COLS4 + i] = halves(rounded(x[row * COLS4 + i] * r * w[i], s));
    }
}

// dx = r (g - x r^2 (x . g) / n), g = dy w.
@compute @workgroup_size(256)
fn norm_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let base = min(row, n_rows() - 1u);
    var sums = vec4(0.0);
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        let v = x[base * COLS4 + i];
        sums += vec4(dot(v, v), dot(v, dy[base * COLS4 + i] * weight(i)), 0.0, 0.0);
    }
    sums = sum_of_32(lane, sums);
    let r = inverse_root(sums.x);
    let along = r * r * sums.y / f32(4u * COLS4);
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        let at = row * COLS4 + i;
        var dx = r * (dy[at] * weight(i) - x[at] * along);
        if (ADD) { dx += residual[at]; }
        y[at] = dx;
    }
    if (lane % 32u == 0u) { root[row] = r; }
}

fn mean_of(row: u32, lane: u32) -> f32 {
    var sum = vec4(0.0);
    for (var i = lane % 32u; i < COLS4; i += 32u) { sum += x[row * COLS4 + i]; }
    return total(sum_of_32(lane, sum)) / f32(4u * COLS4);
}

@compute @workgroup_size(256)
fn layer_norm(@builtin(workgroup_id) group: vec3<u32>,
              @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let base = min(row, n_rows() - 1u);
    let mean = mean_of(base, lane);
    var squares = vec4(0.0);
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        let v = x[base * COLS4 + i] - mean;
        squares = fma(v, v, squares);
    }
    let r = inverse_root(total(sum_of_32(lane, squares)));
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        var v = (x[row * COLS4 + i] - mean) * r * weight(i);
        if (BIASED) { v += dy[i]; }
        y[row * COLS4 + i] = v;
    }
}

// dx = r (g - mean(g) - x r^2 (x . g) / n) with the centered x, g = dy w.
@compute @workgroup_size(256)
fn layer_norm_grad(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(local_invocation_index) lane: u32) {
    let row = row_of(group, lane);
    let base = min(row, n_rows() - 1u);
    let mean = mean_of(base, lane);
    var sums = vec4(0.0);
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        let v = x[base * COLS4 + i] - mean;
        let g = dy[base * COLS4 + i] * weight(i);
        sums += vec4(dot(v, v), dot(v, g), total(g), 0.0);
    }
    sums = sum_of_32(lane, sums);
    let r = inverse_root(sums.x);
    let along = r * r * sums.y / f32(4u * COLS4);
    let g_mean = sums.z / f32(4u * COLS4);
    if (row >= n_rows()) { return; }
    for (var i = lane % 32u; i < COLS4; i += 32u) {
        let at = row * COLS4 + i;
        y[at] = r * (dy[at] * weight(i) - g_mean - (x[at] - mean) * along);
    }
    if (lane % 32u != 0u) { return; }
    root[row] = r;
    root[n_rows() + row] = mean;
}

// Part z of dw = sum over the rows of its CHUNK tokens of dy x r. Grid: (COLS4 / 64, T / CHUNK).
var<workgroup> slots: array<vec4<f32>, 256>;
@compute @workgroup_size(256)
fn norm_grad_w(@builtin(workgroup_id) group: vec3<u32>,
               @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 64u + lane % 64u;
    let end = min(n_rows(), (group.y + 1u) * CHUNK * GROUPS);
    var sum = vec4(0.0);
    if (i < COLS4) {
        for (var row = group.y * CHUNK * GROUPS + lane / 64u; row < end; row += 4u) {
            var v = x[row * COLS4 + i];
            if (CENTERED) { v -= root_of[n_rows() + row]; }
            sum = fma(dy[row * COLS4 + i], v * root_of[row], sum);
        }
    }
    slots[lane] = sum;
    workgroupBarrier();
    if (lane < 64u && i < COLS4) {
        y[group.y * COLS4 + i] =
            (slots[lane] + slots[lane + 64u]) + (slots[lane + 128u] + slots[lane + 192u]);
    }
}
