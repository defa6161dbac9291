// The groups of codes in folders of other programs (G4, G8: a float scale and a float offset each),
// in a type that the kernels for wide codes read, if one represents them exactly. Scales must be
// 16-bit numbers of one kind, and the offset of each group
//   - that of the middle code: no minima, as for symmetric codes;
//   - the negative of a 16-bit minimum, as in MLX;
//   - or minus a whole number of scales, a zero point per group, as in GPTQ and AWQ: 4-bit codes
//     less the zero take 5 bits.
#ifndef TERN_KERNELS_AFFINE_H
#define TERN_KERNELS_AFFINE_H

#include "kernels/backend.h"

// Reads all scales and offsets, which must be in memory. False: no such form.
bool tern_affine_form(const tern_weight_source *s, tern_dtype_form *out);
// The parts of n_rows rows in that form.
void tern_affine_rows(const tern_weight_source *s, const tern_dtype_form *f, int64_t row,
                      int64_t n_rows, const tern_dtype_codes *to);

#endif
