// Four products of signed bytes, added: for implementations without dot4I8Packed.
fn dot4(a: u32, b: u32) -> i32 {
    let x = (vec4(bitcast<i32>(a)) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u);
    let y = (vec4(bitcast<i32>(b)) << vec4(24u, 16u, 8u, 0u)) >> vec4(24u);
    return dot(x, y);
}
