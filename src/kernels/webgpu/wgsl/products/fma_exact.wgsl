// a * b + c, rounded once, from sums and products that each round once: for implementations whose
// fma rounds twice. Right unless the product is beyond 2^115 or below 2^-100.
fn exact_sum(a: f32, b: f32) -> vec2<f32> { // and what rounding took
    let sum = a + b;
    let of_b = sum - a;
    return vec2(sum, (a - (sum - of_b)) + (b - of_b));
}
fn upper_half(a: f32) -> f32 {
    let c = 4097.0 * a;
    return c - (c - a);
}
fn exact_product(a: f32, b: f32) -> vec2<f32> {
    let p = a * b;
    let a1 = upper_half(a);
    let b1 = upper_half(b);
    let a2 = a - a1;
    let b2 = b - b1;
    return vec2(p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2);
}
// A sum that is rounded to the neighbour whose last bit is 1 may be rounded once more, to fewer bits.
fn odd_sum(a: f32, b: f32) -> f32 {
    let s = exact_sum(a, b);
    let bits = bitcast<u32>(s.x);
    if (s.y == 0.0 || (bits & 1u) == 1u) { return s.x; }
    if ((s.y > 0.0) == (s.x > 0.0)) { return bitcast<f32>(bits + 1u); }
    return bitcast<f32>(bits - 1u);
}
fn fma_once(a: f32, b: f32, c: f32) -> f32 {
    let p = exact_product(a, b);
    let low = exact_sum(c, p.y);
    let high = exact_sum(p.x, low.x);
    return high.x + odd_sum(low.y, high.y);
}
