// Documents from files.
//
// A file whose name ends in .jsonl (or .jsonl.gz) has a JSON object per line: its text is in one
// field, or it is a conversation of some shape (data_chats.c). Every other file is
// text, in which a separator stands between documents. In a folder the files .txt and .jsonl, also
// with .gz, are read. White space around a document is dropped.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/os/os_file.h"
#include "base/utf8.h"
#include "tern.h"
#include "train/data/data.h"

#define READ_BYTES ((size_t)256 << 10)
#define DEPTH_MAX  32

struct tern_documents {
    tern_document_source *sources;
    size_t n_sources, sources_capacity, at; // at: the current source
    char *separator, *field;
    tern_strbuf crlf;                   // the separator in a file whose lines end so
    tern_str end;                       // of a piece of the open file
    tern_stream *stream;                // of sources[at], NULL: not open
    char *buffer;                       // input; [from, n) is unused
    size_t n, from, searched, capacity; // searched: no document ends before this
    bool is_json, ended;                // ended: the stream is exhausted
    uint64_t line;
    tern_json_doc json;  // of the line that was returned last
    tern_str rest;       // of a text in it that is longer than a document
    bool names_field;    // the caller does: it is looked for first
    tern_data_chat chat; // that line's, if it is one
};

// ---- The list of files --------------------------------------------------------------------------

static tern_str without_gz(const char *name) {
    size_t n = strlen(name);
    return (tern_str){name, tern_name_ends(name, ".gz") ? n - 3 : n};
}

static bool is_json_name(const char *name) { return tern_str_ends(without_gz(name), ".jsonl"); }
static bool is_text_name(const char *name) { return tern_str_ends(without_gz(name), ".txt"); }

static tern_status add_file(tern_documents *d, const char *path, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_FILE, &d->sources, &d->sources_capacity, d->n_sources, 1) != 0)
        return tern_fail_memory(err, d->n_sources * sizeof *d->sources);
    char *copy = tern_strdup(TERN_MEM_FILE, path);
    if (!copy) return tern_fail_memory(err, strlen(path) + 1);
    d->sources[d->n_sources++] = (tern_document_source){.path = copy};
    return TERN_OK;
}

static tern_status add_path(tern_documents *d, const char *path, int depth, tern_error *err) {
    tern_path_kind kind = tern_path_look(path);
    if (kind == TERN_PATH_NONE)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (kind != TERN_PATH_FOLDER)
        return depth == 0 || is_json_name(path) || is_text_name(path) ? add_file(d, path, err)
                                                                      : TERN_OK;
    if (depth == DEPTH_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: more than %d folders deep", path,
                         DEPTH_MAX);
    tern_names names = {0};
    tern_status status = tern_folder_list(&names, path, "", "", err);
    for (size_t i = 0; status == TERN_OK && i < names.n; i++) {
        if (names.list[i][0] == '.') continue;
        char *inner = tern_path_join(path, names.list[i]);
        status = inner ? add_path(d, inner, depth + 1, err) : tern_fail_memory(err, 4096);
        tern_free(inner);
    }
    tern_names_free(&names);
    return status;
}

static void spell_with_crlf(tern_documents *d) {
    for (const char *c = d->separator; *c; c++) {
        if (*c == '\n' && (c == d->separator || c[-1] != '\r')) tern_strbuf_putc(&d->crlf, '\r');
        tern_strbuf_putc(&d->crlf, *c);
    }
}

static tern_status open_documents(tern_documents *d, const tern_data_source *source,
                                  tern_error *err) {
    const char *separator = source->separator ? source->separator : "<|endoftext|>";
    const char *field = source->field ? source->field : "text";
    d->names_field = source->field != NULL;
    d->separator = tern_strdup(TERN_MEM_FILE, separator);
    d->field = tern_strdup(TERN_MEM_FILE, field);
    if (!d->separator || !d->field) return tern_fail_memory(err, strlen(separator));
    spell_with_crlf(d);
    if (d->crlf.failed) return tern_fail_memory(err, strlen(separator));
    for (size_t i = 0; i < source->n_paths; i++) TERN_TRY(add_path(d, source->paths[i], 0, err));
    size_t n = d->n_sources;
    for (size_t i = 0; i < source->n_held_out; i++)
        TERN_TRY(add_path(d, source->held_out[i], 0, err));
    for (; n < d->n_sources; n++) d->sources[n].is_held_out = true;
    if (d->n_sources == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: no files to read (.txt, .jsonl, also with .gz)",
                         source->n_paths ? source->paths[0] : "data");
    return TERN_OK;
}

tern_status tern_documents_open(tern_documents **out, const tern_data_source *source,
                                tern_error *err) {
    tern_documents *d = tern_alloc(TERN_MEM_FILE, sizeof *d);
    *out = NULL;
    if (!d) return tern_fail_memory(err, sizeof *d);
    tern_status status = open_documents(d, source, err);
    if (status != TERN_OK)
        tern_documents_close(d);
    else
        *out = d;
    return status;
}

void tern_documents_close(tern_documents *d) {
    if (!d) return;
    for (size_t i = 0; i < d->n_sources; i++) tern_free(d->sources[i].path);
    tern_free(d->sources);
    tern_free(d->separator);
    tern_strbuf_free(&d->crlf);
    tern_free(d->field);
    tern_stream_close(d->stream);
    tern_free(d->buffer);
    tern_json_free(&d->json);
    tern_data_chat_free(&d->chat);
    tern_free(d);
}

size_t tern_documents_n_sources(const tern_documents *d) { return d->n_sources; }
const tern_document_source *tern_documents_source(const tern_documents *d, size_t i) {
    return &d->sources[i];
}
double tern_documents_fraction(const tern_documents *d) {
    double inside = d->stream ? tern_stream_fraction(d->stream) : 0;
    return ((double)d->at + inside) / (double)d->n_sources;
}

// ---- Pieces of a file ---------------------------------------------------------------------------

static tern_status next_source(tern_documents *d, tern_error *err) {
    d->n = d->from = d->searched = 0;
    d->ended = false;
    d->line = 0;
    d->is_json = is_json_name(d->sources[d->at].path);
    d->end = d->is_json ? TERN_STR("\n") : (tern_str){d->separator, strlen(d->separator)};
    d->sources[d->at].is_undivided = !d->is_json && d->end.len > 0;
    return tern_stream_open(&d->stream, d->sources[d->at].path, err);
}

// The first line of a text says how its lines end, and so how the separator is written in it.
static void look_at_line(tern_documents *d) {
    const char *newline = memchr(d->buffer, '\n', d->n);
    if (!d->is_json && newline && newline > d->buffer && newline[-1] == '\r')
        d->end = (tern_str){tern_strbuf_text(&d->crlf), d->crlf.len};
}

static tern_status read_more(tern_documents *d, tern_error *err) {
    tern_document_source *source = &d->sources[d->at];
    size_t n;
    if (d->from > 0) { // move the rest to the front
        memmove(d->buffer, d->buffer + d->from, d->n - d->from);
        d->n -= d->from;
        d->searched -= d->from;
        d->from = 0;
    }
    if (tern_array_reserve(TERN_MEM_FILE, &d->buffer, &d->capacity, d->n, READ_BYTES) != 0)
        return tern_fail_memory(err, d->n + READ_BYTES);
    TERN_TRY(tern_stream_read(d->stream, d->buffer + d->n, READ_BYTES, &n, err));
    source->crc32 = tern_crc32(source->crc32, d->buffer + d->n, n);
    d->n += n;
    if (source->n_bytes == 0) look_at_line(d);
    source->n_bytes += n;
    d->ended = n == 0;
    return TERN_OK;
}

// Where text longer than TERN_DOCUMENT_MAX is cut: after a line, else after a character.
static size_t cut_at(const char *text) {
    const char *newline = memrchr(text, '\n', TERN_DOCUMENT_MAX);
    if (newline && newline > text + TERN_DOCUMENT_MAX / 2) return (size_t)(newline - text) + 1;
    size_t n = tern_utf8_complete_prefix(text, TERN_DOCUMENT_MAX);
    return n ? n : TERN_DOCUMENT_MAX;
}

// As much of a text as a document may have.
static tern_str take_piece(tern_str *rest) {
    tern_str piece = {rest->ptr, rest->len > TERN_DOCUMENT_MAX ? cut_at(rest->ptr) : rest->len};
    if (piece.len > 0) *rest = (tern_str){rest->ptr + piece.len, rest->len - piece.len};
    return piece;
}

// The next piece of the open file, without its terminator; *more = false: there is none.
static tern_status next_piece(tern_documents *d, tern_str *piece, bool *more, tern_error *err) {
    for (*more = true;;) {
        const char *end = d->end.ptr; // known after the first read
        size_t n = d->n - d->searched, n_end = d->end.len;
        char *hit = n_end && n >= n_end ? memmem(d->buffer + d->searched, n, end, n_end) : NULL;
        size_t length = (hit ? (size_t)(hit - d->buffer) : d->n) - d->from;
        if (!d->is_json && length > TERN_DOCUMENT_MAX) {
            *piece = (tern_str){d->buffer + d->from, cut_at(d->buffer + d->from)};
            d->from += piece->len;
            d->searched = d->from;
            return TERN_OK;
        }
        if (d->is_json && length > TERN_LINE_MAX)
            return tern_fail(err, TERN_ERR_FORMAT, "%s: line %llu has more than %zu bytes",
                             d->sources[d->at].path, (unsigned long long)d->line + 1,
                             TERN_LINE_MAX);
        if (hit || d->ended) {
            *piece = (tern_str){d->buffer + d->from, length};
            *more = hit || length > 0;
            if (hit) d->sources[d->at].is_undivided = false;
            d->from += length + (hit ? n_end : 0);
            d->searched = d->from;
            d->line++;
            return TERN_OK;
        }
        d->searched = n_end && n >= n_end ? d->n - (n_end - 1) : d->searched;
        TERN_TRY(read_more(d, err));
    }
}

// ---- Documents ----------------------------------------------------------------------------------

static tern_str trim(tern_str s) {
    while (s.len && isspace((unsigned char)s.ptr[0])) s.ptr++, s.len--;
    while (s.len && isspace((unsigned char)s.ptr[s.len - 1])) s.len--;
    return s;
}

const tern_json_doc *tern_documents_json(const tern_documents *d) {
    return d->is_json ? &d->json : NULL;
}

tern_status tern_documents_fail(const tern_documents *d, const char *what, tern_error *err) {
    return tern_documents_fail_at(d, &(tern_document_place){d->at, d->line}, what, err);
}

tern_status tern_documents_fail_at(const tern_documents *d, const tern_document_place *place,
                                   const char *what, tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT, "%s: line %llu: %s", d->sources[place->source].path,
                     (unsigned long long)place->line, what);
}

// The text of the line, if it has one; its rest is the next document.
static bool take_text(tern_documents *d, tern_document *out) {
    d->rest = tern_json_str(tern_json_get(&d->json, tern_json_root(&d->json), d->field));
    out->text = take_piece(&d->rest);
    return out->text.ptr != NULL;
}

static tern_status read_line(tern_documents *d, tern_str line, tern_document *out,
                             tern_error *err) {
    tern_error inner = {0};
    tern_json_free(&d->json);
    tern_status status = tern_json_parse(&d->json, line.ptr, line.len, &inner);
    if (status == TERN_ERR_FORMAT) { // which names the only line that it has seen
        const char *why = strstr(inner.message, "not JSON");
        return tern_documents_fail(d, why ? why : inner.message, err);
    }
    if (status != TERN_OK) return tern_fail(err, status, "%s", inner.message);
    if (d->names_field && take_text(d, out)) return TERN_OK;
    const char *wrong;
    TERN_TRY(tern_data_chat_read(&d->chat, &d->json, &wrong, err));
    if (wrong) return tern_documents_fail(d, wrong, err);
    if (d->chat.shape != TERN_SHAPE_TEXT) {
        out->text = (tern_str){tern_strbuf_text(&d->chat.text), d->chat.text.len};
        out->chat = &d->chat;
        return TERN_OK;
    }
    if (take_text(d, out)) return TERN_OK;
    char what[160];
    snprintf(what, sizeof what, "neither a conversation nor a text as \"%.100s\"", d->field);
    return tern_documents_fail(d, what, err);
}

tern_status tern_documents_next(tern_documents *d, tern_document *out, bool *more,
                                tern_error *err) {
    for (*more = true; d->at < d->n_sources;) {
        tern_str piece;
        *out = (tern_document){.place = {d->at, d->line}, .is_rest = d->rest.len > 0};
        if (out->is_rest) {
            out->text = trim(take_piece(&d->rest));
            if (out->text.len) return TERN_OK;
            continue;
        }
        if (!d->stream) TERN_TRY(next_source(d, err));
        TERN_TRY(next_piece(d, &piece, more, err));
        if (!*more) {
            tern_stream_close(d->stream);
            d->stream = NULL;
            d->at++;
            continue;
        }
        piece = trim(piece);
        out->place.line = d->line;
        out->text = piece;
        if (piece.len && d->is_json) TERN_TRY(read_line(d, piece, out, err));
        if (!out->chat) out->text = trim(out->text);
        if (out->text.len) return TERN_OK;
    }
    *more = false;
    return TERN_OK;
}
