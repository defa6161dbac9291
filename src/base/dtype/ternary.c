#include "base/dtype/ternary.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"

// ---- What a matrix is --------------------------------------------------------------------------

// Inputs of a product with codes are rounded to int8, which would turn a NaN scale into ordinary
// numbers.
static tern_status refuse_scale(tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT, "a scale or a weight is not a finite number");
}

// Block-ternary types have a scale every 256 weights; BitNet uses one for the whole matrix. True,
// and the scale, if all blocks agree (blocks of zeros have none).
static tern_status uniform_block_scale(tern_rows *r, tern_ternary_kind *out, tern_error *err) {
    size_t step = tern_dtype_block_bytes(r->m.type);
    uint64_t in_row = (uint64_t)r->m.n_cols / tern_dtype_block_n(r->m.type), first;
    uint16_t seen = 0;
    for (int64_t row = 0; row < r->m.n_rows; row++) {
        TERN_TRY(tern_rows_reach(r, row, err));
        const uint8_t *at = tern_rows_data(r, row, &first);
        at += first / tern_dtype_block_n(r->m.type) * step + step - 2;
        for (uint64_t i = 0; i < in_row; i++, at += step) {
            uint16_t bits;
            memcpy(&bits, at, 2);
            if ((bits & 0x7c00) == 0x7c00) return refuse_scale(err); // infinite or NaN
            if (bits == 0 || bits == seen) continue;
            if (seen != 0) return TERN_OK;
            seen = bits;
        }
    }
    out->is_ternary = true;
    out->scale = tern_f16_to_f32(seen);
    return TERN_OK;
}

// Float weights of a ternary layer: already ternary (0 and +-s), or master weights, whose scale is
// mean|w|, at least 1e-5, as in transformers.
static tern_status find_float(tern_rows *r, float *floats, tern_ternary_kind *out,
                              tern_error *err) {
    const tern_matrix *m = &r->m;
    double sum = 0;
    float seen = 0;
    bool ternary = true;
    for (int64_t row = 0; row < m->n_rows; row++) {
        TERN_TRY(tern_rows_reach(r, row, err));
        tern_rows_decode(r, row, floats);
        double row_sum = 0;
        for (int64_t i = 0; i < m->n_cols; i++) {
            float a = fabsf(floats[i]);
            row_sum += (double)a;
            if (a == 0 || a == seen) continue;
            if (seen != 0) ternary = false;
            seen = a;
        }
        sum += row_sum;
    }
    if (!isfinite(sum)) return refuse_scale(err);
    out->is_ternary = true;
    out->scale = fmaxf((float)(sum / ((double)m->n_rows * (double)m->n_cols)), 1e-5f);
    out->mean = out->scale;
    if (!ternary) return TERN_OK;
    out->scale = seen;
    out->mean = 0;
    return TERN_OK;
}

tern_status tern_ternary_find(const tern_matrix *m, bool round_floats, tern_ternary_kind *out,
                              tern_error *err) {
    tern_status status = TERN_OK;
    tern_rows rows;
    *out = (tern_ternary_kind){.scale = m->scale};
    tern_rows_open_pieces(&rows, m);
    if (m->type == TERN_DTYPE_I2_S || m->type == TERN_DTYPE_HF_TERNARY)
        out->is_ternary = true;
    else if (tern_dtype_is_ternary(m->type))
        status = uniform_block_scale(&rows, out, err);
    else if (round_floats && tern_dtype_is_float(m->type)) {
        float *floats = tern_alloc_array(TERN_MEM_MISC, (size_t)m->n_cols, sizeof *floats);
        status = floats ? find_float(&rows, floats, out, err)
                        : tern_fail_memory(err, (size_t)m->n_cols * sizeof *floats);
        tern_free(floats);
    }
    tern_rows_close(&rows);
    return status;
}

// ---- Reading rows ------------------------------------------------------------------------------

tern_status tern_codes_open(tern_codes *r, const tern_matrix *m, const tern_ternary_kind *kind,
                            bool pieces, tern_error *err) {
    size_t n = (size_t)m->n_cols;
    *r = (tern_codes){.mean = kind->mean};
    tern_rows_open_pieces(&r->rows, m);
    r->floats = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->floats);
    r->codes = tern_alloc(TERN_MEM_MISC, n + 1024); // rows may begin and end inside a block
    r->scales = tern_alloc_array(TERN_MEM_MISC, n / 128 + 8, sizeof *r->scales);
    tern_status status = TERN_OK;
    if (!r->floats || !r->codes || !r->scales) status = tern_fail_memory(err, n * sizeof(float));
    if (status == TERN_OK && !pieces) status = tern_rows_open(&r->rows, m, err);
    if (status != TERN_OK) tern_codes_close(r);
    return status;
}

tern_codes tern_codes_in(const tern_codes *r, float *room) {
    const size_t n = (size_t)r->rows.m.n_cols;
    return (tern_codes){.rows = r->rows,
                        .mean = r->mean,
                        .floats = room,
                        .scales = room + n,
                        .codes = (int8_t *)(room + n + n / 128 + 8)};
}

void tern_codes_close(tern_codes *r) {
    tern_rows_close(&r->rows);
    tern_free(r->floats);
    tern_free(r->codes);
    tern_free(r->scales);
    *r = (tern_codes){0};
}

// Hugging Face's packing: byte [r, i] holds rows r, r + n/4, r + 2n/4, r + 3n/4.
static void read_hf_row(const tern_codes *r, int64_t row, int8_t *q) {
    uint64_t first;
    const uint8_t *bytes = tern_rows_data(&r->rows, row, &first);
    int shift = (int)(row / (r->rows.m.n_rows / 4)) * 2;
    for (int64_t i = 0; i < r->rows.m.n_cols; i++)
        q[i] = (int8_t)((bytes[first + (uint64_t)i] >> shift & 3) - 1);
}

// Blocks run over the whole tensor.
static const int8_t *read_block_row(tern_codes *r, int64_t row) {
    const tern_matrix *m = &r->rows.m;
    uint64_t block = tern_dtype_block_n(m->type), first;
    const void *data = tern_rows_data(&r->rows, row, &first);
    uint64_t from = first / block * block;
    uint64_t to = (first + (uint64_t)m->n_cols + block - 1) / block * block;
    tern_dtype_decode_ternary(m->type, data, from, (size_t)(to - from), r->codes, r->scales);
    for (uint64_t b = 0; m->type != TERN_DTYPE_I2_S && b < (to - from) / block; b++)
        if (r->scales[b] == 0) memset(r->codes + b * block, 0, block); // all its values are 0
    return r->codes + (first - from);
}

const int8_t *tern_codes_row(tern_codes *r, int64_t row) {
    const tern_matrix *m = &r->rows.m;
    if (m->type == TERN_DTYPE_HF_TERNARY) {
        read_hf_row(r, row, r->codes);
        return r->codes;
    }
    if (!tern_dtype_is_float(m->type)) return read_block_row(r, row);
    tern_rows_decode(&r->rows, row, r->floats);
    float inverse = r->mean > 0 ? 1 / r->mean : 0;
    for (int64_t i = 0; i < m->n_cols; i++) {
        float w = r->floats[i];
        r->codes[i] = r->mean > 0 ? (int8_t)fmaxf(-1, fminf(1, nearbyintf(w * inverse)))
                                  : (int8_t)((w > 0) - (w < 0));
    }
    return r->codes;
}

void tern_codes_decode(tern_codes *r, const tern_ternary_kind *kind, int64_t row, float *out) {
    if (!kind->is_ternary) {
        tern_rows_decode(&r->rows, row, out);
        return;
    }
    const int8_t *q = tern_codes_row(r, row);
    for (int64_t i = 0; i < r->rows.m.n_cols; i++) out[i] = (float)q[i] * kind->scale;
}
