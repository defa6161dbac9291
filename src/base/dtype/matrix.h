// The rows of a matrix whose bytes may have to be read from a file: all at once, or piece by piece.
#ifndef TERN_BASE_MATRIX_H
#define TERN_BASE_MATRIX_H

#include "base/file/blob.h"
#include "base/dtype/dtype.h"

typedef struct tern_matrix {
    tern_dtype type;
    tern_blob data;
    int64_t n_rows, n_cols;
    float scale; // I2_S and HF_TERNARY
} tern_matrix;

// Zeroed: closed.
typedef struct tern_rows {
    tern_matrix m;
    tern_hold hold;     // begins with row `first`; for HF_TERNARY with its row of bytes
    int64_t first, end; // rows that are in memory
} tern_rows;

// Reads all rows; they stay in memory until they are closed.
tern_status tern_rows_open(tern_rows *r, const tern_matrix *m, tern_error *err);
// Reads no row yet. If the matrix is in memory, or small, tern_rows_reach reads all.
void tern_rows_open_pieces(tern_rows *r, const tern_matrix *m);
// Makes sure that a row is in memory; rows before it may be freed. For rows taken in rising order.
tern_status tern_rows_reach(tern_rows *r, int64_t row, tern_error *err);
void tern_rows_close(tern_rows *r); // a closed one is allowed

// For a row in memory: the bytes that decoding starts from, and the index of the row's first
// element in them.
const void *tern_rows_data(const tern_rows *r, int64_t row, uint64_t *first);
void tern_rows_decode(const tern_rows *r, int64_t row, float *out); // [n_cols]

// Decodes one row, in any order: [n_cols]. room: for the row's bytes, if they must be read.
uint64_t tern_matrix_row_bytes(const tern_matrix *m); // 0: HF_TERNARY has no separate rows
tern_status tern_matrix_decode_row(const tern_matrix *m, int64_t row, void *room, float *out,
                                   tern_error *err);

// The length of a row, added up in double and the same everywhere.
float tern_row_length(const float *x, size_t n);

// Decodes all of a matrix: [n_rows * n_cols].
tern_status tern_matrix_decode(const tern_matrix *m, float *out, tern_error *err);

#endif
