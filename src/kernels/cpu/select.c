// Which kernels this processor runs.
#include <stdio.h>
#include <string.h>
#include "base/os/os_processors.h"
#include "kernels/cpu/float/float_kernels.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/grouped/grouped_kernels.h"
#include "kernels/cpu/head/head_kernels.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/ternary/ternary_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__wasm_relaxed_simd__)
#include <wasm_simd128.h>
#endif

static bool always(void) { return true; }

#if defined(__x86_64__)

// clang before 17 does not accept the name "f16c". "avx2" answers for both whether the system saves
// the registers that they use.
static bool has_f16c(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

// Leaf 7, second part.
static bool has_avxvnni(void) {
    unsigned a = 0, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0;
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}

// Leaf 7 of CPUID: tiles, and products of one type in them. Whether the system saves tiles is in
// what it grants.
enum { AMX_BF16 = 1 << 22, AMX_TILES = 1 << 24, AMX_INT8 = 1 << 25 };
static bool has_tiles(unsigned products) {
    const unsigned wanted = AMX_TILES | products;
    unsigned a, b, c, d = 0;
    return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & wanted) == wanted &&
           tern_processor_tiles();
}
static bool has_amx(void) { return has_tiles(AMX_INT8); }

#elif defined(__aarch64__)

static bool has_dotprod(void) {
#if defined(__linux__)
    return getauxval(AT_HWCAP) >> 20 & 1; // HWCAP_ASIMDDP
#elif defined(__APPLE__)
    return true; // every Apple processor that runs macOS on ARM
#else
    return false;
#endif
}

static bool has_i8mm(void) { return has_dotprod() && tern_processor_i8mm(); }

#elif defined(__wasm_relaxed_simd__)

// Is the dot product that adds to sums of 32 bits one instruction? With codes of 8 bits, for which
// it is not meant, the engine's choice shows in the result: 4 * 127 * 255 by x86's vpdpbusd,
// 4 * 127 * -1 by ARM; other x86 processors add pairs in 16 bits first, which saturate, and take
// three instructions or more.
static bool has_dot(void) {
    volatile int8_t x = 127, code = -1;
    v128_t sum = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(x), wasm_i8x16_splat(code),
                                                        wasm_i32x4_splat(0));
    int32_t got = wasm_i32x4_extract_lane(sum, 0);
    return got == 4 * 127 * 255 || got == -4 * 127;
}

#endif

#if defined(TERN_NO_TRAINING)
#define GEMM(name) NULL
#else
#define GEMM(name) &tern_gemm_kernels_##name
#endif

// From worst to best; each level runs where the next one does, but for avxvnni.
static const struct level {
    const char *name, *full_name;
    bool (*runs)(void);
    const tern_float_kernels *f;
    const tern_ternary_kernels *t;
    const tern_head_kernels *h;
    const tern_gemm_kernels *g;
    const tern_grouped_kernels *q;
} levels[] = {
#if !defined(TERN_NO_SCALAR) // WebAssembly that pages load; what checks it has them
    {"scalar", "scalar", always, &tern_float_kernels_scalar, &tern_ternary_kernels_scalar,
     &tern_head_kernels_scalar, GEMM(scalar), &tern_grouped_kernels_scalar},
#endif
#if defined(__x86_64__)
    {"avx2", "avx2", has_avx2, &tern_float_kernels_avx2, &tern_ternary_kernels_avx2,
     &tern_head_kernels_avx2, GEMM(avx2), &tern_grouped_kernels_avx2},
    {"avxvnni", "avx2 avxvnni", has_avxvnni, &tern_float_kernels_avx2,
     &tern_ternary_kernels_avxvnni, &tern_head_kernels_avx2, GEMM(avx2),
     &tern_grouped_kernels_avxvnni},
    {"avx512", "avx512", has_avx512, &tern_float_kernels_avx512, &tern_ternary_kernels_avx512,
     &tern_head_kernels_avx512, GEMM(avx512), &tern_grouped_kernels_avx512},
    {"amx", "avx512 amx", has_amx, &tern_float_kernels_avx512, &tern_ternary_kernels_amx,
     &tern_head_kernels_avx512, GEMM(avx512), &tern_grouped_kernels_amx},
#elif defined(__aarch64__)
    {"neon", "neon", always, &tern_float_kernels_neon, &tern_ternary_kernels_neon,
     &tern_head_kernels_neon, GEMM(neon), &tern_grouped_kernels_neon},
    {"dotprod", "neon dotprod", has_dotprod, &tern_float_kernels_neon,
     &tern_ternary_kernels_dotprod, &tern_head_kernels_dotprod, GEMM(neon),
     &tern_grouped_kernels_dotprod},
    {"i8mm", "neon dotprod i8mm", has_i8mm, &tern_float_kernels_neon, &tern_ternary_kernels_i8mm,
     &tern_head_kernels_dotprod, GEMM(neon), &tern_grouped_kernels_i8mm},
#elif defined(__wasm_relaxed_simd__)
    {"relaxed", "wasm relaxed", always, &tern_float_kernels_wasm, &tern_ternary_kernels_wasm,
     &tern_head_kernels_wasm, GEMM(wasm), &tern_grouped_kernels_wasm},
    {"dot", "wasm relaxed dot", has_dot, &tern_float_kernels_wasm, &tern_ternary_kernels_wasm_dot,
     &tern_head_kernels_wasm_dot, GEMM(wasm), &tern_grouped_kernels_wasm_dot},
#elif defined(__wasm_simd128__)
    {"simd128", "wasm simd128", always, &tern_float_kernels_wasm, &tern_ternary_kernels_wasm,
     &tern_head_kernels_wasm, GEMM(wasm), &tern_grouped_kernels_wasm},
#endif
};
enum { N_LEVELS = sizeof levels / sizeof *levels };

bool tern_cpu_kernels_select(const char *at_most, tern_cpu_kernels *out) {
    size_t limit = N_LEVELS - 1;
    if (at_most) {
        for (limit = 0; strcmp(levels[limit].name, at_most);) {
            if (++limit == N_LEVELS) return false;
        }
    }
    while (!levels[limit].runs()) limit--;
    snprintf(out->name, sizeof out->name, "%s", levels[limit].full_name);
    out->f = levels[limit].f;
    out->t = levels[limit].t;
    out->h = levels[limit].h;
    out->g = levels[limit].g;
    out->q = levels[limit].q;
    return true;
}

size_t tern_cpu_kernels_list(const char *names[8]) {
    size_t n = 0;
    for (size_t i = 0; i < N_LEVELS; i++) {
        if (levels[i].runs()) names[n++] = levels[i].name;
    }
    return n;
}

// ---- Products of bf16 --------------------------------------------------------------------------

#if !defined(TERN_NO_TRAINING)

size_t cpu_gemm_bf16_list(const tern_gemm_kernels *tables[2]) {
    size_t n = 0;
#if defined(__x86_64__)
    if (!has_avx512() || !__builtin_cpu_supports("avx512bf16")) return 0;
    if (has_tiles(AMX_BF16)) tables[n++] = &tern_gemm_kernels_amxbf16;
    tables[n++] = &tern_gemm_kernels_bf16;
#else
    (void)tables;
#endif
    return n;
}

const tern_gemm_kernels *cpu_gemm_bf16(void) {
    const tern_gemm_kernels *tables[2];
    if (cpu_gemm_bf16_list(tables) == 0) return NULL;
#if defined(__x86_64__)
    // AMD's processors do twice as many multiply-adds with bf16 in vectors as with floats, Intel's
    // half as many.
    if (tables[0] == &tern_gemm_kernels_bf16 && !__builtin_cpu_is("amd")) return NULL;
#endif
    return tables[0];
}

#endif
