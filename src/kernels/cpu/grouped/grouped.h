// Matrices of codes of one or two bits with a scale for each group of 64 or 128 columns, times int8
// activations with a scale for each 64: contract, layout, and a table of kernels per instruction
// set. Nothing is padded: n_in is a multiple of the group.
//
// Sixteen rows are one block, so that a row is a lane: an instruction multiplies four neighbouring
// columns of all of them with four activations, and no sum runs across lanes. A block is the codes,
// 64 bytes after 64 bytes, then the scales as F16, [n_in / group][16], filled up to 64 bytes. In 64
// bytes of codes, byte 4 r + j is row r's; its bits hold, from the lowest field on, the columns
// j, 4 + j, 8 + j, 12 + j (two bits each) or j, 4 + j, .. 28 + j (one bit each) of the 16 or 32
// that the bytes stand for. Rows that a last block lacks have scales of 0.
#ifndef TERN_KERNELS_CPU_GROUPED_H
#define TERN_KERNELS_CPU_GROUPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TERN_GROUP = 64, TERN_GROUPED_ROWS = 16 }; // columns that activations share a scale; a block

typedef struct tern_grouped_matrix {
    const uint8_t *data; // 64: block b at data + b * block_bytes
    size_t n_in, n_rows, block_bytes;
    uint16_t group; // columns with one scale: 64 or 128
    uint8_t bits;   // 2: value = (code - 1) * scale; 1: (2 * code - 1) * scale
} tern_grouped_matrix;

// Activations of a batch: tokens in blocks of `block` (the last may have fewer, n). Of the block
// from token t on, at q + t * n_in: [n_in / 4][n][4]; at scale + t * n_in / 64, and minus_sum the
// same: [n_in / 64][n].
typedef struct tern_grouped_rows {
    int8_t *q; // 64
    float *scale;
    int32_t *minus_sum; // of the numbers
    size_t n_tokens, block;
} tern_grouped_rows;

typedef struct tern_grouped_kernels {
    const char *name;
    size_t block_tokens; // in a block of activations, at most
    // out[t * out_stride + r] = sum over groups g of 64, in order, of
    //     w_scale[r][g] * ((float)(sum in g of value * q) * x_scale[t][g]),
    // each product and sum rounding by itself, the first sum being with 0; plus what is there, if
    // accumulate. Integer sums are exact. first_row is a multiple of TERN_GROUPED_ROWS, and so is
    // last_row or it is n_rows.
    void (*multiply)(const tern_grouped_matrix *w, size_t first_row, size_t last_row,
                     const tern_grouped_rows *x, float *out, size_t out_stride, bool accumulate);
} tern_grouped_kernels;

size_t tern_grouped_block_bytes(size_t n_in, size_t group, int bits);
// A block of m from 16 rows of numbers, n_in apart (-1, 0, 1, 2; in one bit -1, 1), and scales, as
// F16, n_in / group apart.
void tern_grouped_pack(const tern_grouped_matrix *m, const int8_t *q, const uint16_t *scales,
                       uint8_t *block);
// The number in a row and a column.
int tern_grouped_number(const tern_grouped_matrix *m, size_t row, size_t column);
// Puts a token's numbers, scales and sums, which are in order, into their place.
void tern_grouped_put_token(const tern_grouped_rows *x, size_t n_in, size_t token, const int8_t *q,
                            const float *scale, const int32_t *minus_sum);
// The reverse: into one token alone.
void tern_grouped_take_token(const tern_grouped_rows *x, size_t n_in, size_t token,
                             const tern_grouped_rows *one);

#endif
