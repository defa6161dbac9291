// The groups of codes that folders of other programs have (G4, G8: a float scale and a float offset
// each) in a form that kernels of wide codes take (grouped/grouped.h), where one holds them to the
// bit. Scales must then be numbers of 16 bits of one kind, and the offset of each group
//   - that of the middle code: no minima, as for symmetric codes;
//   - the negative of a minimum of 16 bits, as MLX has them;
//   - or minus a whole number of scales, a zero of the group's own, as GPTQ and AWQ have them:
//     codes of 4 bits less the zero take 5 bits.
#include <string.h>
#include "base/half.h"
#include "kernels/cpu/cpu.h"

#define ZERO_OF_FIVE_BITS 15 // a code less its zero is -15 .. 15

static bool holds(bool bf16, float x) {
    return bf16 ? tern_bf16_to_f32(tern_f32_to_bf16(x)) == x
                : tern_f16_to_f32(tern_f32_to_f16(x)) == x;
}

static uint16_t as_16_bits(bool bf16, float x) {
    return bf16 ? tern_f32_to_bf16(x) : tern_f32_to_f16(x);
}

// The zero of a group; -1: it has none.
static int zero_of(unsigned code_max, float scale, float offset) {
    if (scale == 0) return offset == 0 ? 0 : -1;
    float z = -offset / scale;
    if (!(z > -0.5f && z < (float)code_max + 0.5f)) return -1;
    int zero = (int)(z + 0.5f);
    return -((float)zero * scale) == offset ? zero : -1;
}

// What all groups of a matrix have. [0]: with F16, [1]: with BF16.
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

bool cpu_affine_form(const tern_weight_source *s, tern_grouped_matrix *m) {
    unsigned code_max = tern_dtype_code_max(s->type);
    if (!code_max || !s->data.memory) return false;
    traits t = look_at(s);
    bool bf16 = !t.scales[0];
    if (!t.scales[0] && !t.scales[1]) return false;
    // Both kinds may hold the scales, and only one the minima.
    bool other = t.scales[0] && t.scales[1] && !t.minima[0] && t.minima[1];
    m->group = (uint32_t)tern_dtype_block_n(s->type);
    m->super = 0;
    m->is_bf16 = bf16 || (other && !t.middle);
    m->has_minima = !t.middle && t.minima[m->is_bf16];
    m->bits = code_max == 15 ? 4 : 8;
    m->zero = t.middle ? (uint8_t)((code_max + 1) / 2) : 0;
    m->has_table = false;
    if (!t.middle && !m->has_minima) {
        if (!t.zeros || code_max != 15) return false;
        m->bits = 5;
        m->zero = ZERO_OF_FIVE_BITS;
    }
    return tern_grouped_wide_fits(m);
}

void cpu_affine_rows(const tern_weight_source *s, const tern_grouped_matrix *m, size_t row,
                     size_t n_rows, const tern_dtype_codes *to) {
    unsigned code_max = tern_dtype_code_max(s->type);
    size_t n = n_rows * m->n_in, block = m->group;
    for (size_t i = 0, g = 0; i < n; i += block, g++) {
        float scale, offset;
        uint8_t *codes = to->codes + i;
        tern_dtype_decode_affine(s->type, s->data.memory, row * m->n_in + i, block, codes, &scale,
                                 &offset);
        to->scales[g] = as_16_bits(m->is_bf16, scale);
        if (m->has_minima) to->minima[g] = as_16_bits(m->is_bf16, -offset);
        if (m->bits != 5) continue;
        int shift = ZERO_OF_FIVE_BITS - zero_of(code_max, scale, offset);
        for (size_t k = 0; k < block; k++) codes[k] = (uint8_t)(codes[k] + shift);
    }
}
