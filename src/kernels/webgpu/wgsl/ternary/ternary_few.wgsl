// Products of few.wgsl with codes of one or two bits.

// [token][tile][part][row of 8] of integers; in groups [token][split][row] of floats
override PART_NEXT: u32 = ((GROUP_ROWS / 8u) | 1u) * 8u;
override PARTS: u32 = u32(GROUP == 0u) * TOKENS * GROUP_ROWS * ROW_PARTS +
                      u32(GROUP > 0u) * TOKENS * SPLITS * PART_NEXT;
var<workgroup> part: array<i32, PARTS>;

alias Codes = array<vec4<u32>, TILES_MAX>;
fn ask(group: u32, l: Lane, block: u32) -> Codes {
    var codes: Codes;
    let b = min(block, BLOCKS - 1u);
    for (var k = 0u; k < TILES; k++) {
        codes[k] = codes_of(tile_at(tile_number(group, l.team * TILES + k)), b, l.row);
    }
    return codes;
}
alias Scales = array<f32, TILES_MAX>;
fn ask_scales(group: u32, l: Lane, block: u32) -> Scales {
    var scales: Scales;
    let b = min(block, BLOCKS - 1u);
    for (var k = 0u; k < TILES; k++) {
        scales[k] = scale_at(tile_at(tile_number(group, l.team * TILES + k)), b, l.row);
    }
    return scales;
}

// Added one after the other, as the instruction does it.
fn dot16(sum: i32, c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.w, x.w) + (dot4(c.z, x.z) + (dot4(c.y, x.y) + (dot4(c.x, x.x) + sum)));
}

// Loops over tokens and tiles have constant ends, so that they are unrolled and the sums stay in
// registers.
alias Sums = array<array<i32, TILES_MAX>, EACH_MAX>;
fn add_block(sums: ptr<function, Sums>, codes: ptr<function, Codes>, token: u32, block: u32) {
    for (var i = 0u; i < 4u; i++) { // of 16 columns each
        var c: array<vec4<u32>, TILES_MAX>;
        for (var k = 0u; k < TILES; k++) { c[k] = codes16((*codes)[k], i); }
        for (var t = 0u; t < EACH; t++) {
            let x = columns16(token + t, block * 4u + i);
            for (var k = 0u; k < TILES; k++) { (*sums)[t][k] = dot16((*sums)[t][k], c[k], x); }
        }
    }
}

// Leaves the products of the workgroup's tiles in `part`; see sum_of.
fn multiply(group: u32, lane: u32) {
    var l = lane_of(lane);
    let token = l.team / TEAMS * EACH;
    l.team %= TEAMS;
    var next = ask(group, l, l.block);
    if (STAGED) { stage_rows(lane); }
    var sums: Sums;
    for (var block = l.block; block < BLOCKS; block += SPLITS) {
        var codes = next;
        next = ask(group, l, block + SPLITS);
        add_block(&sums, &codes, token, block);
    }
    for (var t = 0u; t < EACH; t++) {
        for (var k = 0u; k < TILES; k++) {
            let s = sum_of_every_8th(sums[t][k]);
            let tile = (token + t) * GROUP_TILES + l.team * TILES + k;
            if (lane % SHARE < 8u) {
                part[(tile * ROW_PARTS + l.block * 8u / SHARE) * 8u + l.row] = s;
            }
        }
    }
    workgroupBarrier();
}

// The sum of the workgroup's row i. Codes are one too large.
fn sum_of(r: Result, i: u32) -> f32 {
    var s = -r.less;
    let tile = r.token * GROUP_TILES + i / 8u;
    for (var p = 0u; p < ROW_PARTS; p++) { s += part[(tile * ROW_PARTS + p) * 8u + i % 8u]; }
    return f32(s);
}

// Puts the products of a block into `part`.
fn keep_products(l: Lane, token: u32, block: u32, sums: ptr<function, Sums>, scales: Scales) {
    var w_scale = scales;
    for (var t = 0u; t < EACH; t++) {
        let info = q_info[min(token + t, run.n_tokens - 1u) * BLOCKS + block];
        for (var k = 0u; k < TILES; k++) {
            let sum = sum_of_numbers((*sums)[t][k], info.y);
            part[((token + t) * SPLITS + l.block) * PART_NEXT + (l.team * TILES + k) * 8u + l.row] =
                bitcast<i32>(scaled(sum, bitcast<f32>(info.x), w_scale[k]));
        }
    }
}

// Rows a and b of the workgroup's, of a token: the blocks in order, SPLITS at a time.
fn products_in_groups(group: u32, lane: u32, r: Result, a: u32, b: u32) -> vec2<f32> {
    var l = lane_of(lane);
    let token = l.team / TEAMS * EACH;
    l.team %= TEAMS;
    var next = ask(group, l, l.block);
    var next_scales = ask_scales(group, l, l.block);
    if (STAGED) { stage_rows(lane); }
    var all = vec2(0.0);
    for (var begin = 0u; begin < BLOCKS; begin += SPLITS) {
        let block = begin + l.block;
        var codes = next;
        let scales = next_scales;
        next = ask(group, l, block + SPLITS);
        next_scales = ask_scales(group, l, block + SPLITS);
        if (block < BLOCKS) {
            var sums = Sums(); // written out: declared alone they were seen to keep the last step's
            add_block(&sums, &codes, token, block);
            keep_products(l, token, block, &sums, scales);
        }
        workgroupBarrier();
        for (var i = 0u; r.is_mine && i < min(SPLITS, BLOCKS - begin); i++) {
            let at = (r.token * SPLITS + i) * PART_NEXT;
            all.x = add_rounded(all.x, bitcast<f32>(part[at + a]));
            all.y = add_rounded(all.y, bitcast<f32>(part[at + b]));
        }
        workgroupBarrier();
    }
    return all;
}

fn products(group: u32, lane: u32, r: Result, a: u32, b: u32) -> vec2<f32> {
    if (GROUP > 0u) { return products_in_groups(group, lane, r, a, b); }
    multiply(group, lane);
    var sums = vec2(0.0);
    if (r.is_mine) { sums = vec2(sum_of(r, a), sum_of(r, b)); }
    return sums;
}
