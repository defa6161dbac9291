// Matrices of codes of one to eight bits with a scale for each group of columns, times int8
// activations with a scale for each 64: contract, layout, and a table of kernels per instruction
// set. Nothing is padded: n_in is a multiple of 64 and of the group.
//
// Sixteen rows are one block, so that a row is a lane: an instruction multiplies four neighbouring
// columns of all of them with four activations, and no sum runs across lanes. Rows missing from a
// last block have scales of 0.
//
// Narrow codes, one or two bits. A block is the codes, 64 bytes after 64 bytes, then the scales as
// F16, [n_in / group][16], filled up to 64 bytes. In 64 bytes of codes, byte 4 r + j is row r's;
// its bits hold, from the lowest field on, the columns j, 4 + j, 8 + j, 12 + j (two bits each) or
// j, 4 + j, .. 28 + j (one bit each) of the 16 or 32 that the bytes stand for.
//
// Wide codes, four bits and more:
//
//     value = scale * (code - zero) - minimum     (or scale * (table[code] - zero) - minimum)
//
// Scales and minima have 16 bits (F16 or BF16), or, where `super` is not 0, a signed byte times a
// number of 16 bits for each `super` columns: both layers of GGUF's K types are kept, since they
// are fewer bytes. A block is
//   - its front: for each `super` columns, or each group if that is 64 columns or more, 16 scales
//     and, if there are minima, 16 minima of 16 bits; nothing if neither applies; filled up to 64
//     bytes;
//   - a unit for each 64 columns: if the group is less than 64, its 64 / group times 16 scales,
//     then as many minima (bytes, or 16 bits if `super` is 0); then the codes. Codes of 8 bits take
//     64 bytes for each four columns, byte 4 r + j being row r's of column j. For codes with fewer
//     bits the lowest four come first, 64 bytes for each eight columns, byte 4 r + j with column j
//     in its low and 4 + j in its high nibble; then the fifth bits (5 bits), as one-bit codes
//     above, or the fifth and sixth (6 bits), as two-bit codes above.
#ifndef TERN_KERNELS_CPU_GROUPED_H
#define TERN_KERNELS_CPU_GROUPED_H

#include "kernels/cpu/kernels.h"

enum {
    TERN_GROUP = 64,        // columns that activations share a scale
    TERN_GROUPED_ROWS = 16, // a block
    TERN_GROUP_PARTS = 7,   // sums of numbers for each 64 columns
};

typedef struct tern_grouped_matrix {
    const uint8_t *data; // 64: block b at data + b * block_bytes
    size_t n_in, n_rows, block_bytes;
    uint32_t group; // columns with one scale: 64 or 128; wide codes: 16, 32 or a multiple of 64
    uint8_t bits;   // 2: value = (code - 1) * scale; 1: (2 * code - 1) * scale; 4, 5, 6, 8: above
    // For wide codes.
    uint16_t super; // 0, or a multiple of 64
    uint8_t zero;   // the code for 0
    bool has_minima, is_bf16, has_table;
    uint8_t table[16]; // for codes of 4 bits
} tern_grouped_matrix;

// Activations of a batch: tokens in blocks of `block` (the last may have fewer, n). The block from
// token t on has, at q + t * n_in: [n_in / run][n][run]; at scale + t * n_in / 64: [n_in / 64][n];
// at minus + 7 * t * n_in / 64, and minus_scaled the same: [n_in / 64][7][n].
typedef struct tern_grouped_rows {
    int8_t *q; // 64
    float *scale;
    int32_t *minus;      // minus the sums of numbers: of the four 16s of 64, its two 32s, all of it
    float *minus_scaled; // times the scale
    size_t n_tokens;
    size_t block, run; // tern_grouped_arrange sets them
} tern_grouped_rows;

typedef struct tern_grouped_kernels {
    const char *name;
    size_t block_tokens; // in a block of activations, at most
    size_t few_tokens;   // but a whole batch of up to this many is one block; at least block_tokens
    size_t tile_tokens;  // from this many on (0: never) blocks and runs are those of tiles:
    size_t tile_block;   // tokens in a block, at most
    size_t tile_run;     // columns of a run: 8 (blocks are even then) or 64
    size_t tile_bytes;   // of scratch for them
    // Narrow codes: out[t * stride + r] = sum over groups g of 64, in order, of
    //     w_scale[r][g] * ((float)(sum in g of value * q) * x_scale[t][g]),
    // each product and sum rounding by itself, the first sum being with 0; plus the old value, if
    // accumulate. Integer sums are exact. Wide codes, over groups of the matrix:
    //     sum = fma(w_scale[r][g], (float)(sum in g of (code - zero) * q) * x_scale[t][g], sum)
    // and then, if there are minima,
    //     sum = fma(w_minimum[r][g], (float)(minus the sum in g of q) * x_scale[t][g], sum);
    // groups larger than 64 are taken as several.
    // to->first is a multiple of TERN_GROUPED_ROWS, and so is to->last or it is n_rows. scratch:
    // one thread's, 64, tern_grouped_scratch_bytes; not read for one token.
    void (*multiply)(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                     const tern_product *to);
} tern_grouped_kernels;

// Sets how x, which has n_tokens, lies in memory: runs have 4, 8 or 64 columns.
void tern_grouped_arrange(const tern_grouped_kernels *k, tern_grouped_rows *x);
size_t tern_grouped_block_bytes(size_t n_in, size_t group, int bits);
// A block of m from 16 rows of numbers, n_in apart (-1, 0, 1, 2; in one bit -1, 1), and scales, as
// F16, n_in / group apart.
void tern_grouped_pack(const tern_grouped_matrix *m, const int8_t *q, const uint16_t *scales,
                       uint8_t *block);
// The number in a row and a column; wide codes: code - zero, the code looked up in the table.
int tern_grouped_number(const tern_grouped_matrix *m, size_t row, size_t column);

// ---- Wide codes --------------------------------------------------------------------------------

// Up to 16 rows, one after the other. NULL where the matrix has none.
typedef struct tern_grouped_wide {
    const uint8_t *codes;                  // [n_in] a row
    const uint16_t *scales, *minima;       // as F16 or BF16: [n_in / super], or [n_in / group]
    const int8_t *sub_scales, *sub_minima; // [n_in / group] if super is not 0
} tern_grouped_wide;

// Whether kernels take a matrix of this form, all but its data and block_bytes being set; then sets
// block_bytes.
bool tern_grouped_wide_fits(tern_grouped_matrix *m);
void tern_grouped_pack_wide(const tern_grouped_matrix *m, const tern_grouped_wide *rows,
                            size_t n_rows, uint8_t *block);
// The scale and the minimum of a row's group that a column is in; exact.
float tern_grouped_scale(const tern_grouped_matrix *m, size_t row, size_t column);
float tern_grouped_minimum(const tern_grouped_matrix *m, size_t row, size_t column);
size_t tern_grouped_scratch_bytes(const tern_grouped_kernels *k, const tern_grouped_matrix *m);

// ---- Activations -------------------------------------------------------------------------------

// Puts a token's numbers, scales and sums ([n_in / 64][7]), which are in order, into their place.
void tern_grouped_put_token(const tern_grouped_rows *x, size_t n_in, size_t token, const int8_t *q,
                            const float *scale, const int32_t *minus);
// The reverse: into one token alone.
void tern_grouped_take_token(const tern_grouped_rows *x, size_t n_in, size_t token,
                             const tern_grouped_rows *one);

#endif
