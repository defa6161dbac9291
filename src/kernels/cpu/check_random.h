// Numbers for tests of kernels, the same in each run: each file that includes this has its own
// sequence.
#ifndef TERN_KERNELS_CPU_CHECK_RANDOM_H
#define TERN_KERNELS_CPU_CHECK_RANDOM_H

#include <stdint.h>

static uint64_t random_state = 1;

// 31 bits.
static inline uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

#endif
