// Rotary embedding and the store into the key/value cache. A thread computes two neighbouring
// elements, since two halves share a word of an f16 cache. Grid: (pairs of a row / 64, tokens).
// cache.wgsl describes the cache.
//
// angles[(step + t) * N_ROT / 2 + i] = cosine and sine for pair i of token t.
override HEAD_DIM: u32;
override N_ROT: u32;
override HALVES: bool;  // pairs (i, i + N_ROT / 2) instead of (2i, 2i + 1)
override Q_PAIRS: u32;  // columns of q / 2
override K_PAIRS: u32;

@group(0) @binding(1) var<storage, read> angles: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> q: array<f32>;
@group(0) @binding(3) var<storage, read_write> k: array<f32>;
@group(0) @binding(4) var<storage, read_write> v: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> keys: array<u32>;
@group(0) @binding(7) var<storage, read_write> values: array<u32>;

// Where the other element of d's pair is, the pair's number, and -1 for the first of the pair, +1
// for the second: rotated = x[d] * cos + sign * other * sin.
struct Partner { d: u32, pair: u32, sign: f32 }
fn partner(d: u32) -> Partner {
    let half = N_ROT / 2u;
    if (HALVES) {
        if (d < half) { return Partner(d + half, d, -1.0); }
        return Partner(d - half, d - half, 1.0);
    }
    if (d % 2u == 0u) { return Partner(d + 1u, d / 2u, -1.0); }
    return Partner(d - 1u, d / 2u, 1.0);
}

fn rotated_q(token: u32, column: u32) -> f32 {
    let row = token * Q_PAIRS * 2u;
    let d = column % HEAD_DIM;
    if (d >= N_ROT) { return q[row + column]; }
    let p = partner(d);
    let a = angles[(run.rows_before + token) * (N_ROT / 2u) + p.pair];
    return q[row + column] * a.x + p.sign * q[row + column - d + p.d] * a.y;
}

fn rotated_k(token: u32, column: u32) -> f32 {
    let row = token * K_PAIRS * 2u;
    let d = column % HEAD_DIM;
    if (d >= N_ROT) { return k[row + column]; }
    let p = partner(d);
    let a = angles[(run.rows_before + token) * (N_ROT / 2u) + p.pair];
    return k[row + column] * a.x + p.sign * k[row + column - d + p.d] * a.y;
}

// What a thread stores: a pair, or the 16 that share a scale of Q8_0.
override UNIT: u32 = select(1u, 16u, CACHE == CACHE_Q8_0);
struct Unit { key: array<vec2<f32>, 16>, value: array<vec2<f32>, 16> }

fn store(token: u32, first: u32, unit: ptr<function, Unit>) {
    var most = vec2(0.0); // of the keys, of the values
    for (var i = 0u; i < UNIT; i++) {
        let k2 = abs((*unit).key[i]);
        let v2 = abs((*unit).value[i]);
        most = max(most, vec2(max(k2.x, k2.y), max(v2.x, v2.y)));
    }
    let place = place_of(pages_of(token), position_of(token));
    for (var i = 0u; i < UNIT; i += 2u) {
        let k4 = vec4((*unit).key[i], (*unit).key[i + 1u]);
        let v4 = vec4((*unit).value[i], (*unit).value[i + 1u]);
        store_key(first + i, place, encoded(k4, most.x));
        store_value(first + i, place, encoded(v4, most.y));
    }
}

@compute @workgroup_size(64)
fn rope(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= Q_PAIRS) { return; }
    let at = id.y * Q_PAIRS * 2u + 2u * id.x;
    y[at] = rotated_q(id.y, 2u * id.x);
    y[at + 1u] = rotated_q(id.y, 2u * id.x + 1u);
}

@compute @workgroup_size(64)
fn kv_store(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= K_PAIRS / UNIT) { return; }
    let first = id.x * UNIT;
    var unit: Unit;
    for (var i = 0u; i < UNIT; i++) {
        let at = (id.y * K_PAIRS + first + i) * 2u;
        unit.key[i] = vec2(k[at], k[at + 1u]);
        unit.value[i] = vec2(v[at], v[at + 1u]);
    }
    store(id.y, first, &unit);
}

@compute @workgroup_size(64)
fn rope_store(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < Q_PAIRS) {
        let at = id.y * Q_PAIRS * 2u + 2u * id.x;
        y[at] = rotated_q(id.y, 2u * id.x);
        y[at + 1u] = rotated_q(id.y, 2u * id.x + 1u);
    }
    let number = id.x - Q_PAIRS; // wraps around in front
    if (number < K_PAIRS / UNIT) {
        let first = number * UNIT;
        var unit: Unit;
        for (var i = 0u; i < UNIT; i++) {
            let column = 2u * (first + i);
            let at = id.y * K_PAIRS * 2u + column;
            unit.key[i] = vec2(rotated_k(id.y, column), rotated_k(id.y, column + 1u));
            unit.value[i] = vec2(v[at], v[at + 1u]);
        }
        store(id.y, first, &unit);
    }
}
