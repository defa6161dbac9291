// Every kernel of a table has a row in its check, KERNELS(ROW), or the check does not compile; and
// the check is shown to be one: with that kernel broken on purpose it must find a fault.
#ifndef TERN_KERNELS_CPU_CHECK_TABLE_H
#define TERN_KERNELS_CPU_CHECK_TABLE_H

#include <stddef.h>
#include "tests/support/harness.h"

// first: the table's first kernel; behind it only kernels, but for n_more words.
#define KERNEL_ONE(kernel) +1
#define KERNELS_ARE_ALL(table, first, n_more, KERNELS)                                             \
    _Static_assert(sizeof(table) == offsetof(table, first) + (n_more) * sizeof(size_t) +           \
                                        (0 KERNELS(KERNEL_ONE)) * sizeof(void (*)(void)),          \
                   "a kernel of " #table " has no row here, so nothing would check it")

static bool kernel_is_broken;
static int n_faults; // of the broken kernel

// In place of CHECK_MSG where kernels are checked.
#define RIGHT(ok, ...)                                                                             \
    do {                                                                                           \
        const bool is_right = (ok);                                                                \
        if (kernel_is_broken)                                                                      \
            n_faults += !is_right;                                                                 \
        else                                                                                       \
            CHECK_MSG(is_right, __VA_ARGS__);                                                      \
    } while (0)

// A row: checks the whole table with broken_KERNEL in the kernel's place.
#define MUST_FIND(table, whole, kernel, check)                                                     \
    do {                                                                                           \
        (table) = *(whole);                                                                        \
        (table).kernel = broken_##kernel;                                                          \
        kernel_is_broken = true;                                                                   \
        n_faults = 0;                                                                              \
        check(&(table));                                                                           \
        kernel_is_broken = false;                                                                  \
        CHECK_MSG(n_faults > 0, "no check finds %s broken: %s", (whole)->name, #kernel);           \
    } while (0)

#endif
