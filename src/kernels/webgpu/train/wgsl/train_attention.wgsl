// Attention among the rows of a document, without ever writing the scores (FlashAttention,
// arXiv:2205.14135): a workgroup has TILE queries of one head and walks over the keys, TILE at a
// time, with a running maximum and sum by which earlier results are rescaled.
//
// A thread computes 4 x 4 of each product. Rows of a head lie in workgroup memory with the
// dimensions running slowest, four rows in a vec4, at [d][row / 4 ^ d / 4 % B4]: so scores are
// outer products of neighbours, the product with V is dot products over keys, and no two threads
// that write or read together meet in a memory bank. Heads that do not fit go through that memory
// SLAB dimensions at a time, and a workgroup makes only one slab of y. Grid: (T / TILE, heads,
// HEAD_DIM / SLAB).
override HEAD_DIM: u32;
override TILE: u32;
override N_HEADS: u32;
override GROUP: u32; // query heads that share a key head
override SCALE: f32;
override WINDOW: u32; // a row sees that many, itself included
override CAP: f32;    // of scores; 0: none
override SLAB: u32;
override LDQ: u32;   // vec4s of a row of q and y
override LDK: u32;   // of k and v
override LDS: u32;   // floats of a row of log sums
override B4: u32 = TILE / 4u;
override HD4: u32 = HEAD_DIM / 4u;
override S4: u32 = SLAB / 4u;
override SLABS: u32 = HEAD_DIM / SLAB;
override PIECES: u32 = (S4 + B4 - 1u) / B4; // of TILE dimensions, that a thread has 4 of

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> log_sums: array<f32>;

var<workgroup> q_now: array<vec4<f32>, SLAB * B4>;
var<workgroup> k_now: array<vec4<f32>, SLAB * B4>; // keys, then values
var<workgroup> p_now: array<vec4<f32>, TILE * B4>;
var<workgroup> across: array<vec4<f32>, B4 * B4>;

const UNSEEN = -1e30;

fn first_seen(row: u32) -> u32 { return max(spans[row].x, row - min(row, WINDOW - 1u)); }

fn capped(s: vec4<f32>) -> vec4<f32> {
    if (CAP == 0.0) { return s; }
    return CAP * (1.0 - 2.0 / (safe_exp(2.0 / max(CAP, 1e-30) * s) + 1.0));
}

fn store_k(row: u32, d4: u32, value: vec4<f32>) {
    let to = 4u * d4 * B4 + ((row / 4u) ^ (d4 % B4));
    k_now[to][row % 4u] = value.x;
    k_now[to + B4][row % 4u] = value.y;
    k_now[to + 2u * B4][row % 4u] = value.z;
    k_now[to + 3u * B4][row % 4u] = value.w;
}
fn load_q(lane: u32, row0: u32, first: u32) { // first: vec4 of the row
    for (var i = lane; i < TILE * S4; i += THREADS) {
        let row = i / S4;
        let d4 = i % S4;
        let value = q[min(row0 + row, run.n_tokens - 1u) * LDQ + first + d4] * SCALE;
        let to = 4u * d4 * B4 + ((row / 4u) ^ (d4 % B4));
        q_now[to][row % 4u] = value.x;
        q_now[to + B4][row % 4u] = value.y;
        q_now[to + 2u * B4][row % 4u] = value.z;
        q_now[to + 3u * B4][row % 4u] = value.w;
    }
}
fn load_k(lane: u32, row0: u32, first: u32) {
    for (var i = lane; i < TILE * S4; i += THREADS) {
        let row = i / S4;
        let base = min(row0 + row, run.n_tokens - 1u) * LDK + first + i % S4;
        store_k(row, i % S4, k[base]);
    }
}
fn load_v(lane: u32, row0: u32, first: u32) {
    for (var i = lane; i < TILE * S4; i += THREADS) {
        let row = i / S4;
        let base = min(row0 + row, run.n_tokens - 1u) * LDK + first + i % S4;
        store_k(row, i % S4, v[base]);
    }
}

@compute @workgroup_size(THREADS)
fn attention_seq(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let tx = lane % B4;
    let ty = lane / B4;
    let row0 = group.x * TILE;
    let head = group.y;
    let last = min(row0 + TILE, run.n_tokens) - 1u;
    var starts: array<u32, 4>;
    for (var i = 0u; i < 4u; i++) { starts[i] = first_seen(min(row0 + 4u * ty + i, last)); }
    var most = vec4(UNSEEN);
    var sums = vec4(0.0);
    var out: array<vec4<f32>, 16>; // [group of 4 TILE dimensions][row]
    let q_at = head * HD4;
    let k_at = head / GROUP * HD4;
    let own = group.z * S4;
    if (SLABS == 1u) { load_q(lane, row0, q_at); }
    let first_key = first_seen(row0);
    for (var key0 = first_key; key0 <= last; key0 += TILE) {
        var s = array<vec4<f32>, 4>();
        for (var at = 0u; at < HD4; at += S4) {
            workgroupBarrier();
            if (SLABS > 1u) { load_q(lane, row0, q_at + at); }
            load_k(lane, key0, k_at + at);
            workgroupBarrier();
            for (var d4 = 0u; d4 < S4; d4++) {
                let flip = d4 % B4;
                for (var e = 0u; e < 4u; e++) {
                    let a = q_now[(4u * d4 + e) * B4 + (ty ^ flip)];
                    let b = k_now[(4u * d4 + e) * B4 + (tx ^ flip)];
                    s[0] = fma(vec4(a.x), b, s[0]);
                    s[1] = fma(vec4(a.y), b, s[1]);
                    s[2] = fma(vec4(a.z), b, s[2]);
                    s[3] = fma(vec4(a.w), b, s[3]);
                }
            }
        }
        let keys = vec4(key0 + 4u * tx) + vec4(0u, 1u, 2u, 3u);
        var highest = vec4(UNSEEN);
        for (var i = 0u; i < 4u; i++) {
            let row = row0 + 4u * ty + i;
            s[i] = select(vec4(UNSEEN), capped(s[i]), (keys <= vec4(row)) & (keys >= vec4(starts[i])));
            highest[i] = max(max(s[i].x, s[i].y), max(s[i].z, s[i].w));
        }
        across[tx * B4 + ty] = highest;
        workgroupBarrier();
        var now = most;
        for (var i = 0u; i < B4; i++) { now = max(now, across[i * B4 + ty]); }
        let fade = exp(max(most - now, vec4(-87.0)));
        most = now;
        sums *= fade;
        for (var i = 0u; i < 4u; i++) {
            let p = select(vec4(0.0), exp(max(s[i] - now[i], vec4(-87.0))), s[i] > vec4(UNSEEN));
            sums[i] += (p.x + p.y) + (p.z + p.w);
            p_now[(4u * ty + i) * B4 + (tx ^ (ty % B4))] = p;
        }
        load_v(lane, key0, k_at + own);
        workgroupBarrier();
        for (var o = 0u; o < PIECES; o++) {
            if (PIECES == 1u && tx >= S4) { break; } // fewer dimensions than threads
            for (var i = 0u; i < 4u; i++) { out[4u * o + i] *= fade[i]; }
            for (var j = 0u; j < B4; j++) {
                let base = (o * B4 + tx) * 4u * B4 + (j ^ tx);
                let v0 = k_now[base];
                let v1 = k_now[base + B4];
                let v2 = k_now[base + 2u * B4];
                let v3 = k_now[base + 3u * B4];
                for (var i = 0u; i < 4u; i++) {
                    let p = p_now[(4u * ty + i) * B4 + (j ^ (ty % B4))];
                    out[4u * o + i] += vec4(dot(p, v0), dot(p, v1), dot(p, v2), dot(p, v3));
                }
            }
        }
    }
    workgroupBarrier();
    across[tx * B4 + ty] = sums;
    workgroupBarrier();
    sums = vec4(0.0);
    for (var i = 0u; i < B4; i++) { sums += across[i * B4 + ty]; }
    for (var i = 0u; i < 4u; i++) {
        let row = row0 + 4u * ty + i;
        if (row > last) { break; }
        for (var o = tx; o < S4; o += B4) {
            y[row * LDQ + q_at + own + o] = out[o / B4 * 4u + i] / sums[i];
        }
        if (tx == 0u && own == 0u) { log_sums[row * LDS + head] = most[i] + log(sums[i]); }
    }
}
