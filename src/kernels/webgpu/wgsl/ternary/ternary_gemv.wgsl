// Products of gemv.wgsl with codes of one or two bits: y[t][row] = sum of code * q, exact in integers,
// times the scales. codes.wgsl says how they lie.
var<workgroup> sums: array<i32, THREADS>;
var<workgroup> row_sums: array<i32, 64>;

fn dot16(c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.x, x.x) + dot4(c.y, x.y) + dot4(c.z, x.z) + dot4(c.w, x.w);
}

// Codes times activations of a block.
fn dot64(c: vec4<u32>, token: u32, b: u32) -> i32 {
    let x = (token * BLOCKS + b) * 4u;
    return dot16(codes16(c, 0u), q[x]) + dot16(codes16(c, 1u), q[x + 1u]) +
           dot16(codes16(c, 2u), q[x + 2u]) + dot16(codes16(c, 3u), q[x + 3u]);
}

// Blocks are added up in order, as many at a time as there are threads for.
fn product_in_groups(first: u32, token: u32, lane: u32) -> f32 {
    let row = lane % 8u;
    var sum = 0.0;
    for (var begin = 0u; begin < BLOCKS; begin += SPLITS) {
        let b = begin + lane / 8u;
        var p = 0.0;
        if (b < BLOCKS) {
            let info = q_info[token * BLOCKS + b];
            let s = dot64(codes_of(first, b, row), token, b);
            p = scaled(sum_of_numbers(s, info.y), bitcast<f32>(info.x),
                       scale_at(first, b, row));
        }
        workgroupBarrier();
        sums[lane] = bitcast<i32>(p);
        workgroupBarrier();
        for (var i = 0u; i < min(SPLITS, BLOCKS - begin); i++) {
            sum = add_rounded(sum, bitcast<f32>(sums[8u * i + row]));
        }
    }
    return sum;
}

// The product for row lane % 8 of the tile; valid in the first 8 threads.
fn product(at: u32, tile: u32, token: u32, lane: u32) -> f32 {
    let first = at + 16u + tile * TILE_VECS;
    if (GROUP > 0u) { return product_in_groups(first, token, lane); }
    var sum = 0;
    for (var b = lane / 8u; b < BLOCKS; b += SPLITS) {
        sum += dot64(codes_of(first, b, lane % 8u), token, b);
    }
    sums[lane] = sum;
    workgroupBarrier();
    if (lane < 64u) { // THREADS >= 64
        var s = 0;
        for (var i = lane; i < THREADS; i += 64u) { s += sums[i]; }
        row_sums[lane] = s;
    }
    workgroupBarrier();
    var s = 0;
    for (var i = lane % 8u; i < 64u; i += 8u) { s += row_sums[i]; }
    let info = q_info[token];
    return f32(s - bitcast<i32>(info.y)) * (bitcast<f32>(w[at].x) * bitcast<f32>(info.x));
}
