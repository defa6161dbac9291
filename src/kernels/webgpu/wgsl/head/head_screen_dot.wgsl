// Approximate logits by products of four bytes, on every device. A thread computes four rows x two
// tokens; the data of the next 64 columns is loaded while these are multiplied.
const ROWS = 64u;
const TOKENS = 32u;
// From 16 columns to the next 16, in vec4s: two more, so that threads that store the columns of
// one row do so to other banks.
const ROWS_NEXT = ROWS + 2u;
const TOKENS_NEXT = TOKENS + 2u;

@group(0) @binding(6) var<storage, read> units: array<f32>;

var<workgroup> rows_now: array<vec4<u32>, 4u * ROWS_NEXT>;     // [16 columns of 64][row]
var<workgroup> tokens_now: array<vec4<u32>, 4u * TOKENS_NEXT>;
var<workgroup> units_now: array<f32, TOKENS>;

fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return dot4(a.x, b.x) + dot4(a.y, b.y) + dot4(a.z, b.z) + dot4(a.w, b.w);
}

@compute @workgroup_size(256)
fn screen(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row0 = id.x * ROWS;
    let token0 = id.y * TOKENS;
    let tx = lane % 16u;
    let ty = lane / 16u;
    let load_row = min(row0 + lane / 4u, N_ROWS - 1u) * VECS;
    let load_token = min(token0 + lane / 4u % TOKENS, count_of_rows() - 1u);
    let part = lane % 4u;
    var a: array<vec4<f32>, 2>;
    var code = codes[load_row + part];
    var column = q[load_token * VECS + part];
    var unit = units[load_token * (VECS / 4u)];
    for (var b = 0u; b < VECS / 4u; b++) {
        workgroupBarrier();
        rows_now[part * ROWS_NEXT + lane / 4u] = code;
        if (lane < 4u * TOKENS) {
            tokens_now[part * TOKENS_NEXT + lane / 4u] = column;
            if (part == 0u) { units_now[lane / 4u] = unit; }
        }
        workgroupBarrier();
        if (b + 1u < VECS / 4u) {
            code = codes[load_row + (b + 1u) * 4u + part];
            column = q[load_token * VECS + (b + 1u) * 4u + part];
            unit = units[load_token * (VECS / 4u) + b + 1u];
        }
        var sums = array<vec4<i32>, 2>();
        for (var k = 0u; k < 4u; k++) {
            let w0 = rows_now[k * ROWS_NEXT + tx];
            let w1 = rows_now[k * ROWS_NEXT + tx + 16u];
            let w2 = rows_now[k * ROWS_NEXT + tx + 32u];
            let w3 = rows_now[k * ROWS_NEXT + tx + 48u];
            for (var t = 0u; t < 2u; t++) {
                let v = tokens_now[k * TOKENS_NEXT + ty + 16u * t];
                sums[t] += vec4(dot16(w0, v), dot16(w1, v), dot16(w2, v), dot16(w3, v));
            }
        }
        for (var t = 0u; t < 2u; t++) {
            a[t] = fma(vec4<f32>(sums[t]), vec4(units_now[ty + 16u * t]), a[t]);
        }
    }
    for (var t = 0u; t < 2u; t++) {
        for (var r = 0u; r < 4u; r++) {
            let row = row0 + tx + 16u * r;
            write_high(row, token0 + ty + 16u * t, a[t][r] * rows[min(row, N_ROWS - 1u)].x);
        }
    }
}
