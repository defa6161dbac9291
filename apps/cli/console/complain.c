// What a command says when it fails.
#include <stdarg.h>
#include <stdlib.h>
#include "cli.h"

static int complain(int status, const char *format, va_list args) {
    char *line = NULL; // of any length, like the names in it
    if (vasprintf(&line, format, args) < 0) {
        fprintf(stderr, "tern: out of memory\n");
        return status;
    }
    fputs("tern: ", stderr);
    put_plain(stderr, line); // one line; quoted text cannot hide or control the terminal
    fputc('\n', stderr);
    free(line);
    return status;
}

int fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = complain(EXIT_FAILED, format, args);
    va_end(args);
    return status;
}

int bad_usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = complain(EXIT_USAGE, format, args);
    va_end(args);
    return status;
}
