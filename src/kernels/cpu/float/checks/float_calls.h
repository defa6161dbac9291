// How each kernel of tern_float_kernels is called on rows of numbers: a table with one row for each
// member, over which the check compares variants and bench/kernel_bench.c takes times. A kernel
// without a row does not compile.
#ifndef TERN_KERNELS_CPU_FLOAT_CALLS_H
#define TERN_KERNELS_CPU_FLOAT_CALLS_H

#include <stddef.h>
#include "kernels/cpu/kernels.h"

enum {
    FLOAT_CALL_MAX = 6912,     // most columns
    FLOAT_CALL_ROOM = 1 << 16, // floats that a call writes, with a guard behind them
    FLOAT_CALL_NUMBERS = 1 << 18,
    FLOAT_CALL_GUARD = 16
};

// What calls read. Aligned to 64 bytes, and the same for all calls.
typedef struct float_call_data {
    float x[FLOAT_CALL_NUMBERS], w[FLOAT_CALL_NUMBERS];
    float positive[FLOAT_CALL_MAX];        // w without its signs
    uint16_t halves[FLOAT_CALL_NUMBERS];   // w as F16
    uint8_t packed[4][FLOAT_CALL_NUMBERS]; // w in the types of float_call_types
} float_call_data;
static const tern_dtype float_call_types[4] = {TERN_DTYPE_BF16, TERN_DTYPE_Q8_0, TERN_DTYPE_Q4_K,
                                               TERN_DTYPE_Q6_K};
// Fills in what is made of x and w; not changed by calls.
void float_call_data_derive(float_call_data *d);

// What a call wrote to y: floats, then other bytes.
typedef struct float_written {
    size_t n_floats, n_bytes;
} float_written;

// A call: on rows of n columns, 1 .. FLOAT_CALL_MAX, or of as many as the kernel takes.
typedef struct float_call_args {
    const float *x, *w; // d's
    const float_call_data *d;
    size_t n;
    int form;           // below n_forms
    float *y, *scratch; // 64: [FLOAT_CALL_ROOM]
} float_call_args;

typedef struct float_call {
    const char *name;
    size_t member;            // its offset in the table of kernels
    int n_forms;              // ways to call it, as with each activation
    const char *const *forms; // [n_forms] their names
    // A kernel that changes its input gets a copy.
    float_written (*call)(const tern_float_kernels *k, const float_call_args *a);
} float_call;

#define FLOAT_CALL_KERNELS                                                                         \
    ((sizeof(tern_float_kernels) - offsetof(tern_float_kernels, rms_norm)) / sizeof(void (*)(void)))
extern const float_call float_calls[FLOAT_CALL_KERNELS];
// Whether the library was compiled with this kernel.
bool float_call_is_there(const float_call *c, const tern_float_kernels *k);

#endif
