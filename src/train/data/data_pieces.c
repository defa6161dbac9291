// A file cut into documents or into values of JSON, as it streams by.
//
//     text             a separator stands between documents
//     lines of JSON    a value in each
//     an array         its elements, which may have any number of lines; told by its bracket
//
// Only the piece at hand is in memory, so the file may be larger.
#include <ctype.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "train/data/data.h"

#define READ_BYTES ((size_t)256 << 10)

struct tern_data_pieces {
    tern_data_pieces_desc desc;
    tern_str end; // of a piece
    tern_stream *stream;
    char *buffer;                       // [from, n) is unused
    size_t n, from, searched, capacity; // searched: no piece ends before this
    bool ended;                         // the stream is exhausted
    bool is_array, is_array_known;
    int depth; // of brackets in the element, at `searched`
    bool in_string, escaped;
    uint64_t n_lines; // that ended before `from`, in an array
    tern_data_pieces_info info;
};

tern_status tern_data_pieces_open(tern_data_pieces **out, const tern_data_pieces_desc *desc,
                                  tern_error *err) {
    tern_data_pieces *p = tern_alloc(TERN_MEM_FILE, sizeof *p);
    *out = NULL;
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->desc = *desc;
    p->end = desc->is_json ? TERN_STR("\n") : desc->separator;
    p->info.is_undivided = !desc->is_json && p->end.len > 0;
    tern_status status = tern_stream_open(&p->stream, desc->path, err);
    if (status == TERN_OK)
        *out = p;
    else
        tern_data_pieces_close(p);
    return status;
}

void tern_data_pieces_close(tern_data_pieces *p) {
    if (!p) return;
    tern_stream_close(p->stream);
    tern_free(p->buffer);
    tern_free(p);
}

const tern_data_pieces_info *tern_data_pieces_get_info(const tern_data_pieces *p) {
    return &p->info;
}
double tern_data_pieces_fraction(const tern_data_pieces *p) {
    return tern_stream_fraction(p->stream);
}

// ---- Bytes --------------------------------------------------------------------------------------

// The first line of a text says how its lines end, and so how the separator is written in it.
static void look_at_line(tern_data_pieces *p) {
    const char *newline = memchr(p->buffer, '\n', p->n);
    if (!p->desc.is_json && newline && newline > p->buffer && newline[-1] == '\r')
        p->end = p->desc.crlf;
}

static tern_status read_more(tern_data_pieces *p, tern_error *err) {
    size_t n;
    if (p->from > 0) { // move the rest to the front
        memmove(p->buffer, p->buffer + p->from, p->n - p->from);
        p->n -= p->from;
        p->searched -= p->from;
        p->from = 0;
    }
    if (tern_array_reserve(TERN_MEM_FILE, &p->buffer, &p->capacity, p->n, READ_BYTES) != 0)
        return tern_fail_memory(err, p->n + READ_BYTES);
    TERN_TRY(tern_stream_read(p->stream, p->buffer + p->n, READ_BYTES, &n, err));
    p->info.crc32 = tern_crc32(p->info.crc32, p->buffer + p->n, n);
    p->n += n;
    if (p->info.n_bytes == 0) look_at_line(p);
    p->info.n_bytes += n;
    p->ended = n == 0;
    return TERN_OK;
}

static tern_status fail(const tern_data_pieces *p, const char *what, tern_error *err) {
    if (p->info.element)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: element %llu, line %llu: %s", p->desc.path,
                         (unsigned long long)p->info.element, (unsigned long long)p->info.line,
                         what);
    return tern_fail(err, TERN_ERR_FORMAT, "%s: line %llu: %s", p->desc.path,
                     (unsigned long long)p->info.line, what);
}

// ---- Text, and lines of JSON --------------------------------------------------------------------

size_t tern_document_cut(const char *text) {
    const char *newline = memrchr(text, '\n', TERN_DOCUMENT_MAX);
    if (newline && newline > text + TERN_DOCUMENT_MAX / 2) return (size_t)(newline - text) + 1;
    size_t n = tern_utf8_complete_prefix(text, TERN_DOCUMENT_MAX);
    return n ? n : TERN_DOCUMENT_MAX;
}

static void take(tern_data_pieces *p, size_t length, size_t n_end, tern_str *piece) {
    *piece = (tern_str){p->buffer + p->from, length};
    p->from += length + n_end;
    p->searched = p->from;
}

static tern_status next_divided(tern_data_pieces *p, tern_str *piece, bool *more, tern_error *err) {
    for (*more = true;;) {
        const char *end = p->end.ptr; // known after the first read
        size_t n = p->n - p->searched, n_end = p->end.len;
        char *hit = n_end && n >= n_end ? memmem(p->buffer + p->searched, n, end, n_end) : NULL;
        size_t length = (hit ? (size_t)(hit - p->buffer) : p->n) - p->from;
        if (!p->desc.is_json && length > TERN_DOCUMENT_MAX) {
            take(p, tern_document_cut(p->buffer + p->from), 0, piece);
            return TERN_OK;
        }
        if (p->desc.is_json && length > TERN_DATA_VALUE_MAX)
            return tern_fail(err, TERN_ERR_FORMAT, "%s: line %llu has more than %zu bytes",
                             p->desc.path, (unsigned long long)p->info.line + 1,
                             TERN_DATA_VALUE_MAX);
        if (hit || p->ended) {
            *more = hit || length > 0;
            if (hit) p->info.is_undivided = false;
            take(p, length, hit ? n_end : 0, piece);
            p->info.line++;
            return TERN_OK;
        }
        p->searched = n_end && n >= n_end ? p->n - (n_end - 1) : p->searched;
        TERN_TRY(read_more(p, err));
    }
}

// ---- An array -----------------------------------------------------------------------------------

// The next byte that is not white space, which stays; 0: there is none.
static tern_status look(tern_data_pieces *p, char *c, tern_error *err) {
    for (;;) {
        for (; p->from < p->n; p->from++) {
            *c = p->buffer[p->from];
            if (*c != ' ' && *c != '\t' && *c != '\r' && *c != '\n') {
                p->searched = p->from;
                return TERN_OK;
            }
            p->n_lines += *c == '\n';
        }
        *c = 0;
        p->searched = p->from;
        if (p->ended) return TERN_OK;
        TERN_TRY(read_more(p, err));
    }
}

// Whether the element ends before this byte.
static bool ends_at(tern_data_pieces *p, char c) {
    if (p->escaped) {
        p->escaped = false;
    } else if (p->in_string) {
        p->escaped = c == '\\';
        p->in_string = c != '"';
    } else if (c == '"') {
        p->in_string = true;
    } else if (c == '{' || c == '[') {
        p->depth++;
    } else if (c == '}' || c == ']') {
        if (p->depth == 0) return true;
        p->depth--;
    } else {
        return c == ',' && p->depth == 0;
    }
    return false;
}

// The bytes of an element, whether it is JSON or not.
static tern_status take_element(tern_data_pieces *p, tern_str *piece, tern_error *err) {
    p->depth = 0;
    p->in_string = p->escaped = false;
    for (;;) {
        while (p->searched < p->n && !ends_at(p, p->buffer[p->searched])) p->searched++;
        size_t length = p->searched - p->from;
        if (length > TERN_DATA_VALUE_MAX) return fail(p, "has more than 64 MiB", err);
        if (p->searched < p->n) {
            take(p, length, 0, piece);
            for (size_t i = 0; i < length; i++) p->n_lines += piece->ptr[i] == '\n';
            return TERN_OK;
        }
        if (p->ended) return fail(p, "the file ends in it", err);
        TERN_TRY(read_more(p, err));
    }
}

static tern_status end_array(tern_data_pieces *p, bool *more, tern_error *err) {
    char c;
    *more = false;
    p->from++;
    TERN_TRY(look(p, &c, err));
    p->info.line = p->n_lines + 1;
    p->info.element = 0;
    return c ? fail(p, "text after the end of the array", err) : TERN_OK;
}

static tern_status next_element(tern_data_pieces *p, tern_str *piece, bool *more, tern_error *err) {
    char c;
    *more = true;
    TERN_TRY(look(p, &c, err));
    if (c == ']') return end_array(p, more, err);
    if (p->info.element > 0 &&
        c == ',') { // where an element ends is a comma, a bracket, or nothing
        p->from++;
        TERN_TRY(look(p, &c, err));
    }
    p->info.element++;
    p->info.line = p->n_lines + 1;
    if (c == 0) return fail(p, "the file ends before it", err);
    if (c == ',' || c == ']' || c == '}') return fail(p, "there is none between two marks", err);
    return take_element(p, piece, err);
}

// ---- Either -------------------------------------------------------------------------------------

static tern_status find_bracket(tern_data_pieces *p, tern_error *err) {
    char c;
    TERN_TRY(look(p, &c, err));
    p->is_array = c == '[';
    p->is_array_known = true;
    p->from += p->is_array;
    p->searched = p->from;
    if (!p->is_array) p->info.line = p->n_lines; // of blank lines
    return TERN_OK;
}

tern_status tern_data_pieces_next(tern_data_pieces *p, tern_str *piece, bool *more,
                                  tern_error *err) {
    if (p->desc.is_json && !p->is_array_known) TERN_TRY(find_bracket(p, err));
    return p->is_array ? next_element(p, piece, more, err) : next_divided(p, piece, more, err);
}
