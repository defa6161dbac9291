#include "base/ternary.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/half.h"

// ---- What a matrix is --------------------------------------------------------------------------

// Block-ternary types have a scale every 256 weights; BitNet uses one for the whole matrix. True,
// and the scale, if all blocks agree (blocks of zeros have none).
static bool uniform_block_scale(const tern_matrix_view *v, float *scale) {
    size_t step = tern_dtype_block_bytes(v->type);
    const uint8_t *at = (const uint8_t *)v->data + step - 2;
    uint16_t seen = 0;
    for (uint64_t left = v->bytes / step; left > 0; left--, at += step) {
        uint16_t bits;
        memcpy(&bits, at, 2);
        if (bits == 0 || bits == seen) continue;
        if (seen != 0) return false;
        seen = bits;
    }
    *scale = tern_f16_to_f32(seen);
    return true;
}

// Float weights of a ternary layer: already ternary (0 and +-s), or master weights, whose scale is
// mean|w|, at least 1e-5, as in transformers.
static void find_float(const tern_matrix_view *v, float *floats, tern_ternary_kind *out) {
    double sum = 0;
    float seen = 0;
    bool ternary = true;
    for (int64_t row = 0; row < v->n_rows; row++) {
        tern_dtype_decode(v->type, v->data, (uint64_t)(row * v->n_cols), (size_t)v->n_cols, 1,
                          floats);
        double row_sum = 0;
        for (int64_t i = 0; i < v->n_cols; i++) {
            float a = fabsf(floats[i]);
            row_sum += (double)a;
            if (a == 0 || a == seen) continue;
            if (seen != 0) ternary = false;
            seen = a;
        }
        sum += row_sum;
    }
    out->scale = fmaxf((float)(sum / ((double)v->n_rows * (double)v->n_cols)), 1e-5f);
    out->mean = out->scale;
    if (!ternary) return;
    out->scale = seen;
    out->mean = 0;
}

tern_status tern_ternary_find(const tern_matrix_view *v, bool round_floats, tern_ternary_kind *out,
                              tern_error *err) {
    *out = (tern_ternary_kind){.scale = v->scale};
    if (v->type == TERN_DTYPE_I2_S || v->type == TERN_DTYPE_HF_TERNARY) out->is_ternary = true;
    else if (tern_dtype_is_ternary(v->type))
        out->is_ternary = uniform_block_scale(v, &out->scale);
    else if (round_floats && tern_dtype_is_float(v->type)) {
        float *floats = tern_alloc_array(TERN_MEM_MISC, (size_t)v->n_cols, sizeof *floats);
        if (!floats) return tern_fail_memory(err, (size_t)v->n_cols * sizeof *floats);
        find_float(v, floats, out);
        tern_free(floats);
        out->is_ternary = true;
    }
    return TERN_OK;
}

// ---- Reading rows ------------------------------------------------------------------------------

tern_status tern_codes_open(tern_codes *r, const tern_matrix_view *view,
                            const tern_ternary_kind *kind, tern_error *err) {
    size_t n = (size_t)view->n_cols;
    *r = (tern_codes){.view = *view, .mean = kind->mean};
    r->floats = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->floats);
    r->codes = tern_alloc(TERN_MEM_MISC, n + 1024); // rows may begin and end inside a block
    r->scales = tern_alloc_array(TERN_MEM_MISC, n / 128 + 8, sizeof *r->scales);
    if (r->floats && r->codes && r->scales) return TERN_OK;
    tern_codes_close(r);
    return tern_fail_memory(err, n * sizeof(float));
}

void tern_codes_close(tern_codes *r) {
    tern_free(r->floats);
    tern_free(r->codes);
    tern_free(r->scales);
    *r = (tern_codes){0};
}

// Hugging Face's packing: byte [r, i] holds rows r, r + n/4, r + 2n/4, r + 3n/4.
static void read_hf_row(const tern_matrix_view *v, int64_t row, int8_t *q) {
    int64_t quarter = v->n_rows / 4;
    const uint8_t *bytes = (const uint8_t *)v->data + row % quarter * v->n_cols;
    int shift = (int)(row / quarter) * 2;
    for (int64_t i = 0; i < v->n_cols; i++) q[i] = (int8_t)((bytes[i] >> shift & 3) - 1);
}

// Blocks run over the whole tensor.
static const int8_t *read_block_row(tern_codes *r, int64_t row) {
    const tern_matrix_view *v = &r->view;
    uint64_t block = tern_dtype_block_n(v->type), first = (uint64_t)(row * v->n_cols);
    uint64_t from = first / block * block;
    uint64_t to = (first + (uint64_t)v->n_cols + block - 1) / block * block;
    tern_dtype_decode_ternary(v->type, v->data, from, (size_t)(to - from), r->codes, r->scales);
    for (uint64_t b = 0; v->type != TERN_DTYPE_I2_S && b < (to - from) / block; b++)
        if (r->scales[b] == 0) memset(r->codes + b * block, 0, block); // all its values are 0
    return r->codes + (first - from);
}

const int8_t *tern_codes_row(tern_codes *r, int64_t row) {
    const tern_matrix_view *v = &r->view;
    if (v->type == TERN_DTYPE_HF_TERNARY) {
        read_hf_row(v, row, r->codes);
        return r->codes;
    }
    if (!tern_dtype_is_float(v->type)) return read_block_row(r, row);
    tern_dtype_decode(v->type, v->data, (uint64_t)(row * v->n_cols), (size_t)v->n_cols, 1,
                      r->floats);
    float inverse = r->mean > 0 ? 1 / r->mean : 0;
    for (int64_t i = 0; i < v->n_cols; i++) {
        float w = r->floats[i];
        r->codes[i] = r->mean > 0 ? (int8_t)fmaxf(-1, fminf(1, nearbyintf(w * inverse)))
                                  : (int8_t)((w > 0) - (w < 0));
    }
    return r->codes;
}
