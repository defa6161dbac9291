// The layouts of grouped.h, written and read one number at a time.
#include <string.h>
#include "kernels/cpu/grouped/grouped_kernels.h"

// Blocks of about one size, since the last takes as long as the others.
void tern_grouped_arrange(const tern_grouped_kernels *k, tern_grouped_rows *x) {
    const size_t n = x->n_tokens;
    const bool in_tiles = k->tile_tokens && n >= k->tile_tokens;
    const size_t most = in_tiles             ? k->tile_block
                        : n <= k->few_tokens ? k->few_tokens
                                             : k->block_tokens;
    const size_t n_blocks = (n + most - 1) / most;
    x->block = n > 0 ? (n + n_blocks - 1) / n_blocks : 1;
    x->run = in_tiles ? k->tile_run : 4;
    if (x->run == 8) x->block += x->block % 2;
}

size_t tern_grouped_block_bytes(size_t n_in, size_t group, int bits) {
    size_t codes = n_in * TERN_GROUPED_ROWS * (size_t)bits / 8;
    return (codes + n_in / group * TERN_GROUPED_ROWS * sizeof(uint16_t) + 63) / 64 * 64;
}

// Where a code lies in a block.
typedef struct place {
    size_t byte;
    int shift;
} place;

static place place_of(const tern_grouped_matrix *m, size_t row, size_t column) {
    size_t each = m->bits == 2 ? 16 : 32, in = column % each;
    return (place){column / each * 64 + 4 * row + in % 4, (int)(in / 4) * m->bits};
}

// A row's bytes are 64 apart in fours; each has the codes of `n_fields` columns, four apart.
static void pack_row(uint8_t *to, const int8_t *q, size_t n_in, int bits) {
    const size_t n_fields = 8 / (size_t)bits;
    for (size_t i = 0; i < n_in; i += 4 * n_fields, to += 64)
        for (size_t j = 0; j < 4; j++) {
            unsigned byte = 0;
            for (size_t f = 0; f < n_fields; f++) {
                int number = q[i + 4 * f + j];
                byte |= (unsigned)(bits == 2 ? number + 1 : number > 0) << f * (size_t)bits;
            }
            to[j] = (uint8_t)byte;
        }
}

void tern_grouped_pack(const tern_grouped_matrix *m, const int8_t *q, const uint16_t *scales,
                       uint8_t *block) {
    size_t n_groups = m->n_in / m->group, codes = tern_grouped_code_bytes(m);
    memset(block + codes, 0, m->block_bytes - codes);
    for (size_t row = 0; row < TERN_GROUPED_ROWS; row++) {
        if (m->bits == 2)
            pack_row(block + 4 * row, q + row * m->n_in, m->n_in, 2);
        else
            pack_row(block + 4 * row, q + row * m->n_in, m->n_in, 1);
        for (size_t g = 0; g < n_groups; g++)
            memcpy(block + codes + 2 * (g * TERN_GROUPED_ROWS + row), &scales[row * n_groups + g],
                   2);
    }
}

int tern_grouped_number(const tern_grouped_matrix *m, size_t row, size_t column) {
    if (tern_grouped_is_wide(m)) return tern_grouped_wide_number(m, row, column);
    const uint8_t *block = m->data + row / TERN_GROUPED_ROWS * m->block_bytes;
    place p = place_of(m, row % TERN_GROUPED_ROWS, column);
    int code = block[p.byte] >> p.shift & (m->bits == 2 ? 3 : 1);
    return m->bits == 2 ? code - 1 : 2 * code - 1;
}

void tern_grouped_put_token(const tern_grouped_rows *x, size_t n_in, size_t token, const int8_t *q,
                            const float *scale, const int32_t *minus) {
    size_t first = token / x->block * x->block, at = token - first;
    size_t n = tern_grouped_min(x->n_tokens - first, x->block), n_groups = n_in / TERN_GROUP;
    int8_t *to = x->q + first * n_in + x->run * at;
    if (x->run == 4)
        for (size_t i = 0; i < n_in; i += 4, to += 4 * n) memcpy(to, q + i, 4);
    else if (x->run == 8)
        for (size_t i = 0; i < n_in; i += 8, to += 8 * n) memcpy(to, q + i, 8);
    else
        for (size_t i = 0; i < n_in; i += 64, to += 64 * n) memcpy(to, q + i, 64);
    size_t part = first * n_groups * TERN_GROUP_PARTS + at;
    for (size_t g = 0; g < n_groups; g++) {
        x->scale[first * n_groups + g * n + at] = scale[g];
        for (size_t i = 0; i < TERN_GROUP_PARTS; i++, part += n, minus++) {
            x->minus[part] = *minus;
            x->minus_scaled[part] = (float)*minus * scale[g];
        }
    }
}

void tern_grouped_take_token(const tern_grouped_rows *x, size_t n_in, size_t token,
                             const tern_grouped_rows *one) {
    size_t first = token / x->block * x->block, at = token - first;
    size_t n = tern_grouped_min(x->n_tokens - first, x->block), n_groups = n_in / TERN_GROUP;
    const size_t run = x->run;
    const int8_t *from = x->q + first * n_in + run * at;
    for (size_t i = 0; i < n_in; i += run, from += run * n) memcpy(one->q + i, from, run);
    for (size_t g = 0; g < n_groups; g++) one->scale[g] = x->scale[first * n_groups + g * n + at];
    for (size_t i = 0; i < n_groups * TERN_GROUP_PARTS; i++) {
        one->minus[i] = x->minus[first * n_groups * TERN_GROUP_PARTS + i * n + at];
        one->minus_scaled[i] = x->minus_scaled[first * n_groups * TERN_GROUP_PARTS + i * n + at];
    }
}
