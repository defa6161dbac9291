// The layout of wide codes (grouped.h): written, and read one number at a time.
#include <string.h>
#include "base/dtype/half.h"
#include "kernels/cpu/grouped/grouped_kernels.h"

enum { ROWS = TERN_GROUPED_ROWS };

static size_t up_to_64(size_t n) { return (n + 63) / 64 * 64; }

wide_layout tern_grouped_wide_layout(const tern_grouped_matrix *m) {
    const size_t each = m->has_minima ? 2 : 1;
    wide_layout l = {.period = m->super                ? m->super
                               : m->group >= WIDE_UNIT ? m->group
                                                       : 0,
                     .entry_bytes = ROWS * 2 * each,
                     .group = tern_grouped_min(m->group, WIDE_UNIT),
                     .scale_stride = m->super ? ROWS : ROWS * 2,
                     .code_bytes = WIDE_UNIT * ROWS * (size_t)m->bits / 8};
    if (l.period) l.front_bytes = up_to_64(m->n_in / l.period * l.entry_bytes);
    if (m->group < WIDE_UNIT) l.sub_bytes = WIDE_UNIT / m->group * each * l.scale_stride;
    l.unit_bytes = l.sub_bytes + l.code_bytes;
    if (tern_grouped_is_wide(m))
        l.units_at = l.front_bytes;
    else
        l.front_at = tern_grouped_code_bytes(m);
    return l;
}

bool tern_grouped_wide_fits(tern_grouped_matrix *m) {
    const bool small = m->group == 16 || m->group == 32;
    const size_t period = m->super ? m->super : m->group;
    if (m->bits != 4 && m->bits != 5 && m->bits != 6 && m->bits != 8) return false;
    if (m->n_in == 0 || m->n_in % WIDE_UNIT || m->n_in > (size_t)1 << 24) return false;
    if (m->group == 0 || (!small && m->group % WIDE_UNIT) || m->n_in % m->group) return false;
    if (m->n_in % period || (m->super && (!small || m->super % WIDE_UNIT))) return false;
    if (m->has_table && m->bits != 4) return false;
    wide_layout l = tern_grouped_wide_layout(m);
    m->block_bytes = up_to_64(l.front_bytes + m->n_in / WIDE_UNIT * l.unit_bytes);
    return true;
}

// A block of rows: codes, narrow ones, too, of a byte, scales and minima as floats.
size_t tern_grouped_unpacked_bytes(const tern_grouped_matrix *m, size_t n_in) {
    return ROWS * (n_in + n_in / tern_grouped_min(m->group, WIDE_UNIT) * 2 * sizeof(float));
}

size_t tern_grouped_scratch_bytes(const tern_grouped_kernels *k, const tern_grouped_matrix *m) {
    const size_t blocks = 2 * tern_grouped_unpacked_bytes(m, m->n_in);
    return blocks > k->tile_bytes ? blocks : k->tile_bytes;
}

// ---- Writing -----------------------------------------------------------------------------------

// A row's part of a unit. 64 bytes hold four columns of 8 bits, eight of 4, sixteen of 2 and
// thirty-two of 1.
static void put_codes(const tern_grouped_matrix *m, const uint8_t *codes, size_t row, uint8_t *to) {
    to += 4 * row;
    if (m->bits == 8) {
        for (size_t i = 0; i < WIDE_UNIT; i += 4) memcpy(to + i * ROWS, codes + i, 4);
        return;
    }
    for (size_t i = 0; i < WIDE_UNIT; i += 8)
        for (size_t j = 0; j < 4; j++)
            to[i / 8 * 64 + j] = (uint8_t)((codes[i + j] & 15) | codes[i + 4 + j] << 4);
    if (m->bits == 4) return;
    const size_t high_bits = m->bits - 4u, each = 32 / high_bits;
    uint8_t *high = to + WIDE_UNIT * ROWS / 2;
    for (size_t i = 0; i < WIDE_UNIT; i += each, high += 64)
        for (size_t j = 0; j < 4; j++) {
            unsigned byte = 0;
            for (size_t f = 0; f < each / 4; f++)
                byte |= (unsigned)(codes[i + 4 * f + j] >> 4) << f * high_bits;
            high[j] = (uint8_t)byte;
        }
}

static void put_16(uint8_t *to, size_t row, uint16_t number) { memcpy(to + 2 * row, &number, 2); }

static void put_scales(const tern_grouped_matrix *m, const wide_layout *l,
                       const tern_grouped_wide *rows, size_t row, size_t unit, uint8_t *to) {
    const size_t n_groups = m->n_in / m->group, n = WIDE_UNIT / l->group;
    for (size_t k = 0; k < n; k++) {
        const size_t at = row * n_groups + unit * n + k;
        uint8_t *scale = to + k * l->scale_stride, *minimum = scale + n * l->scale_stride;
        if (m->super)
            scale[row] = (uint8_t)rows->sub_scales[at];
        else
            put_16(scale, row, rows->scales[at]);
        if (!m->has_minima) continue;
        if (m->super)
            minimum[row] = (uint8_t)rows->sub_minima[at];
        else
            put_16(minimum, row, rows->minima[at]);
    }
}

static void put_front(const tern_grouped_matrix *m, const wide_layout *l,
                      const tern_grouped_wide *rows, size_t row, uint8_t *block) {
    const size_t n = m->n_in / l->period;
    for (size_t i = 0; i < n; i++, block += l->entry_bytes) {
        put_16(block, row, rows->scales[row * n + i]);
        if (m->has_minima) put_16(block + 2 * ROWS, row, rows->minima[row * n + i]);
    }
}

void tern_grouped_pack_wide(const tern_grouped_matrix *m, const tern_grouped_wide *rows,
                            size_t n_rows, uint8_t *block) {
    const wide_layout l = tern_grouped_wide_layout(m);
    if (n_rows < ROWS) memset(block, 0, m->block_bytes);
    for (size_t row = 0; row < n_rows; row++) {
        if (l.period) put_front(m, &l, rows, row, block);
        uint8_t *unit = block + l.front_bytes;
        for (size_t u = 0; u < m->n_in / WIDE_UNIT; u++, unit += l.unit_bytes) {
            if (l.sub_bytes) put_scales(m, &l, rows, row, u, unit);
            put_codes(m, rows->codes + row * m->n_in + u * WIDE_UNIT, row, unit + l.sub_bytes);
        }
    }
}

// ---- Reading -----------------------------------------------------------------------------------

static const uint8_t *unit_of(const tern_grouped_matrix *m, const wide_layout *l, size_t row,
                              size_t column) {
    return m->data + row / ROWS * m->block_bytes + l->front_bytes +
           column / WIDE_UNIT * l->unit_bytes;
}

int tern_grouped_wide_number(const tern_grouped_matrix *m, size_t row, size_t column) {
    const wide_layout l = tern_grouped_wide_layout(m);
    const uint8_t *codes = unit_of(m, &l, row, column) + l.sub_bytes;
    const size_t i = column % WIDE_UNIT, byte = 4 * (row % ROWS) + i % 4;
    int code;
    if (m->bits == 8) {
        code = codes[i / 4 * 64 + byte];
    } else {
        const size_t high_bits = m->bits - 4u;
        code = codes[i / 8 * 64 + byte] >> i / 4 % 2 * 4 & 15;
        if (high_bits) {
            size_t each = 32 / high_bits, at = WIDE_UNIT * ROWS / 2 + i / each * 64 + byte;
            code |= (codes[at] >> i % each / 4 * high_bits & ((1 << high_bits) - 1)) << 4;
        }
    }
    return (m->has_table ? m->table[code] : code) - m->zero;
}

// A number of 16 bits for a row.
static float number_at(const tern_grouped_matrix *m, const uint8_t *p, size_t row) {
    uint16_t bits;
    memcpy(&bits, p + 2 * (row % ROWS), 2);
    return m->is_bf16 ? tern_bf16_to_f32(bits) : tern_f16_to_f32(bits);
}

static float scale_or_minimum(const tern_grouped_matrix *m, size_t row, size_t column,
                              size_t which) {
    const wide_layout l = tern_grouped_wide_layout(m);
    const uint8_t *front = m->data + row / ROWS * m->block_bytes + which * 2 * ROWS;
    const uint8_t *sub = unit_of(m, &l, row, column);
    sub += (column % WIDE_UNIT / l.group + which * (WIDE_UNIT / l.group)) * l.scale_stride;
    if (l.period) front += column / l.period * l.entry_bytes;
    if (m->super) return number_at(m, front, row) * (float)(int8_t)sub[row % ROWS];
    return number_at(m, l.period ? front : sub, row);
}

float tern_grouped_scale(const tern_grouped_matrix *m, size_t row, size_t column) {
    return scale_or_minimum(m, row, column, 0);
}

float tern_grouped_minimum(const tern_grouped_matrix *m, size_t row, size_t column) {
    return m->has_minima ? scale_or_minimum(m, row, column, 1) : 0;
}
