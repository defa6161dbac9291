// The greatest logit of a row without most of the head: the proof that a token does not have it.
// The CPU's head has the same idea (kernels/cpu/head/head.c).
//
// A copy of the head has 8-bit integers, w' = s W with |W| <= 127 and a step s for each row, and
// the rows of x become x' of 8-bit integers, too: u_b X with a unit for each block of 64 columns,
// or, for matrix units, which cannot scale by blocks, and for few rows, u (128 H + L). The lengths
// of the rests, r = w - w' and e = x - x', are known. Let y be the logit as the float kernel
// computes it, and a the product of w' and x' as head_screen_*.wgsl does. If all numbers are below
// 2^49,
//
//     |y - a| <= |r| |x| + (|w| + |r|) |e| + G (|w| + |r|) (|x| + |e|)      G = 2^-23 (n / 16 + 64)
//
// Exactly, w x - w' x' = r x + w' e, and by Cauchy and Schwarz the first two terms bound that,
// as |w'| <= |w| + |r|. The rest is rounding, with u = 2^-24: a sum in which no product
// passes through more than m roundings is off by m u / (1 - m u) times the sum of the |products| at
// most. In y that sum is at most |w| |x| and m = 2 (n / 32 + 21): a chain over the columns of one
// of 32 threads, then five additions, twice that since a device's fma may round twice. In a block
// sums are whole numbers that a float holds, m = 2 (n / 64 + 4), of |products| up to |w'| |x'|; by
// matrix units the sums of H and L are exact integers, which become floats and are added up, m = 6,
// and as |L| <= 64 and L is X where H is zero, the |products| are up to 3 |w'| |x'|. For few rows a
// thread's 128 H + L is exact, then a float, and 32 threads' are added up: m = 9. Together less
// than (n / 8 + 64) u, and what high and low below lose is less than 8 u; G is (n / 8 + 128) u.
// In wide_float.wgsl a product of codes passes through the 16 fma of its quarter, eight additions for
// each of n / 2048 blocks, rounded up, and those of at most 8 + n / 64 threads: m is less than 64 + n / 25.
// With minima x is multiplied with two numbers for each weight, so |w| is the length of the sums of
// their sizes (wide_head_copy.wgsl), which is no less.
// Numbers too small to be squared are covered by the 2^-50 that each length has more. A device may
// take numbers below 2^-126 for zero, and a step times a unit is multiplied with less than 2^39:
// 2^-80 is more.
//
// So a + bound is at least y and a - bound at most. With M the greatest a - bound of a row, no
// token with a + bound < M is the greatest one, not even by a tie, and a + bound itself can stay in
// the place of its logit. All others are computed as they always are (head_exact.wgsl), or, with
// many rows, the whole row is if there are too many of them (gemv_open of float_linear.wgsl). The
// greatest is then found as ever (top.wgsl).
//
// Comparisons are of finite numbers only: rows and tokens with greater ones, infinities or NaN are
// marked as FAR, and always computed.
const FAR_BITS = 0x58000000u; // 2^49, as an integer
const BIG = 3.0e38;
const FAR = -1.0;
override ROUNDING: f32 = (f32(COLS4) / 4.0 + 64.0) * 1.1920929e-7; // G

fn is_far(v: vec4<f32>) -> bool {
    return any((bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) >= vec4(FAR_BITS));
}

// A computed length, rounded up: the sum of squares and its root are off by less than 1 + G.
fn length_up(squares: f32) -> f32 { return sqrt(squares) * (1.0 + ROUNDING) + 8.8817842e-16; }

// w of a row: s, |w|, |r| or FAR. x of a row: what |r| and |w| count with, u, FAR or 0.

fn bound_of(w: vec4<f32>, x: vec4<f32>) -> f32 {
    return (w.z * x.x + w.y * x.y + 8.2718061e-25) * 1.00000095;
}
fn is_open(w: vec4<f32>, x: vec4<f32>) -> bool { return w.z == FAR || x.w == FAR; }
fn high_of(a: f32, w: vec4<f32>, x: vec4<f32>) -> f32 {
    if (is_open(w, x)) { return BIG; }
    return a + bound_of(w, x);
}

// Whole numbers above 0 that are ordered like floats, so that atomics can find the greatest. 0: no
// float yet.
fn place_of(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    if ((bits >> 31u) != 0u) { return ~bits; }
    return bits | 0x80000000u;
}
fn float_at(place: u32) -> f32 {
    if (place == 0u) { return -BIG; }
    if ((place >> 31u) != 0u) { return bitcast<f32>(place & 0x7fffffffu); }
    return bitcast<f32>(~place);
}
