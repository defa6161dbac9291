// Encoders that search, and the writers of blocks.
#include "base/dtype/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/support/harness.h"

enum { N = 256 * 32 };

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// Roughly normal: the sum of four uniform numbers.
static float next_normal(uint32_t *state) {
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)next_random(state) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
}

// Seen to fail: when the upper bits of Q4_K's minima were left out, when Q3_K's scales lost their
// 32, when MXFP4's smallest exponents became one.
TEST(dtype_blocks_are_written_as_they_were_read) {
    uint8_t block[256], again[256], codes[256];
    int8_t sub_scales[16], sub_minima[16];
    uint16_t scale, minimum;
    const tern_dtype_codes parts = {codes, &scale, &minimum, sub_scales, sub_minima};
    uint32_t seed = 3;
    int n_types = 0;
    for (int type = 0; type < TERN_DTYPE_COUNT; type++) {
        size_t n = tern_dtype_block_n((tern_dtype)type);
        size_t bytes = tern_dtype_block_bytes((tern_dtype)type);
        if (!tern_dtype_form_of((tern_dtype)type)) {
            CHECK(!tern_dtype_encode_codes((tern_dtype)type, &parts, again));
            continue;
        }
        n_types++;
        for (int round = 0; round < 300; round++) {
            for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)next_random(&seed);
            if (round < 3) block[0] = (uint8_t)round;
            REQUIRE(tern_dtype_decode_codes((tern_dtype)type, block, 0, n, &parts));
            REQUIRE(tern_dtype_encode_codes((tern_dtype)type, &parts, again));
            CHECK_MSG(memcmp(block, again, bytes) == 0, "%s", tern_dtype_name((tern_dtype)type));
        }
    }
    CHECK(n_types == 13);
}

static void measure(const float *x, const float *y, const float *importance, double *plain,
                    double *weighted) {
    double miss = 0, power = 0, w_miss = 0, w_power = 0;
    for (int i = 0; i < N; i++) {
        double d = (double)x[i] - (double)y[i], s = (double)x[i] * (double)x[i];
        double w = importance ? (double)importance[i] : s;
        miss += d * d;
        power += s;
        w_miss += w * d * d;
        w_power += w * s;
    }
    *plain = sqrt(miss / power);
    *weighted = sqrt(w_miss / w_power);
}

static const struct {
    tern_dtype type;
    double plain, weighted; // relative errors of normal numbers, plain and weighted by squares
    double important;       // error weighted by an importance, relative to that without using it
} bounds[] = {
    {TERN_DTYPE_Q4_0, 0.0780, 0.04476, 0.71},   {TERN_DTYPE_Q4_1, 0.0681, 0.03836, 0.62},
    {TERN_DTYPE_Q5_0, 0.0383, 0.02139, 0.75},   {TERN_DTYPE_Q5_1, 0.0329, 0.01817, 0.61},
    {TERN_DTYPE_Q8_0, 0.0052, 0.00293, 1.00},   {TERN_DTYPE_Q2_K, 0.2658, 0.15677, 0.51},
    {TERN_DTYPE_Q3_K, 0.1423, 0.08185, 0.61},   {TERN_DTYPE_Q4_K, 0.0683, 0.03893, 0.63},
    {TERN_DTYPE_Q5_K, 0.0337, 0.01905, 0.65},   {TERN_DTYPE_Q6_K, 0.0167, 0.00900, 0.67},
    {TERN_DTYPE_IQ4_NL, 0.0724, 0.05061, 0.70}, {TERN_DTYPE_IQ4_XS, 0.0731, 0.05138, 0.72},
    {TERN_DTYPE_MXFP4, 0.1130, 0.10746, 0.99},
};
#define N_BOUNDS (sizeof bounds / sizeof *bounds)

// The bounds are half a percent above the measured errors. Seen to fail: with the first candidate
// alone, with steps that are only the nearest ones, with the importance of the first block for all.
TEST(dtype_quantizers_leave_little_error) {
    static float x[N], y[N], importance[N];
    static uint8_t packed[N * 2];
    uint32_t seed = 5;
    double plain, weighted, unknown, known;
    for (int i = 0; i < N; i++) x[i] = next_normal(&seed) * 0.02f;
    for (int i = 0; i < N; i++) importance[i] = next_random(&seed) % 8 == 0 ? 30.0f : 0.1f;
    for (size_t c = 0; c < N_BOUNDS; c++) {
        tern_dtype type = bounds[c].type;
        REQUIRE(tern_dtype_quantize(type, x, NULL, N, packed));
        tern_dtype_decode(type, packed, 0, N, 1, y);
        measure(x, y, NULL, &plain, &weighted);
        measure(x, y, importance, &unknown, &unknown);
        REQUIRE(tern_dtype_quantize(type, x, importance, N, packed));
        tern_dtype_decode(type, packed, 0, N, 1, y);
        measure(x, y, importance, &known, &known);
        CHECK_MSG(plain <= bounds[c].plain && weighted <= bounds[c].weighted &&
                      known <= bounds[c].important * unknown,
                  "%s: %.5f, %.5f, %.3f", tern_dtype_name(type), plain, weighted, known / unknown);
    }
    CHECK(!tern_dtype_quantize(TERN_DTYPE_I2_S, x, NULL, N, packed));
}

// Invalid numbers and importances.
TEST(dtype_quantizers_take_any_numbers) {
    static const float odd[] = {0,         -0.0f, 1e-45f,  -1e-40f, 3e38f, -3e38f, INFINITY,
                                -INFINITY, NAN,   6.1e-5f, 65504,   1e10f, -1,     1e-20f};
    enum { N_ODD = sizeof odd / sizeof *odd };
    float x[256], y[256], w[256];
    uint8_t packed[512];
    uint32_t seed = 9;
    for (size_t c = 0; c < N_BOUNDS; c++) {
        tern_dtype type = bounds[c].type;
        for (int round = 0; round < 60; round++) {
            for (int i = 0; i < 256; i++) {
                x[i] = odd[next_random(&seed) % (N_ODD - (uint32_t)round % 14)];
                w[i] = odd[next_random(&seed) % (N_ODD - (uint32_t)round / 14 * 3)];
            }
            REQUIRE(tern_dtype_quantize(type, x, round % 2 ? w : NULL, 256, packed));
            tern_dtype_decode(type, packed, 0, 256, 1, y);
            for (int i = 0; i < 256; i++) CHECK(isfinite(y[i]));
        }
        memset(x, 0, sizeof x);
        REQUIRE(tern_dtype_quantize(type, x, NULL, 256, packed));
        tern_dtype_decode(type, packed, 0, 256, 1, y);
        for (int i = 0; i < 256; i++) CHECK(y[i] == 0);
    }
}

TEST(dtype_types_that_hold_ternary_hold_it_exactly) {
    int8_t q[256];
    float y[256];
    uint8_t packed[512];
    uint32_t seed = 13;
    int n_types = 0;
    for (int i = 0; i < 256; i++) q[i] = (int8_t)(next_random(&seed) % 3) - 1;
    for (int type = 0; type < TERN_DTYPE_COUNT; type++) {
        if (!tern_dtype_holds_ternary((tern_dtype)type)) continue;
        n_types++;
        tern_dtype_encode_ternary((tern_dtype)type, q, 256, 0.75f, packed);
        tern_dtype_decode((tern_dtype)type, packed, 0, 256, 0.75f, y);
        for (int i = 0; i < 256; i++)
            CHECK_MSG(y[i] == 0.75f * (float)q[i], "%s", tern_dtype_name((tern_dtype)type));
    }
    CHECK(n_types == 10 + 6);
}

// ---- Rounding in training ----------------------------------------------------------------------

// The least squared error that trits of a group can leave, by its definition: for each number of
// trits that are not 0, the largest get one, and their mean is the scale.
static double least_error(const float *x, size_t n) {
    float sizes[256];
    double sum = 0, power = 0, best = 0;
    for (size_t i = 0; i < n; i++) {
        float v = fabsf(x[i]);
        size_t at = i;
        for (; at > 0 && sizes[at - 1] < v; at--) sizes[at] = sizes[at - 1];
        sizes[at] = v;
        power += (double)v * (double)v;
    }
    for (size_t k = 1; k <= n; k++) {
        sum += (double)sizes[k - 1];
        best = fmax(best, sum * sum / (double)k);
    }
    return power - best;
}

static double squared_error(const float *x, const float *y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

static const tern_dtype rounded_types[] = {TERN_DTYPE_Q1_0,   TERN_DTYPE_Q2_0,  TERN_DTYPE_PQ2_0,
                                           TERN_DTYPE_PTQ1_0, TERN_DTYPE_TQ1_0, TERN_DTYPE_TQ2_0,
                                           TERN_DTYPE_Q4_0,   TERN_DTYPE_Q8_0};

// Seen to fail: with one turn of Lloyd's rule instead of eight, and with a scale that is not
// rounded to f16 before it is used.
TEST(dtype_rounding_is_what_a_file_holds) {
    static float x[N], y[N], read[N];
    static uint8_t blocks[N * 2];
    uint32_t seed = 11;
    for (int i = 0; i < N; i++) x[i] = 0.03f * next_normal(&seed);
    memset(x + 512, 0, 256 * sizeof *x); // a block of zeros, and one that is not finite
    x[1024] = INFINITY;
    x[1025] = NAN;
    for (size_t k = 0; k < sizeof rounded_types / sizeof *rounded_types; k++) {
        tern_dtype type = rounded_types[k];
        const size_t n = tern_dtype_block_n(type);
        REQUIRE(tern_dtype_is_rounded_to(type));
        tern_dtype_round(type, x, NULL, N, y, blocks);
        tern_dtype_decode(type, blocks, 0, N, 0, read);
        for (int i = 0; i < N; i++)
            CHECK_MSG(y[i] == read[i], "%s: number %d is %g, and %g in a file",
                      tern_dtype_name(type), i, (double)y[i], (double)read[i]);
        tern_dtype_round(type, y, NULL, N, read, NULL); // again: nothing changes
        for (int i = 0; i < N; i++) CHECK_MSG(y[i] == read[i], "%s", tern_dtype_name(type));
        if (tern_dtype_block_n(type) < 64 || type == TERN_DTYPE_Q1_0) continue;
        double error = 0, least = 0;
        for (size_t i = 2048; i < N; i += n) {
            error += squared_error(x + i, y + i, n);
            least += least_error(x + i, n);
        }
        CHECK_MSG(error < 1.002 * least, "%s: an error of %g, and %g is possible",
                  tern_dtype_name(type), error, least);
    }
    CHECK(!tern_dtype_is_rounded_to(TERN_DTYPE_Q4_K) && !tern_dtype_is_rounded_to(TERN_DTYPE_F32));
}

static double weighted_error(const float *x, const float *y, const float *h) {
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)h[i] * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

// Trits gain little: only their scale follows the weights. Seen to fail: with weights
// that do not count in the mean.
TEST(dtype_rounding_minds_what_matters) {
    static float x[N], h[N], plain[N], y[N];
    uint32_t seed = 12;
    for (int i = 0; i < N; i++) {
        x[i] = 0.03f * next_normal(&seed);
        h[i] = i % 16 ? 0.01f : 4 * fabsf(next_normal(&seed));
    }
    for (size_t k = 0; k < sizeof rounded_types / sizeof *rounded_types; k++) {
        tern_dtype type = rounded_types[k];
        tern_dtype_round(type, x, NULL, N, plain, NULL);
        tern_dtype_round(type, x, h, N, y, NULL);
        double with = weighted_error(x, y, h), without = weighted_error(x, plain, h);
        CHECK_MSG(with < 0.99 * without || type == TERN_DTYPE_Q8_0,
                  "%s: an error of %g, and %g without weights", tern_dtype_name(type), with,
                  without);
    }
}
