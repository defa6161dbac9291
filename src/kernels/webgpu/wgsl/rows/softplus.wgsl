// The CPU's polynomials (vec_math.inl): e^x; log(1 + u) for 0 <= u <= 1.
fn poly_exp(x: f32) -> f32 {
    let c = clamp(x, -87.0, 88.0);
    let n = round(c * 1.44269502);
    let r = fma(n, 0x1.05c610p-29, fma(n, -0x1.62e43p-1, c));
    var p = 0x1.6d113cp-10;
    p = fma(p, r, 0x1.120ba2p-7);
    p = fma(p, r, 0x1.55551ap-5);
    p = fma(p, r, 0x1.5554dcp-3);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1.0);
    p = fma(p, r, 1.0);
    if (x < -87.0) { return 0.0; }
    return ldexp(p, i32(n));
}
fn poly_log1p(u: f32) -> f32 {
    let t = u / (2.0 + u);
    let z = t * t;
    var p = 0x1.2055eep-2;
    p = fma(p, z, 0x1.1e5cfcp-2);
    p = fma(p, z, 0x1.99da14p-2);
    p = fma(p, z, 0x1.5554e2p-1);
    p = fma(p, z, 2.0);
    return t * p;
}
fn softplus(x: f32) -> f32 { return max(x, 0.0) + poly_log1p(poly_exp(-abs(x))); }
