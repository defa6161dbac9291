// Groups of codes in folders of other programs, as blocks of GGUF types: Q4_0 and Q8_0 if the
// offset is the middle code, Q4_1 if it is a 16-bit number. No code changes.
#include <string.h>
#include "base/dtype/half.h"
#include "tasks/convert/convert_private.h"

#define BLOCK 32 // of all three types

static bool is_half(float x) { return tern_f16_to_f32(tern_f32_to_f16(x)) == x; }

// Which of the types hold a block with this scale and offset.
static bool fits(tern_dtype type, unsigned code_max, float scale, float offset) {
    if (!is_half(scale)) return false;
    if (type == TERN_DTYPE_Q4_1) return code_max == 15 && is_half(offset);
    bool is_q4 = type == TERN_DTYPE_Q4_0;
    return code_max == (is_q4 ? 15u : 255u) && offset == (is_q4 ? -8 : -128) * scale;
}

tern_status tern_convert_find_group_type(const tern_tensor *t, tern_dtype *type, tern_error *err) {
    static const tern_dtype types[] = {TERN_DTYPE_Q4_0, TERN_DTYPE_Q8_0, TERN_DTYPE_Q4_1};
    bool ok[3];
    unsigned code_max = tern_dtype_code_max(t->type);
    size_t block = tern_dtype_block_n(t->type), bytes = tern_dtype_block_bytes(t->type);
    tern_matrix m = tern_tensor_matrix(t);
    tern_rows rows;
    tern_status status = TERN_OK;
    for (int k = 0; k < 3; k++) ok[k] = code_max && tern_dtype_is_readable(types[k]);
    tern_rows_open_pieces(&rows, &m);
    for (int64_t r = 0; r < m.n_rows && (ok[0] || ok[1] || ok[2]); r++) {
        uint64_t first;
        status = tern_rows_reach(&rows, r, err);
        if (status != TERN_OK) break;
        const uint8_t *b = tern_rows_data(&rows, r, &first);
        b += first / block * bytes;
        for (int64_t i = 0; i < m.n_cols; i += (int64_t)block, b += bytes) {
            float scale, offset;
            memcpy(&scale, b, 4);
            memcpy(&offset, b + 4, 4);
            for (int k = 0; k < 3; k++) ok[k] = ok[k] && fits(types[k], code_max, scale, offset);
        }
    }
    tern_rows_close(&rows);
    *type = TERN_DTYPE_F16;
    for (int k = 2; k >= 0; k--)
        if (ok[k]) *type = types[k];
    return status;
}

// Writes one block of 32; a byte has the 4-bit codes i and i + 16.
static void put_block(tern_dtype to, const uint8_t *codes, float scale, float offset,
                      uint8_t *out) {
    uint16_t d = tern_f32_to_f16(scale), min = tern_f32_to_f16(offset);
    memcpy(out, &d, 2);
    out += 2;
    if (to == TERN_DTYPE_Q4_1) {
        memcpy(out, &min, 2);
        out += 2;
    }
    for (int i = 0; to == TERN_DTYPE_Q8_0 && i < BLOCK; i++) out[i] = codes[i] ^ 128u;
    for (int i = 0; to != TERN_DTYPE_Q8_0 && i < BLOCK / 2; i++)
        out[i] = (uint8_t)(codes[i] | codes[i + BLOCK / 2] << 4);
}

void tern_convert_put_groups(tern_dtype from, const void *row, size_t n, tern_dtype to,
                             uint8_t *out) {
    size_t group = tern_dtype_block_n(from);
    for (size_t i = 0; i < n; i += group) {
        uint8_t codes[128];
        float scale, offset;
        tern_dtype_decode_affine(from, row, i, group, codes, &scale, &offset);
        for (size_t k = 0; k < group; k += BLOCK, out += tern_dtype_block_bytes(to))
            put_block(to, codes + k, scale, offset, out);
    }
}
