// Seconds of a clock that only goes forward, for durations.
#ifndef TERN_BASE_CLOCK_H
#define TERN_BASE_CLOCK_H

#include <time.h>

static inline double tern_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
