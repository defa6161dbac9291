// dW[id] += sum of dy over the rows of that token. The host has sorted the rows by token, so that
// each row of dW has one owner and its sum one order: sixteen threads add every sixteenth row, then
// one adds the sixteen. Grid: (COLS4 / 16, different tokens).
override COLS4: u32;

@group(0) @binding(1) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> order: array<u32>;    // rows, sorted by token
@group(0) @binding(3) var<storage, read> found: array<vec4<u32>>; // token, first in order, how many
@group(0) @binding(4) var<storage, read_write> dw: array<vec4<f32>>;

var<workgroup> slots: array<vec4<f32>, 256>;

@compute @workgroup_size(256)
fn embed_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 16u + lane % 16u;
    let one = found[group.y];
    var sum = vec4(0.0);
    if (i < COLS4) {
        for (var k = lane / 16u; k < one.z; k += 16u) { sum += dy[order[one.y + k] * COLS4 + i]; }
    }
    slots[lane] = sum;
    workgroupBarrier();
    if (lane >= 16u || i >= COLS4) { return; }
    for (var k = 16u + lane; k < 256u; k += 16u) { sum += slots[k]; }
    dw[one.x * COLS4 + i] += sum * run.unscale;
}
