// Products of gemv.wgsl with codes of wide_codes.wgsl: blocks are added up in order, as many at a time
// as there are threads for.
override N_PARTS: u32 = PARTS * THREADS;
override N_MINIMA: u32 = N_PARTS * u32(MINIMA) + u32(!MINIMA);
var<workgroup> part: array<vec2<f32>, N_PARTS>; // [split][group][row]: product, scale
var<workgroup> minima: array<f32, N_MINIMA>;    // the same order

fn keep(at: u32, scales: Scales, products: vec4<f32>) {
    for (var i = 0u; i < PARTS; i++) {
        part[at + 8u * i] = vec2(products[i], scales.scale[i]);
        if (MINIMA) { minima[at + 8u * i] = scales.minimum[i]; }
    }
}

fn multiply_block(first: u32, token: u32, b: u32, row: u32, at: u32) {
    let c = wide_codes(first, b, row);
    let scales = scales_of(scale_words(first, b, row));
    let x = (token * BLOCKS + b) * 4u;
    keep(at, scales,
         products_of(vec4(dot16(0, quarter(c, 0u), q[x]), dot16(0, quarter(c, 1u), q[x + 1u]),
                          dot16(0, quarter(c, 2u), q[x + 2u]), dot16(0, quarter(c, 3u), q[x + 3u])),
                     q_info[token * BLOCKS + b]));
}

fn product(matrix: u32, tile: u32, token: u32, lane: u32) -> f32 {
    let first = matrix + 16u + tile * TILE_VECS;
    let row = lane % 8u;
    var sum = 0.0;
    for (var begin = 0u; begin < BLOCKS; begin += SPLITS) {
        let b = begin + lane / 8u;
        workgroupBarrier();
        if (b < BLOCKS) { multiply_block(first, token, b, row, lane / 8u * 8u * PARTS + row); }
        workgroupBarrier();
        for (var i = 0u; lane < 8u && i < min(SPLITS, BLOCKS - begin); i++) {
            var minus = vec4(0.0);
            if (MINIMA) { minus = minus_of(q_info[token * BLOCKS + begin + i]); }
            for (var k = 0u; k < PARTS; k++) {
                let p = part[(i * PARTS + k) * 8u + row];
                sum = fma_once(p.y, p.x, sum);
                if (MINIMA) { sum = fma_once(minima[(i * PARTS + k) * 8u + row], minus[k], sum); }
            }
        }
    }
    return sum;
}
