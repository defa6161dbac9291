// Products with codes in groups for ARM processors with dot products.
#include "kernels/cpu/grouped/grouped_neon.inl"

#define KERNELS tern_grouped_kernels_dotprod
#define NAME    "dotprod"
#define TOKENS_ 4
enum { VECTORS = 4, TOKENS = TOKENS_ };

typedef int32x4_t sums;

static inline sums no_sums(void) { return vdupq_n_s32(0); }
static inline sums dot_add(sums s, codes c, const int8_t *x) {
    return vdotq_s32(s, vreinterpretq_s8_u8(c), broadcast4(x));
}
static inline void store_sums(int32_t *to, sums s) { vst1q_s32(to, s); }

static inline sums_32 add_products(sums_32 s, codes c, const int8_t *x, bool is_big) {
    return vdotq_s32(s, wide_factors(c, is_big), broadcast4(x));
}

#include "kernels/cpu/grouped/grouped_narrow.inl"
