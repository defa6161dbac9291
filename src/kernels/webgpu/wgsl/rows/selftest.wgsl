// What a device must get right before the real kernels can: small things, each computed on the host
// as well (gpu_selftest.c). x is read, y is written.
override N: u32 = 1u;  // words of y
override AT: u32 = 0u; // the word that `far` reads

@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

// Every word depends on one that another workgroup made in the dispatch before.
@compute @workgroup_size(64)
fn chain(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < N) { y[id.x] = x[(id.x + 65u) % N] * 1664525u + id.x; }
}

@compute @workgroup_size(64)
fn far(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < N) { y[id.x] = x[AT + id.x] + 1u; }
}

var<workgroup> tile: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn reverse(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    tile[lane] = x[group.x * THREADS + lane];
    workgroupBarrier();
    y[group.x * THREADS + lane] = tile[THREADS - 1u - lane];
}

// The workgroup's sum and its greatest, and the sum over 32 neighbours, three words a thread.
@compute @workgroup_size(THREADS)
fn reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * THREADS + lane;
    let v = f32(x[i]);
    let all = workgroup_sum_max(lane, v, v);
    let some = sum_of_32(lane, vec4(v, 2.0 * v, 3.0 * v, 4.0 * v));
    y[3u * i] = u32(all.x);
    y[3u * i + 1u] = u32(all.y);
    y[3u * i + 2u] = u32(some.x + some.y + some.z + some.w);
}

// Halves of a word as f16, and the four 2-bit codes at each shift, as the weights are read.
@compute @workgroup_size(64)
fn unpack(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= N / 2u) { return; }
    let w = x[id.x];
    let h = unpack2x16float((w & 0x03ff03ffu) | 0x3c003c00u); // 1 to 2
    y[2u * id.x] = u32(h.x * 1024.0) | (u32(h.y * 1024.0) << 16u);
    y[2u * id.x + 1u] = (w & 0x03030303u) + ((w >> 2u) & 0x03030303u) +
                        ((w >> 4u) & 0x03030303u) + ((w >> 6u) & 0x03030303u);
}

@compute @workgroup_size(64)
fn dots(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < N) { y[id.x] = bitcast<u32>(dot4(x[2u * id.x], x[2u * id.x + 1u])); }
}

// x[3i] * x[3i + 1] + x[3i + 2], rounded once.
@compute @workgroup_size(64)
fn fmas(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = 3u * id.x;
    if (id.x >= N) { return; }
    y[id.x] = bitcast<u32>(fma_once(bitcast<f32>(x[i]), bitcast<f32>(x[i + 1u]),
                                    bitcast<f32>(x[i + 2u])));
}

// exp and the activations of floats, five words each: exp, silu, relu2, gelu, gelu by
// tanh.
@compute @workgroup_size(64)
fn activations(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= N / 5u) { return; }
    let v = vec4(bitcast<f32>(x[id.x]));
    y[5u * id.x] = bitcast<u32>(safe_exp(v).x);
    y[5u * id.x + 1u] = bitcast<u32>(activate(SILU, v).x);
    y[5u * id.x + 2u] = bitcast<u32>(activate(RELU2, v).x);
    y[5u * id.x + 3u] = bitcast<u32>(activate(GELU, v).x);
    y[5u * id.x + 4u] = bitcast<u32>(activate(GELU_TANH, v).x);
}
