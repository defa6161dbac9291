#include "apps/serve/serve_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void log_line(const char *what, const char *format, ...) {
    struct timespec now;
    struct tm t;
    char stamp[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &t);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &t);
    flockfile(stderr); // other threads have troubles, too
    fprintf(stderr, "%s.%03ldZ %s ", stamp, now.tv_nsec / 1000000, what);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    funlockfile(stderr);
}
