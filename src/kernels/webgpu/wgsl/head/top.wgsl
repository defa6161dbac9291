// The greatest logit of each row and its index, the lowest of equals; NaN never wins. Two stages:
// PARTS workgroups a row, then one. Grid: (parts, rows), (1, rows).
//
// For the k greatest, 1 < k <= PARTS, two others follow the first: the k-th greatest of the parts'
// greatest logits, which k logits reach, and a list of all that reach it. What the host does with
// the list, and why it may be too short: gpu_results.c. Grid: (1, rows), (parts, rows).
override COLS: u32;
override PARTS: u32; // at most 256

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> parts: array<vec2<u32>>; // index, logit
@group(0) @binding(3) var<storage, read_write> y: array<vec2<u32>>;

const LIST_ITEMS = 512u;
struct List { // gpu_list of gpu_instance.h
    n: atomic<u32>, // entries that belong on it; only the first fit
    least: f32,
    items: array<vec2<u32>, LIST_ITEMS>, // index, logit; in any order
}
@group(0) @binding(4) var<storage, read_write> lists: array<List>;
@group(0) @binding(5) var<storage, read_write> ids: array<u32>; // of the run: a next step's tokens

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
    if (lane == 0u) {
        y[run.rows_before + group.y] = vec2(best_index[0], bitcast<u32>(best_value[0]));
        // Where each sequence has one row; of a run of one, others are drafts.
        if (group.y == 0u || run.n_chunks == run.n_tokens) { ids[group.y] = best_index[0]; }
    }
}

@compute @workgroup_size(PARTS)
fn top_least(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let value = bitcast<f32>(parts[group.y * PARTS + lane].y);
    best_value[lane] = value;
    workgroupBarrier();
    var n_better = 0u;
    for (var i = 0u; i < PARTS; i++) {
        if (is_better(best_value[i], i, value, lane)) { n_better++; }
    }
    if (n_better + 1u == run.top_k) { lists[group.y].least = value; }
    if (lane == 0u) { atomicStore(&lists[group.y].n, 0u); }
}

@compute @workgroup_size(256)
fn top_list(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let least = lists[group.y].least;
    for (var i = group.x * 256u + lane; i < COLS; i += PARTS * 256u) {
        let v = x[group.y * COLS + i];
        if (v >= least) {
            let at = atomicAdd(&lists[group.y].n, 1u);
            if (at < LIST_ITEMS) { lists[group.y].items[at] = vec2(i, bitcast<u32>(v)); }
        }
    }
}
