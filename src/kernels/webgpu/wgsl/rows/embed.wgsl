// y[t] = W[table_row(t)]. A table larger than a binding comes in parts, each with its own dispatch,
// which writes the rows of its own tokens only. For a table that stays on the host there are only
// the rows of the batch's tokens, in their order. Grid: (columns / 4 / 64, tokens).
override COLS4: u32;     // columns / 4
override IS_F16: bool;
override IS_Q8: bool;    // int8s and scales as in float_linear.wgsl; else f32
override ROW4: u32 = 1u; // vec4s of such a row
override IN_TILES: bool = false; // codes in groups, as codes.wgsl says
override FIRST_ROW: u32; // of the table's part
override N_ROWS: u32;
override IN_ORDER: bool = false;

@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

// Four neighbouring columns of a row in tiles.
override BLOCKS: u32 = COLS4 / 16u;
fn in_tile(row: u32, i: u32) -> vec4<f32> {
    let tile = 64u + row / 8u * TILE_VECS * 4u;
    let group = TILE_VECS - TILE_SCALES + i * 4u / SCALE_COLS;
    let scale = unpack2x16float(table[tile + group * 4u + row % 8u / 2u])[row % 2u];
    // A vector has 4 words of a row; each has 16 / BITS times four columns.
    let each = 8u / BITS;
    let word = i / each;
    let c = table[tile + word / 4u * 32u + row % 8u * 4u + word % 4u] >> (i % each * BITS);
    if (BITS == 1u) { return (2.0 * bytes4(c & 0x01010101u) - 1.0) * scale; }
    return (bytes4(c & 0x03030303u) - 1.0) * scale;
}

@compute @workgroup_size(64)
fn embed(@builtin(global_invocation_id) id: vec3<u32>,
         @builtin(local_invocation_index) lane: u32) {
    var row = table_row(id.y, lane) - FIRST_ROW; // wraps around for rows in front
    if (IN_ORDER) { row = id.y; }
    if (id.x >= COLS4 || row >= N_ROWS) { return; }
    let at = row * COLS4 + id.x;
    var v: vec4<f32>;
    if (IN_TILES) {
        v = in_tile(row, id.x);
    } else if (IS_Q8) {
        let words = row * ROW4 * 4u;
        let scales = unpack2x16float(table[words + COLS4 + id.x / 16u]);
        v = bytes4(table[words + id.x]) * scales[id.x / 8u % 2u];
    } else if (IS_F16) {
        v = vec4(unpack2x16float(table[2u * at]), unpack2x16float(table[2u * at + 1u]));
    } else {
        v = bitcast<vec4<f32>>(vec4(table[4u * at], table[4u * at + 1u], table[4u * at + 2u],
                                    table[4u * at + 3u]));
    }
    y[id.y * COLS4 + id.x] = v;
}
