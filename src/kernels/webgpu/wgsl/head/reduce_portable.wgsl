// Sums over a workgroup: each of sixteen threads adds a sixteenth, then everyone adds the sixteen.
var<workgroup> part_f: array<vec2<f32>, THREADS>;
var<workgroup> sum_f: array<vec2<f32>, 16>;

// The sum of the first values and the greatest of the second. The caller puts a barrier between two
// calls, as in reduce_subgroups.wgsl.
fn workgroup_sum_max(lane: u32, sum: f32, most: f32) -> vec2<f32> {
    part_f[lane] = vec2(sum, most);
    workgroupBarrier();
    if (lane < 16u) {
        var s = part_f[lane];
        for (var i = lane + 16u; i < THREADS; i += 16u) {
            s = vec2(s.x + part_f[i].x, max(s.y, part_f[i].y));
        }
        sum_f[lane] = s;
    }
    workgroupBarrier();
    var s = sum_f[0];
    for (var i = 1u; i < 16u; i++) { s = vec2(s.x + sum_f[i].x, max(s.y, sum_f[i].y)); }
    return s;
}

// The sum over 32 neighbouring threads.
var<workgroup> of_32: array<vec4<f32>, THREADS>;
fn sum_of_32(lane: u32, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    of_32[lane] = value;
    for (var step = 16u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane % 32u < step) { of_32[lane] += of_32[lane + step]; }
    }
    workgroupBarrier();
    return of_32[lane / 32u * 32u];
}

// The sums of n vec4s, n = 1, 2, 4 or 8: of these 4n numbers thread i gets number i * n / 8.
fn sums_of_32(lane: u32, n: u32, v: ptr<function, array<vec4<f32>, 8>>) -> f32 {
    let number = lane % 32u * n / 8u;
    var mine = 0.0;
    for (var i = 0u; i < n; i++) {
        let sum = sum_of_32(lane, (*v)[i]);
        if (number / 4u == i) { mine = sum[number % 4u]; }
    }
    return mine;
}

// The greatest of 32 neighbouring threads, of four values at once or of one.
fn max4_of_32(lane: u32, value: vec4<f32>) -> vec4<f32> {
    workgroupBarrier();
    of_32[lane] = value;
    for (var step = 16u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane % 32u < step) { of_32[lane] = max(of_32[lane], of_32[lane + step]); }
    }
    workgroupBarrier();
    return of_32[lane / 32u * 32u];
}
fn max_of_32(lane: u32, value: f32) -> f32 { return max4_of_32(lane, vec4(value)).x; }

// The greatest, or the sum, of 16 neighbouring threads.
var<workgroup> of_16: array<f32, THREADS>;
fn max_over_16(lane: u32, value: f32) -> f32 {
    workgroupBarrier();
    of_16[lane] = value;
    workgroupBarrier();
    var most = value;
    for (var i = lane / 16u * 16u; i < lane / 16u * 16u + 16u; i++) { most = max(most, of_16[i]); }
    return most;
}
var<workgroup> ints_of_16: array<i32, THREADS>;
fn sum_over_16(lane: u32, value: i32) -> i32 {
    workgroupBarrier();
    ints_of_16[lane] = value;
    workgroupBarrier();
    var sum = 0;
    for (var i = lane / 16u * 16u; i < lane / 16u * 16u + 16u; i++) { sum += ints_of_16[i]; }
    return sum;
}

// Threads whose numbers are equal modulo 8 may add up their values: here none do.
const SHARE = 8u;
fn sum_of_every_8th(value: i32) -> i32 { return value; }

// A sum of integers over a workgroup; barriers as reduce_subgroups.wgsl says.
var<workgroup> int_total: atomic<i32>;
fn begin_int_sum(lane: u32) {
    if (lane == 0u) { atomicStore(&int_total, 0); }
}
fn add_to_int_sum(lane: u32, value: i32) { atomicAdd(&int_total, value); }
fn int_sum(lane: u32) -> i32 { return atomicLoad(&int_total); }

// The words of four neighbouring threads; valid in the first of them.
var<workgroup> words: array<u32, THREADS>;
fn word_of_four(lane: u32, word: u32) -> vec4<u32> {
    workgroupBarrier();
    words[lane] = word;
    workgroupBarrier();
    let i = lane / 4u * 4u;
    return vec4(words[i], words[i + 1u], words[i + 2u], words[i + 3u]);
}
