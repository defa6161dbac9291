// Rotary embedding of T rows: a thread turns one pair. Grid: (16 rows of pairs / 256, T / 16).
// angles[position * N_ROT / 2 + i] = cosine and sine for pair i.
override HEAD_DIM: u32;
override N_ROT: u32;
override HALVES: bool; // pairs (i, i + N_ROT / 2) instead of (2i, 2i + 1)
override PAIRS: u32;   // columns of x / 2
override LD: u32;      // floats from row to row
override SIGN: f32;    // -1: turns back

@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> spans: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> angles: array<vec2<f32>>;

@compute @workgroup_size(256)
fn rope(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 256u + lane;
    let row = group.y * 16u + i / PAIRS;
    if (i >= 16u * PAIRS || row >= run.n_tokens) { return; }
    let pair = i % PAIRS % (HEAD_DIM / 2u);
    let head = row * LD + i % PAIRS / (HEAD_DIM / 2u) * HEAD_DIM;
    if (pair >= N_ROT / 2u) { // what is not rotated
        y[head + 2u * pair] = x[head + 2u * pair];
        y[head + 2u * pair + 1u] = x[head + 2u * pair + 1u];
        return;
    }
    let first = head + select(2u * pair, pair, HALVES);
    let second = first + select(1u, N_ROT / 2u, HALVES);
    let turn = angles[(row - spans[row].x) * (N_ROT / 2u) + pair];
    let s = SIGN * turn.y;
    y[first] = x[first] * turn.x - x[second] * s;
    y[second] = x[second] * turn.x + x[first] * s;
}
