// The logits of tokens that may be the greatest, with the bits of float_linear.wgsl: 32 threads share
// four of them as they do four neighbours there.
override N_ROWS: u32;
override CHUNK_ROWS: u32 = 1u;
override LIST: u32 = 0u;

@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> lists: array<u32>;

// Of four tokens: thread i gets that of number i % 32 / 8. Rows arrive four steps at a time.
fn exact(lane: u32, row: u32, r: vec4<u32>) -> f32 {
    let begin = (run.first_output + row) * COLS4;
    var sum = vec4(0.0);
    for (var first = lane % 32u; first < UNITS; first += 128u) {
        var w: array<Weights, 4>;
        for (var s = 0u; s < 4u; s++) { w[s] = ask_weights(r, first + 32u * s); }
        for (var s = 0u; s < 4u; s++) {
            let i = first + 32u * s;
            if (i < UNITS) {
                for (var k = 0u; k < EACH; k++) {
                    sum = fma4(columns4(w[s], k), x[begin + i * EACH + k], sum);
                }
            }
        }
    }
    var sums: array<vec4<f32>, 8>;
    sums[0] = sum;
    return sums_of_32(lane, 1u, &sums);
}

// Those that head_pick.wgsl has listed. Grid: (lists / 32, rows).
var<workgroup> listed: u32;

@compute @workgroup_size(256)
fn head_exact(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { listed = lists[id.y]; }
    let n = workgroupUniformLoad(&listed);
    if (n > LIST || id.x * 32u >= n) { return; }
    let list = CHUNK_ROWS + id.y * LIST;
    let at = id.x * 32u + lane / 32u * 4u;
    let r = vec4(lists[list + min(at, n - 1u)], lists[list + min(at + 1u, n - 1u)],
                 lists[list + min(at + 2u, n - 1u)], lists[list + min(at + 3u, n - 1u)]);
    let s = exact(lane, id.y, r);
    let number = lane % 32u / 8u;
    if (lane % 8u == 0u && at + number < n) { y[id.y * N_ROWS + r[number]] = s; }
}

// Those that may be the greatest of the one row of head_screen_few.wgsl, however many they are, and
// the greatest of them in each of PARTS parts, as top.wgsl has it. Grid: (parts, 1).
override PARTS: u32 = 1u;
@group(0) @binding(5) var<storage, read_write> parts: array<vec2<u32>>; // index, logit

const ROUND = 1024u; // tokens that a workgroup looks at at a time
var<workgroup> n_open: atomic<u32>;
var<workgroup> n_now: u32;
var<workgroup> open: array<u32, ROUND>;
var<workgroup> best: array<vec2<u32>, 32>;

const NOBODY = 0x7fffffffu;
const LEAST = -3.4028234e38;
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let u = bitcast<f32>(a.y);
    let v = bitcast<f32>(b.y);
    if (u > v || (u == v && a.x < b.x)) { return a; }
    return b;
}

@compute @workgroup_size(256)
fn head_open(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let least = float_at(lists[0]);
    var mine = vec2(NOBODY, bitcast<u32>(LEAST));
    for (var first = id.x * ROUND; first < N_ROWS; first += PARTS * ROUND) {
        if (lane == 0u) { atomicStore(&n_open, 0u); }
        workgroupBarrier();
        for (var k = 0u; k < ROUND; k += 256u) {
            let i = first + k + lane;
            if (i < N_ROWS && y[i] >= least) { open[atomicAdd(&n_open, 1u)] = i; }
        }
        workgroupBarrier();
        if (lane == 0u) { n_now = atomicLoad(&n_open); }
        let n = workgroupUniformLoad(&n_now);
        for (var begin = 0u; begin < n; begin += 32u) {
            let at = begin + lane / 32u * 4u;
            let r = vec4(open[min(at, n - 1u)], open[min(at + 1u, n - 1u)],
                         open[min(at + 2u, n - 1u)], open[min(at + 3u, n - 1u)]);
            let s = exact(lane, 0u, r);
            let number = lane % 32u / 8u;
            if (at + number < n) { mine = better(vec2(r[number], bitcast<u32>(s)), mine); }
        }
        workgroupBarrier();
    }
    if (lane % 8u == 0u) { best[lane / 8u] = mine; }
    workgroupBarrier();
    if (lane != 0u) { return; }
    for (var i = 1u; i < 32u; i++) { mine = better(best[i], mine); }
    parts[id.x] = mine;
}
