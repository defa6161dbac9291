// Decoders of every element type, and the description of the block layouts.
//
// All numbers are little-endian; f16 is IEEE binary16. d is a block's scale. The order of float
// operations is the one of the published formulas, each product and difference rounding once. Types
// of four bits and more are read in dtype_codes.c, those with grids in dtype_grids.c.
//
//   TQ2_0 256 weights, 66 bytes  64 bytes of codes, f16 d; byte i of half h holds weights
//                                128h + i + 32s in bits 2s:                  (code - 1) * d
//   TQ1_0 256 weights, 54 bytes  32 bytes of five trits (weight i + 32t is trit t of byte i), 16
//                                bytes of five (160 + i + 16t), 4 bytes of four (240 + i + 4t),
//                                f16 d. A byte is ceil(v * 256 / 243) with v the number in base 3
//                                whose most significant digit is trit 0, so that multiplying by
//                                3^t (modulo 256) brings trit t to the front, where times 3, shift
//                                right by 8 reads it without a division.
//   I2_S  128 weights, 32 bytes  byte i holds weights i, 32 + i, 64 + i, 96 + i in bits 7:6, 5:4,
//                                3:2, 1:0; blocks run through the whole tensor, whatever its rows:
//                                                                            (code - 1) * scale
//   Q2_0  64 weights, 18 bytes   f16 d, 16 bytes; byte i holds weights 4i .. 4i + 3 in bits 1:0 ..
//                                7:6:                                        (code - 1) * d
//   PQ2_0 128 weights, 34 bytes  as Q2_0, with 32 bytes of codes
//   PTQ1_0 128 weights, 28 bytes as TQ1_0: 16 bytes of five trits (weight i + 16t), 8 bytes of five
//                                (80 + i + 8t), 2 bytes of four (120 + i + 2t), f16 d
//   Q1_0  128 weights, 18 bytes  f16 d, 16 bytes; bit j of byte i is weight 8i + j: 1: d, 0: -d
//   Q1_0_32 32 weights, 6 bytes  as Q1_0, with 4 bytes of bits
//   G4_n  n = 32, 64 or 128      f32 scale, f32 offset, n / 2 bytes of codes 0 .. 15: byte i holds
//                                weights 2i (low bits) and 2i + 1:      scale * code + offset
//   G8_n  the same               f32 scale, f32 offset, n bytes of codes 0 .. 255
//   F8_n  the same               f32 scale, n bytes of E4M3:            scale * number
//   STQ1_0 (Sherry) and NVFP4: dtype_grids.c
// The fourth 2-bit code occurs in valid files only for Q2_0 and PQ2_0, where it is +2; all types
// decode it like that.
#include <string.h>
#include "base/dtype/dtype.h"
#include "base/dtype/half.h"

// ---- Ternary -----------------------------------------------------------------------------------

static void codes_tq2_0(const uint8_t *b, int8_t *q) {
    for (int i = 0; i < 256; i++) {
        q[i] = (int8_t)((b[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - 1);
    }
}

// Bytes of five trits, twice, then bytes of four.
static void codes_trits(const uint8_t *b, const int n_bytes[3], int8_t *q) {
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    for (int part = 0; part < 3; part++) {
        for (int t = 0; t < (part < 2 ? 5 : 4); t++) {
            for (int i = 0; i < n_bytes[part]; i++) {
                uint8_t front = (uint8_t)(b[i] * pow3[t]);
                *q++ = (int8_t)((front * 3 >> 8) - 1);
            }
        }
        b += n_bytes[part];
    }
}

static void codes_tq1_0(const uint8_t *b, int8_t *q) {
    codes_trits(b, (const int[3]){32, 16, 4}, q);
}

static void codes_ptq1_0(const uint8_t *b, int8_t *q) {
    codes_trits(b, (const int[3]){16, 8, 2}, q);
}

static void codes_two_bits(const uint8_t *b, size_t n, int8_t *q) {
    for (size_t i = 0; i + 4 <= n; i += 4) { // the codes of a byte, each into a byte of its own
        uint32_t c = b[i / 4], w = (c & 3) | (c & 12) << 6 | (c & 48) << 12 | (c & 192) << 18;
        w = ((w | 0x80808080u) - 0x01010101u) ^ 0x80808080u; // minus one each, without borrowing
        memcpy(q + i, &w, sizeof w);
    }
    for (size_t i = n / 4 * 4; i < n; i++) q[i] = (int8_t)((b[i / 4] >> i % 4 * 2 & 3) - 1);
}

static void codes_one_bit(const uint8_t *b, size_t n, int8_t *q) {
    for (size_t i = 0; i < n; i++) q[i] = b[i / 8] >> i % 8 & 1 ? 1 : -1;
}

static void codes_i2_s(const uint8_t *data, uint64_t first, size_t n, int8_t *q) {
    uint64_t i = first, end = first + n;
    for (; i < end && i % 32 != 0; i++)
        *q++ = (int8_t)((data[i / 128 * 32 + i % 32] >> (6 - i % 128 / 32 * 2) & 3) - 1);
    for (; i + 32 <= end; i += 32, q += 32) { // of 32 bytes the same two bits
        const uint8_t *from = data + i / 128 * 32;
        int shift = (int)(6 - i % 128 / 32 * 2);
        for (int k = 0; k < 32; k++) q[k] = (int8_t)((from[k] >> shift & 3) - 1);
    }
    for (; i < end; i++)
        *q++ = (int8_t)((data[i / 128 * 32 + i % 32] >> (6 - i % 128 / 32 * 2) & 3) - 1);
}

// Decodes one block; returns its scale's bits.
static uint16_t codes_block(tern_dtype type, const uint8_t *b, int8_t *q) {
    size_t n = tern_dtype_block_n(type);
    switch (type) {
    case TERN_DTYPE_TQ1_0: codes_tq1_0(b, q); return tern_read_u16(b + 52);
    case TERN_DTYPE_TQ2_0: codes_tq2_0(b, q); return tern_read_u16(b + 64);
    case TERN_DTYPE_PTQ1_0: codes_ptq1_0(b, q); return tern_read_u16(b + 26);
    case TERN_DTYPE_STQ1_0: tern_dtype_codes_stq1_0(b, q); return tern_read_u16(b + 40);
    case TERN_DTYPE_Q1_0:
    case TERN_DTYPE_Q1_0_32: codes_one_bit(b + 2, n, q); return tern_read_u16(b);
    default: codes_two_bits(b + 2, n, q); return tern_read_u16(b);
    }
}

bool tern_dtype_decode_ternary(tern_dtype type, const void *data, uint64_t first, size_t n,
                               int8_t *q, float *scales) {
    const uint8_t *b = data;
    if (type == TERN_DTYPE_I2_S) {
        codes_i2_s(data, first, n, q);
        return true;
    }
    if (type != TERN_DTYPE_TQ1_0 && type != TERN_DTYPE_TQ2_0) return false;
    size_t bytes = tern_dtype_block_bytes(type);
    b += first / 256 * bytes;
    for (size_t i = 0; i < n / 256; i++, b += bytes, q += 256)
        scales[i] = tern_f16_to_f32(codes_block(type, b, q));
    return true;
}

bool tern_dtype_decode_groups(tern_dtype type, const void *data, uint64_t first, size_t n,
                              int8_t *q, uint16_t *scales) {
    size_t group = tern_dtype_group_n(type), bytes = tern_dtype_block_bytes(type);
    if (group == 0) return false;
    const uint8_t *b = (const uint8_t *)data + first / group * bytes;
    for (size_t i = 0; i + group <= n; i += group, b += bytes)
        *scales++ = codes_block(type, b, q + i);
    return true;
}

static void decode_groups(tern_dtype type, const uint8_t *b, size_t n, float *y) {
    size_t group = tern_dtype_group_n(type), bytes = tern_dtype_block_bytes(type);
    for (size_t i = 0; i + group <= n; i += group, b += bytes) {
        int8_t q[256];
        float d = tern_f16_to_f32(codes_block(type, b, q));
        for (size_t j = 0; j < group; j++) y[i + j] = (float)q[j] * d;
    }
}

// ---- Groups with an offset ---------------------------------------------------------------------

static bool is_g4(tern_dtype t) { return t >= TERN_DTYPE_G4_32 && t <= TERN_DTYPE_G4_128; }
static bool is_g8(tern_dtype t) { return t >= TERN_DTYPE_G8_32 && t <= TERN_DTYPE_G8_128; }
static bool is_f8(tern_dtype t) { return t >= TERN_DTYPE_F8_32 && t <= TERN_DTYPE_F8_128; }

unsigned tern_dtype_code_max(tern_dtype type) { return is_g4(type) ? 15 : is_g8(type) ? 255 : 0; }

bool tern_dtype_decode_affine(tern_dtype type, const void *data, uint64_t first, size_t n,
                              uint8_t *codes, float *scales, float *offsets) {
    size_t block = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    if (!is_g4(type) && !is_g8(type)) return false;
    const uint8_t *b = (const uint8_t *)data + first / block * bytes;
    for (size_t i = 0; i + block <= n; i += block, b += bytes, codes += block) {
        memcpy(scales++, b, 4);
        memcpy(offsets++, b + 4, 4);
        for (size_t j = 0; j < block; j++)
            codes[j] = is_g4(type) ? b[8 + j / 2] >> j % 2 * 4 & 15 : b[8 + j];
    }
    return true;
}

static void decode_affine(tern_dtype type, const uint8_t *b, size_t n, float *y) {
    size_t block = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    for (size_t i = 0; i + block <= n; i += block, b += bytes) {
        uint8_t codes[128];
        float scale, offset;
        tern_dtype_decode_affine(type, b, 0, block, codes, &scale, &offset);
        for (size_t j = 0; j < block; j++) y[i + j] = scale * (float)codes[j] + offset;
    }
}

static void decode_f8(tern_dtype type, const uint8_t *b, size_t n, float *y) {
    size_t block = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    for (size_t i = 0; i + block <= n; i += block, b += bytes) {
        float scale;
        memcpy(&scale, b, 4);
        for (size_t j = 0; j < block; j++) y[i + j] = scale * tern_e4m3_to_f32(b[4 + j]);
    }
}

// ---- All types ---------------------------------------------------------------------------------

// Plain numbers. Files may put them at any address.
static float decode_one(tern_dtype type, const uint8_t *p) {
    union {
        uint16_t u16;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
    } v;
    memcpy(&v, p, tern_dtype_block_bytes(type));
    switch (type) {
    case TERN_DTYPE_F16: return tern_f16_to_f32(v.u16);
    case TERN_DTYPE_BF16: return tern_bf16_to_f32(v.u16);
    case TERN_DTYPE_F32: return v.f32;
    case TERN_DTYPE_F64: return (float)v.f64;
    case TERN_DTYPE_I8: return (float)(int8_t)*p;
    case TERN_DTYPE_U8: return (float)*p;
    case TERN_DTYPE_I32: return (float)v.i32;
    case TERN_DTYPE_I64: return (float)v.i64;
    default: return 0;
    }
}

void tern_dtype_decode(tern_dtype type, const void *data, uint64_t first, size_t n, float scale,
                       float *out) {
    if (type == TERN_DTYPE_I2_S) {
        int8_t q[128];
        for (size_t done = 0, step; done < n; done += step) {
            step = n - done < 128 ? n - done : 128;
            codes_i2_s(data, first + done, step, q);
            for (size_t i = 0; i < step; i++) out[done + i] = (float)q[i] * scale;
        }
        return;
    }
    if (!tern_dtype_is_readable(type)) {
        memset(out, 0, n * sizeof *out);
        return;
    }
    if (type == TERN_DTYPE_HF_TERNARY) return; // a byte has codes of four rows: left to the reader
    size_t block_n = tern_dtype_block_n(type), block_bytes = tern_dtype_block_bytes(type);
    const uint8_t *b = (const uint8_t *)data + first / block_n * block_bytes;
    if (type == TERN_DTYPE_F32) {
        memcpy(out, b, n * sizeof *out);
    } else if (tern_dtype_group_n(type)) {
        decode_groups(type, b, n, out);
    } else if (tern_dtype_form_of(type)) {
        tern_dtype_decode_form(type, data, first, n, out);
    } else if (tern_dtype_has_grid(type)) {
        tern_dtype_decode_grid(type, data, first, n, scale, out);
    } else if (tern_dtype_code_max(type)) {
        decode_affine(type, b, n, out);
    } else if (is_f8(type)) {
        decode_f8(type, b, n, out);
    } else {
        for (size_t i = 0; i < n; i++, b += block_bytes) out[i] = decode_one(type, b);
    }
}
