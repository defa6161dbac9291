// What the system grants a process of its processors.
#ifndef TERN_BASE_OS_PROCESSORS_H
#define TERN_BASE_OS_PROCESSORS_H

#include <stdbool.h>
#include <stddef.h>

// Whether the threads of this process may use AMX's tiles. Linux saves their 8 KB only for who asks
// (arch_prctl), once for all threads, and may refuse; other systems are not asked.
bool tern_processor_tiles(void);
bool tern_processor_i8mm(void); // whether it is an ARM that multiplies matrices of int8
// The processor's name, where the system says it by itself: macOS.
bool tern_processor_name(char *out, size_t size);

// On Linux, how many processors. Other code calls tern_n_processors (os_thread.h); this is separate
// so that tests can give it made-up systems.
//
// n, or fewer if a control group of this process, or a parent of it, has a quota of processor time:
// the quota in processors, rounded to the nearest whole number, at least 1. root is put before the
// names of all files read: "" for this system.
int tern_processors_granted(const char *root, int n);

#endif
