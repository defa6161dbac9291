// A tile by products of four bytes, on every device. TEAMS teams of threads share the columns: each
// takes every TEAMS-th block of 64, and at the end the first adds up what all have. So a product of
// few tokens, or of a matrix with few rows, still keeps a whole processor busy. A thread computes
// ROWS_EACH rows x TOKENS_EACH tokens; the data of the next block is loaded while this one is
// computed.
override TOKENS: u32;      // of a tile
override TOKENS_EACH: u32; // 4 or 8
override ROWS_EACH: u32;   // 2 to 5
override TEAMS: u32;
const TOKENS_EACH_MAX = 8u;
const ROWS_EACH_MAX = 5u;
const SUMS_MAX = TOKENS_EACH_MAX * ROWS_EACH_MAX;

override ROWS = 8u * ROWS_EACH;
override THREADS_Y = TOKENS / TOKENS_EACH; // at least 4
override TEAM = 8u * THREADS_Y;            // threads of one
override GEMM_THREADS = TEAM * TEAMS;
// What a thread loads of a block: 16 columns each of some rows and tokens.
override N_CODES = (4u * ROWS_EACH + THREADS_Y - 1u) / THREADS_Y;
override N_TOKENS = TOKENS_EACH / 2u;
const N_CODES_MAX = ROWS_EACH_MAX;
const N_TOKENS_MAX = TOKENS_EACH_MAX / 2u;

// From 16 columns to the next 16, in vec4s: two more, so that four threads that store the columns of
// one row do so to other banks.
override ROWS_NEXT = ROWS + 2u;
override TOKENS_NEXT = TOKENS + 2u;
override STAGE = 4u * (ROWS_NEXT + TOKENS_NEXT);

// For each team [16 columns of 64][row], then the same of tokens; at the end its sums.
var<workgroup> stage: array<vec4<u32>, STAGE * TEAMS>;

// In groups also, for each team's block, the scales of the rows, and scales and sums of the tokens.
override N_SCALES = TEAMS * ROWS * u32(GROUP > 0u) + u32(GROUP == 0u);
override N_INFOS = TEAMS * TOKENS * u32(GROUP > 0u) + u32(GROUP == 0u);
var<workgroup> scales: array<f32, N_SCALES>;
var<workgroup> infos: array<vec2<u32>, N_INFOS>;

// Added one after the other, as the instruction does it.
fn dot16(sum: i32, c: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4(c.w, x.w) + (dot4(c.z, x.z) + (dot4(c.y, x.y) + (dot4(c.x, x.x) + sum)));
}

// In groups it also loads one row's scale, and one token's, if there are that many.
struct Load {
    codes: array<u32, N_CODES_MAX>,
    tokens: array<vec4<u32>, N_TOKENS_MAX>,
    scale: f32,
    info: vec2<u32>,
}

// Loops have constant ends, so that they are unrolled and no index remains.
fn load(t: Tile, lane: u32, b: u32) -> Load {
    var l: Load;
    for (var i = 0u; i < N_CODES; i++) {
        l.codes[i] = codes_at(t, min((lane + TEAM * i) / 4u, ROWS - 1u), b, lane % 4u);
    }
    for (var i = 0u; i < N_TOKENS; i++) {
        l.tokens[i] = activations_at(t, (lane + TEAM * i) / 4u, b, lane % 4u);
    }
    if (GROUP > 0u) {
        l.scale = scale_in_block(t, min(lane, ROWS - 1u), b);
        l.info = info_of_block(t, min(lane, TOKENS - 1u), b);
    }
    return l;
}

fn store(team: u32, lane: u32, l: ptr<function, Load>) {
    let at = team * STAGE;
    let codes_to = at + lane % 4u * ROWS_NEXT;
    let tokens_to = at + 4u * ROWS_NEXT + lane % 4u * TOKENS_NEXT;
    for (var i = 0u; i < N_CODES; i++) {
        let row = (lane + TEAM * i) / 4u;
        if (row < ROWS) { stage[codes_to + row] = unpack((*l).codes[i]); }
    }
    for (var i = 0u; i < N_TOKENS; i++) {
        stage[tokens_to + (lane + TEAM * i) / 4u] = (*l).tokens[i];
    }
    if (GROUP > 0u && lane < ROWS) { scales[team * ROWS + lane] = (*l).scale; }
    if (GROUP > 0u && lane < TOKENS) { infos[team * TOKENS + lane] = (*l).info; }
}

alias Sums = array<i32, SUMS_MAX>; // [token][row]

// Four sums of a thread are one vec4.
override N_FOURS = TOKENS_EACH * ROWS_EACH / 4u;
fn give_sums(team: u32, lane: u32, sums: ptr<function, Sums>) {
    for (var i = 0u; i < N_FOURS; i++) {
        stage[((team - 1u) * N_FOURS + i) * TEAM + lane] = bitcast<vec4<u32>>(
            vec4((*sums)[4u * i], (*sums)[4u * i + 1u], (*sums)[4u * i + 2u], (*sums)[4u * i + 3u]));
    }
}

fn take_sums(lane: u32, sums: ptr<function, Sums>) {
    for (var team = 0u; team + 1u < TEAMS; team++) {
        for (var i = 0u; i < N_FOURS; i++) {
            let s = bitcast<vec4<i32>>(stage[(team * N_FOURS + i) * TEAM + lane]);
            (*sums)[4u * i] += s.x;
            (*sums)[4u * i + 1u] += s.y;
            (*sums)[4u * i + 2u] += s.z;
            (*sums)[4u * i + 3u] += s.w;
        }
    }
}

// A block's integers, which begin anew, times its scales; one team adds them to those of the blocks
// before.
alias Products = array<f32, SUMS_MAX>;
fn scale_block(team: u32, lane: u32, sums: ptr<function, Sums>,
               products: ptr<function, Products>) {
    for (var i = 0u; i < TOKENS_EACH; i++) {
        let info = infos[team * TOKENS + lane / 8u + THREADS_Y * i];
        for (var r = 0u; r < ROWS_EACH; r++) {
            let s = i * ROWS_EACH + r;
            let sum = sum_of_numbers((*sums)[s], info.y);
            let p = scaled(sum, bitcast<f32>(info.x), scales[team * ROWS + lane % 8u + 8u * r]);
            if (TEAMS > 1u) { (*products)[s] = p; }
            else { (*products)[s] = add_rounded((*products)[s], p); }
            (*sums)[s] = 0;
        }
    }
}

// Several teams' blocks are added up in order: all put their products where the codes were, four in
// a vec4, and each thread of the workgroup has the sums of some of these fours.
override N_SLOTS = N_FOURS * TEAM; // <= STAGE
override N_OWN = (N_SLOTS + GEMM_THREADS - 1u) / GEMM_THREADS;
const OWN_MAX = 4u;
alias Own = array<vec4<f32>, OWN_MAX>;
fn add_blocks(b: u32, thread: u32, products: ptr<function, Products>, own: ptr<function, Own>) {
    workgroupBarrier();
    for (var i = 0u; i < N_FOURS; i++) {
        stage[thread / TEAM * N_SLOTS + i * TEAM + thread % TEAM] = bitcast<vec4<u32>>(
            vec4((*products)[4u * i], (*products)[4u * i + 1u], (*products)[4u * i + 2u],
                 (*products)[4u * i + 3u]));
    }
    workgroupBarrier();
    for (var k = 0u; k < N_OWN; k++) {
        let slot = min(thread + k * GEMM_THREADS, N_SLOTS - 1u);
        for (var t = 0u; t < min(TEAMS, BLOCKS - b); t++) {
            let p = bitcast<vec4<f32>>(stage[t * N_SLOTS + slot]);
            (*own)[k] = vec4(add_rounded((*own)[k].x, p.x), add_rounded((*own)[k].y, p.y),
                             add_rounded((*own)[k].z, p.z), add_rounded((*own)[k].w, p.w));
        }
    }
}

fn write_own(t: Tile, thread: u32, own: ptr<function, Own>) {
    for (var k = 0u; k < N_OWN; k++) {
        let slot = thread + k * GEMM_THREADS;
        for (var c = 0u; c < 4u && slot < N_SLOTS; c++) {
            let s = slot / TEAM * 4u + c;
            write_product(t, slot % 8u + 8u * (s % ROWS_EACH),
                          slot % TEAM / 8u + THREADS_Y * (s / ROWS_EACH), (*own)[k][c]);
        }
    }
}

fn multiply(t: Tile, thread: u32) {
    let team = thread / TEAM;
    let lane = thread % TEAM;
    let at = team * STAGE;
    let tx = lane % 8u;
    let ty = lane / 8u;
    var sums: Sums;
    var products: Products;
    var own: Own;
    var l = load(t, lane, team);
    for (var b = 0u; b < BLOCKS; b += TEAMS) {
        workgroupBarrier();
        store(team, lane, &l);
        workgroupBarrier();
        if (b + TEAMS < BLOCKS) { l = load(t, lane, b + TEAMS + team); }
        for (var k = 0u; k < 4u; k++) {
            let codes = at + k * ROWS_NEXT + tx;
            let tokens = at + 4u * ROWS_NEXT + k * TOKENS_NEXT + ty;
            var c: array<vec4<u32>, ROWS_EACH_MAX>;
            for (var r = 0u; r < ROWS_EACH; r++) { c[r] = stage[codes + 8u * r]; }
            for (var i = 0u; i < TOKENS_EACH; i++) {
                let x = stage[tokens + THREADS_Y * i];
                for (var r = 0u; r < ROWS_EACH; r++) {
                    let s = i * ROWS_EACH + r;
                    sums[s] = dot16(sums[s], c[r], x);
                }
            }
        }
        if (GROUP > 0u) { scale_block(team, lane, &sums, &products); }
        if (GROUP > 0u && TEAMS > 1u) { add_blocks(b, thread, &products, &own); }
    }
    if (GROUP > 0u && TEAMS > 1u) {
        write_own(t, thread, &own);
        return;
    }
    if (TEAMS > 1u) {
        workgroupBarrier();
        if (team > 0u) { give_sums(team, lane, &sums); }
        workgroupBarrier();
        if (team > 0u) { return; }
        take_sums(lane, &sums);
    }
    for (var i = 0u; i < TOKENS_EACH; i++) {
        let token = ty + THREADS_Y * i;
        let scale = scale_of(t, token);
        for (var r = 0u; r < ROWS_EACH; r++) {
            let s = i * ROWS_EACH + r;
            if (GROUP > 0u) { write_product(t, tx + 8u * r, token, products[s]); }
            else { write(t, tx + 8u * r, token, sums[s], scale); }
        }
    }
}
