// IEEE binary16 and bfloat16, converted in integer arithmetic: round to nearest, ties to even.
#ifndef TERN_BASE_HALF_H
#define TERN_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint16_t tern_read_u16(const uint8_t *p) { // little-endian, at any address
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline float tern_bits_to_f32(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t tern_f32_to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static inline float tern_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7FFF;
    if (rest >= 0x7C00) return tern_bits_to_f32(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    if (rest < 0x400) { // zero and subnormals: rest * 2^-24, exact in float
        float f = (float)rest * 0x1p-24f;
        return tern_bits_to_f32(tern_f32_to_bits(f) | sign);
    }
    return tern_bits_to_f32(sign | ((rest << 13) + (112u << 23)));
}

static inline uint16_t tern_f32_to_f16(float f) {
    uint32_t bits = tern_f32_to_bits(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return (uint16_t)(sign | 0x7E00);  // NaN
    if (rest >= 0x477FF000) return (uint16_t)(sign | 0x7C00); // rounds to infinity
    if (rest < 0x38800000) { // below the smallest normal: let a float addition do the rounding
        float g = tern_bits_to_f32(rest) + 0.5f; // 0.5 has a unit in the last place of 2^-24
        return (uint16_t)(sign | (tern_f32_to_bits(g) - 0x3F000000));
    }
    rest += 0xFFF + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - (112u << 23)) >> 13);
}

static inline float tern_bf16_to_f32(uint16_t h) { return tern_bits_to_f32((uint32_t)h << 16); }

static inline uint16_t tern_f32_to_bf16(float f) {
    uint32_t bits = tern_f32_to_bits(f);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Eight bits: E4M3 (no infinities, 0x7F is NaN), and a power of two, E8M0 (0xFF is NaN).
static inline float tern_e4m3_to_f32(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80) << 24, rest = b & 0x7F;
    if (rest == 0x7F) return tern_bits_to_f32(sign | 0x7FC00000);
    if (rest < 8) return tern_bits_to_f32(tern_f32_to_bits((float)rest * 0x1p-9f) | sign);
    return tern_bits_to_f32(sign | ((rest << 20) + (120u << 23)));
}

static inline float tern_e8m0_to_f32(uint8_t b) {
    if (b == 0xFF) return tern_bits_to_f32(0x7FC00000);
    return tern_bits_to_f32(b ? (uint32_t)b << 23 : 0x00400000);
}

#endif
