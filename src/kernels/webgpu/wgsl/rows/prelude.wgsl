// Comes before every kernel. Kernels that run a model use no select() on values: WebKit's was found
// to be wrong at times; a branch or a product with f32(condition) is not.
override THREADS: u32 = 256u; // of a workgroup, a multiple of 16

// Four signed bytes.
fn bytes4(a: u32) -> vec4<f32> {
    return vec4<f32>((vec4(bitcast<i32>(a)) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u));
}

// BF16 or F16 by its bits: a device may take F16's numbers below 2^-14 for zero, and scales of two
// layers are often such.
fn number16(bf16: bool, bits: u32) -> f32 {
    if (bf16) { return bitcast<f32>(bits << 16u); }
    let sign = (bits & 0x8000u) << 16u;
    if ((bits & 0x7c00u) == 0u) {
        return bitcast<f32>(sign | bitcast<u32>(f32(bits & 0x3ffu) * 0.000000059604644775390625));
    }
    return bitcast<f32>(sign | (((bits & 0x7fffu) << 13u) + 0x38000000u));
}

// The sum of two, the second rounded first: no compiler may fuse a product that passes through a
// minimum.
fn add_rounded(sum: f32, product: f32) -> f32 { return sum + min(product, 3.4028234e38); }
fn add_rounded4(sum: vec4<f32>, product: vec4<f32>) -> vec4<f32> {
    return sum + min(product, vec4(3.4028234e38));
}

// exp beyond these arguments is infinite or, on some devices, undefined.
fn safe_exp(x: vec4<f32>) -> vec4<f32> { return exp(clamp(x, vec4(-87.0), vec4(87.0))); }

// cap * tanh(s / cap), by tanh(u) = 1 - 2 / (exp(2u) + 1), which is 1 for more than 20, and near 0,
// where that leaves few bits, by its series; a cap of 0 is none.
fn capped_by(cap: f32, s: vec4<f32>) -> vec4<f32> {
    if (cap == 0.0) { return s; }
    let u = clamp(s / cap, vec4(-20.0), vec4(20.0));
    let near = vec4<f32>(abs(u) < vec4(0.25));
    let v = u * near;
    let w = v * v;
    let series = 1.0 + w * (-0.33333333 + w * (0.13333333 + w * (-0.053968254 + w * 0.021869489)));
    let far = 1.0 - 2.0 / (exp(2.0 * u) + 1.0);
    return cap * (far * (1.0 - near) + v * series);
}

// The factor that makes numbers up to `most` integers up to 127, and the unit of these: the CPU's
// quantize_64 (groups.inl). The unit is its quotient to the bit on every device: q = most / 127 is
// off by a unit of the last place at most, and most - 128 q + q is the remainder, without rounding.
// WGSL lets the factor be 2.5 units off, so that an integer on the edge of rounding may be the
// next. And a NaN, which the CPU turns into 127, may become anything.
fn unit_of(most: f32) -> f32 {
    let q = most * 0.007874015718698502;
    return q + ((most - 128.0 * q) + q) * 0.007874015718698502;
}
fn factor_and_unit(most: f32) -> vec2<f32> {
    if (most > 1e-30) { return vec2(127.0 / most, unit_of(most)); }
    return vec2(0.0);
}
fn integers(v: vec4<f32>, factor: f32) -> vec4<i32> {
    return vec4<i32>(clamp(round(v * factor), vec4(-127.0), vec4(127.0)));
}

// The sums of the integers of a block's two halves of 32 columns share one word, which is summed
// over the 16 threads that have four columns each: the sums are at most 4064, so they stay apart.
fn in_half(lane: u32, sum: i32) -> i32 {
    if (lane % 16u >= 8u) { return sum << 16u; }
    return sum;
}
fn sums_of_halves(word: u32) -> vec2<i32> {
    let both = bitcast<i32>(word);
    let first = (both << 16u) >> 16u;
    return vec2(first, (both - first) >> 16u);
}

const SILU = 0u;
const RELU2 = 1u;
const GELU = 2u;
const GELU_TANH = 3u;
const SIGMOID = 4u;
const TANH = 5u;
const ASINH = 6u;
const AS_IT_IS = 7u;

// Phi(-|x|), the lower tail of the normal distribution, times e^(x^2 / 2): the polynomial of the
// CPU's normal_tail (elementwise.inl).
fn scaled_tail(x: vec4<f32>) -> vec4<f32> {
    let t = 1.0 / (1.0 + 0.35355339 * abs(x));
    var p = vec4(-0.0296259299);
    p = p * t + 0.142783746;
    p = p * t - 0.244721487;
    p = p * t + 0.140407726;
    p = p * t - 0.0143065071;
    p = p * t + 0.101775125;
    p = p * t + 0.121442586;
    p = p * t + 0.141202301;
    p = p * t + 0.141042411;
    return p * t;
}
// Phi(x); e = e^(-x^2 / 2).
fn normal_cdf(x: vec4<f32>, e: vec4<f32>) -> vec4<f32> {
    let tail = scaled_tail(x) * e;
    let above = vec4<f32>(x >= vec4(0.0));
    return above + (1.0 - 2.0 * above) * tail;
}
// e^(-x^2 / 2), whose square may be infinite where x is not bounded.
fn bell(x: vec4<f32>) -> vec4<f32> {
    let c = clamp(x, vec4(-20.0), vec4(20.0));
    return safe_exp(-0.5 * c * c);
}

// The logarithm loses the digits of a small x, and the square of a great one is infinite.
fn inverse_sinh(x: vec4<f32>) -> vec4<f32> {
    let a = min(abs(x), vec4(1e18));
    let small = a * (1.0 + a * a * (-1.0 / 6.0 + 0.075 * a * a));
    let great = log(a + sqrt(a * a + 1.0));
    return sign(x) * select(great, small, a < vec4(0.1));
}

fn activate(kind: u32, x: vec4<f32>) -> vec4<f32> {
    if (kind == SILU) { return x / (1.0 + safe_exp(-x)); }
    if (kind == SIGMOID) { return 1.0 / (1.0 + safe_exp(-x)); }
    if (kind == TANH) { return tanh(clamp(x, vec4(-20.0), vec4(20.0))); }
    if (kind == ASINH) { return inverse_sinh(x); }
    if (kind == AS_IT_IS) { return x; }
    if (kind == RELU2) {
        let r = max(x, vec4(0.0));
        return r * r;
    }
    if (kind == GELU) { return x * normal_cdf(x, bell(x)); }
    // GELU_TANH, by tanh(u) = 1 - 2 / (exp(2u) + 1), which is 1 for more than 20; the cube of more may be
    // infinite.
    let c = clamp(x, vec4(-20.0), vec4(20.0));
    let u = 0.7978845608028654 * (c + 0.044715 * c * c * c);
    return 0.5 * x * (2.0 - 2.0 / (safe_exp(2.0 * u) + 1.0));
}
