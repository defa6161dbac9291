// Gated delta nets and state spaces among the rows of a document, and their gradients. Per head,
// with e = e^(rate softplus(a + bias)), and k, q, v of the row (divided by their lengths in a delta
// net, where beta = sigmoid(b); in a state space k is B, q is C, v is x, beta = softplus(a + bias)):
//
//   u = v - e S^T k (a state space: v);  S = e S + k (beta u)^T;  y = S^T q (+ D x)
//
// A thread has a column of the state or a row of it, in private memory, and goes through the rows
// of a document on its own, so that there are neither barriers nor states in memory. Backwards, the
// slope G of the state goes from the last row on; found = G^T k.
//   columns, forward:   y, or u        columns, backward:  found
//   rows, forward:      dq = S dy, dk = -e S' beta found      (S': of the row before)
//   rows, backward:     dk += G beta u
// The slope of log e needs no state: dg = dg of the next row + q . dq - beta found . v.
override N_K: u32; // heads of k and q
override N_V: u32; // heads of v
override DK: u32; // at most 256, as DV
override DV: u32;
override DELTA: bool;
override TILED: bool; // head n of v has head n % N_K of k
override KEEPS: bool = false; // u instead of y
override EPS: f32 = 0.0;
override LD: u32;  // from row to row of x
override LDY: u32; // of y
override LDG: u32; // of a and b
override Q_AT: u32; // in a row of x
override K_AT: u32;
override V_AT: u32;

@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> facts: array<f32>; // of a row, see gates
@group(0) @binding(3) var<storage, read> spans: array<vec2<u32>>; // of the row's document
@group(0) @binding(4) var<storage, read> dy: array<f32>;
@group(0) @binding(5) var<storage, read_write> u: array<f32>;     // as y
@group(0) @binding(6) var<storage, read_write> found: array<f32>; // as y
@group(0) @binding(7) var<storage, read_write> dq: array<f32>;    // [N_V][DK] a row
@group(0) @binding(8) var<storage, read_write> dk: array<f32>;    // the same

fn exp_of(v: f32) -> f32 { return exp(clamp(v, -87.0, 87.0)); }
fn softplus(v: f32) -> f32 {
    let t = exp_of(-abs(v));
    if (t < 1e-3) { return max(v, 0.0) + t * (1.0 - t * (0.5 - t * 0.33333333)); }
    return max(v, 0.0) + log(1.0 + t);
}
fn sigmoid(v: f32) -> f32 { return 1.0 / (1.0 + exp_of(-v)); }

fn k_head(head: u32) -> u32 {
    if (TILED) { return head % N_K; }
    return head / (N_V / N_K);
}

// ---- Facts of a row: [scales of q | of k | e | beta] --------------------------------------------

fn ld_facts() -> u32 { return 2u * (N_K + N_V); }
fn q_scale(row: u32, head: u32) -> f32 { return facts[row * ld_facts() + k_head(head)]; }
fn k_scale(row: u32, head: u32) -> f32 { return facts[row * ld_facts() + N_K + k_head(head)]; }
fn decay_of(row: u32, head: u32) -> f32 { return facts[row * ld_facts() + 2u * N_K + head]; }
fn beta_of(row: u32, head: u32) -> f32 { return facts[row * ld_facts() + 2u * N_K + N_V + head]; }

@group(0) @binding(2) var<storage, read> a: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<f32>;
@group(0) @binding(4) var<storage, read> rate: array<f32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> made: array<f32>;

fn inverse_length(at: u32) -> f32 {
    if (!DELTA) { return 1.0; }
    var sum = 0.0;
    for (var i = 0u; i < DK; i++) { sum = fma(x[at + i], x[at + i], sum); }
    return 1.0 / sqrt(sum + EPS);
}

// A thread a fact. Grid: (16 facts / 256, T / 16).
@compute @workgroup_size(256)
fn gates(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let n = group.x * 256u + lane;
    let row = group.y * 16u + n / ld_facts();
    if (n >= 16u * ld_facts() || row >= run.n_tokens) { return; }
    let i = n % ld_facts();
    var fact = 0.0;
    if (i < N_K) {
        fact = inverse_length(row * LD + Q_AT + i * DK);
        if (DELTA) { fact /= sqrt(f32(DK)); }
    } else if (i < 2u * N_K) {
        fact = inverse_length(row * LD + K_AT + (i - N_K) * DK);
    } else {
        let head = (i - 2u * N_K) % N_V;
        let step = softplus(a[row * LDG + head] + bias[head]);
        fact = step;
        if (i < 2u * N_K + N_V) { fact = exp_of(rate[head] * step); }
        else if (DELTA) { fact = sigmoid(b[row * LDG + head]); }
    }
    made[row * ld_facts() + i] = fact;
}

// ---- Scans -------------------------------------------------------------------------------------

// Documents that begin in the group's 16 rows. Grid: (columns or rows of a state / 64, T / 16, N_V).
var<private> state: array<f32, 256>;
fn clear(n: u32) {
    for (var i = 0u; i < n; i++) { state[i] = 0.0; }
}
fn is_start(row: u32) -> bool { return row < run.n_tokens && spans[row].x == row; }

@group(0) @binding(4) var<storage, read> d_vector: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

fn column_row(row: u32, head: u32, j: u32) {
    let q_at = row * LD + Q_AT + k_head(head) * DK;
    let k_at = row * LD + K_AT + k_head(head) * DK;
    let ks = k_scale(row, head);
    let e = decay_of(row, head);
    let v = x[row * LD + V_AT + head * DV + j];
    var missing = v;
    if (DELTA) {
        var sk = 0.0;
        for (var i = 0u; i < DK; i++) { sk = fma(state[i], x[k_at + i], sk); }
        missing = v - e * (ks * sk);
    }
    let d = ks * beta_of(row, head) * missing;
    var out = 0.0;
    for (var i = 0u; i < DK; i++) {
        let s = fma(x[k_at + i], d, e * state[i]);
        state[i] = s;
        out = fma(s, x[q_at + i], out);
    }
    out *= q_scale(row, head);
    if (!DELTA) { out = fma(d_vector[head], v, out); }
    if (KEEPS) { out = missing; }
    y[row * LDY + head * DV + j] = out;
}
@compute @workgroup_size(64)
fn scan(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let j = group.x * 64u + lane;
    if (j >= DV) { return; }
    for (var first = group.y * 16u; first < group.y * 16u + 16u; first++) {
        if (!is_start(first)) { continue; }
        clear(DK);
        for (var row = first; row < spans[first].y; row++) { column_row(row, group.z, j); }
    }
}

@group(0) @binding(5) var<storage, read> d_of: array<f32>;
@group(0) @binding(7) var<storage, read_write> dx: array<f32>; // as x

fn column_row_back(row: u32, head: u32, j: u32) {
    let q_at = row * LD + Q_AT + k_head(head) * DK;
    let k_at = row * LD + K_AT + k_head(head) * DK;
    let ks = k_scale(row, head);
    let e = decay_of(row, head);
    let at = row * LDY + head * DV + j;
    let slope = q_scale(row, head) * dy[at];
    var sum = 0.0;
    for (var i = 0u; i < DK; i++) {
        state[i] = fma(x[q_at + i], slope, state[i]);
        sum = fma(x[k_at + i], state[i], sum);
    }
    sum *= ks;
    found[at] = sum;
    var dv = beta_of(row, head) * sum;
    let taken = ks * dv * f32(DELTA);
    for (var i = 0u; i < DK; i++) { state[i] = e * (state[i] - x[k_at + i] * taken); }
    if (!DELTA) { dv = fma(d_of[head], dy[at], dv); }
    dx[row * LD + V_AT + head * DV + j] = dv;
}
@compute @workgroup_size(64)
fn scan_back(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let j = group.x * 64u + lane;
    if (j >= DV) { return; }
    for (var first = group.y * 16u; first < group.y * 16u + 16u; first++) {
        if (!is_start(first)) { continue; }
        clear(DK);
        for (var row = spans[first].y; row > first; row--) {
            column_row_back(row - 1u, group.z, j);
        }
    }
}

fn missing_at(row: u32, head: u32, j: u32) -> f32 {
    if (DELTA) { return u[row * LDY + head * DV + j]; }
    return x[row * LD + V_AT + head * DV + j];
}

fn state_row(row: u32, head: u32, i: u32) {
    let e = decay_of(row, head);
    let beta = beta_of(row, head);
    let k = x[row * LD + K_AT + k_head(head) * DK + i] * k_scale(row, head) * beta;
    let at = row * LDY + head * DV;
    var reads = 0.0;
    var taken = 0.0;
    for (var j = 0u; j < DV; j++) {
        let before = e * state[j];
        if (DELTA) { taken = fma(before, found[at + j], taken); }
        let s = fma(k, missing_at(row, head, j), before);
        state[j] = s;
        reads = fma(s, dy[at + j], reads);
    }
    dq[(row * N_V + head) * DK + i] = reads;
    dk[(row * N_V + head) * DK + i] = -beta * taken;
}
@compute @workgroup_size(64)
fn scan_rows(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 64u + lane;
    if (i >= DK) { return; }
    for (var first = group.y * 16u; first < group.y * 16u + 16u; first++) {
        if (!is_start(first)) { continue; }
        clear(DV);
        for (var row = first; row < spans[first].y; row++) { state_row(row, group.z, i); }
    }
}

fn state_row_back(row: u32, head: u32, i: u32) {
    let e = decay_of(row, head);
    let beta = beta_of(row, head);
    let q = x[row * LD + Q_AT + k_head(head) * DK + i] * q_scale(row, head);
    let k = x[row * LD + K_AT + k_head(head) * DK + i] * k_scale(row, head) * beta * f32(DELTA);
    let at = row * LDY + head * DV;
    var reads = 0.0;
    for (var j = 0u; j < DV; j++) {
        let g = fma(q, dy[at + j], state[j]);
        reads = fma(g, missing_at(row, head, j), reads);
        state[j] = e * (g - k * found[at + j]);
    }
    dk[(row * N_V + head) * DK + i] += beta * reads;
}
@compute @workgroup_size(64)
fn scan_rows_back(@builtin(workgroup_id) group: vec3<u32>,
                  @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 64u + lane;
    if (i >= DK) { return; }
    for (var first = group.y * 16u; first < group.y * 16u + 16u; first++) {
        if (!is_start(first)) { continue; }
        clear(DV);
        for (var row = spans[first].y; row > first; row--) {
            state_row_back(row - 1u, group.z, i);
        }
    }
}

// ---- What follows from them ---------------------------------------------------------------------

// Of a row and a head: what it adds to dg, and found . v; db, or the row's share of dD.
// A thread a head, or a column that pads them. Grid: (16 LDG / 256, T / 16).
@group(0) @binding(3) var<storage, read_write> third: array<f32>;
@group(0) @binding(8) var<storage, read_write> dots: array<vec2<f32>>; // [LDG] a row
@compute @workgroup_size(256)
fn scan_dots(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let n = group.x * 256u + lane;
    let row = group.y * 16u + n / LDG;
    if (n >= 16u * LDG || row >= run.n_tokens) { return; }
    let head = n % LDG;
    third[row * LDG + head] = 0.0;
    dots[row * LDG + head] = vec2(0.0);
    if (head >= N_V) { return; }
    let q_at = row * LD + Q_AT + k_head(head) * DK;
    let v_at = row * LD + V_AT + head * DV;
    let at = row * LDY + head * DV;
    var of_q = 0.0;
    for (var i = 0u; i < DK; i++) { of_q = fma(x[q_at + i], dq[(row * N_V + head) * DK + i], of_q); }
    var of_v = 0.0;
    var other = 0.0;
    for (var j = 0u; j < DV; j++) {
        of_v = fma(found[at + j], x[v_at + j], of_v);
        if (DELTA) { other = fma(found[at + j], u[at + j], other); }
        else { other = fma(dy[at + j], x[v_at + j], other); }
    }
    let beta = beta_of(row, head);
    if (DELTA) { other *= beta * (1.0 - beta); }
    third[row * LDG + head] = other;
    dots[row * LDG + head] = vec2(of_q * q_scale(row, head) - beta * of_v, of_v);
}

// The slopes of a (of steps) and each row's share of the rate's. Grid: (LDG / 64, T / 16).
@group(0) @binding(1) var<storage, read> dots_of: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> da: array<f32>;
@group(0) @binding(7) var<storage, read_write> drate: array<f32>;
@compute @workgroup_size(64)
fn scan_gates_back(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(local_invocation_index) lane: u32) {
    let head = group.x * 64u + lane;
    if (head >= LDG) { return; }
    let pads = head >= N_V;
    let known = min(head, N_V - 1u);
    for (var first = group.y * 16u; first < group.y * 16u + 16u; first++) {
        if (!is_start(first)) { continue; }
        var dg = 0.0;
        for (var next = spans[first].y; next > first; next--) {
            let at = (next - 1u) * LDG + head;
            dg += dots_of[at].x;
            let raw = a[at] + bias[known];
            var slope = rate[known] * dg;
            if (!DELTA) { slope += dots_of[at].y; }
            da[at] = slope * sigmoid(raw) * f32(!pads);
            drate[at] = dg * softplus(raw) * f32(!pads);
        }
    }
}

// dq and dk of a key head, from those of the value heads that read it: from the vectors divided by
// their lengths to the vectors. A thread a row and a head. Grid: (16 N_K / 256, T / 16).
@group(0) @binding(3) var<storage, read> dq_of: array<f32>;
@group(0) @binding(4) var<storage, read> dk_of: array<f32>;
fn head_of(k: u32, n: u32) -> u32 {
    if (TILED) { return k + n * N_K; }
    return k * (N_V / N_K) + n;
}
fn sum_q(row: u32, k: u32, i: u32) -> f32 {
    var sum = 0.0;
    for (var n = 0u; n < N_V / N_K; n++) { sum += dq_of[(row * N_V + head_of(k, n)) * DK + i]; }
    return sum;
}
fn sum_k(row: u32, k: u32, i: u32) -> f32 {
    var sum = 0.0;
    for (var n = 0u; n < N_V / N_K; n++) { sum += dk_of[(row * N_V + head_of(k, n)) * DK + i]; }
    return sum;
}
@compute @workgroup_size(256)
fn scan_heads_back(@builtin(workgroup_id) group: vec3<u32>,
                   @builtin(local_invocation_index) lane: u32) {
    let n = group.x * 256u + lane;
    let row = group.y * 16u + n / N_K;
    if (n >= 16u * N_K || row >= run.n_tokens) { return; }
    let head = n % N_K;
    let q_at = row * LD + Q_AT + head * DK;
    let k_at = row * LD + K_AT + head * DK;
    let qs = facts[row * ld_facts() + head];
    let ks = facts[row * ld_facts() + N_K + head];
    var along = vec2(0.0);
    for (var i = 0u; DELTA && i < DK; i++) {
        along += vec2(x[q_at + i] * sum_q(row, head, i), x[k_at + i] * sum_k(row, head, i));
    }
    along *= vec2(qs * qs * f32(DK), ks * ks);
    for (var i = 0u; i < DK; i++) {
        dx[q_at + i] = qs * (sum_q(row, head, i) - along.x * x[q_at + i]);
        dx[k_at + i] = ks * (sum_k(row, head, i) - along.y * x[k_at + i]);
    }
}
