// A row of floats becomes int8: norm and quantization by a workgroup. Comes before
// token.wgsl, where every workgroup of a product makes its own copy of the row, and before
// quantize_few.wgsl, which makes the rows of a few tokens once. A row has the same bits either way:
// the text is the same, and so must be THREADS, which the order of the sums depends on.
//
// The quantized row goes to `q`, Q_VECS vec4s, which the next file declares.
override COLS4: u32;  // columns / 4
override NORM: bool;  // else the row is only quantized
override EPS: f32;
// For the attention whose parts make the row; see attention_token.wgsl
override HEAD4: u32;  // dimensions of a head / 4
override PART: u32;   // positions of a tile
override SEES: u32 = 0u; // its window; 0: none
const PARTS_MAX = 8u; // as in gpu.h

@group(0) @binding(2) var<storage, read> norm: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> part_info: array<vec2<f32>>; // greatest score, sum

// What a thread keeps of the row in registers. Loops over it have constant ends, so that they are
// unrolled and no index remains.
const KEPT_X = 8u; // vec4s
override PER_THREAD: u32 = (COLS4 + THREADS - 1u) / THREADS; // <= KEPT_X

fn greatest(v: vec4<f32>) -> f32 {
    let a = abs(v);
    return max(max(a.x, a.y), max(a.z, a.w));
}

// Fills q from `at` on, with zeros past the row's end, and int_sum; returns the factor of the
// integers. BitNet's scale makes the greatest of the normed row 127, and is found from the products
// x * weight, which the norm's factor scales all alike.
fn quantize(lane: u32, at: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>,
            weight: ptr<function, array<vec4<f32>, KEPT_X>>) -> f32 {
    if (GROUP > 0u) {
        quantize_groups(lane, at, row, weight);
        return 1.0;
    }
    var squares = 0.0;
    var most = 0.0;
    for (var k = 0u; k < PER_THREAD; k++) {
        let v = (*row)[k];
        (*row)[k] = v * (*weight)[k];
        squares += dot(v, v);
        most = max(most, greatest((*row)[k]));
    }
    begin_int_sum(lane);
    let all = workgroup_sum_max(lane, squares, most);
    var r = 1.0;
    if (NORM) { r = 1.0 / sqrt(all.x / f32(4u * COLS4) + EPS); }
    let scale = 127.0 / max(all.y * r, 1e-5);
    var sum = 0;
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        var word = 0u;
        if (i < COLS4) {
            let v = vec4<i32>(clamp(round((*row)[k] * r * scale), vec4(-128.0), vec4(127.0)));
            let b = vec4<u32>(v) & vec4(255u);
            word = b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
            sum += v.x + v.y + v.z + v.w;
        }
        let four = word_of_four(lane, word);
        if (lane % 4u == 0u && i / 4u < Q_VECS) { q[at + i / 4u] = four; }
    }
    for (var i = PER_THREAD * THREADS / 4u + lane; i < Q_VECS; i += THREADS) {
        q[at + i] = vec4(0u);
    }
    add_to_int_sum(lane, sum);
    workgroupBarrier();
    return 1.0 / scale;
}

// The same in groups of 64 columns, which 16 neighbouring threads have: each group gets its scale
// and the sums of its halves' integers by set_info, which the next file declares.
fn quantize_groups(lane: u32, at: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>,
                   weight: ptr<function, array<vec4<f32>, KEPT_X>>) {
    var r = 1.0;
    if (NORM) {
        var squares = 0.0;
        for (var k = 0u; k < PER_THREAD; k++) { squares += dot((*row)[k], (*row)[k]); }
        r = 1.0 / sqrt(workgroup_sum_max(lane, squares, 0.0).x / f32(4u * COLS4) + EPS);
    }
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        let y = (*row)[k] * r * (*weight)[k];
        let f = factor_and_unit(max_over_16(lane, greatest(y)));
        let v = integers(y, f.x);
        let b = vec4<u32>(v) & vec4(255u);
        let four = word_of_four(lane, b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u));
        let sums = sum_over_16(lane, in_half(lane, v.x + v.y + v.z + v.w));
        if (i < COLS4) {
            if (lane % 4u == 0u) { q[at + i / 4u] = four; }
            if (lane % 16u == 0u) {
                set_info((at * 4u + i) / 16u, vec2(bitcast<u32>(f.y), bitcast<u32>(sums)));
            }
        }
    }
    workgroupBarrier();
}

fn load_row(first: u32, lane: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>) {
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        if (i < COLS4) { (*row)[k] = x[first + i]; }
    }
}

// The row was a block's output: normed, it is added to the residual, and the sum is the row that
// is normed again. All have the bits of norm_add (rows.wgsl), since a thread has one vec4 at most.
// The norm's weight follows this one's in `norm`.
override ADDS: bool = false;
override ADD_EPS: f32 = 0.0;
@group(0) @binding(5) var<storage, read_write> sum_row: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> residual: array<vec4<f32>>;
fn add_normed(first: u32, lane: u32, is_writer: bool,
              row: ptr<function, array<vec4<f32>, KEPT_X>>) {
    let v = (*row)[0];
    let r = 1.0 / sqrt(workgroup_sum_max(lane, dot(v, v), 0.0).x / f32(4u * COLS4) + ADD_EPS);
    if (lane < COLS4) {
        (*row)[0] = add_rounded4(residual[first + lane], v * r * norm[lane]);
        if (is_writer) { sum_row[first + lane] = (*row)[0]; }
    }
    workgroupBarrier();
}

fn load_norm(lane: u32, weight: ptr<function, array<vec4<f32>, KEPT_X>>) {
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = lane + k * THREADS;
        (*weight)[k] = vec4(1.0);
        if (NORM && i < COLS4) { (*weight)[k] = norm[u32(ADDS) * COLS4 + i]; }
    }
}

// A row that attention has left in parts: each is a sum of values weighted by a softmax of its own,
// with its greatest score and the sum of its weights.
fn join_parts(token: u32, lane: u32, row: ptr<function, array<vec4<f32>, KEPT_X>>) {
    let n_heads = COLS4 / HEAD4;
    // The first part always exists: load it before the number of parts is known.
    load_row(token * PARTS_MAX * COLS4, lane, row);
    var first_info: array<vec2<f32>, KEPT_X>;
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = min(lane + k * THREADS, COLS4 - 1u);
        first_info[k] = part_info[token * PARTS_MAX * n_heads + i / HEAD4];
    }
    let last = position_of(token);
    var begin = 0u;
    if (SEES > 0u && last >= SEES) { begin = last + 1u - SEES; }
    let n_parts = min(last / PART + 1u - begin / PART, PARTS_MAX);
    if (n_parts == 1u) { return; } // attention has divided by the sum itself
    for (var k = 0u; k < PER_THREAD; k++) {
        let i = min(lane + k * THREADS, COLS4 - 1u);
        // All parts are loaded before the first is used.
        var parts: array<vec4<f32>, PARTS_MAX>;
        var info: array<vec2<f32>, PARTS_MAX>;
        info[0] = first_info[k];
        parts[0] = (*row)[k];
        for (var p = 1u; p < PARTS_MAX; p++) {
            info[p] = vec2(-3.0e38, 0.0);
            if (p < n_parts) {
                info[p] = part_info[(token * PARTS_MAX + p) * n_heads + i / HEAD4];
                parts[p] = x[(token * PARTS_MAX + p) * COLS4 + i];
            }
        }
        var most = info[0].x;
        for (var p = 1u; p < PARTS_MAX; p++) { most = max(most, info[p].x); }
        var sum = 0.0;
        var acc = vec4(0.0);
        for (var p = 0u; p < PARTS_MAX; p++) {
            let e = exp(max(info[p].x - most, -87.0));
            sum += e * info[p].y;
            acc += e * parts[p];
        }
        if (lane + k * THREADS < COLS4) { (*row)[k] = acc / sum; }
    }
}
