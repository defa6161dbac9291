// tern_fma and the fma of every variant against arithmetic in whole numbers: sums that end at or
// beside half way between two floats, subnormal ones, overflow, and special numbers. WebAssembly
// without relaxed SIMD has no fma, so it is computed.
//
// Seen to fail: the fmaf of WASI's C library; the sum in float64 taken as it is; the halves looked
// for in normal numbers alone (29 bits in place of 28); a step of round-to-odd the wrong way.
#include "base/dtype/fma.h"
#include "kernels/cpu/float/checks/float_check.h"

#if defined(__SIZEOF_INT128__) // processors of 32 bits have no number that is wide enough

// ---- The exact result --------------------------------------------------------------------------

typedef struct number { // m * 2^e
    __int128 m;
    int e;
} number;

static int bits_of(unsigned __int128 m) {
    int n = 0;
    for (; m; m >>= 1) n++;
    return n;
}

static number exactly(float x) {
    int e;
    float m = frexpf(x, &e);
    return (number){(__int128)(m * 0x1p24f), e - 24};
}

// m 2^e to the nearest float, ties to even; a 1 at the end of m may stand for anything smaller.
static float nearest(__int128 m, int e) {
    unsigned __int128 size = m < 0 ? -(unsigned __int128)m : (unsigned __int128)m;
    int drop = bits_of(size) - 24;
    if (e + drop < -149) drop = -149 - e;
    if (drop > 100) drop = 100; // all of it is lost already
    if (drop > 0) {
        unsigned __int128 kept = size >> drop, rest = size - (kept << drop);
        unsigned __int128 half = (unsigned __int128)1 << (drop - 1);
        size = kept + (rest > half || (rest == half && (kept & 1)));
        e += drop;
    }
    float x = ldexpf((float)size, e); // both exact, but for overflow
    return m < 0 ? -x : x;
}

static float exact_fma(float a, float b, float c) {
    double product = (double)a * b; // exact
    if (!isfinite(product) || !isfinite(c) || product == 0 || c == 0)
        return (float)(product + c); // c or the product alone: one rounding
    number p = exactly(a), q = exactly(b), s = exactly(c);
    p.m *= q.m, p.e += q.e;
    number *high = p.e + bits_of((unsigned __int128)(p.m < 0 ? -p.m : p.m)) >
                           s.e + bits_of((unsigned __int128)(s.m < 0 ? -s.m : s.m))
                       ? &p
                       : &s;
    number *low = high == &p ? &s : &p;
    int up = high->e - low->e;
    if (up < 0) { // then the lower number is the one that can be shifted, and by little
        low->m *= (__int128)1 << -up, low->e = high->e, up = 0;
    }
    if (up > 70) { // the lower number is beyond the last bit that matters: it counts as its sign
        high->m *= (__int128)1 << 70, high->e -= 70;
        low->m = low->m < 0 ? -1 : 1;
        return nearest(high->m + low->m, high->e);
    }
    return nearest(high->m * ((__int128)1 << up) + low->m, low->e);
}

// ---- Cases -------------------------------------------------------------------------------------

enum { N = 60000 };
static float a[N], b[N], c[N], want[N], got[N];

static float signed_at_random(float x, uint32_t *seed) { return next_random(seed) & 1 ? -x : x; }

// Two odd numbers whose product is 2^47 and very little. Beside a number 2^23 times as large,
// float64 loses all of the product but its first bit.
static void nearly_power(float *x, float *y, uint32_t *seed) {
    for (;;) {
        uint64_t i = (1u << 23) + next_random(seed) % (1u << 23), power = (uint64_t)1 << 47;
        uint64_t j = (power + i / 2) / i;
        int64_t rest = (int64_t)(i * j - power);
        if (j >= (uint64_t)1 << 24 || rest == 0 || rest > 1 << 16 || rest < -(1 << 16)) continue;
        *x = (float)i, *y = (float)j;
        return;
    }
}

static void make_case(size_t i, uint32_t *seed) {
    static const float odd[] = {0,        1,       0x1p-149f,     0x1p-126f,        0x1.fffffep127f,
                                INFINITY, NAN,     2.5f,          0x1.fffffep-127f, 0x1.000002p0f,
                                0x1p-75f, 0x1p64f, 0x1.fffffep63f};
    const int e = (int)(next_random(seed) % 60) - 30;
    const int below = 40 + (int)(next_random(seed) % 60);
    const float tiny = ldexpf(1 + (float)(next_random(seed) % 8), e - below);
    float x = next_float(seed), y = next_float(seed);
    switch (i / 16 % 6) { // a vector of each: one number that needs care makes all be taken care of
    case 0:               // any numbers, c as large as the product or up to 2^60 apart
        a[i] = x, b[i] = y;
        c[i] = ldexpf(next_float(seed), e * 2);
        break;
    case 1: // a product of 25 bits, the last one 1: half way; c decides, or evenness
        a[i] = ldexpf((float)(4097 + 2 * (next_random(seed) % 2047)), e);
        b[i] = (float)(4097 + 2 * (next_random(seed) % 2047));
        c[i] = i % 2 ? 0 : signed_at_random(ldexpf(tiny, -e), seed);
        break;
    case 2: // c plus half a unit in its last place, and little more or less
        nearly_power(&a[i], &b[i], seed);
        a[i] = ldexpf(signed_at_random(a[i], seed), e);
        c[i] = ldexpf((float)((1 << 23) + next_random(seed) % (1 << 23)), 48 + e);
        c[i] = signed_at_random(c[i], seed);
        break;
    case 3: // the same below the smallest normal number
        nearly_power(&a[i], &b[i], seed);
        a[i] = ldexpf(signed_at_random(a[i], seed), -98), b[i] = ldexpf(b[i], -99);
        c[i] = signed_at_random(ldexpf((float)(next_random(seed) % (1 << 24)), -149), seed);
        break;
    case 4: // near the greatest number
        a[i] = signed_at_random(ldexpf(1 + fabsf(x), 63), seed);
        b[i] = ldexpf(1 + fabsf(y), 63 + (int)(next_random(seed) % 2));
        c[i] = signed_at_random(0x1.fffffep127f, seed);
        break;
    default:
        a[i] = signed_at_random(odd[next_random(seed) % 13], seed);
        b[i] = signed_at_random(odd[next_random(seed) % 13], seed);
        c[i] = signed_at_random(odd[next_random(seed) % 13], seed);
    }
}

static void check(const char *name) {
    for (size_t i = 0; i < N; i++)
        CHECK_MSG(same_bits(want + i, got + i, 1), "%s: fma(%a, %a, %a) is %a, not %a", name,
                  (double)a[i], (double)b[i], (double)c[i], (double)want[i], (double)got[i]);
}

// A convolution of two taps is an fma for each column if the first tap adds -0.
static void run_kernel(const tern_float_kernels *k) {
    static float taps[2 * N], before[N];
    for (size_t i = 0; i < N; i++) taps[2 * i] = -0.0f, taps[2 * i + 1] = a[i], before[i] = 0;
    tern_conv_args args = {.y = got,
                           .x = b,
                           .y_stride = N,
                           .x_stride = N,
                           .w = taps,
                           .bias = c,
                           .state = before,
                           .n_rows = 1,
                           .n_cols = N,
                           .n_taps = 2,
                           .last = N};
    k->conv(&args);
}

TEST(fma_rounds_once) {
    variants v = all_variants();
    uint32_t seed = 11;
    for (size_t i = 0; i < N; i++) make_case(i, &seed), want[i] = exact_fma(a[i], b[i], c[i]);
    for (size_t i = 0; i < N; i++) got[i] = tern_fma(a[i], b[i], c[i]);
    check("tern_fma");
    for (size_t i = 0; i < v.n; i++) {
        run_kernel(v.k[i]);
        check(v.k[i]->name);
    }
}

#endif
