// AVX-512 (VNNI, VBMI): from packed bytes to registers of codes. Only for files with that suffix.
#ifndef TERN_KERNELS_CPU_TERNARY_TERNARY_AVX512_H
#define TERN_KERNELS_CPU_TERNARY_TERNARY_AVX512_H

#include <immintrin.h>

#include "kernels/cpu/ternary/ternary_kernels.h"

// acc += codes * q. In assembly, since gcc 12 copies accumulators back and forth around the
// intrinsic, and into memory when many are live: that halves the speed of the prompt kernel.
TERN_INLINE __m512i tern_dot_add(__m512i acc, __m512i codes, __m512i q) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(q));
    return acc;
}

// A byte of a 1.6-bit row without its first code: one of 0..84, see ternary_kernels.h.
TERN_INLINE __m512i tern_t5_low(__m512i b) {
    __m512i one = _mm512_min_epu8(b, _mm512_sub_epi8(b, _mm512_set1_epi8(TERN_T5_FIRST)));
    return _mm512_min_epu8(one, _mm512_sub_epi8(b, _mm512_set1_epi8((char)(2 * TERN_T5_FIRST))));
}

// The other four codes of such a byte as fields of two bits, c1 in the lowest. 128 bytes.
typedef struct tern_t5_table {
    __m512i first, second;
} tern_t5_table;

tern_t5_table tern_t5_load_table(void);

TERN_INLINE __m512i tern_t5_look_up(const tern_t5_table *table, __m512i low) {
    return _mm512_permutex2var_epi8(table->first, low, table->second);
}

// Codes of the elements j, m + j, ... 4m + j.
typedef struct tern_t5_codes {
    __m512i c0, c1, c2, c3, c4;
} tern_t5_codes;

TERN_INLINE tern_t5_codes tern_t5_unpack(const tern_t5_table *table, __m512i b) {
    const __m512i three = _mm512_set1_epi8(3);
    __m512i low = tern_t5_low(b), four = tern_t5_look_up(table, low);
    tern_t5_codes c;
    c.c0 = _mm512_and_si512(_mm512_sub_epi8(b, low), three); // 85 c0 = 01010101 or 10101010
    c.c1 = _mm512_and_si512(four, three);
    c.c2 = _mm512_and_si512(_mm512_srli_epi16(four, 2), three);
    c.c3 = _mm512_and_si512(_mm512_srli_epi16(four, 4), three);
    c.c4 = _mm512_and_si512(_mm512_srli_epi16(four, 6), three);
    return c;
}

// The first n < 64 bytes at p, then zeros, whose codes do not matter.
TERN_INLINE __m512i tern_load_part(const uint8_t *p, size_t n) {
    return _mm512_maskz_loadu_epi8(((__mmask64)1 << n) - 1, p);
}

// The prompt kernel, ternary_gemm_avx512.c.
enum { TERN_GEMM_ROWS_AVX512 = 32 };
size_t tern_ternary_gemm_token_block_avx512(size_t n_tokens);
size_t tern_ternary_panels_bytes_avx512(size_t n_in, size_t n_tokens);
void tern_ternary_make_panels_avx512(void *panels, const tern_i8_rows *x, size_t n_in,
                                     size_t first_token, size_t last_token);
size_t tern_ternary_gemm_scratch_bytes_avx512(size_t n_in);
void tern_ternary_gemm_avx512(const tern_ternary_matrix *w, const tern_i8_rows *x,
                              const void *panels, void *scratch, const tern_product *to);
uint64_t tern_ternary_peak_loop_avx512(void);
// Bytes [first, end) of 32 rows from `row` on, as codes [columns / 4][32][4]; first is a multiple
// of 64. Rows from last_row on repeat the one before.
typedef struct tern_ternary_piece {
    size_t row, last_row, first, end;
} tern_ternary_piece;
void tern_ternary_unpack_avx512(uint8_t *to, const tern_ternary_matrix *w, tern_ternary_piece p);

// The same for AMX, ternary_gemm_amx.c.
size_t tern_ternary_gemm_token_block_amx(size_t n_tokens);
size_t tern_ternary_panels_bytes_amx(size_t n_in, size_t n_tokens);
void tern_ternary_make_panels_amx(void *panels, const tern_i8_rows *x, size_t n_in,
                                  size_t first_token, size_t last_token);
size_t tern_ternary_gemm_scratch_bytes_amx(size_t n_in);
void tern_ternary_gemm_amx(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *panels,
                           void *scratch, const tern_product *to);
uint64_t tern_ternary_peak_loop_amx(void);

#endif
