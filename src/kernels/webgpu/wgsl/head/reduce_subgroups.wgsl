// Sums over a workgroup, by subgroups of 32 threads, all full.
var<workgroup> part_f: array<vec2<f32>, (THREADS + 31u) / 32u>;

// Whole numbers that are ordered like the floats: their maximum is one instruction, that of floats
// is five steps.
fn ordered(v: f32) -> i32 {
    let bits = bitcast<i32>(v);
    return bits ^ ((bits >> 31u) & 0x7fffffff);
}
fn unordered(v: i32) -> f32 { return bitcast<f32>(v ^ ((v >> 31u) & 0x7fffffff)); }

// The sum of the first values and the greatest of the second. The caller puts a barrier between two
// calls: it would be wasted where there is only one.
fn workgroup_sum_max(lane: u32, sum: f32, most: f32) -> vec2<f32> {
    let s = vec2(subgroupAdd(sum), unordered(subgroupMax(ordered(most))));
    if (lane % 32u == 0u) { part_f[lane / 32u] = s; }
    workgroupBarrier();
    // There are at most 32 parts: every subgroup combines them for itself.
    let n = (THREADS + 31u) / 32u;
    let part = part_f[min(lane % 32u, n - 1u)];
    let all = subgroupMax(bitcast<i32>(part.y));
    var mine = part.x;
    if (lane % 32u >= n) { mine = 0.0; }
    let total = subgroupAdd(mine);
    return vec2(total, unordered(all));
}

// The sum over 32 neighbouring threads.
fn sum_of_32(lane: u32, value: vec4<f32>) -> vec4<f32> { return subgroupAdd(value); }

// The sums over 32 neighbouring threads of n vec4s, n = 1, 2, 4 or 8: of these 4n numbers thread i
// gets number i * n / 8. Two threads that differ in a bit each give away one half of the numbers
// and go on with the other, so 32 sums take 31 exchanges and not 160. A number is summed up in the
// same order whatever n is.
fn meet(lane: u32, step: u32, a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    var mine = a;
    var other = b;
    if ((lane & step) != 0u) {
        mine = b;
        other = a;
    }
    return mine + subgroupShuffleXor(other, step);
}
fn halve(lane: u32, step: u32, n: u32, v: ptr<function, array<vec4<f32>, 8>>) {
    for (var i = 0u; i < n; i++) { (*v)[i] = meet(lane, step, (*v)[i], (*v)[n + i]); }
}
fn sums_of_32(lane: u32, n: u32, v: ptr<function, array<vec4<f32>, 8>>) -> f32 {
    var step = 16u;
    if (n >= 8u) {
        halve(lane, step, 4u, v);
        step /= 2u;
    }
    if (n >= 4u) {
        halve(lane, step, 2u, v);
        step /= 2u;
    }
    if (n >= 2u) {
        halve(lane, step, 1u, v);
        step /= 2u;
    }
    let two = meet(lane, step, (*v)[0], (*v)[0].zwzw);
    var one = meet(lane, step / 2u, two, two.yxyx).x;
    for (step /= 4u; step > 0u; step /= 2u) { one += subgroupShuffleXor(one, step); }
    return one;
}

// The greatest of 32 neighbouring threads, of four values at once or of one.
fn max4_of_32(lane: u32, value: vec4<f32>) -> vec4<f32> { return subgroupMax(value); }
fn max_of_32(lane: u32, value: f32) -> f32 { return subgroupMax(value); }

// The greatest, or the sum, of 16 neighbouring threads.
fn max_over_16(lane: u32, value: f32) -> f32 {
    var v = value;
    for (var step = 8u; step > 0u; step /= 2u) { v = max(v, subgroupShuffleXor(v, step)); }
    return v;
}
fn sum_over_16(lane: u32, value: i32) -> i32 {
    var v = value;
    for (var step = 8u; step > 0u; step /= 2u) { v += subgroupShuffleXor(v, step); }
    return v;
}

// The sum over the subgroup's threads whose numbers are equal modulo 8, in each of them: SHARE
// threads have shared their sums.
const SHARE = 32u;
fn sum_of_every_8th(value: i32) -> i32 {
    let v = value + subgroupShuffleXor(value, 8u);
    return v + subgroupShuffleXor(v, 16u);
}

// A sum of integers over a workgroup: begin it; after a barrier, every thread adds to it; after
// another one, all can read it. The barriers are the caller's.
var<workgroup> part_i: array<i32, (THREADS + 31u) / 32u>;
fn begin_int_sum(lane: u32) {}
fn add_to_int_sum(lane: u32, value: i32) {
    let s = subgroupAdd(value);
    if (lane % 32u == 0u) { part_i[lane / 32u] = s; }
}
fn int_sum(lane: u32) -> i32 {
    let n = (THREADS + 31u) / 32u;
    var mine = part_i[min(lane % 32u, n - 1u)];
    if (lane % 32u >= n) { mine = 0; }
    return subgroupAdd(mine);
}

// The words of four neighbouring threads; valid in the first of them.
fn word_of_four(lane: u32, word: u32) -> vec4<u32> {
    return vec4(word, subgroupShuffleXor(word, 1u), subgroupShuffleXor(word, 2u),
                subgroupShuffleXor(word, 3u));
}
