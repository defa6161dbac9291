#include "base/lines.h"

#include <errno.h>
#include <string.h>
#include "base/utf8.h"

tern_status tern_lines_open(tern_lines *l, const char *path, tern_error *err) {
    *l = (tern_lines){.path = path, .file = fopen(path, "rb")};
    if (l->file) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
}

tern_status tern_lines_next(tern_lines *l, bool *more, tern_error *err) {
    char piece[4096];
    tern_strbuf_clear(&l->line);
    l->is_whole = false;
    *more = false;
    for (int c; !l->is_whole && (c = getc(l->file)) != EOF;) {
        size_t n = 0;
        for (; c != EOF && c != '\n' && n < sizeof piece - 1; c = getc(l->file))
            piece[n++] = (char)c;
        l->is_whole = c == '\n';
        if (c != EOF && c != '\n') piece[n++] = (char)c;
        l->end += n + l->is_whole;
        *more = true;
        tern_strbuf_append(&l->line, piece, n);
        if (l->line.failed) return tern_fail_memory(err, l->line.len + n);
        if (l->line.len > TERN_LINE_MAX)
            return tern_fail(err, TERN_ERR_FORMAT, "%s:%zu: the line is longer than %zu bytes",
                             l->path, l->number + 1, TERN_LINE_MAX);
    }
    size_t n_mark = l->number == 0 ? tern_utf8_mark(tern_strbuf_text(&l->line), l->line.len) : 0;
    if (n_mark) memmove(l->line.ptr, l->line.ptr + n_mark, (l->line.len -= n_mark) + 1);
    l->number += *more;
    if (!ferror(l->file)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be read: %s", l->path, strerror(errno));
}

tern_status tern_lines_fail(const tern_lines *l, tern_error *err, tern_status status,
                            const char *reason) {
    return tern_fail(err, status, "%s:%zu: %s", l->path, l->number, reason);
}

void tern_lines_close(tern_lines *l) {
    if (l->file) fclose(l->file);
    tern_strbuf_free(&l->line);
    *l = (tern_lines){0};
}
