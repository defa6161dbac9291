// a * b + c, rounded once: the fma of a device. (WGSL allows two roundings, as software adapters
// have them.)
fn fma_once(a: f32, b: f32, c: f32) -> f32 { return fma(a, b, c); }
