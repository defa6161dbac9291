// Which tokens of the vocabulary may be the greatest of a row (head_bound.wgsl): first a lower
// bound of the greatest, in PARTS parts, then a list of all tokens that may reach it. Grid: (parts,
// rows), twice.
override COLS4: u32;
override N_ROWS: u32;
override PARTS: u32; // at most 256
override CHUNK_ROWS: u32;
override LIST: u32;

@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read> rows: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> infos: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> parts: array<f32>;
@group(0) @binding(5) var<storage, read_write> lists: array<atomic<u32>>; // [row] how many; [row][LIST]

var<workgroup> greatest: array<f32, 256>;

fn reduce(lane: u32, value: f32) -> f32 {
    greatest[lane] = value;
    for (var step = 128u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) { greatest[lane] = max(greatest[lane], greatest[lane + step]); }
    }
    workgroupBarrier();
    return greatest[0];
}

@compute @workgroup_size(256)
fn head_least(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let x = infos[id.y];
    var value = -BIG;
    for (var i = id.x * 256u + lane; i < N_ROWS; i += PARTS * 256u) {
        let w = rows[i];
        if (!is_open(w, x)) { value = max(value, y[id.y * N_ROWS + i] - 2.0 * bound_of(w, x)); }
    }
    let all = reduce(lane, value);
    if (lane == 0u) { parts[id.y * PARTS + id.x] = all; }
}

@compute @workgroup_size(256)
fn head_list(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var value = -BIG;
    if (lane < PARTS) { value = parts[id.y * PARTS + lane]; }
    let least = reduce(lane, value);
    for (var i = id.x * 256u + lane; i < N_ROWS; i += PARTS * 256u) {
        if (y[id.y * N_ROWS + i] >= least) {
            let at = atomicAdd(&lists[id.y], 1u);
            if (at < LIST) { atomicStore(&lists[CHUNK_ROWS + id.y * LIST + at], i); }
        }
    }
}
