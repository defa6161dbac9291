// Waiting for what another thread does, on a clock that nobody sets: the time of day may jump.
#ifndef TERN_TESTS_PATIENCE_H
#define TERN_TESTS_PATIENCE_H

#include <pthread.h>
#include <time.h>

// For pthread_cond_timedwait until a time_in().
static inline void patient_condition(pthread_cond_t *c) {
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
}

static inline struct timespec time_in(double seconds) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const double end = (double)t.tv_nsec * 1e-9 + seconds;
    t.tv_sec += (time_t)end;
    t.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    return t;
}

#endif
