// A matrix of ternary weights, read one row of codes at a time from any of the formats in files:
// I2_S, TQ1_0, TQ2_0, Hugging Face's packing, floats that are 0 and +-s, or float master weights
// still to be rounded. Loading and conversion both read through this.
#ifndef TERN_BASE_TERNARY_H
#define TERN_BASE_TERNARY_H

#include "base/dtype/matrix.h"

// The result of find: value = code * scale.
typedef struct tern_ternary_kind {
    bool is_ternary;
    float scale;
    float mean; // > 0: master weights; code = round(w / mean) in -1..1. Else: codes
} tern_ternary_kind;

// round_floats: float matrices belong to ternary layers (already ternary, or master weights); else
// floats are never ternary. Block types are ternary if all their blocks have one scale.
tern_status tern_ternary_find(const tern_matrix *m, bool round_floats, tern_ternary_kind *out,
                              tern_error *err);

// Zeroed: closed.
typedef struct tern_codes {
    tern_rows rows;
    float mean;
    float *floats;
    int8_t *codes;
    float *scales;
} tern_codes;
// pieces: rows are taken in rising order, each after tern_rows_reach of `rows`. Else all rows are
// in memory until they are closed.
tern_status tern_codes_open(tern_codes *r, const tern_matrix *m, const tern_ternary_kind *kind,
                            bool pieces, tern_error *err);
// Another reader of r's rows, for another thread: nothing is read or taken, and r stays open. room:
// TERN_CODES_ROOM(columns) floats of the caller's. Not to be closed.
tern_codes tern_codes_in(const tern_codes *r, float *room);
#define TERN_CODES_ROOM(n) ((n) + ((n) + 1024) / 4 + 1 + (n) / 128 + 8)
// Codes -1, 0, +1 of a row; valid until the next call.
const int8_t *tern_codes_row(tern_codes *r, int64_t row);
// The numbers of a row of any matrix [n_cols]: code * scale, and those of the file if it is not
// ternary.
void tern_codes_decode(tern_codes *r, const tern_ternary_kind *kind, int64_t row, float *out);
void tern_codes_close(tern_codes *r);

#endif
