// Clocks, sleeping, and random seeds.
#ifndef TERN_BASE_OS_TIME_H
#define TERN_BASE_OS_TIME_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

// A monotonic clock, for durations.
double tern_seconds(void);
// May wake early. A system that cannot wait (a browser's main thread) returns at once.
void tern_sleep(double seconds);
// The local wall-clock time; false: unknown.
bool tern_local_time(struct tm *now);
// Differs from call to call and from process to process. Not for secrets.
uint64_t tern_random_seed(void);

#endif
