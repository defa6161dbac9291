#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

static float screen_row(const uint8_t *codes, const uint8_t *scales, const tern_head_vector *x,
                        size_t n_vectors) {
    float sum[TERN_HEAD_LANES] = {0};
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        int32_t hi[TERN_HEAD_LANES] = {0}, lo[TERN_HEAD_LANES] = {0};
        for (size_t j = 4 * g; j < n_vectors && j < 4 * g + 4; j++) {
            const uint8_t *code = codes + TERN_HEAD_CODE_STEP * j;
            const int8_t *x_hi = x->hi + 128 * j, *x_lo = x->lo + 128 * j;
            for (size_t i = 0; i < 64; i++) {
                hi[i / 4] += (code[i] & 15) * x_hi[i] + (code[i] >> 4) * x_hi[64 + i];
                lo[i / 4] += (code[i] & 15) * x_lo[i] + (code[i] >> 4) * x_lo[64 + i];
            }
        }
        EACH_LANE {
            int32_t dot = 256 * hi[l] + 2 * lo[l] - x->sum_x[TERN_HEAD_LANES * g + (size_t)l];
            sum[l] += (float)scales[TERN_HEAD_SCALE_STEP * g + (size_t)l] * (float)dot;
        }
    }
    return sum_of_lanes(sum);
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors) {
    for (size_t tile = 0; tile < n_tiles; tile++) {
        for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
            *out++ = screen_row(codes + 64 * r, scales + TERN_HEAD_LANES * r, x, n_vectors);
        }
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

static float refine(const uint8_t *bits, const uint8_t *scales, const tern_head_vector *x,
                    size_t n_groups) {
    float sum[TERN_HEAD_LANES] = {0};
    for (size_t g = 0; g < n_groups; g++) {
        int32_t hi[TERN_HEAD_LANES] = {0};
        for (size_t q = 0; q < 8; q++) {
            const int8_t *x_hi = x->hi + TERN_HEAD_GROUP * g + 64 * q;
            for (size_t i = 0; i < 64; i++) hi[i / 4] += (bits[64 * g + i] >> q & 1) * x_hi[i];
        }
        EACH_LANE {
            int32_t dot = 2 * hi[l] - x->sum_hi[TERN_HEAD_LANES * g + (size_t)l];
            sum[l] += (float)scales[TERN_HEAD_SCALE_STEP * g + (size_t)l] * (float)dot;
        }
    }
    return sum_of_lanes(sum);
}

const tern_head_kernels tern_head_kernels_scalar = {"scalar", quantize, screen, refine};
