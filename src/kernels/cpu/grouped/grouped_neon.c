// Products with codes in groups for every 64-bit ARM. Products of codes up to 3 are at most 384 in
// size: 16 of them fit an int16.
#include "kernels/cpu/grouped/grouped_neon.inl"

#define KERNELS tern_grouped_kernels_neon
#define NAME    "neon"
#define TOKENS_ 2
enum { VECTORS = 4, TOKENS = TOKENS_ };

typedef struct sums { // four products of each of two rows
    int16x8_t low, high;
} sums;

static inline sums no_sums(void) { return (sums){vdupq_n_s16(0), vdupq_n_s16(0)}; }
static inline sums dot_add(sums s, codes c, const int8_t *x) {
    int8x16_t q = broadcast4(x), w = vreinterpretq_s8_u8(c);
    return (sums){vmlal_s8(s.low, vget_low_s8(w), vget_low_s8(q)), vmlal_high_s8(s.high, w, q)};
}
static inline void store_sums(int32_t *to, sums s) {
    vst1q_s32(to, vpaddq_s32(vpaddlq_s16(s.low), vpaddlq_s16(s.high)));
}

// Two products of 128 * 127 fit an int16.
static inline sums_32 add_products(sums_32 s, codes c, const int8_t *x, bool is_big) {
    int8x16_t w = wide_factors(c, is_big), q = broadcast4(x);
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(q)), high = vmull_high_s8(w, q);
    return vaddq_s32(s, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

#include "kernels/cpu/grouped/grouped_narrow.inl"
