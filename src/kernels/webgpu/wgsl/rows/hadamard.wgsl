// Walsh-Hadamard transforms of rows, block by block of columns, each by a workgroup: y = H(s * x)
// over the root of the block, or, turned back, s * H(x). The stages add in the CPU's order
// (groups.inl), so the bits are the CPU's: strides from 16 on, then those below. Grid: (blocks of a
// row, rows).
override BLOCK: u32;   // columns, a power of two
override BLOCKS: u32;  // of a row
override FACTOR: f32;  // 1 / root of BLOCK
override SIGNS: bool;
override INVERSE: bool;
// Columns come as [repeats][groups][EACH] and are taken as [groups][repeats][EACH].
override EACH: u32 = 1u;
override REPEATS: u32 = 1u;
override GROUPS: u32 = 1u;

@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read> signs: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> now: array<f32, BLOCK>;

// The column of x that becomes column i.
fn source_of(i: u32) -> u32 {
    let head = i / EACH;
    let among = head % (GROUPS * REPEATS);
    return (head - among + among % REPEATS * GROUPS + among / REPEATS) * EACH + i % EACH;
}

fn stages(lane: u32, begin: u32, end: u32) {
    for (var stride = begin; stride < end; stride *= 2u) {
        workgroupBarrier();
        for (var k = lane; k < BLOCK / 2u; k += THREADS) {
            let i = k / stride * 2u * stride + k % stride;
            let a = now[i];
            let b = now[i + stride];
            now[i] = a + b;
            now[i + stride] = a - b;
        }
    }
}

@compute @workgroup_size(THREADS)
fn hadamard(@builtin(workgroup_id) group: vec3<u32>,
            @builtin(local_invocation_index) lane: u32) {
    let row = group.y * BLOCKS * BLOCK;
    let first = group.x * BLOCK;
    for (var k = lane; k < BLOCK; k += THREADS) {
        var v = x[row + source_of(first + k)];
        if (SIGNS && !INVERSE) { v *= signs[first + k]; }
        now[k] = v;
    }
    stages(lane, 16u, BLOCK);
    stages(lane, 1u, min(BLOCK, 16u));
    workgroupBarrier();
    for (var k = lane; k < BLOCK; k += THREADS) {
        var v = now[k] * FACTOR;
        if (SIGNS && INVERSE) { v *= signs[first + k]; }
        y[row + first + k] = v;
    }
}
