// Products of token.wgsl with codes of one or two bits.

// [tile][part][row of 8] of integers; in groups [block][row], PART_NEXT apart to spread the banks, of
// products that are added up in the order of the blocks
override PART_NEXT: u32 = ((GROUP_ROWS / 8u) | 1u) * 8u;
override PARTS: u32 =
    u32(GROUP == 0u) * GROUP_ROWS * ROW_PARTS + u32(GROUP > 0u) * BLOCKS * PART_NEXT;
var<workgroup> part: array<i32, PARTS>;

// The weights that a thread multiplies are numbered by step and, within a step, by tile.
override N_CODES: u32 = STEPS * TILES;
fn codes_at(group: u32, l: Lane, k: u32) -> vec4<u32> {
    let block = min(l.block + k / TILES * SPLITS, BLOCKS - 1u);
    return codes_of(tile_at(tile_number(group, l.team * TILES + k % TILES)), block, l.row);
}
// Their scale in groups.
fn code_scale(group: u32, l: Lane, k: u32) -> f32 {
    let block = min(l.block + k / TILES * SPLITS, BLOCKS - 1u);
    return scale_at(tile_at(tile_number(group, l.team * TILES + k % TILES)), block, l.row);
}

// Four of them are in flight at a time.
struct Codes { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>, scales: vec4<f32> }
fn ask(group: u32, l: Lane) -> Codes {
    var codes: Codes;
    codes.a = codes_at(group, l, 0u);
    if (N_CODES > 1u) { codes.b = codes_at(group, l, 1u); }
    if (N_CODES > 2u) { codes.c = codes_at(group, l, 2u); }
    if (N_CODES > 3u) { codes.d = codes_at(group, l, 3u); }
    for (var k = 0u; k < min(N_CODES, 4u); k++) { codes.scales[k] = code_scale(group, l, k); }
    return codes;
}

// Codes stay where they are in their byte, 4 and 16 times too large: the sums are divided once.
fn dot16(codes: u32, x: vec4<u32>) -> vec4<i32> {
    return vec4(dot4(codes & 0x03030303u, x.x), dot4(codes & 0x0c0c0c0cu, x.y),
                dot4(codes & 0x30303030u, x.z), dot4((codes >> 6u) & 0x03030303u, x.w));
}

// Leaves weights k times their block of the row in `part`.
struct Block { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }
fn dot_unpacked(c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.x, x.x) + dot4(c.y, x.y) + dot4(c.z, x.z) + dot4(c.w, x.w);
}
fn multiply_block(l: Lane, k: u32, codes: vec4<u32>, scale: f32, x: ptr<function, Block>) {
    let block = l.block + k / TILES * SPLITS;
    if (block >= BLOCKS) { return; }
    let sum = dot_unpacked(codes16(codes, 0u), (*x).a) + dot_unpacked(codes16(codes, 1u), (*x).b) +
              dot_unpacked(codes16(codes, 2u), (*x).c) + dot_unpacked(codes16(codes, 3u), (*x).d);
    let info = infos[block];
    let p = scaled(sum_of_numbers(sum, info.y), bitcast<f32>(info.x), scale);
    part[block * PART_NEXT + (l.team * TILES + k % TILES) * 8u + l.row] = bitcast<i32>(p);
}

fn multiply_one(lane: u32, l: Lane, k: u32, codes: vec4<u32>, scale: f32,
                x: ptr<function, Block>) {
    if (k % TILES == 0u) { // a new step
        let at = (l.block + k / TILES * SPLITS) * 4u;
        *x = Block(q[at], q[at + 1u], q[at + 2u], q[at + 3u]);
    }
    if (GROUP > 0u) {
        multiply_block(l, k, codes, scale, x);
        return;
    }
    let sum = dot16(codes.x, (*x).a) + dot16(codes.y, (*x).b) + dot16(codes.z, (*x).c) +
              dot16(codes.w, (*x).d);
    let s = sum_of_every_8th(sum.x + (sum.y >> 2u) + (sum.z >> 4u) + sum.w);
    if (lane % SHARE < 8u) {
        let tile = l.team * TILES + k % TILES;
        let at = (tile * ROW_PARTS + l.block * 8u / SHARE) * 8u + l.row;
        if (k < TILES) { part[at] = s; } else { part[at] += s; }
    }
}

// The products of the workgroup's tiles, in parts; see sum_of.
fn multiply(group: u32, lane: u32, l: Lane, asked: Codes) {
    var codes = asked;
    var x: Block;
    for (var k = 0u; k < N_CODES; k += 4u) {
        let scales = codes.scales;
        for (var i = 4u; i < 8u && k + i < N_CODES; i++) {
            codes.scales[i - 4u] = code_scale(group, l, k + i);
        }
        multiply_one(lane, l, k, codes.a, scales.x, &x);
        if (k + 4u < N_CODES) { codes.a = codes_at(group, l, k + 4u); }
        if (k + 1u < N_CODES) { multiply_one(lane, l, k + 1u, codes.b, scales.y, &x); }
        if (k + 5u < N_CODES) { codes.b = codes_at(group, l, k + 5u); }
        if (k + 2u < N_CODES) { multiply_one(lane, l, k + 2u, codes.c, scales.z, &x); }
        if (k + 6u < N_CODES) { codes.c = codes_at(group, l, k + 6u); }
        if (k + 3u < N_CODES) { multiply_one(lane, l, k + 3u, codes.d, scales.w, &x); }
        if (k + 7u < N_CODES) { codes.d = codes_at(group, l, k + 7u); }
    }
    workgroupBarrier();
}

// The workgroup's row i, of its tile i / 8. Codes are one too large, so the row's sum is
// subtracted.
fn sum_of(i: u32, row_sum: i32) -> f32 {
    if (GROUP > 0u) {
        var sum = 0.0;
        for (var b = 0u; b < BLOCKS; b++) {
            sum = add_rounded(sum, bitcast<f32>(part[b * PART_NEXT + i]));
        }
        return sum;
    }
    var s = -row_sum;
    for (var p = 0u; p < ROW_PARTS; p++) { s += part[(i / 8u * ROW_PARTS + p) * 8u + i % 8u]; }
    return f32(s);
}
