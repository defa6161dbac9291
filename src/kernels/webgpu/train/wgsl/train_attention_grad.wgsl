// The gradients of attention, from the log sums that the forward pass left; s: the scaled scores.
//   P = exp(s - log sum)   dP = dy V^T   dS = P (dP - delta) SCALE,   delta = dy . y
//   dq = dS K    dk = dS^T q    dv = P^T dy
// The scores are computed again, once by a workgroup for TILE queries that walks over the keys (dq)
// and once by one for TILE keys that walks over the queries after them (dk, dv), so that everything
// has one writer. Capped scores c have dS (1 - (c / CAP)^2) instead. Layouts and slabs are those of
// train_attention.wgsl; the last slab that the scores are made of is the workgroup's own.
override HEAD_DIM: u32;
override TILE: u32;
override N_HEADS: u32;
override GROUP: u32; // query heads that share a key head
override SCALE: f32;
override WINDOW: u32; // a row sees that many, itself included
override CAP: f32;    // of scores; 0: none
override SLAB: u32;
override LDQ: u32;   // vec4s of a row of q, y, dq, dy
override LDK: u32;   // of k, v, dk, dv
override LDS: u32;   // floats of a row of log sums
override B4: u32 = TILE / 4u;
override HD4: u32 = HEAD_DIM / 4u;
override S4: u32 = SLAB / 4u;
override SLABS: u32 = HEAD_DIM / SLAB;
override PIECES: u32 = (S4 + B4 - 1u) / B4; // of TILE dimensions, that a thread has 4 of

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(6) var<storage, read> stats: array<vec2<f32>>; // [T][heads]: log sum, delta
@group(0) @binding(7) var<storage, read_write> dq: array<vec4<f32>>; // or dk
@group(0) @binding(8) var<storage, read_write> dv: array<vec4<f32>>;

var<workgroup> q_now: array<vec4<f32>, SLAB * B4>;
var<workgroup> dy_now: array<vec4<f32>, SLAB * B4>;
var<workgroup> k_now: array<vec4<f32>, SLAB * B4>;
var<workgroup> v_now: array<vec4<f32>, SLAB * B4>;
var<workgroup> p_now: array<vec4<f32>, TILE * B4>;
var<workgroup> ds_now: array<vec4<f32>, TILE * B4>;

// Grid: (T heads / 256).
@group(0) @binding(1) var<storage, read> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> log_sums: array<f32>;
@group(0) @binding(7) var<storage, read_write> stats_new: array<vec2<f32>>;
@compute @workgroup_size(256)
fn attention_delta(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x / N_HEADS;
    let head = id.x % N_HEADS;
    if (row >= run.n_tokens) { return; }
    var sum = 0.0;
    for (var i = 0u; i < HD4; i++) {
        let at = row * LDQ + head * HD4 + i;
        sum += dot(y[at], dy[at]);
    }
    stats_new[id.x] = vec2(log_sums[row * LDS + head], sum);
}

fn load_queries(lane: u32, row0: u32, first: u32) { // first: vec4 of the row
    for (var i = lane; i < TILE * S4; i += THREADS) {
        let row = i / S4;
        let d4 = i % S4;
        let base = min(row0 + row, run.n_tokens - 1u) * LDQ + first + d4;
        let to = 4u * d4 * B4 + ((row / 4u) ^ (d4 % B4));
        let a = q[base];
        q_now[to][row % 4u] = a.x;
        q_now[to + B4][row % 4u] = a.y;
        q_now[to + 2u * B4][row % 4u] = a.z;
        q_now[to + 3u * B4][row % 4u] = a.w;
        let b = dy[base];
        dy_now[to][row % 4u] = b.x;
        dy_now[to + B4][row % 4u] = b.y;
        dy_now[to + 2u * B4][row % 4u] = b.z;
        dy_now[to + 3u * B4][row % 4u] = b.w;
    }
}
fn load_keys(lane: u32, row0: u32, first: u32) { // first: vec4 of the row
    for (var i = lane; i < TILE * S4; i += THREADS) {
        let row = i / S4;
        let d4 = i % S4;
        let base = min(row0 + row, run.n_tokens - 1u) * LDK + first + d4;
        let to = 4u * d4 * B4 + ((row / 4u) ^ (d4 % B4));
        let a = k[base];
        k_now[to][row % 4u] = a.x;
        k_now[to + B4][row % 4u] = a.y;
        k_now[to + 2u * B4][row % 4u] = a.z;
        k_now[to + 3u * B4][row % 4u] = a.w;
        let b = v[base];
        v_now[to][row % 4u] = b.x;
        v_now[to + B4][row % 4u] = b.y;
        v_now[to + 2u * B4][row % 4u] = b.z;
        v_now[to + 3u * B4][row % 4u] = b.w;
    }
}

fn first_seen(row: u32) -> u32 { return max(spans[row].x, row - min(row, WINDOW - 1u)); }

// A capped score divided by CAP.
fn over_cap(s: vec4<f32>) -> vec4<f32> {
    return 1.0 - 2.0 / (safe_exp(2.0 / max(CAP, 1e-30) * s) + 1.0);
}
fn weight(s: vec4<f32>, log_sum: vec4<f32>) -> vec4<f32> {
    var score = s * SCALE;
    if (CAP != 0.0) { score = CAP * over_cap(score); }
    return exp(clamp(score - log_sum, vec4(-87.0), vec4(0.0)));
}
fn slope(s: vec4<f32>) -> vec4<f32> {
    if (CAP == 0.0) { return vec4(SCALE); }
    let t = over_cap(s * SCALE);
    return (1.0 - t * t) * SCALE;
}

// Grid: (T / TILE, heads, HEAD_DIM / SLAB).
@compute @workgroup_size(THREADS)
fn attention_grad_q(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let tx = lane % B4;
    let ty = lane / B4;
    let row0 = group.x * TILE;
    let head = group.y;
    let last = min(row0 + TILE, run.n_tokens) - 1u;
    var starts: array<u32, 4>;
    var stat: array<vec2<f32>, 4>;
    for (var i = 0u; i < 4u; i++) {
        let row = min(row0 + 4u * ty + i, last);
        starts[i] = first_seen(row);
        stat[i] = stats[row * N_HEADS + head];
    }
    var out: array<vec4<f32>, 16>; // [group of 4 TILE dimensions][row]
    let q_at = head * HD4;
    let k_at = head / GROUP * HD4;
    let own = group.z * S4;
    if (SLABS == 1u) { load_queries(lane, row0, q_at); }
    let first_key = first_seen(row0);
    for (var key0 = first_key; key0 <= last; key0 += TILE) {
        var s = array<vec4<f32>, 4>();
        var dp = array<vec4<f32>, 4>();
        for (var slab = 1u; slab <= SLABS; slab++) {
            let first = (own + slab * S4) % HD4;
            workgroupBarrier();
            if (SLABS > 1u) { load_queries(lane, row0, q_at + first); }
            load_keys(lane, key0, k_at + first);
            workgroupBarrier();
            for (var d4 = 0u; d4 < S4; d4++) {
                let flip = d4 % B4;
                for (var e = 0u; e < 4u; e++) {
                    let at = (4u * d4 + e) * B4;
                    let a = q_now[at + (ty ^ flip)];
                    let b = k_now[at + (tx ^ flip)];
                    let da = dy_now[at + (ty ^ flip)];
                    let db = v_now[at + (tx ^ flip)];
                    s[0] = fma(vec4(a.x), b, s[0]);
                    s[1] = fma(vec4(a.y), b, s[1]);
                    s[2] = fma(vec4(a.z), b, s[2]);
                    s[3] = fma(vec4(a.w), b, s[3]);
                    dp[0] = fma(vec4(da.x), db, dp[0]);
                    dp[1] = fma(vec4(da.y), db, dp[1]);
                    dp[2] = fma(vec4(da.z), db, dp[2]);
                    dp[3] = fma(vec4(da.w), db, dp[3]);
                }
            }
        }
        let keys = vec4(key0 + 4u * tx) + vec4(0u, 1u, 2u, 3u);
        for (var i = 0u; i < 4u; i++) {
            let p = weight(s[i], vec4(stat[i].x));
            let allowed = (keys <= vec4(row0 + 4u * ty + i)) & (keys >= vec4(starts[i]));
            ds_now[(4u * ty + i) * B4 + (tx ^ (ty % B4))] =
                select(vec4(0.0), p * (dp[i] - stat[i].y) * slope(s[i]), allowed);
        }
        workgroupBarrier();
        for (var o = 0u; o < PIECES; o++) {
            if (PIECES == 1u && tx >= S4) { break; } // fewer dimensions than threads
            for (var j = 0u; j < B4; j++) {
                let base = (o * B4 + tx) * 4u * B4 + (j ^ tx);
                let k0 = k_now[base];
                let k1 = k_now[base + B4];
                let k2 = k_now[base + 2u * B4];
                let k3 = k_now[base + 3u * B4];
                for (var i = 0u; i < 4u; i++) {
                    let ds = ds_now[(4u * ty + i) * B4 + (j ^ (ty % B4))];
                    out[4u * o + i] += vec4(dot(ds, k0), dot(ds, k1), dot(ds, k2), dot(ds, k3));
                }
            }
        }
    }
    for (var i = 0u; i < 4u; i++) {
        let row = row0 + 4u * ty + i;
        if (row > last) { break; }
        for (var o = tx; o < S4; o += B4) {
            dq[row * LDQ + q_at + own + o] = out[o / B4 * 4u + i];
        }
    }
}

// Rows of the 4 x 4 of a thread are keys here, columns queries. Grid: (T / TILE, key heads,
// HEAD_DIM / SLAB).
@compute @workgroup_size(THREADS)
fn attention_grad_kv(@builtin(workgroup_id) group: vec3<u32>,
                     @builtin(local_invocation_index) lane: u32) {
    let tx = lane % B4;
    let ty = lane / B4;
    let key0 = group.x * TILE;
    let kv_head = group.y;
    let last = min(key0 + TILE, run.n_tokens) - 1u;
    let end = min(spans[last].y, last + WINDOW);
    let k_at = kv_head * HD4;
    let own = group.z * S4;
    var dk_out: array<vec4<f32>, 16>; // [group of 4 TILE dimensions][key]
    var dv_out: array<vec4<f32>, 16>;
    if (SLABS == 1u) { load_keys(lane, key0, k_at); }
    for (var head = kv_head * GROUP; head < (kv_head + 1u) * GROUP; head++) {
        for (var row0 = key0; row0 < end; row0 += TILE) {
            var s = array<vec4<f32>, 4>();
            var dp = array<vec4<f32>, 4>();
            for (var slab = 1u; slab <= SLABS; slab++) {
                let first = (own + slab * S4) % HD4;
                workgroupBarrier();
                if (SLABS > 1u) { load_keys(lane, key0, k_at + first); }
                load_queries(lane, row0, head * HD4 + first);
                workgroupBarrier();
                for (var d4 = 0u; d4 < S4; d4++) {
                    let flip = d4 % B4;
                    for (var e = 0u; e < 4u; e++) {
                        let at = (4u * d4 + e) * B4;
                        let a = k_now[at + (ty ^ flip)];
                        let b = q_now[at + (tx ^ flip)];
                        let da = v_now[at + (ty ^ flip)];
                        let db = dy_now[at + (tx ^ flip)];
                        s[0] = fma(vec4(a.x), b, s[0]);
                        s[1] = fma(vec4(a.y), b, s[1]);
                        s[2] = fma(vec4(a.z), b, s[2]);
                        s[3] = fma(vec4(a.w), b, s[3]);
                        dp[0] = fma(vec4(da.x), db, dp[0]);
                        dp[1] = fma(vec4(da.y), db, dp[1]);
                        dp[2] = fma(vec4(da.z), db, dp[2]);
                        dp[3] = fma(vec4(da.w), db, dp[3]);
                    }
                }
            }
            var log_sum: vec4<f32>;
            var delta: vec4<f32>;
            var starts: vec4<u32>;
            for (var i = 0u; i < 4u; i++) {
                let row = min(row0 + 4u * tx + i, run.n_tokens - 1u);
                let stat = stats[row * N_HEADS + head];
                log_sum[i] = stat.x;
                delta[i] = stat.y;
                starts[i] = first_seen(row);
            }
            let rows = vec4(row0 + 4u * tx) + vec4(0u, 1u, 2u, 3u);
            for (var i = 0u; i < 4u; i++) {
                let key = vec4(key0 + 4u * ty + i);
                let allowed = (key <= rows) & (key >= starts) & (rows < vec4(run.n_tokens));
                let p = select(vec4(0.0), weight(s[i], log_sum), allowed);
                let to = (4u * ty + i) * B4 + (tx ^ (ty % B4));
                p_now[to] = p;
                ds_now[to] = p * (dp[i] - delta) * slope(s[i]);
            }
            workgroupBarrier();
            for (var o = 0u; o < PIECES; o++) {
                if (PIECES == 1u && tx >= S4) { break; } // fewer dimensions than threads
                for (var j = 0u; j < B4; j++) {
                    let base = (o * B4 + tx) * 4u * B4 + (j ^ tx);
                    let q0 = q_now[base];
                    let q1 = q_now[base + B4];
                    let q2 = q_now[base + 2u * B4];
                    let q3 = q_now[base + 3u * B4];
                    let y0 = dy_now[base];
                    let y1 = dy_now[base + B4];
                    let y2 = dy_now[base + 2u * B4];
                    let y3 = dy_now[base + 3u * B4];
                    for (var i = 0u; i < 4u; i++) {
                        let at = (4u * ty + i) * B4 + (j ^ (ty % B4));
                        let ds = ds_now[at];
                        let p = p_now[at];
                        dk_out[4u * o + i] +=
                            vec4(dot(ds, q0), dot(ds, q1), dot(ds, q2), dot(ds, q3));
                        dv_out[4u * o + i] += vec4(dot(p, y0), dot(p, y1), dot(p, y2), dot(p, y3));
                    }
                }
            }
        }
    }
    for (var i = 0u; i < 4u; i++) {
        let row = key0 + 4u * ty + i;
        if (row > last) { break; }
        for (var o = tx; o < S4; o += B4) {
            let to = row * LDK + k_at + own + o;
            dq[to] = dk_out[o / B4 * 4u + i];
            dv[to] = dv_out[o / B4 * 4u + i];
        }
    }
}
