// A tile of gemm.wgsl by the matrix units, whose factors are halves: for codes in groups, where the
// units' integers cost too much (gemm_groups.wgsl). A weight and an activation are the numbers that
// their codes stand for, each rounded to a half; those out of range become the greatest half. Sums
// are floats. A result differs from the specification's in wide_codes.wgsl by some 2^-12 of its
// size: int8 activations are further from the floats they stand for. It depends on its own row and
// token alone, not on the tile.
//
// A subgroup of 32 threads has 32 tokens x EACH rows, in pieces of 16 x 16. A step is a block of 64
// columns; the next one's data is loaded while this one is multiplied.
//
// Comes before wide_gemm_half.wgsl and ternary_gemm_half.wgsl, which say how codes are read: Codes,
// codes_at, signed_bytes, RawScales, raw_scales and weights_of.
override TOKENS: u32; // 64 or 128
override ROWS: u32;   // 64 or 128
override EACH: u32;   // 16, 32 or 64
override GEMM_THREADS = TOKENS / 32u * (ROWS / EACH) * 32u;

// Eight halves a vec4: those of tokens, then of rows, with eight more to each, so that rows begin
// in different banks. At the end 16 tokens' sums of each subgroup.
const NEXT = 9u;
var<workgroup> memory: array<vec4<u32>, 2304>;

alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;

// What a thread loads of a step: 16 columns each of some rows and tokens, with their scales.
override N_CODES = 4u * ROWS / GEMM_THREADS;
override N_TOKENS = 4u * TOKENS / GEMM_THREADS;
const LOADS_MAX = 2u;
struct Load {
    codes: array<Codes, LOADS_MAX>,
    scales: array<RawScales, LOADS_MAX>,
    tokens: array<vec4<u32>, LOADS_MAX>,
    token_scales: array<f32, LOADS_MAX>,
}

fn load(t: Tile, lane: u32, b: u32) -> Load {
    var l: Load;
    for (var i = 0u; i < N_CODES; i++) {
        let row = (lane + GEMM_THREADS * i) / 4u;
        l.codes[i] = codes_at(t, row, b, lane % 4u);
        l.scales[i] = raw_scales(t, row, b);
    }
    for (var i = 0u; i < N_TOKENS; i++) {
        let token = (lane + GEMM_THREADS * i) / 4u;
        l.tokens[i] = activations_at(t, token, b, lane % 4u);
        l.token_scales[i] = bitcast<f32>(info_of_block(t, token, b).x);
    }
    return l;
}

// Four signed bytes times `scale` / 128, and `more`: bytes 0 and 2, 1 and 3, for both factors
// alike. The half 8 has a byte's 128th in its lower bits.
fn halves(bytes: u32, scale: f16, more: f16) -> vec2<u32> {
    let b = bytes ^ 0x80808080u;
    let even = bitcast<vec2<f16>>((b & 0x00ff00ffu) | 0x48004800u) - vec2(9.0h);
    let odd = bitcast<vec2<f16>>(((b >> 8u) & 0x00ff00ffu) | 0x48004800u) - vec2(9.0h);
    return vec2(bitcast<u32>(fma(even, vec2(scale), vec2(more))),
                bitcast<u32>(fma(odd, vec2(scale), vec2(more))));
}
// So that the sum of two is a half.
fn in_range(x: f32) -> f32 { return clamp(x, -32752.0, 32752.0); }
fn keep(to: u32, bytes: vec4<u32>, scale: f32, more: f32) {
    let s = f16(in_range(128.0 * scale));
    let m = f16(in_range(more));
    memory[to] = vec4(halves(bytes.x, s, m), halves(bytes.y, s, m));
    memory[to + 1u] = vec4(halves(bytes.z, s, m), halves(bytes.w, s, m));
}

fn store(lane: u32, l: ptr<function, Load>) {
    let part = lane % 4u;
    for (var i = 0u; i < N_TOKENS; i++) {
        let token = (lane + GEMM_THREADS * i) / 4u;
        keep(token * NEXT + 2u * part, (*l).tokens[i], (*l).token_scales[i], 0.0);
    }
    for (var i = 0u; i < N_CODES; i++) {
        let row = (lane + GEMM_THREADS * i) / 4u;
        let w = weights_of((*l).scales[i], part);
        keep((TOKENS + row) * NEXT + 2u * part, signed_bytes((*l).codes[i], part), w.x, w.y);
    }
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn left(token: u32, k: u32) -> Left {
    return subgroupMatrixLoad<Left, row_major>(&memory, token * NEXT + k, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn right(row: u32, k: u32) -> Right {
    return subgroupMatrixLoad<Right, col_major>(&memory, (TOKENS + row) * NEXT + k, NEXT);
}
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn add(l: Left, r: Right, s: Sums) -> Sums { return subgroupMatrixMultiplyAccumulate(l, r, s); }
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn show(at: u32, row: u32, s: Sums) {
    subgroupMatrixStore<row_major>(&memory, at + row / 4u, s, EACH / 4u);
}

// Where the tile is whole and nothing is added to, the units write themselves. (Sums that began
// with what is added to would have other bits than those of other tiles.)
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn put(t: Tile, token: u32, row: u32, s: Sums) {
    let to = t.y + (t.token0 + token) * t.y_cols + t.row0 + row;
    subgroupMatrixStore<row_major>(&y, to, s, t.y_cols);
}

fn write_sums(t: Tile, at: u32, token0: u32, row0: u32, me: u32) {
    for (var i = me; i < 16u * EACH; i += 32u) {
        let token = token0 + i / EACH;
        let row = row0 + i % EACH;
        write_product(t, row, token, bitcast<f32>(memory[at + i / 4u][i % 4u]));
    }
}

@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn multiply(t: Tile, lane: u32) {
    let token0 = lane / 32u / (ROWS / EACH) * 32u; // of the subgroup
    let row0 = lane / 32u % (ROWS / EACH) * EACH;
    var s00: Sums; // the first 16 tokens, the first 16 rows
    var s01: Sums;
    var s02: Sums;
    var s03: Sums;
    var s10: Sums;
    var s11: Sums;
    var s12: Sums;
    var s13: Sums;
    var l = load(t, lane, 0u);
    for (var b = 0u; b < BLOCKS; b++) {
        workgroupBarrier();
        store(lane, &l);
        workgroupBarrier();
        if (b + 1u < BLOCKS) { l = load(t, lane, b + 1u); }
        for (var k = 0u; k < 8u; k += 2u) {
            let l0 = left(token0, k);
            let l1 = left(token0 + 16u, k);
            let r0 = right(row0, k);
            s00 = add(l0, r0, s00);
            s10 = add(l1, r0, s10);
            if (EACH > 16u) {
                let r1 = right(row0 + 16u, k);
                s01 = add(l0, r1, s01);
                s11 = add(l1, r1, s11);
            }
            if (EACH > 32u) {
                let r2 = right(row0 + 32u, k);
                let r3 = right(row0 + 48u, k);
                s02 = add(l0, r2, s02);
                s12 = add(l1, r2, s12);
                s03 = add(l0, r3, s03);
                s13 = add(l1, r3, s13);
            }
        }
    }
    let aligned = (t.y | t.y_cols) % 4u == 0u;
    if (!ADD && aligned && t.row0 + ROWS <= t.n_rows && t.token0 + TOKENS <= run.n_tokens) {
        put(t, token0, row0, s00);
        put(t, token0 + 16u, row0, s10);
        if (EACH > 16u) {
            put(t, token0, row0 + 16u, s01);
            put(t, token0 + 16u, row0 + 16u, s11);
        }
        if (EACH > 32u) {
            put(t, token0, row0 + 32u, s02);
            put(t, token0 + 16u, row0 + 32u, s12);
            put(t, token0, row0 + 48u, s03);
            put(t, token0 + 16u, row0 + 48u, s13);
        }
        return;
    }
    let at = lane / 32u * 4u * EACH;
    workgroupBarrier();
    show(at, 0u, s00);
    if (EACH > 16u) { show(at, 16u, s01); }
    if (EACH > 32u) {
        show(at, 32u, s02);
        show(at, 48u, s03);
    }
    workgroupBarrier();
    write_sums(t, at, token0, row0, lane % 32u);
    workgroupBarrier();
    show(at, 0u, s10);
    if (EACH > 16u) { show(at, 16u, s11); }
    if (EACH > 32u) {
        show(at, 32u, s12);
        show(at, 48u, s13);
    }
    workgroupBarrier();
    write_sums(t, at, token0 + 16u, row0, lane % 32u);
}
