// In front of every kernel: what all of them know. Kernels that run a model use no select() on
// values: WebKit's was found to be wrong at times; a branch or a product with f32(condition) is not.
override THREADS: u32 = 256u; // of a workgroup, a multiple of 16

// Four signed bytes.
fn bytes4(a: u32) -> vec4<f32> {
    return vec4<f32>((vec4(bitcast<i32>(a)) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

// exp beyond these arguments is infinite or, on some devices, undefined.
fn safe_exp(x: vec4<f32>) -> vec4<f32> { return exp(clamp(x, vec4(-87.0), vec4(87.0))); }

const SILU = 0u;
const RELU2 = 1u;
fn activate(kind: u32, x: vec4<f32>) -> vec4<f32> {
    if (kind == SILU) { return x / (1.0 + safe_exp(-x)); }
    if (kind == RELU2) {
        let r = max(x, vec4(0.0));
        return r * r;
    }
    // gelu, by tanh(u) = 1 - 2 / (exp(2u) + 1), which is 1 for more than 20; the cube of more may be
    // infinite.
    let c = clamp(x, vec4(-20.0), vec4(20.0));
    let u = 0.7978845608028654 * (c + 0.044715 * c * c * c);
    return 0.5 * x * (2.0 - 2.0 / (safe_exp(2.0 * u) + 1.0));
}
