// The greatest logit of each row and its index, the lowest of equals; NaN never wins. Two stages:
// PARTS workgroups a row, then one. Grid: (parts, rows), (1, rows).
override COLS: u32;
override PARTS: u32; // at most 256

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> parts: array<vec2<u32>>; // index, logit
@group(0) @binding(3) var<storage, read_write> y: array<vec2<u32>>;

var<workgroup> best_value: array<f32, 256>;
var<workgroup> best_index: array<u32, 256>;

fn is_better(a: f32, i: u32, b: f32, j: u32) -> bool { return a > b || (a == b && i < j); }

fn reduce(lane: u32, value: f32, index: u32) {
    best_value[lane] = value;
    best_index[lane] = index;
    for (var step = 128u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step && is_better(best_value[lane + step], best_index[lane + step],
                                     best_value[lane], best_index[lane])) {
            best_value[lane] = best_value[lane + step];
            best_index[lane] = best_index[lane + step];
        }
    }
    workgroupBarrier();
}

const NOBODY = 0x7fffffffu;
const LEAST = -3.4028234e38;

@compute @workgroup_size(256)
fn top_parts(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var value = LEAST;
    var index = NOBODY;
    for (var i = group.x * 256u + lane; i < COLS; i += PARTS * 256u) {
        let v = x[group.y * COLS + i];
        if (is_better(v, i, value, index)) {
            value = v;
            index = i;
        }
    }
    reduce(lane, value, index);
    if (lane == 0u) {
        parts[group.y * PARTS + group.x] = vec2(best_index[0], bitcast<u32>(best_value[0]));
    }
}

@compute @workgroup_size(256)
fn top_row(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var value = LEAST;
    var index = NOBODY;
    if (lane < PARTS) {
        let p = parts[group.y * PARTS + lane];
        value = bitcast<f32>(p.y);
        index = p.x;
    }
    reduce(lane, value, index);
    if (lane == 0u) { y[group.y] = vec2(best_index[0], bitcast<u32>(best_value[0])); }
}
