// The head for ARM processors with dot products (ARMv8.2).
#include <arm_neon.h>

#define INLINE  static inline __attribute__((always_inline))
#define KERNELS tern_head_kernels_dotprod
#define NAME    "dotprod"
enum { HI_ROWS = 4 };

typedef int32x4_t dots;

INLINE dots no_dots(void) { return vdupq_n_s32(0); }
INLINE dots dot_add(dots d, uint8x16_t c, uint8x16_t x) {
    return vdotq_s32(d, vreinterpretq_s8_u8(c), vreinterpretq_s8_u8(x));
}
INLINE int32x4_t dwords(dots d) { return d; }

#include "kernels/cpu/head/head_neon.inl"
