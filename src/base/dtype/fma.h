// fmaf, with one rounding on every system.
//
// The one in WASI's C library relies on a rounding mode that WebAssembly lacks, and so sometimes
// rounds twice, and so does mingw's. The same in 16 lanes, and why it is exact:
// kernels/cpu/vec_wasm.h.
#ifndef TERN_BASE_FMA_H
#define TERN_BASE_FMA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__wasm__) || (defined(_WIN32) && !defined(__FMA__))
static __attribute__((noinline, unused)) float tern_fma(float a, float b, float c) {
    double p = (double)a * b, s = p + c;
    uint64_t bits;
    memcpy(&bits, &s, 8);
    if ((bits & 0x0FFFFFFF) == 0) { // perhaps half way between two floats: round s to odd
        double p_part = s - c, c_part = s - p_part, error = (p - p_part) + (c - c_part);
        if (fabs(error) > 0 && (bits & 1) == 0) bits += (error < 0) == (s < 0) ? 1 : -1;
        memcpy(&s, &bits, 8);
    }
    return (float)s;
}
#else
static inline float tern_fma(float a, float b, float c) { return fmaf(a, b, c); }
#endif

#endif
