// Approximate logits of one row of x, and what its greatest logit is at least. 32 threads share four
// rows of the copy as those of float_linear.wgsl do, 16 bytes of each at a time, and ask for the
// next ones before they use these. x is in workgroup memory, in two parts: sums are exact integers
// up to a thread's. Grid: any number of workgroups, which share the rows out.
@group(0) @binding(6) var<storage, read_write> least: array<atomic<u32>>; // place_of a float

override STEPS: u32 = (VECS + 31u) / 32u;
override X_VECS: u32 = 2u * VECS;
var<workgroup> x_now: array<vec4<u32>, X_VECS>; // [part][16 columns]

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
    let info = infos[0];
    var next = ask(8u * id.x + team, part);
    for (var i = lane; i < X_VECS; i += 256u) { x_now[i] = q[i]; }
    workgroupBarrier();
    var most = -BIG;
    for (var fours = 8u * id.x; 4u * fours < N_ROWS; fours += 8u * n_groups.x) {
        var high = vec4(0);
        var low = vec4(0);
        let row = 4u * (fours + team) + part / 8u;
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
                high += dots(now, x_now[i]);
                low += dots(now, x_now[VECS + i]);
            }
        }
        var sums: array<vec4<f32>, 8>;
        sums[0] = vec4<f32>(high) * 128.0 + vec4<f32>(low);
        let a = sums_of_32(lane, 1u, &sums) * (known.x * info.z);
        if (part % 8u == 0u && row < N_ROWS) {
            y[row] = high_of(a, known, info);
            if (!is_open(known, info)) { most = max(most, a - bound_of(known, info)); }
        }
    }
    let all = workgroup_sum_max(lane, 0.0, most).y;
    if (lane == 0u) { atomicMax(&least[0], place_of(all)); }
}
