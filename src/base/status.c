#include "base/status.h"

#include <stdio.h>
#include <string.h>

const char *tern_status_name(tern_status status) {
    switch (status) {
#define ROW(name, text)                                                                            \
    case name: return text;
        TERN_STATUS_MAP(ROW)
#undef ROW
    }
    return "unknown status";
}

// One line, printable: file contents must not be able to move the cursor of a terminal.
static void make_printable(char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f) *text = '?';
    }
}

tern_status tern_fail(tern_error *err, tern_status status, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        make_printable(err->message);
        err->status = status;
    }
    return status;
}

tern_status tern_fail_prefix(tern_error *err, tern_status status, const char *context) {
    if (err) {
        char copy[sizeof err->message];
        snprintf(copy, sizeof copy, "%s", err->message);
        size_t n = (size_t)snprintf(err->message, sizeof err->message, "%s: ", context);
        if (n < sizeof err->message)
            snprintf(err->message + n, sizeof err->message - n, "%s", copy);
        make_printable(err->message);
        err->status = status;
    }
    return status;
}

tern_status tern_fail_memory(tern_error *err, size_t bytes) {
    return tern_fail(err, TERN_ERR_MEMORY, "out of memory (%zu bytes wanted)", bytes);
}
