// As head_exact.wgsl, with codes of wide_codes.wgsl and the bits of wide_float.wgsl: SPLITS threads share a
// listed row as they do there. Grid: (lists / 32, rows).
override SPLITS: u32;
override N_ROWS: u32;
override CHUNK_ROWS: u32;
override LIST: u32;
override TEAMS: u32 = 256u / SPLITS;

@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read> lists: array<u32>;

var<workgroup> listed: u32;
var<workgroup> sums: array<f32, 256>;

fn chain(row: u32, split: u32, token: u32) -> f32 {
    let tile = 16u + row / 8u * TILE_VECS;
    var sum = 0.0;
    for (var b = split; b < BLOCKS; b += SPLITS) {
        let c = wide_codes(tile, b, row % 8u);
        let s = scales_of(scale_words(tile, b, row % 8u));
        for (var i = 0u; i < 4u; i++) { // of 16 columns each
            let at = (token * BLOCKS + b) * 16u + i * 4u;
            let dot = dot_of_16(quarter(c, i), x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
            let total = sum_of_16(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
            sum = add_16(sum, factors(s, i * PARTS / 4u), dot, total);
        }
    }
    return sum;
}

@compute @workgroup_size(256)
fn head_exact(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { listed = lists[id.y]; }
    let n = workgroupUniformLoad(&listed);
    if (n > LIST || id.x * 32u >= n) { return; }
    let list = CHUNK_ROWS + id.y * LIST;
    let end = min(n, id.x * 32u + 32u);
    for (var first = id.x * 32u; first < end; first += TEAMS) {
        let row = lists[list + min(first + lane / SPLITS, end - 1u)];
        if (lane < TEAMS * SPLITS) { sums[lane] = chain(row, lane % SPLITS, run.first_output + id.y); }
        workgroupBarrier();
        if (lane < TEAMS && first + lane < end) {
            var sum = 0.0;
            for (var i = 0u; i < SPLITS; i++) { sum += sums[lane * SPLITS + i]; }
            y[id.y * N_ROWS + lists[list + first + lane]] = sum;
        }
        workgroupBarrier();
    }
}
