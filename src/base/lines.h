// Reading a text file line by line, with line numbers for messages.
#ifndef TERN_BASE_LINES_H
#define TERN_BASE_LINES_H

#include <stdint.h>
#include <stdio.h>
#include "base/status.h"
#include "base/strbuf.h"

#define TERN_LINE_MAX ((size_t)16 << 20) // bytes; a longer one is refused

typedef struct tern_lines {
    FILE *file;
    const char *path; // the caller's
    tern_strbuf line; // the last one, without its newline
    size_t number;    // its number, from 1
    uint64_t end;     // bytes of the file up to the line's end
    bool is_whole;    // it had a newline: a truncated file's last line has none
} tern_lines;

tern_status tern_lines_open(tern_lines *l, const char *path, tern_error *err);
// The next line. *more false: there is none.
tern_status tern_lines_next(tern_lines *l, bool *more, tern_error *err);
// Fails with "path:number: reason".
tern_status tern_lines_fail(const tern_lines *l, tern_error *err, tern_status status,
                            const char *reason);
void tern_lines_close(tern_lines *l); // a zeroed one is allowed

#endif
