// Attention of a row over its sequence's source; zeros if there is none. Grid: (heads, rows).
@group(0) @binding(5) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(6) var<storage, read> n_rows: array<f32>; // [slot]

fn key2(pair: u32, place: u32) -> vec2<f32> {
    let at = 2u * (place * K_PAIRS + pair);
    return bitcast<vec2<f32>>(vec2(keys[at], keys[at + 1u]));
}
fn value2(pair: u32, place: u32) -> vec2<f32> {
    let at = 2u * (place * K_PAIRS + pair);
    return bitcast<vec2<f32>>(vec2(values[at], values[at + 1u]));
}

@compute @workgroup_size(THREADS)
fn cross_attention(@builtin(workgroup_id) group: vec3<u32>,
                    @builtin(local_invocation_index) lane: u32) {
    let slot = chunks[chunk_of_row(group.y)].slot;
    let n = u32(n_rows[slot]);
    if (n == 0u) {
        for (var i = lane; i < HALF; i += THREADS) {
            y[(group.y * N_HEADS + group.x) * HALF + i] = vec2(0.0);
        }
        return;
    }
    attend(group.x, group.y, lane, slot * SOURCE_ROWS, 0u, n);
}
