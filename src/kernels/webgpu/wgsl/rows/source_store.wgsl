// Writes the rows of a sequence's source into its states, and how many there are. Grid: (pairs /
// 64, rows).
override K_PAIRS: u32;
override FRAMES: u32; // the dimension of the rows

@group(0) @binding(1) var<storage, read> chunks: array<Chunk>;
@group(0) @binding(2) var<storage, read_write> k: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> keys: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> values: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> n_rows: array<f32>; // [slot]

@compute @workgroup_size(64)
fn source_store(@builtin(global_invocation_id) id: vec3<u32>) {
    let slot = chunks[0].slot;
    if (id.x == 0u && id.y == 0u) { n_rows[slot] = f32(run.counts[FRAMES]); }
    if (id.x >= K_PAIRS) { return; }
    let to = place_of(slot * SOURCE_ROWS, id.y) * K_PAIRS + id.x;
    let at = id.y * K_PAIRS + id.x;
    keys[to] = k[at];
    values[to] = v[at];
}
