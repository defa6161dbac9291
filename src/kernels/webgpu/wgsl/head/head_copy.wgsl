// The 8-bit copy of a head's rows for head_screen_*.wgsl, and how far from it they are
// (head_bound.wgsl). A workgroup makes a row. Grid: (32768, rows / 32768). Comes behind a file that
// has COLS4, weights4 and sizes4: what a row's products are computed from.
override N_ROWS: u32;
override Q_WORDS: u32; // of a row of the copy, zeros after its end

@group(0) @binding(2) var<storage, read_write> codes: array<u32>;
@group(0) @binding(3) var<storage, read_write> infos: array<vec4<f32>>; // step, |w|, |r| or FAR

fn packed(v: vec4<i32>) -> u32 {
    let b = bitcast<vec4<u32>>(v) & vec4(0xffu);
    return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}

fn columns_of(row: u32, i: u32) -> vec4<f32> {
    if (i >= COLS4) { return vec4(0.0); }
    return weights4(row, i);
}

fn sizes_of(row: u32, i: u32) -> vec4<f32> {
    if (i >= COLS4) { return vec4(0.0); }
    return sizes4(row, i);
}

@compute @workgroup_size(256)
fn head_copy(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = id.y * 32768u + id.x;
    if (row >= N_ROWS) { return; }
    var far = 0.0;
    var most = 0.0;
    for (var i = lane; i < COLS4; i += 256u) {
        let v = weights4(row, i);
        if (is_far(v)) {
            far = 1.0;
        } else {
            let m = max(abs(v.xy), abs(v.zw));
            most = max(most, max(m.x, m.y));
        }
    }
    let all = workgroup_sum_max(lane, far, most);
    var factor = 0.0;
    var step = 0.0;
    if (all.x == 0.0 && all.y > 1e-30) {
        factor = 127.0 / all.y;
        step = all.y * 0.007874016;
    }
    var squares = 0.0;
    var rests = 0.0;
    for (var i = lane; i < Q_WORDS; i += 256u) {
        let v = columns_of(row, i);
        var c = vec4(0);
        if (all.x == 0.0) {
            c = integers(v, factor);
            let r = v - step * vec4<f32>(c);
            let size = sizes_of(row, i);
            squares += dot(size, size);
            rests += dot(r, r);
        }
        codes[row * Q_WORDS + i] = packed(c);
    }
    workgroupBarrier();
    let length = workgroup_sum_max(lane, squares, 0.0).x;
    workgroupBarrier();
    let rest = workgroup_sum_max(lane, rests, 0.0).x;
    if (lane != 0u) { return; }
    // Each number of r has lost two roundings of numbers the size of w.
    let w = length_up(length);
    var info = vec4(step, w, length_up(rest) + w * 4.7683716e-7, 0.0);
    if (all.x != 0.0) { info = vec4(0.0, 0.0, FAR, 0.0); }
    infos[row] = info;
}
