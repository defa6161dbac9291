#include "apps/serve/http/serve_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include "base/plain.h"

void log_line(const char *what, const char *format, ...) {
    struct timespec now;
    struct tm t;
    char stamp[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &t);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &t);
    va_list args;
    va_start(args, format);
    // The line has text from requests: control characters are made visible, so that no terminal
    // obeys them.
    tern_strbuf said = {0}, line = {0};
    tern_strbuf_vprintf(&said, format, args);
    va_end(args);
    tern_strbuf_printf(&line, "%s.%03ldZ %s ", stamp, now.tv_nsec / 1000000, what);
    tern_plain_line(tern_strbuf_text(&said), said.len, &line);
    tern_strbuf_printf(&line, "\n");
    // Written at once: other threads and processes write there, too.
    fputs(said.failed || line.failed ? "(no memory)\n" : tern_strbuf_text(&line), stderr);
    fflush(stderr); // not every system's is without a buffer
    tern_strbuf_free(&said);
    tern_strbuf_free(&line);
}
