// y[t][j][row] = dot(x[t] or x[t][j], W[expert j of row t][row]). A large matrix comes in parts of
// whole rows, each with its own dispatch, which leaves alone what is in the others.
//
// 16 threads share a row of weights, whose sums are added up as a tree: the same for any number of
// rows of x.
override FIRST_ROW: u32; // of the part
override N_ROWS: u32;
override EACH: u32;      // rows of an expert
override BLOCKS: u32;    // of 16 rows in these
override CHOSEN: u32;
override SHARED: bool;   // one row of x for all chosen experts

@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> route: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<f32, 256>;

// Grid: (chosen experts * BLOCKS, rows of x).
@compute @workgroup_size(256)
fn experts(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let slot = id.x / BLOCKS;
    let row = id.x % BLOCKS * 16u + lane / 16u;
    let part = lane % 16u;
    let at = u32(route[id.y * 2u * CHOSEN + slot]) * EACH + row;
    let inside = row < EACH && at >= FIRST_ROW && at < FIRST_ROW + N_ROWS;
    var start = (id.y * CHOSEN + slot) * COLS4;
    if (SHARED) { start = id.y * COLS4; }
    var sum = 0.0;
    if (inside) {
        for (var i = part; i < COLS4; i += 16u) {
            let v = x[start + i];
            let m = weights4(at - FIRST_ROW, i);
            sum = fma(m.w, v.w, fma(m.z, v.z, fma(m.y, v.y, fma(m.x, v.x, sum))));
        }
    }
    sums[lane] = sum;
    for (var apart = 8u; apart > 0u; apart /= 2u) {
        workgroupBarrier();
        if (part < apart) { sums[lane] += sums[lane + apart]; }
    }
    if (inside && part == 0u) { y[(id.y * CHOSEN + slot) * EACH + row] = sums[lane]; }
}
