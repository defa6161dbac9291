// The log of a server: lines on standard error.
#ifndef TERN_SERVE_SERVE_LOG_H
#define TERN_SERVE_SERVE_LOG_H

// The time, what happened, and fields.
void log_line(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
