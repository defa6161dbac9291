// The head for every 64-bit ARM, with sums of 16 bits: 8 times products of at most 15 * 128 stay
// below 2^15.
#include <arm_neon.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

#define INLINE  static inline __attribute__((always_inline))
#define KERNELS tern_head_kernels_neon
#define NAME    "neon"
enum { HI_ROWS = 2 };

typedef struct dots { // of blocks 0 and 1, and 2 and 3
    int16x8_t low, high;
} dots;

INLINE dots no_dots(void) { return (dots){vdupq_n_s16(0), vdupq_n_s16(0)}; }
INLINE dots dot_add(dots d, uint8x16_t c, uint8x16_t x) {
    int8x16_t w = vreinterpretq_s8_u8(c), q = vreinterpretq_s8_u8(x);
    return (dots){vmlal_s8(d.low, vget_low_s8(w), vget_low_s8(q)), vmlal_high_s8(d.high, w, q)};
}
INLINE int32x4_t dwords(dots d) { return vpaddq_s32(vpaddlq_s16(d.low), vpaddlq_s16(d.high)); }

#include "kernels/cpu/head/head_neon.inl"

void tern_head_quantize_neon(tern_head_row *row, float *w, size_t n) { quantize(row, w, n); }
