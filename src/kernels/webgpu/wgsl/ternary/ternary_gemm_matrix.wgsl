// A tile by the matrix units: 16 subgroups of 32 threads compute 32 tokens x 32 rows each, in
// pieces of 16 x 16, from 128 columns at a time. The data of the next step is loaded while this one
// is computed. Workgroup memory: 36 KB.
//
// subgroupMatrixLoad counts components, so bytes, from the beginning of an array of words; type
// parameters are columns, then rows.
const ROWS = 128u;
const TOKENS = 128u;
const GEMM_THREADS = 512u;
// Words of one row or token: 128 columns, and four more, so that the eight rows that a load of the
// matrix units touches at once lie in other banks.
const NEXT = 36u;

alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Sums = subgroup_matrix_result<i32, 16, 16>;

// Activations of TOKENS tokens, then codes of ROWS rows; at the end sums of 16 tokens x 32 rows of
// each subgroup.
var<workgroup> memory: array<i32, (ROWS + TOKENS) * NEXT>;

// Sixteen codes as four words; their order depends on the thread, to spread the banks.
fn store_codes(to: u32, c: u32, part: u32) {
    for (var i = 0u; i < 4u; i++) {
        let k = (i + part) % 4u;
        memory[to + k] = i32((c >> (2u * k)) & 0x03030303u);
    }
}

fn store_activations(to: u32, x: vec4<u32>) {
    memory[to] = i32(x.x);
    memory[to + 1u] = i32(x.y);
    memory[to + 2u] = i32(x.z);
    memory[to + 3u] = i32(x.w);
}

fn write_sums(t: Tile, own: u32, token0: u32, row0: u32, me: u32) {
    for (var i = 0u; i < 16u; i++) {
        let sum = memory[own + 32u * i + me];
        write(t, row0 + me, token0 + i, sum, scale_of(t, token0 + i));
    }
}

// Where a subgroup loads from depends on its threads' numbers: uniform, but not provably so.
@diagnostic(off, chromium.subgroup_matrix_uniformity)
fn multiply(t: Tile, lane: u32) {
    let part = lane % 4u;
    // A thread loads from one of two blocks of two rows; neighbours, eight rows of a block.
    let block = lane / 32u % 2u;
    let row = lane / 64u * 8u + lane / 4u % 8u;
    let token = lane / 8u;
    let eighth = lane % 8u; // of a token's 128 columns
    let codes_to = (TOKENS + row) * NEXT + block * 16u + part * 4u;
    let token_to = token * NEXT + eighth * 4u;
    let token0 = lane / 128u * 32u; // of the subgroup
    let row0 = lane / 32u % 4u * 32u;
    var c0 = codes_at(t, row, block, part);
    var c1 = codes_at(t, row + 64u, block, part);
    var x0 = activations_at(t, token, eighth / 4u, part);
    var x1 = activations_at(t, token + 64u, eighth / 4u, part);
    var s00: Sums; // the first 16 tokens, the first 16 rows
    var s01: Sums;
    var s10: Sums;
    var s11: Sums;
    for (var b = 0u; b < BLOCKS; b += 2u) {
        workgroupBarrier();
        store_codes(codes_to, c0, part);
        store_codes(codes_to + 64u * NEXT, c1, part);
        store_activations(token_to, x0);
        store_activations(token_to + 64u * NEXT, x1);
        workgroupBarrier();
        if (b + 2u < BLOCKS) {
            c0 = codes_at(t, row, b + 2u + block, part);
            c1 = codes_at(t, row + 64u, b + 2u + block, part);
            x0 = activations_at(t, token, b + 2u + eighth / 4u, part);
            x1 = activations_at(t, token + 64u, b + 2u + eighth / 4u, part);
        }
        for (var k = 0u; k < 128u; k += 32u) { // bytes of a row
            let left = token0 * 4u * NEXT + k;
            let right = (TOKENS + row0) * 4u * NEXT + k;
            let l0 = subgroupMatrixLoad<Left>(&memory, left, false, 4u * NEXT);
            let l1 = subgroupMatrixLoad<Left>(&memory, left + 64u * NEXT, false, 4u * NEXT);
            let r0 = subgroupMatrixLoad<Right>(&memory, right, true, 4u * NEXT);
            let r1 = subgroupMatrixLoad<Right>(&memory, right + 64u * NEXT, true, 4u * NEXT);
            s00 = subgroupMatrixMultiplyAccumulate(l0, r0, s00);
            s01 = subgroupMatrixMultiplyAccumulate(l0, r1, s01);
            s10 = subgroupMatrixMultiplyAccumulate(l1, r0, s10);
            s11 = subgroupMatrixMultiplyAccumulate(l1, r1, s11);
        }
    }
    let own = lane / 32u * 512u;
    workgroupBarrier();
    subgroupMatrixStore(&memory, own, s00, false, 32u);
    subgroupMatrixStore(&memory, own + 16u, s01, false, 32u);
    workgroupBarrier();
    write_sums(t, own, token0, row0, lane % 32u);
    workgroupBarrier();
    subgroupMatrixStore(&memory, own, s10, false, 32u);
    subgroupMatrixStore(&memory, own + 16u, s11, false, 32u);
    workgroupBarrier();
    write_sums(t, own, token0 + 16u, row0, lane % 32u);
}
