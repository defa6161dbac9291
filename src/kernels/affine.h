// The groups of codes that folders of other programs have (G4, G8: a float scale and a float offset
// each) in a form that kernels of wide codes take, where one holds them to the bit. Scales must be
// numbers of 16 bits of one kind, and the offset of each group
//   - that of the middle code: no minima, as for symmetric codes;
//   - the negative of a minimum of 16 bits, as MLX has them;
//   - or minus a whole number of scales, a zero of the group's own, as GPTQ and AWQ have them:
//     codes of 4 bits less the zero take 5 bits.
#ifndef TERN_KERNELS_AFFINE_H
#define TERN_KERNELS_AFFINE_H

#include "kernels/backend.h"

// Reads all scales and offsets, which must be in memory. False: there is no such form.
bool tern_affine_form(const tern_weight_source *s, tern_dtype_form *out);
// The parts of n_rows rows in that form.
void tern_affine_rows(const tern_weight_source *s, const tern_dtype_form *f, int64_t row,
                      int64_t n_rows, const tern_dtype_codes *to);

#endif
