// The kernels of the head alone, against sums in plain C.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/check_table.h"
#include "kernels/cpu/head/head.h"
#include "kernels/cpu/head/head_kernels.h"
#include "kernels/cpu/head/head_noise.h"
#include "tests/support/harness.h"

enum { K_IN = 1200, K_VECTORS = 10, K_GROUPS = 3 }; // the last group has two vectors, one not full

// One tile of random rows, quantized, and a random X.
typedef struct tile {
    _Alignas(64) uint8_t codes[TERN_HEAD_CODE_STEP * K_VECTORS];
    _Alignas(64) uint8_t scales[TERN_HEAD_SCALE_STEP * K_GROUPS];
    _Alignas(64) uint8_t bits[TERN_HEAD_TILE][2][64 * K_GROUPS];
    float rho[TERN_HEAD_TILE], norms[TERN_HEAD_TILE][1 + TERN_HEAD_PLANES];
} tile;

static void quantize_tile(const tern_head_kernels *k, const float *numbers, tile *t) {
    static _Alignas(64) float row[(TERN_HEAD_GROUP + TERN_HEAD_LANES) * K_GROUPS];
    memset(t, 0, sizeof *t);
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
        tern_head_row to = {t->codes + 64 * r,
                            t->scales + TERN_HEAD_LANES * r,
                            {t->bits[r][0], t->bits[r][1]},
                            0,
                            0,
                            {0}};
        memset(row, 0, sizeof row);
        memcpy(row, numbers + r * K_IN, K_IN * sizeof *row);
        k->quantize(&to, row, K_IN);
        t->rho[r] = to.rho;
        t->norms[r][0] = to.norm_w;
        memcpy(t->norms[r] + 1, to.norm_r, sizeof to.norm_r);
    }
}

// Where element i lies: byte of its quarter's 64, lane, quarter.
typedef struct place {
    size_t group, quarter, byte, lane;
} place;

static place place_of(size_t i) {
    size_t t = i % TERN_HEAD_GROUP / TERN_HEAD_LANES, lane = i % TERN_HEAD_LANES;
    return (place){i / TERN_HEAD_GROUP, t / 4, 4 * lane + t % 4, lane};
}

// Twice, four and eight times the multiplier of a scale, by planes; see head.c.
static void planes_of(const tile *t, size_t r, size_t i, int planes[TERN_HEAD_PLANES], int *c) {
    place p = place_of(i);
    uint8_t pair = t->codes[TERN_HEAD_CODE_STEP * (4 * p.group + p.quarter / 2) + 64 * r + p.byte];
    int code = p.quarter % 2 ? pair >> 4 : pair & 15;
    planes[0] = 2 * code - 15;
    for (int b = 0; b < 2; b++) {
        code = 2 * code + (t->bits[r][b][64 * p.group + p.byte] >> p.quarter & 1);
        planes[1 + b] = 2 * code - (32 << b) + 1;
    }
    *c = t->scales[TERN_HEAD_SCALE_STEP * p.group + TERN_HEAD_LANES * r + p.lane];
}

static void check_planes(const tile *t, const float *numbers) {
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
        double squares[TERN_HEAD_PLANES] = {0};
        for (size_t i = 0; i < K_IN; i++) {
            int planes[TERN_HEAD_PLANES], c;
            planes_of(t, r, i, planes, &c);
            for (int p = 0; p < TERN_HEAD_PLANES; p++) {
                double e = numbers[r * K_IN + i] - (double)t->rho[r] * c * planes[p] / (2 << p);
                RIGHT(fabs(e) <= (double)t->rho[r] * c / (2 << p) * 1.02, "plane %d", p);
                squares[p] += e * e;
            }
        }
        for (int p = 0; p < TERN_HEAD_PLANES; p++)
            RIGHT(fabs(t->norms[r][1 + p] / sqrt(squares[p]) - 1) < 1e-5, "norm %d", p);
    }
}

typedef struct x_codes {
    _Alignas(64) int8_t hi[TERN_HEAD_GROUP * K_GROUPS], lo[TERN_HEAD_GROUP * K_GROUPS];
    _Alignas(64) int32_t sum_x[TERN_HEAD_LANES * K_GROUPS], sum_hi[TERN_HEAD_LANES * K_GROUPS];
} x_codes;

// Row r of all bits at once, for one to n vectors. Seen to fail: a plane's bit moved one place.
static void check_deep(const tern_head_kernels *k, const tile *t, const tern_head_vector *const *x,
                       size_t n, size_t r, double want, double size) {
    float sums[8][TERN_HEAD_TILE];
    float *outs[8];
    _Alignas(64) uint8_t bits[2][TERN_HEAD_TILE][64 * K_GROUPS];
    if (!k->screen_deep) return;
    for (size_t row = 0; row < TERN_HEAD_TILE; row++)
        for (int p = 0; p < 2; p++) memcpy(bits[p][row], t->bits[row][p], sizeof bits[p][row]);
    for (size_t i = 0; i < n; i++) outs[i] = sums[i];
    for (size_t many = 1; many <= n; many++) {
        memset(sums, 0, sizeof sums);
        k->screen_deep(outs, &(tern_head_screen){.codes = t->codes,
                                                 .scales = t->scales,
                                                 .bits = {bits[0][0], bits[1][0]},
                                                 .x = x,
                                                 .n_x = many,
                                                 .n_tiles = 1,
                                                 .n_vectors = K_VECTORS});
        for (size_t i = 0; i < many; i++)
            RIGHT(fabs(sums[i][r] - want) <= 1e-6 * size, "%s: %zu vectors", k->name, many);
    }
}

static void check_sums(const tern_head_kernels *k, const tile *t, x_codes *x) {
    enum { N = 7 }; // more than share the unpacking
    float screened[TERN_HEAD_TILE], hi_only[TERN_HEAD_SHARED][TERN_HEAD_TILE], refined[N];
    float *const outs[TERN_HEAD_SHARED] = {hi_only[0], hi_only[1], hi_only[2], hi_only[3]};
    tern_head_vector v = {x->hi, x->lo, x->sum_x, x->sum_hi};
    const tern_head_vector *const vs[N] = {&v, &v, &v, &v, &v, &v, &v};
    k->screen(screened, t->codes, t->scales, &v, 1, K_VECTORS);
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
        double want[TERN_HEAD_PLANES] = {0}, size[TERN_HEAD_PLANES] = {0}, want_hi = 0, size_hi = 0;
        for (size_t i = 0; i < K_IN; i++) {
            place at = place_of(i);
            int planes[TERN_HEAD_PLANES], c;
            planes_of(t, r, i, planes, &c);
            int hi = x->hi[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte];
            int lo = x->lo[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte];
            double terms[] = {(double)c * planes[0] * (128 * hi + lo),
                              (double)c * (planes[1] - 2 * planes[0]) * hi,
                              (double)c * (planes[2] - 2 * planes[1]) * hi};
            want_hi += (double)c * planes[0] * hi;
            size_hi += fabs((double)c * planes[0] * hi);
            for (int p = 0; p < TERN_HEAD_PLANES; p++) {
                want[p] += terms[p];
                size[p] += fabs(terms[p]);
            }
        }
        RIGHT(fabs(screened[r] - want[0]) <= 1e-6 * size[0], "%s", k->name);
        const uint8_t *scales = t->scales + TERN_HEAD_LANES * r;
        for (int b = 0; b < 2; b++) {
            for (size_t n = 1; n <= N; n++) {
                k->refine(refined, t->bits[r][b], scales, vs, n, K_GROUPS);
                for (size_t i = 0; i < n; i++)
                    RIGHT(fabs(refined[i] - want[1 + b]) <= 1e-6 * size[1 + b], "%s", k->name);
            }
        }
        check_deep(k, t, vs, N, r, 4 * want_hi + 2 * want[1] + want[2],
                   4 * size_hi + 2 * size[1] + size[2]);
        for (size_t n = 1; n <= TERN_HEAD_SHARED; n++) {
            memset(hi_only, 0, sizeof hi_only);
            k->screen_hi(outs, &(tern_head_screen){.codes = t->codes,
                                                   .scales = t->scales,
                                                   .x = vs,
                                                   .n_x = n,
                                                   .n_tiles = 1,
                                                   .n_vectors = K_VECTORS});
            for (size_t i = 0; i < n; i++)
                RIGHT(fabs(hi_only[i][r] - want_hi) <= 1e-6 * size_hi, "%s", k->name);
        }
    }
}

static float w[TERN_HEAD_TILE * K_IN];
static x_codes x;

// ARM's kernels add up in the scalar ones' order, and round where they do. Seen to fail: with a
// fused product and sum, and with the lanes of two quarters added first.
static void check_bits(const tern_head_kernels *k, const tile *t) {
    enum { N = 7 };
    const tern_head_kernels *tables[2] = {&tern_head_kernels_scalar, k};
    float screened[2][TERN_HEAD_TILE], refined[2][N], hi[2][TERN_HEAD_SHARED][TERN_HEAD_TILE];
    tern_head_vector v = {x.hi, x.lo, x.sum_x, x.sum_hi}, swapped = {x.lo, x.hi, x.sum_x, x.sum_x};
    const tern_head_vector *const vs[N] = {&v, &swapped, &v, &v, &swapped, &swapped, &v};
    for (size_t n_vectors = 1; n_vectors <= K_VECTORS; n_vectors++)
        for (size_t n = 1; n <= N; n++) {
            memset(hi, 0, sizeof hi), memset(refined, 0, sizeof refined);
            for (int i = 0; i < 2; i++) {
                float *const outs[] = {hi[i][0], hi[i][1], hi[i][2], hi[i][3]};
                tables[i]->screen(screened[i], t->codes, t->scales, vs[n % 2], 1, n_vectors);
                tables[i]->screen_hi(outs, &(tern_head_screen){.codes = t->codes,
                                                               .scales = t->scales,
                                                               .x = vs,
                                                               .n_x = n < 5 ? n : 4,
                                                               .n_tiles = 1,
                                                               .n_vectors = n_vectors});
                tables[i]->refine(refined[i], t->bits[1][0], t->scales, vs, n, (n_vectors + 3) / 4);
            }
            RIGHT(!memcmp(screened[0], screened[1], sizeof screened[0]) &&
                      !memcmp(hi[0], hi[1], sizeof hi[0]) &&
                      !memcmp(refined[0], refined[1], sizeof refined[0]),
                  "%s: other bits, %zu vectors of codes, %zu of numbers", k->name, n_vectors, n);
        }
}

static void fill_numbers(void) {
    uint32_t seed = 1;
    memset(&x, 0, sizeof x);
    for (size_t i = 0; i < TERN_HEAD_TILE * K_IN; i++) w[i] = gauss(&seed);
    for (size_t i = 0; i < K_IN; i++) {
        place at = place_of(i);
        int X = i % 3 ? (int)(noise(&seed) % 32513) - 16256 : i % 2 ? 16256 : -16256; // extremes
        int hi = (X + 64 + 16384) / 128 - 128;
        x.hi[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte] = (int8_t)hi;
        x.lo[TERN_HEAD_GROUP * at.group + 64 * at.quarter + at.byte] = (int8_t)(X - 128 * hi);
        x.sum_x[TERN_HEAD_LANES * at.group + at.lane] += 15 * X;
        x.sum_hi[TERN_HEAD_LANES * at.group + at.lane] += hi;
    }
}

TEST(head_kernels_are_right_and_quantize_alike) {
    static tile first;
    const char *names[8];
    size_t n_names = tern_cpu_kernels_list(names);
    fill_numbers();
    quantize_tile(&tern_head_kernels_scalar, w, &first);
    check_planes(&first, w);
    check_sums(&tern_head_kernels_scalar, &first, &x);
    for (size_t i = 1; i < n_names; i++) {
        static tile t;
        tern_cpu_kernels kernels;
        REQUIRE(tern_cpu_kernels_select(names[i], &kernels));
        if (kernels.h == &tern_head_kernels_scalar) continue;
        quantize_tile(kernels.h, w, &t);
        CHECK_MSG(!memcmp(&first, &t, sizeof t), "%s", kernels.h->name);
        check_sums(kernels.h, &t, &x);
        if (!strncmp(kernels.f->name, "neon", 4)) check_bits(kernels.h, &t);
    }
}

// ---- Each kernel of the table ------------------------------------------------------------------

static void broken_quantize(tern_head_row *row, float *numbers, size_t n) {
    tern_head_kernels_scalar.quantize(row, numbers, n);
    row->codes[0] ^= 4;
}
static void broken_screen(float *out, const uint8_t *codes, const uint8_t *scales,
                          const tern_head_vector *v, size_t n_tiles, size_t n_vectors) {
    tern_head_kernels_scalar.screen(out, codes, scales, v, n_tiles, n_vectors);
    out[n_tiles * TERN_HEAD_TILE - 1] *= 1.01f;
}
static void broken_screen_hi(float *const *out, const tern_head_screen *s) {
    tern_head_kernels_scalar.screen_hi(out, s);
    out[s->n_x - 1][0] *= 1.01f;
}
static void broken_refine(float *out, const uint8_t *bits, const uint8_t *scales,
                          const tern_head_vector *const *v, size_t n_x, size_t n_groups) {
    tern_head_kernels_scalar.refine(out, bits, scales, v, n_x, n_groups);
    out[n_x - 1] *= 1.01f;
}
static void broken_screen_deep(float *const *out, const tern_head_screen *s) { // not everywhere
    for (size_t i = 0; i < s->n_x; i++) memset(out[i], 0, TERN_HEAD_TILE * sizeof *out[i]);
}

#define KERNELS(ROW)                                                                               \
    ROW(quantize)                                                                                  \
    ROW(screen)                                                                                    \
    ROW(screen_hi)                                                                                 \
    ROW(refine)                                                                                    \
    ROW(screen_deep)
KERNELS_ARE_ALL(tern_head_kernels, quantize, 0, KERNELS);

static void check_kernels(const tern_head_kernels *k) {
    static tile t;
    quantize_tile(k, w, &t);
    check_planes(&t, w);
    check_sums(k, &t, &x);
}

TEST(head_kernels_that_are_broken_are_found) {
    tern_head_kernels table;
    fill_numbers();
#define ROW(kernel) MUST_FIND(table, &tern_head_kernels_scalar, kernel, check_kernels);
    KERNELS(ROW)
}
