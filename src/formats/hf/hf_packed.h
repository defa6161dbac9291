// A matrix of a folder whose values were packed by another program, with its rows as one of the
// types that kernels read. hf_packed.c specifies the layouts, hf_quant.c detects them.
#ifndef TERN_FORMATS_HF_PACKED_H
#define TERN_FORMATS_HF_PACKED_H

#include "formats/file_private.h"

// How the b-bit codes of row r (an output) and column c (an input) are stored. A "stream" is words
// of 32 bits whose bits, the lowest first, are one code after another.
typedef enum tern_packed_layout {
    TERN_PACKED_ROWS,    // each row is a stream
    TERN_PACKED_COLUMNS, // each column is a stream: [words][rows], as GPTQ
    TERN_PACKED_AWQ,     // [columns][rows / 8], and the eight in AWQ's order
    TERN_PACKED_INT8,    // a signed byte each; its code is 128 more
    TERN_PACKED_E4M3,    // a float of 8 bits each
} tern_packed_layout;

// The zero that is subtracted from a code, for each group and row.
typedef enum tern_packed_zero {
    TERN_ZERO_MIDDLE, // 2^(b - 1)
    TERN_ZERO_BIAS,   // nothing: a float is added to the product
    TERN_ZERO_ALONG,  // GPTQ: [groups][stream of rows]
    TERN_ZERO_AWQ,    // the same in AWQ's order
    TERN_ZERO_ROWS,   // AWQ GEMV: [rows][stream of groups]
    TERN_ZERO_DOWN,   // compressed-tensors: [stream of rows][groups]
    TERN_ZERO_INT8,   // [rows][groups] of signed bytes
    TERN_ZERO_NONE,   // 0
} tern_packed_zero;

typedef struct tern_packed {
    tern_blob_maker maker; // first: the maker is the matrix
    tern_packed_layout layout;
    tern_packed_zero zero;
    int bits;
    bool is_e2m1;      // codes are floats of four bits
    bool zero_is_less; // GPTQ's first version: the zero is one more than the stored number
    uint64_t n_rows, n_cols, group, n_groups;
    uint64_t row_words;  // TERN_PACKED_ROWS
    uint64_t zero_words; // TERN_ZERO_ROWS: words of a row
    // The scale of a row and a group: element
    // row / rows_per_scale * scale_row + group * scale_group.
    uint64_t rows_per_scale, scale_row, scale_group;
    tern_blob codes, scales, zeros;
    tern_dtype scale_type;    // U8: E8M0
    tern_dtype type;          // type of the result
    uint64_t row_bytes;       // bytes of a row of the result
    const uint32_t *group_of; // [n_cols], if a group's columns are not adjacent; else NULL
} tern_packed;

// Chooses the type of the result, once all but type, row_bytes and maker are set: codes with a
// scale and an offset if groups have 32 columns or more, ternary types if the numbers are ternary,
// else floats that hold them. For codes of one or two bits it reads all scales.
tern_status tern_packed_settle(tern_packed *p, tern_error *err);

#endif
