// The two layouts of a ternary row in plain C: the specification of every faster packer.
#include "kernels/cpu/ternary/ternary_kernels.h"

#include <string.h>

size_t tern_ternary_row_bytes(tern_packing packing, size_t n_in) {
    if (packing == TERN_PACK_2BIT)
        return (n_in + TERN_I2S_WEIGHTS - 1) / TERN_I2S_WEIGHTS * TERN_I2S_BYTES;
    return n_in / TERN_T5_WEIGHTS * TERN_T5_BYTES + tern_t5_tail_bytes(n_in);
}

static unsigned code_of(const int8_t *q, size_t n_in, size_t i) {
    return i < n_in ? (unsigned)(q[i] + 1) & 3 : 1;
}

static void pack_2bit(const int8_t *q, size_t n_in, uint8_t *row) {
    for (size_t base = 0; base < n_in; base += TERN_I2S_WEIGHTS, row += TERN_I2S_BYTES)
        for (size_t j = 0; j < TERN_I2S_BYTES; j++) {
            unsigned b = 0;
            for (size_t k = 0; k < 4; k++)
                b = b << 2 | code_of(q, n_in, base + k * TERN_I2S_BYTES + j);
            row[j] = (uint8_t)b;
        }
}

static void pack_5(const int8_t *q, size_t n_in, uint8_t *row) {
    for (size_t base = 0, m; base < n_in; base += 5 * m, row += m) {
        m = n_in - base >= TERN_T5_WEIGHTS ? TERN_T5_BYTES : tern_t5_tail_bytes(n_in);
        for (size_t j = 0; j < m; j++) {
            unsigned number = 0;
            for (size_t k = 1; k < 5; k++) number = number * 3 + code_of(q, n_in, base + k * m + j);
            unsigned first = TERN_T5_FIRST * code_of(q, n_in, base + j);
            row[j] = (uint8_t)(first + tern_t5_low_part(number));
        }
    }
}

void tern_ternary_pack_row(tern_packing packing, const int8_t *q, size_t n_in, uint8_t *row) {
    if (packing == TERN_PACK_2BIT)
        pack_2bit(q, n_in, row);
    else
        pack_5(q, n_in, row);
}

void tern_ternary_unpack_row(tern_packing packing, const uint8_t *row, size_t n_in, int8_t *q) {
    if (packing == TERN_PACK_2BIT) {
        for (size_t i = 0; i < n_in; i++) {
            size_t in_block = i % TERN_I2S_WEIGHTS;
            uint8_t b = row[i / TERN_I2S_WEIGHTS * TERN_I2S_BYTES + in_block % TERN_I2S_BYTES];
            q[i] = (int8_t)((b >> (6 - 2 * (in_block / TERN_I2S_BYTES)) & 3) - 1);
        }
        return;
    }
    for (size_t base = 0, m; base < n_in; base += 5 * m, row += m) {
        m = n_in - base >= TERN_T5_WEIGHTS ? TERN_T5_BYTES : tern_t5_tail_bytes(n_in);
        for (size_t j = 0; j < m; j++) {
            unsigned v = row[j];
            for (size_t i = base + j; i < base + 5 * m; i += m) {
                unsigned code = (v >= 85) + (v >= 170);
                if (i < n_in) q[i] = (int8_t)(code - 1);
                v = 3 * v + 2 + (i == base + j ? code : 0);
                v &= 255;
            }
        }
    }
}

void tern_ternary_repack_row(uint8_t *dst, const uint8_t *src, size_t n_in) {
    int8_t q[2 * TERN_I8_PAD]; // whole pieces of both packings
    for (size_t base = 0; base < n_in; base += sizeof q) {
        size_t n = tern_min_size(n_in - base, sizeof q);
        tern_ternary_unpack_row(TERN_PACK_2BIT, src + base / 4, n, q);
        pack_5(q, n, dst + base / 5);
    }
}
