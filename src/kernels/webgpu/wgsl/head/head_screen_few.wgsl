// Approximate logits of few rows of x, and a lower bound of the greatest of each. 32 threads share
// four rows of the copy as those of float_linear.wgsl do, 16 bytes of each at a time, and ask for
// the next ones before they use these. All of x is in workgroup memory, in two parts: a thread's
// sums are exact integers. Grid: any number of workgroups, which share the rows out.
override ROWS: u32; // of x at most: 1, 2, 4 or 8

@group(0) @binding(6) var<storage, read_write> least: array<atomic<u32>>; // place_of a float

override STEPS: u32 = (VECS + 31u) / 32u;
override X_VECS: u32 = 2u * VECS * ROWS;
var<workgroup> x_now: array<vec4<u32>, X_VECS>; // [row][part][16 columns]
var<workgroup> least_here: array<atomic<u32>, 8>;

struct Codes { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }
fn ask(four: u32, unit: u32) -> Codes {
    let first = vec4(4u * four) + vec4(0u, 1u, 2u, 3u);
    let at = min(first, vec4(N_ROWS - 1u)) * VECS + min(unit, VECS - 1u);
    return Codes(codes[at.x], codes[at.y], codes[at.z], codes[at.w]);
}

fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w);
}
fn dots(c: Codes, x: vec4<u32>) -> vec4<i32> {
    return vec4(dot16(c.a, x), dot16(c.b, x), dot16(c.c, x), dot16(c.d, x));
}

@compute @workgroup_size(256)
fn screen(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) n_groups: vec3<u32>,
          @builtin(local_invocation_index) lane: u32) {
    let part = lane % 32u;
    let team = lane / 32u;
    let mine = part * ROWS / 8u; // of the sums of four rows of weights with those of x
    let token = mine / 4u;
    let is_mine = part % (8u / ROWS) == 0u && token < count_of_rows();
    let info = infos[min(token, count_of_rows() - 1u)];
    var next = ask(8u * id.x + team, part);
    for (var i = lane; i < X_VECS; i += 256u) {
        x_now[i] = q[min(i / (2u * VECS), count_of_rows() - 1u) * 2u * VECS + i % (2u * VECS)];
    }
    if (lane < 8u) { atomicStore(&least_here[lane], 0u); }
    workgroupBarrier();
    var most = -BIG;
    for (var fours = 8u * id.x; 4u * fours < N_ROWS; fours += 8u * n_groups.x) {
        var sums: array<vec4<i32>, 8>;
        for (var t = 0u; t < ROWS; t++) { sums[t] = vec4(0); }
        let row = 4u * (fours + team) + mine % 4u;
        let known = rows[min(row, N_ROWS - 1u)];
        for (var step = 0u; step < STEPS; step++) {
            let now = next;
            var four = fours + team;
            var unit = (step + 1u) * 32u + part;
            if (step + 1u == STEPS) {
                four += 8u * n_groups.x;
                unit = part;
            }
            next = ask(four, unit);
            let i = step * 32u + part;
            if (i < VECS) {
                for (var t = 0u; t < ROWS; t++) {
                    sums[t] += 128 * dots(now, x_now[2u * t * VECS + i]) +
                               dots(now, x_now[(2u * t + 1u) * VECS + i]);
                }
            }
        }
        var all: array<vec4<f32>, 8>;
        for (var t = 0u; t < ROWS; t++) { all[t] = vec4<f32>(sums[t]); }
        let a = sums_of_32(lane, ROWS, &all) * (known.x * info.z);
        if (is_mine && row < N_ROWS) {
            y[token * N_ROWS + row] = high_of(a, known, info);
            if (!is_open(known, info)) { most = max(most, a - bound_of(known, info)); }
        }
    }
    if (is_mine) { atomicMax(&least_here[token], place_of(most)); }
    workgroupBarrier();
    if (lane < count_of_rows()) { atomicMax(&least[lane], atomicLoad(&least_here[lane])); }
}
