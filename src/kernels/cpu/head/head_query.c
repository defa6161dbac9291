// A query's memory; a vector's codes in it, and the bounds that the theorem in head.c gives it.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/head/head_parts.h"

static void lay_out_lane(head_lane *q, uint8_t *memory, uint64_t *at) {
    uint64_t n_rows = q->h->w.n_rows, n_groups = q->h->n_groups;
    q->codes.lo = part(memory, at, n_groups * TERN_HEAD_GROUP);
    q->codes.sum_x = part(memory, at, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    q->approx = part(memory, at, tiles_of(n_rows) * TERN_HEAD_TILE * sizeof(float));
    q->block_top = part(memory, at, (n_rows / BLOCK + 1) * sizeof(float));
    q->ids = part(memory, at, n_rows * sizeof(int32_t));
    q->values = part(memory, at, n_rows * sizeof(float));
}

// What all lanes read by turns lies together, in few pages.
static uint64_t lay_out_query(tern_head_query *q, uint8_t *memory) {
    uint64_t at = 0, n_groups = q->h->n_groups;
    for (size_t i = 0; i < q->n_max; i++)
        q->lanes[i].codes.hi = part(memory, &at, n_groups * TERN_HEAD_GROUP);
    for (size_t i = 0; i < q->n_max; i++)
        q->lanes[i].codes.sum_hi = part(memory, &at, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    for (size_t i = 0; i < q->n_max; i++) lay_out_lane(&q->lanes[i], memory, &at);
    return at;
}

tern_status tern_head_query_create(tern_head_query **out, const tern_head *h, size_t n_max,
                                   tern_error *err) {
    *out = NULL;
    tern_head_query *q = tern_alloc(TERN_MEM_SESSION, sizeof *q);
    if (!q) return tern_fail_memory(err, sizeof *q);
    q->h = h;
    q->n_max = n_max < TERN_HEAD_VECTORS_MAX ? n_max : TERN_HEAD_VECTORS_MAX;
    for (size_t i = 0; i < q->n_max; i++) q->lanes[i].h = h;
    uint64_t bytes = lay_out_query(q, NULL);
    q->memory = bytes <= SIZE_MAX / 2 ? tern_alloc(TERN_MEM_SESSION, (size_t)bytes) : NULL;
    if (!q->memory) {
        tern_status status = tern_fail_memory(err, (size_t)bytes);
        tern_free(q);
        return status;
    }
    lay_out_query(q, q->memory);
    *out = q;
    return TERN_OK;
}

void tern_head_query_free(tern_head_query *q) {
    if (!q) return;
    tern_free(q->memory);
    tern_free(q);
}

size_t tern_head_query_max(const tern_head_query *q) { return q->n_max; }

typedef struct x_norms {
    double x, e, e_hi; // |x|, |e|, |e'|
} x_norms;

// Quantizes x; the sums of squares and the errors, whose factors have 24 and 15 bits, are double.
static x_norms quantize_x(head_lane *q, const float *x) {
    size_t n = q->h->w.n_in, n_groups = q->h->n_groups;
    double squares = 0, squares_e = 0, squares_hi = 0;
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        squares += (double)x[i] * x[i];
    }
    float xi = most / (127 * 128);
    // The greatest number must not exceed 127 * 128, nor xi be too coarse to divide by.
    bool is_plain = isfinite(squares) && isfinite(most) && xi > 0x1p-100f;
    if (!is_plain) xi = 0;
    q->half_xi = xi / 2;
    double per_xi = is_plain ? 1 / (double)xi : 0;
    memset(q->codes.hi, 0, n_groups * TERN_HEAD_GROUP);
    memset(q->codes.lo, 0, n_groups * TERN_HEAD_GROUP);
    memset(q->codes.sum_x, 0, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    memset(q->codes.sum_hi, 0, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    for (size_t i = 0; i < n; i++) {
        size_t g = i / TERN_HEAD_GROUP, t = i % TERN_HEAD_GROUP / TERN_HEAD_LANES;
        size_t lane = i % TERN_HEAD_LANES, at = TERN_HEAD_GROUP * g + t / 4 * 64 + 4 * lane + t % 4;
        int32_t code = is_plain ? (int32_t)rint(x[i] * per_xi) : 0;
        if (code > 127 * 128) code = 127 * 128;
        if (code < -127 * 128) code = -127 * 128;
        int32_t hi = (code + 64 + 128 * 128) / 128 - 128, lo = code - 128 * hi;
        double e = x[i] - (double)xi * code, e_hi = x[i] - (double)xi * (128 * hi);
        q->codes.hi[at] = (int8_t)hi;
        q->codes.lo[at] = (int8_t)lo;
        q->codes.sum_x[TERN_HEAD_LANES * g + lane] += 15 * code;
        q->codes.sum_hi[TERN_HEAD_LANES * g + lane] += hi;
        squares_e += e * e;
        squares_hi += e_hi * e_hi;
    }
    return (x_norms){sqrt(squares), sqrt(squares_e), sqrt(squares_hi)};
}

// Coarser than this, and the error of hi would count beside that of the 4-bit codes.
#define COARSE_ERROR (1.0 / 64)

void tern_head_begin_lane(head_lane *q, const float *x, int32_t k, bool is_alone) {
    x_norms norm = quantize_x(q, x);
    double slack = q->h->rounding, up = 1 + 0x1p-20; // for the roundings of norms and bounds
    const float least = 0x1p-126f; // more than what a conversion to float loses by underflow
    double e_hi = norm.e_hi > norm.e ? norm.e_hi : norm.e;
    q->is_coarse = !is_alone && e_hi <= COARSE_ERROR * norm.x;
    if (q->is_coarse) norm.e = e_hi;
    double rounding = slack * (norm.x + e_hi);
    q->x = x;
    q->k = k;
    q->least = -INFINITY;
    for (int p = 0; p < TERN_HEAD_PLANES; p++) {
        double at_r[TERN_HEAD_PLANES] = {norm.e + 2 * rounding};
        for (int i = 1; i <= p; i++) {
            at_r[i - 1] += e_hi;
            at_r[i] += e_hi;
        }
        at_r[p] += norm.x;
        for (int i = 0; i < TERN_HEAD_PLANES; i++) q->at_r[p][i] = (float)(at_r[i] * up) + least;
    }
    q->at_w = (float)((norm.e + rounding) * up) + least;
    q->at_r_deep = (float)((norm.x + norm.e + 2 * rounding) * up) + least;
    q->is_deep = false;
    atomic_store(&q->n_listed, 0);
    atomic_store(&q->n_open, 0);
    for (int i = 0; i < 2; i++) atomic_store(&q->n_passed[i], 0);
}
