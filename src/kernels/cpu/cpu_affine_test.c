// Groups with a scale and an offset as wide codes: whatever form is found, its numbers are those of
// the blocks, to the bit.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "kernels/affine.h"
#include "kernels/cpu/grouped/grouped.h"
#include "tests/support/harness.h"

enum { ROWS = 21, COLS = 256 };

typedef enum offsets { MIDDLE, MINIMUM, OTHER_MINIMUM, ZERO, ODD } offsets;
typedef struct affine {
    tern_dtype type;
    offsets offsets;
    bool bf16, odd_scale;
    // What must be found; bits 0: nothing
    int bits, zero;
    bool has_minima, is_bf16;
} affine;

static const affine cases[] = {
    {TERN_DTYPE_G4_32, MIDDLE, false, false, 4, 8, false, false},
    {TERN_DTYPE_G4_64, MIDDLE, true, false, 4, 8, false, true},
    {TERN_DTYPE_G8_128, MIDDLE, false, false, 8, 128, false, false},
    {TERN_DTYPE_G4_128, MINIMUM, false, false, 4, 0, true, false},
    {TERN_DTYPE_G4_64, MINIMUM, true, false, 4, 0, true, true},
    {TERN_DTYPE_G8_32, MINIMUM, false, false, 8, 0, true, false},
    {TERN_DTYPE_G4_64, ZERO, false, false, 5, 15, false, false},
    {TERN_DTYPE_G4_128, ZERO, true, false, 5, 15, false, true},
    {TERN_DTYPE_G8_64, ZERO, false, false, 0, 0, false, false},
    {TERN_DTYPE_G4_64, OTHER_MINIMUM, false, false, 0, 0, false, false},
    {TERN_DTYPE_G8_64, OTHER_MINIMUM, true, false, 0, 0, false, false},
    {TERN_DTYPE_G4_64, ODD, false, false, 0, 0, false, false},
    {TERN_DTYPE_G4_64, MIDDLE, false, true, 0, 0, false, false},
};

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

// A number that one kind of 16 bits holds, and the other does not.
static float number(bool bf16, uint32_t *seed) {
    float whole = (float)(next(seed) % 1024 + 1024); // 11 bits: too many for BF16
    return bf16 ? tern_bf16_to_f32((uint16_t)(0x2000 + next(seed) % 0x180)) : (whole + 1) / 65536;
}

static void fill(const affine *a, uint8_t *b, uint64_t bytes, uint32_t seed) {
    size_t block = tern_dtype_block_bytes(a->type);
    float middle = (float)((tern_dtype_code_max(a->type) + 1) / 2);
    for (uint64_t i = 0; i < bytes; i++) b[i] = (uint8_t)next(&seed);
    for (uint64_t i = 0; i < bytes; i += block) {
        float scale = number(a->bf16, &seed), offset = -middle * scale;
        if (next(&seed) % 2) scale = -scale, offset = -offset;
        if (a->odd_scale) scale *= 1.0001f, offset = -middle * scale;
        if (a->offsets == MINIMUM) offset = number(a->bf16, &seed);
        if (a->offsets == OTHER_MINIMUM) offset = number(!a->bf16, &seed);
        if (a->offsets == ZERO) offset = -(float)(next(&seed) % 16) * scale;
        if (a->offsets == ODD) offset = 0.37f * scale;
        memcpy(b + i, &scale, 4);
        memcpy(b + i + 4, &offset, 4);
    }
}

// Seen to fail: minima with the other sign; zeros of a group that were not taken from its codes;
// a minimum of the other kind of 16 bits.
TEST(affine_forms_hold_the_numbers_to_the_bit) {
    static _Alignas(64) uint8_t source[ROWS * COLS * 2], blocks[2 * 16 * COLS * 2 + 4096];
    static float want[COLS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const affine *a = &cases[i];
        uint8_t codes[16 * COLS];
        uint16_t scales[16 * COLS / 32], minima[16 * COLS / 32];
        const tern_dtype_codes to = {.codes = codes, .scales = scales, .minima = minima};
        const tern_grouped_wide rows = {.codes = codes, .scales = scales, .minima = minima};
        tern_weight_source s = {.type = a->type, .n_rows = ROWS, .n_cols = COLS};
        tern_grouped_matrix m = {.n_in = COLS, .n_rows = ROWS, .data = blocks};
        REQUIRE(tern_dtype_bytes(a->type, ROWS * COLS, COLS, &s.bytes));
        fill(a, source, s.bytes, 7 + (uint32_t)i);
        s.data = tern_blob_of(source, s.bytes);
        tern_dtype_form f;
        CHECK_MSG(tern_affine_form(&s, &f) == (a->bits != 0), "case %zu", i);
        if (!a->bits) continue;
        m.bits = f.bits;
        m.zero = f.zero;
        m.group = f.group;
        m.has_minima = f.has_minima;
        m.is_bf16 = f.is_bf16;
        REQUIRE(tern_grouped_wide_fits(&m));
        CHECK_MSG(m.bits == a->bits && m.zero == a->zero && m.has_minima == a->has_minima &&
                      m.is_bf16 == a->is_bf16,
                  "case %zu: %d bits, zero %d", i, m.bits, m.zero);
        REQUIRE(2 * m.block_bytes <= sizeof blocks);
        for (size_t row = 0; row < ROWS; row += 16) {
            size_t n = ROWS - row < 16 ? ROWS - row : 16;
            tern_affine_rows(&s, &f, (int64_t)row, (int64_t)n, &to);
            tern_grouped_pack_wide(&m, &rows, n, blocks + row / 16 * m.block_bytes);
        }
        size_t n_bad = 0;
        for (size_t row = 0; row < ROWS; row++) {
            tern_dtype_decode(a->type, source, row * COLS, COLS, 1, want);
            for (size_t c = 0; c < COLS; c++) {
                float product =
                    tern_grouped_scale(&m, row, c) * (float)tern_grouped_number(&m, row, c);
                float minimum = m.has_minima ? tern_grouped_minimum(&m, row, c) : 0;
                n_bad += product - minimum != want[c];
            }
        }
        CHECK_MSG(n_bad == 0, "case %zu: %zu numbers", i, n_bad);
    }
}
