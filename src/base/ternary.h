// A matrix of ternary weights, read a row of codes at a time from any of the forms in files: I2_S,
// TQ1_0, TQ2_0, Hugging Face's packing, floats that are 0 and +-s, or float master weights still to
// be rounded. Loading and conversion both read through this.
#ifndef TERN_BASE_TERNARY_H
#define TERN_BASE_TERNARY_H

#include "base/dtype.h"
#include "base/status.h"

typedef struct tern_matrix_view {
    tern_dtype type;
    const void *data;
    uint64_t bytes;
    int64_t n_rows, n_cols;
    float scale; // I2_S and HF_TERNARY
} tern_matrix_view;

// The result of find: value = code * scale.
typedef struct tern_ternary_kind {
    bool is_ternary;
    float scale;
    float mean; // > 0: master weights; code = round(w / mean) in -1..1. Else the codes are there.
} tern_ternary_kind;

// round_floats: float matrices belong to ternary layers (already ternary, or master weights); else
// floats are never ternary. Block types are ternary if all their blocks have one scale.
tern_status tern_ternary_find(const tern_matrix_view *view, bool round_floats,
                              tern_ternary_kind *out, tern_error *err);

typedef struct tern_codes {
    tern_matrix_view view;
    float mean;
    float *floats;
    int8_t *codes;
    float *scales;
} tern_codes;
tern_status tern_codes_open(tern_codes *r, const tern_matrix_view *view,
                            const tern_ternary_kind *kind, tern_error *err);
// Codes -1, 0, +1 of a row; valid until the next call.
const int8_t *tern_codes_row(tern_codes *r, int64_t row);
void tern_codes_close(tern_codes *r);

#endif
