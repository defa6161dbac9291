// Element types of tensors and their block layouts.
//
// A quantized type stores blocks of n elements along the innermost dimension. dtype.inc has one row
// per type; the layouts themselves are described where they are decoded (dtype_decode.c) and in
// docs/formats.md.
#ifndef TERN_BASE_DTYPE_H
#define TERN_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tern_dtype {
#define TERN_DTYPE_ROW(name, text, ggml_id, block_n, block_bytes) TERN_DTYPE_##name,
#include "base/dtype/dtype.inc"
#undef TERN_DTYPE_ROW
    TERN_DTYPE_COUNT
} tern_dtype;

const char *tern_dtype_name(tern_dtype type);
int tern_dtype_ggml_id(tern_dtype type);                       // -1: not a GGUF type
bool tern_dtype_from_ggml_id(int64_t id, tern_dtype *type);    // false: unknown
bool tern_dtype_from_name(const char *name, tern_dtype *type); // ignores case
size_t tern_dtype_block_n(tern_dtype type);
size_t tern_dtype_block_bytes(tern_dtype type);
bool tern_dtype_is_ternary(tern_dtype type);
// Group size of the types that have small whole numbers times a scale for each group of a row
// (tern_dtype_decode_groups reads them). 0: another type.
size_t tern_dtype_group_n(tern_dtype type);
bool tern_dtype_is_float(tern_dtype type); // F32, F16, BF16
// Whether its numbers can be decoded; for other types only names and sizes are known.
bool tern_dtype_is_readable(tern_dtype type);
// Bytes of a tensor of n elements whose rows have n_row elements. False if a row is not a whole
// number of blocks (for I2_S: if the tensor is not), on overflow, or if the type's blocks are
// unknown. I2_S: n / 4 bytes of codes (n rounded up to 128), then 32 bytes, which begin with the
// scale (4 bytes).
bool tern_dtype_bytes(tern_dtype type, uint64_t n, uint64_t n_row, uint64_t *bytes);

// Decodes n elements that begin at the element `first` (a multiple of the block) of `data` to
// float. For I2_S, `scale` is the tensor's; other types ignore it. Types that cannot be read give
// zeros. Computes exactly the published formulas in float arithmetic: the reference for faster
// kernels.
void tern_dtype_decode(tern_dtype type, const void *data, uint64_t first, size_t n, float scale,
                       float *out);
// Encodes n elements (whole blocks) of x. Not for I2_S, nor for TQ1_0 and TQ2_0 of arbitrary
// weights: tern_dtype_encode_ternary writes those. Returns false for types that cannot be written,
// or that cannot hold x (tern_dtype_encode_groups).
bool tern_dtype_encode(tern_dtype type, const float *x, size_t n, void *out);
// The same for files: types with a form (below) are searched for the least error, which takes about
// ten times as long. importance: [n] weight of each element's squared error, or NULL.
bool tern_dtype_quantize(tern_dtype type, const float *x, const float *importance, size_t n,
                         void *out);
// Rounds whole blocks of x to numbers of the type by a quick rule, as training does again and again
// (dtype_round.c): y gets the numbers, `blocks`, unless it is NULL, their codes, which are read as
// exactly y; y may be x. importance: [n] as above. Only for types that have such a rule.
bool tern_dtype_is_rounded_to(tern_dtype type);
void tern_dtype_round(tern_dtype type, const float *x, const float *importance, size_t n, float *y,
                      void *blocks);
// The packing in folders of other programs: number = scale * code + offset, codes of 4 or 8 bits,
// 16-bit scales and offsets for each 32, 64 or 128 elements; n is a multiple of that.
typedef struct tern_dtype_affine {
    int bits, group;
    bool is_bf16; // scales and offsets; else F16
} tern_dtype_affine;
void tern_dtype_quantize_affine(const tern_dtype_affine *a, const float *x, size_t n,
                                uint8_t *codes, uint16_t *scales, uint16_t *offsets);
// The same for types with a scale for each group (tern_dtype_group_n) except TQ1_0 and TQ2_0: false
// if the type cannot hold x exactly, or is another type. The second function encodes given numbers
// of the type, with one scale.
bool tern_dtype_encode_groups(tern_dtype type, const float *x, size_t n, void *out);
void tern_dtype_encode_group_codes(tern_dtype type, const int8_t *q, size_t n, float scale,
                                   void *out);
// Encodes ternary codes q (-1, 0, +1), n a multiple of the block, with one scale (as F16; I2_S's is
// written by the caller, after the codes), exactly. Only for types that can hold them.
bool tern_dtype_holds_ternary(tern_dtype type); // -s, 0 and s, with any s
void tern_dtype_encode_ternary(tern_dtype type, const int8_t *q, size_t n, float scale, void *out);
// The numbers of whole groups and their scales, as F16: value = q * scale. q is -1, 0 or +1, or +2
// in 2-bit types. `first` and n are multiples of the block. False: another type.
bool tern_dtype_decode_groups(tern_dtype type, const void *data, uint64_t first, size_t n,
                              int8_t *q, uint16_t *scales);
// The codes of G4 and G8 types, one per byte, and the scale and offset of each block:
// value = scale * code + offset. `first` and n are multiples of the block. False: another type.
bool tern_dtype_decode_affine(tern_dtype type, const void *data, uint64_t first, size_t n,
                              uint8_t *codes, float *scales, float *offsets);
// The greatest code of such a type; 0: another type.
unsigned tern_dtype_code_max(tern_dtype type);
// The form of types with codes of four bits or more, and of types read like them:
//     value = scale * (q - zero) - minimum, q being the code or what a table has for it
// The scales have 16 bits; if `super` is not 0, a scale is a signed byte times a 16-bit number for
// each block of `super`. Minima likewise.
typedef struct tern_dtype_form {
    uint8_t bits, zero;
    uint16_t group, super;               // elements
    bool has_minima, has_table, is_bf16; // is_bf16: 16-bit numbers are BF16, not F16
    uint8_t table[16];
} tern_dtype_form;
const tern_dtype_form *tern_dtype_form_of(tern_dtype type); // NULL: it has none

// Output arrays for the parts of n elements; parts that a type lacks may be NULL.
typedef struct tern_dtype_codes {
    uint8_t *codes;                  // [n]
    uint16_t *scales, *minima;       // [n / super], or [n / group]
    int8_t *sub_scales, *sub_minima; // [n / group], if super is not 0
} tern_dtype_codes;
// `first` and n are multiples of the block. False: the type has no form.
bool tern_dtype_decode_codes(tern_dtype type, const void *data, uint64_t first, size_t n,
                             const tern_dtype_codes *out);
// One block of these parts: the reverse. False: the type has no form.
bool tern_dtype_encode_codes(tern_dtype type, const tern_dtype_codes *parts, void *out);
// The same to float, for tern_dtype_decode; type has a form.
void tern_dtype_decode_form(tern_dtype type, const void *data, uint64_t first, size_t n, float *y);

// ggml's types whose codes are indexes of a grid, IQ1_S to IQ3_S, and NVFP4, whose `scale` is that
// of the matrix: read as floats alone. n and first are multiples of the block; for
// tern_dtype_decode. Also whether this build reads STQ1_0, whose trits are those of a block.
bool tern_dtype_has_grid(tern_dtype type);
void tern_dtype_decode_grid(tern_dtype type, const void *data, uint64_t first, size_t n,
                            float scale, float *out);
void tern_dtype_codes_stq1_0(const uint8_t *block, int8_t *q);

// Decodes to ternary codes; block scales go to scales[] (one for each 256 elements; unused for
// I2_S). Returns false for other types.
bool tern_dtype_decode_ternary(tern_dtype type, const void *data, uint64_t first, size_t n,
                               int8_t *q, float *scales);

#endif
