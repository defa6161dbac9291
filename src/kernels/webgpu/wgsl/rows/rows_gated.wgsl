// The same for act(gate) * up.
@group(0) @binding(2) var<storage, read_write> up: array<vec4<f32>>;

fn value(row: u32, i: u32) -> vec4<f32> { return activate(ACT, x[row + i]) * up[row + i]; }

@compute @workgroup_size(THREADS)
fn glu_norm_quantize(@builtin(workgroup_id) group: vec3<u32>,
                     @builtin(local_invocation_index) lane: u32) {
    norm_and_quantize(group.y, lane);
}
