// Affine codes as wide codes: affine.h.
#include <string.h>
#include "base/dtype/half.h"
#include "kernels/affine.h"

#define ZERO_OF_FIVE_BITS 15 // code - zero is -15 .. 15

static bool holds(bool bf16, float x) {
    return bf16 ? tern_bf16_to_f32(tern_f32_to_bf16(x)) == x
                : tern_f16_to_f32(tern_f32_to_f16(x)) == x;
}

static uint16_t as_16_bits(bool bf16, float x) {
    return bf16 ? tern_f32_to_bf16(x) : tern_f32_to_f16(x);
}

// The zero point of a group; -1: none.
static int zero_of(unsigned code_max, float scale, float offset) {
    if (scale == 0) return offset == 0 ? 0 : -1;
    float z = -offset / scale;
    if (!(z > -0.5f && z < (float)code_max + 0.5f)) return -1;
    int zero = (int)(z + 0.5f);
    return -((float)zero * scale) == offset ? zero : -1;
}

// Properties of all groups of a matrix. [0]: with F16, [1]: with BF16.
typedef struct traits {
    bool scales[2], minima[2], middle, zeros;
} traits;

static traits look_at(const tern_weight_source *s) {
    unsigned code_max = tern_dtype_code_max(s->type);
    float middle = (float)((code_max + 1) / 2);
    size_t bytes = tern_dtype_block_bytes(s->type), block = tern_dtype_block_n(s->type);
    uint64_t n = (uint64_t)(s->n_rows * s->n_cols) / block;
    const uint8_t *b = s->data.memory;
    traits t = {{true, true}, {true, true}, true, true};
    for (uint64_t i = 0; i < n; i++, b += bytes) {
        float scale, offset;
        memcpy(&scale, b, 4);
        memcpy(&offset, b + 4, 4);
        for (int k = 0; k < 2; k++) {
            t.scales[k] &= holds(k, scale);
            t.minima[k] &= holds(k, offset);
        }
        t.middle &= -(middle * scale) == offset;
        t.zeros = t.zeros && zero_of(code_max, scale, offset) >= 0;
    }
    return t;
}

bool tern_affine_form(const tern_weight_source *s, tern_dtype_form *out) {
    unsigned code_max = tern_dtype_code_max(s->type);
    *out = (tern_dtype_form){0};
    if (!code_max || !s->data.memory) return false;
    traits t = look_at(s);
    bool bf16 = !t.scales[0];
    if (!t.scales[0] && !t.scales[1]) return false;
    // Both kinds may fit the scales, and only one the minima.
    bool other = t.scales[0] && t.scales[1] && !t.minima[0] && t.minima[1];
    out->group = (uint16_t)tern_dtype_block_n(s->type);
    out->is_bf16 = bf16 || (other && !t.middle);
    out->has_minima = !t.middle && t.minima[out->is_bf16];
    out->bits = code_max == 15 ? 4 : 8;
    out->zero = t.middle ? (uint8_t)((code_max + 1) / 2) : 0;
    if (t.middle || out->has_minima) return true;
    if (!t.zeros || code_max != 15) return false;
    out->bits = 5;
    out->zero = ZERO_OF_FIVE_BITS;
    return true;
}

void tern_affine_rows(const tern_weight_source *s, const tern_dtype_form *f, int64_t row,
                      int64_t n_rows, const tern_dtype_codes *to) {
    unsigned code_max = tern_dtype_code_max(s->type);
    size_t n_cols = (size_t)s->n_cols, n = (size_t)n_rows * n_cols, block = f->group;
    for (size_t i = 0, g = 0; i < n; i += block, g++) {
        float scale, offset;
        uint8_t *codes = to->codes + i;
        tern_dtype_decode_affine(s->type, s->data.memory, (size_t)row * n_cols + i, block, codes,
                                 &scale, &offset);
        to->scales[g] = as_16_bits(f->is_bf16, scale);
        if (f->has_minima) to->minima[g] = as_16_bits(f->is_bf16, -offset);
        if (f->bits != 5) continue;
        int shift = ZERO_OF_FIVE_BITS - zero_of(code_max, scale, offset);
        for (size_t k = 0; k < block; k++) codes[k] = (uint8_t)(codes[k] + shift);
    }
}
