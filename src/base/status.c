#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include "base/plain.h"

const char *tern_status_name(tern_status status) {
    switch (status) {
#define ROW(name, text)                                                                            \
    case name: return text;
        TERN_STATUS_MAP(ROW)
#undef ROW
    }
    return "unknown status";
}

// Room for two of the longest paths and a sentence. On the stack, since the error may be a lack of
// memory.
#define TEXT_BYTES 9000

// Makes it one line, whose quoted text cannot hide or control a terminal.
static void make_plain(const char *text, char out[TEXT_BYTES]) {
    tern_plain plain = {0};
    size_t n = strlen(text), used = 0, n_shown;
    for (size_t i = 0; i < n && used + TERN_PLAIN_BYTES < TEXT_BYTES; used += n_shown)
        i += tern_plain_next(&plain, text + i, n - i, out + used, &n_shown);
    out[used] = 0;
}

// A text that is too long loses its middle: it begins with a file's name, which may be of any
// length, and ends with the reason.
static void set_message(tern_error *err, const char *said) {
    char text[TEXT_BYTES];
    make_plain(said, text);
    static const char dots[] = " ... ";
    size_t n = strlen(text), room = sizeof err->message - 1, begin = room / 3;
    if (n <= room) {
        memcpy(err->message, text, n + 1);
    } else {
        size_t end = room - begin - (sizeof dots - 1);
        while (begin > 0 && ((unsigned char)text[begin] & 0xC0) == 0x80) begin--; // whole ones
        while (end > 0 && ((unsigned char)text[n - end] & 0xC0) == 0x80) end--;
        memcpy(err->message, text, begin);
        memcpy(err->message + begin, dots, sizeof dots - 1);
        memcpy(err->message + begin + sizeof dots - 1, text + n - end, end + 1);
    }
}

tern_status tern_fail(tern_error *err, tern_status status, const char *format, ...) {
    if (err) {
        char text[TEXT_BYTES];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        set_message(err, text);
        err->status = status;
    }
    return status;
}

tern_status tern_fail_prefix(tern_error *err, tern_status status, const char *context) {
    if (err) {
        char text[TEXT_BYTES];
        snprintf(text, sizeof text, "%s: %s", context, err->message);
        set_message(err, text);
        err->status = status;
    }
    return status;
}

tern_status tern_fail_memory(tern_error *err, size_t bytes) {
    return tern_fail(err, TERN_ERR_MEMORY, "out of memory (%zu bytes wanted)", bytes);
}
