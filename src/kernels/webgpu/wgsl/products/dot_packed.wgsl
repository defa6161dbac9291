// Four products of signed bytes, added by the hardware.
fn dot4(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b); }
