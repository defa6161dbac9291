// The logits of the tokens that head_pick.wgsl has listed, with the bits of float_linear.wgsl: 32
// threads share four of them as they do four neighbours there. Grid: (lists / 32, rows).
override N_ROWS: u32;
override CHUNK_ROWS: u32;
override LIST: u32;

@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> lists: array<u32>;

var<workgroup> listed: u32;

@compute @workgroup_size(256)
fn head_exact(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { listed = lists[id.y]; }
    let n = workgroupUniformLoad(&listed);
    if (n > LIST || id.x * 32u >= n) { return; }
    let list = CHUNK_ROWS + id.y * LIST;
    let at = id.x * 32u + lane / 32u * 4u;
    let r = vec4(lists[list + min(at, n - 1u)], lists[list + min(at + 1u, n - 1u)],
                 lists[list + min(at + 2u, n - 1u)], lists[list + min(at + 3u, n - 1u)]);
    let begin = (run.first_output + id.y) * COLS4;
    var sum = vec4(0.0);
    for (var i = lane % 32u; i < UNITS; i += 32u) {
        let w = ask_weights(r, i);
        for (var k = 0u; k < EACH; k++) { sum = fma4(columns4(w, k), x[begin + i * EACH + k], sum); }
    }
    var sums: array<vec4<f32>, 8>;
    sums[0] = sum;
    let s = sums_of_32(lane, 1u, &sums);
    let number = lane % 32u / 8u;
    if (lane % 8u == 0u && at + number < n) { y[id.y * N_ROWS + r[number]] = s; }
}
