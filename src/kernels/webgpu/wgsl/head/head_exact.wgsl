// The logits of tokens that may be the greatest, with the bits of float_linear.wgsl.
override N_ROWS: u32;
override CHUNK_ROWS: u32 = 1u;
override LIST: u32 = 0u;

@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> lists: array<u32>;

// Those that head_pick.wgsl has listed: 32 threads share four of them as they do four neighbours
// there. Grid: (lists / 32, rows).
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
    let begin = (run.first_output + id.y) * COLS4;
    var sum = vec4(0.0);
    for (var i = lane % 32u; i < UNITS; i += 32u) {
        let w = ask_weights(r, i);
        for (var k = 0u; k < EACH; k++) { sum = fma4(columns4(w, k), x[begin + i * EACH + k], sum); }
    }
    var sums: array<vec4<f32>, 8>;
    sums[0] = sum;
    let s = sums_of_32(lane, 1u, &sums);
    let number = lane % 32u / 8u;
    if (lane % 8u == 0u && at + number < n) { y[id.y * N_ROWS + r[number]] = s; }
}

// Those that may be the greatest of a row of head_screen_few.wgsl, however many they are, and the
// greatest of them in each of PARTS parts, as top.wgsl has it. Grid: (parts, rows).
override PARTS: u32 = 1u;
@group(0) @binding(5) var<storage, read_write> parts: array<vec2<u32>>; // index, logit

// Mostly a workgroup has one such token, or none, and the way to memory takes most of the time: 32
// threads have one row of weights, and ask for all of AT_ONCE steps before they add up the first.
// The chain of fma is that of float_dot.wgsl for one of its four rows, and so is the sum over the
// threads.
const AT_ONCE_MAX = 10u;
override AT_ONCE: u32 = min((UNITS + 31u) / 32u, AT_ONCE_MAX);
fn chain(c: vec4<f32>, v: vec4<f32>, sum: f32) -> f32 {
    let s = fma(c.y, v.y, fma(c.x, v.x, sum));
    return fma(c.w, v.w, fma(c.z, v.z, s));
}
fn exact(lane: u32, row: u32, token: u32) -> f32 {
    let begin = (run.first_output + row) * COLS4;
    var sum = 0.0;
    for (var first = lane % 32u; first < UNITS; first += 32u * AT_ONCE) {
        var codes: array<vec4<u32>, AT_ONCE_MAX>;
        var v: array<array<vec4<f32>, 2>, AT_ONCE_MAX>;
        for (var s = 0u; s < AT_ONCE; s++) {
            let i = min(first + 32u * s, UNITS - 1u);
            codes[s] = w[token * UNITS + i];
            for (var k = 0u; k < EACH; k++) { v[s][k] = x[begin + i * EACH + k]; }
        }
        for (var s = 0u; s < AT_ONCE; s++) {
            if (first + 32u * s < UNITS) {
                for (var k = 0u; k < EACH; k++) {
                    sum = chain(unpacked(codes[s], 1.0, k), v[s][k], sum);
                }
            }
        }
    }
    var sums: array<vec4<f32>, 8>;
    sums[0] = vec4(sum);
    return sums_of_32(lane, 1u, &sums);
}

const ROUND = 2048u; // tokens that a workgroup looks at at a time
var<workgroup> n_open: atomic<u32>;
var<workgroup> n_now: u32;
var<workgroup> open: array<u32, ROUND>;
var<workgroup> best: array<vec2<u32>, 8>;

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
    let least = float_at(lists[id.y]);
    var mine = vec2(NOBODY, bitcast<u32>(LEAST));
    for (var first = id.x * ROUND; first < N_ROWS; first += PARTS * ROUND) {
        var high: array<f32, ROUND / 256u>;
        for (var k = 0u; k < ROUND / 256u; k++) {
            high[k] = y[id.y * N_ROWS + min(first + 256u * k + lane, N_ROWS - 1u)];
        }
        if (lane == 0u) { atomicStore(&n_open, 0u); }
        workgroupBarrier();
        for (var k = 0u; k < ROUND / 256u; k++) {
            let i = first + 256u * k + lane;
            if (i < N_ROWS && high[k] >= least) { open[atomicAdd(&n_open, 1u)] = i; }
        }
        workgroupBarrier();
        if (lane == 0u) { n_now = atomicLoad(&n_open); }
        let n = workgroupUniformLoad(&n_now);
        for (var begin = 0u; begin < n; begin += 8u) {
            let token = open[min(begin + lane / 32u, n - 1u)];
            mine = better(vec2(token, bitcast<u32>(exact(lane, id.y, token))), mine);
        }
        workgroupBarrier();
    }
    if (lane % 32u == 0u) { best[lane / 32u] = mine; }
    for (var step = 4u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) { best[lane] = better(best[lane + step], best[lane]); }
    }
    if (lane == 0u) { parts[id.y * PARTS + id.x] = best[0]; }
}
