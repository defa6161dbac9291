// Documents from files.
//
// A file whose name ends in .jsonl or .json has JSON objects, one per line or as an array: the text
// of one is in a field, or it is a conversation of some shape (data_chats.c). Every other file is
// text, in which a separator stands between documents. In a folder the files .txt, .jsonl and, if
// they hold arrays, .json are read. All may be compressed (.gz). White space around a document is
// dropped.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/os/os_file.h"
#include "tern.h"
#include "train/data/data.h"

#define DEPTH_MAX 32

struct tern_documents {
    tern_document_source *sources;
    size_t n_sources, sources_capacity, at; // at: the current source
    tern_document_source adding;            // but for its path
    char *separator, *field;
    tern_strbuf crlf;          // the separator in a file whose lines end so
    tern_data_pieces *pieces;  // of sources[at], NULL: not open
    tern_document_place place; // of the last document
    bool is_json;
    tern_json_doc json;  // of the line that was returned last
    tern_str rest;       // of a text in it that is longer than a document
    double above;        // the weight of files that are not read
    bool is_again;       // they were read before
    bool names_field;    // the caller does: it is looked for first
    tern_data_chat chat; // that line's, if it is one
};

// ---- The list of files --------------------------------------------------------------------------

static tern_str without_gz(const char *name) {
    size_t n = strlen(name);
    return (tern_str){name, tern_name_ends(name, ".gz") ? n - 3 : n};
}

static bool is_json_name(const char *name) {
    tern_str s = without_gz(name);
    return tern_str_ends(s, ".jsonl") || tern_str_ends(s, ".json");
}
static bool is_text_name(const char *name) { return tern_str_ends(without_gz(name), ".txt"); }

// In the list, with the weight of the path that is being looked at.
static tern_status add_file(tern_documents *d, const char *path, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_FILE, &d->sources, &d->sources_capacity, d->n_sources, 1) != 0)
        return tern_fail_memory(err, d->n_sources * sizeof *d->sources);
    char *copy = tern_strdup(TERN_MEM_FILE, path);
    if (!copy) return tern_fail_memory(err, strlen(path) + 1);
    d->sources[d->n_sources] = d->adding;
    d->sources[d->n_sources++].path = copy;
    return TERN_OK;
}

// Other .json files of a folder describe something: a tokenizer, a package.
static tern_status holds_array(const char *path, bool *holds, tern_error *err) {
    tern_stream *s;
    char some[256];
    size_t n = 0, at = 0;
    TERN_TRY(tern_stream_open(&s, path, err));
    const tern_status status = tern_stream_read(s, some, sizeof some, &n, err);
    tern_stream_close(s);
    if (n >= 3 && memcmp(some, "\xef\xbb\xbf", 3) == 0) at = 3;
    while (at < n && strchr(" \t\r\n", some[at])) at++;
    *holds = at < n && some[at] == '[';
    return status;
}

static tern_status add_taken(tern_documents *d, const char *path, int depth, tern_error *err) {
    bool is_taken = depth == 0 || is_text_name(path) || is_json_name(path);
    if (depth > 0 && !is_text_name(path) && tern_str_ends(without_gz(path), ".json"))
        TERN_TRY(holds_array(path, &is_taken, err));
    return is_taken ? add_file(d, path, err) : TERN_OK;
}

static tern_status add_path(tern_documents *d, const char *path, int depth, tern_error *err) {
    tern_path_kind kind = tern_path_look(path);
    if (kind == TERN_PATH_NONE)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (kind != TERN_PATH_FOLDER) return add_taken(d, path, depth, err);
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
    for (size_t i = 0; i < source->n_paths; i++) {
        d->adding.of_path = i;
        d->adding.weight = source->weights ? source->weights[i] : 1;
        TERN_TRY(add_path(d, source->paths[i], 0, err));
    }
    d->adding = (tern_document_source){.weight = 1, .is_held_out = true};
    for (size_t i = 0; i < source->n_held_out; i++)
        TERN_TRY(add_path(d, source->held_out[i], 0, err));
    if (d->n_sources == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: no files to read (.txt, .jsonl, .json, also with .gz)",
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
    tern_data_pieces_close(d->pieces);
    tern_json_free(&d->json);
    tern_data_chat_free(&d->chat);
    tern_free(d);
}

size_t tern_documents_n_sources(const tern_documents *d) { return d->n_sources; }
const tern_document_source *tern_documents_source(const tern_documents *d, size_t i) {
    return &d->sources[i];
}
double tern_documents_fraction(const tern_documents *d) {
    double inside = d->pieces ? tern_data_pieces_fraction(d->pieces) : 0;
    return ((double)d->at + inside) / (double)d->n_sources;
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
    return tern_documents_fail_at(d, &d->place, what, err);
}

tern_status tern_documents_fail_at(const tern_documents *d, const tern_document_place *place,
                                   const char *what, tern_error *err) {
    char element[48] = "";
    if (place->element)
        snprintf(element, sizeof element, "element %llu, ", (unsigned long long)place->element);
    return tern_fail(err, TERN_ERR_FORMAT, "%s: %sline %llu: %s", d->sources[place->source].path,
                     element, (unsigned long long)place->line, what);
}

// As much of a text as a document may have.
static tern_str take_piece(tern_str *rest) {
    bool whole = rest->len <= TERN_DOCUMENT_MAX;
    tern_str piece = {rest->ptr, whole ? rest->len : tern_document_cut(rest->ptr)};
    if (piece.len > 0) *rest = (tern_str){rest->ptr + piece.len, rest->len - piece.len};
    return piece;
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
    tern_status status = tern_json_parse_part(&d->json, line.ptr, line.len, &inner);
    if (status == TERN_ERR_FORMAT) return tern_documents_fail(d, inner.message, err);
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

static tern_status open_source(tern_documents *d, tern_error *err) {
    const char *path = d->sources[d->at].path;
    d->is_json = is_json_name(path);
    tern_data_pieces_desc desc = {.path = path,
                                  .is_json = d->is_json,
                                  .separator = {d->separator, strlen(d->separator)},
                                  .crlf = {tern_strbuf_text(&d->crlf), d->crlf.len}};
    return tern_data_pieces_open(&d->pieces, &desc, err);
}

static tern_status close_source(tern_documents *d, tern_error *err) {
    tern_document_source *source = &d->sources[d->at++];
    const tern_data_pieces_info *info = tern_data_pieces_get_info(d->pieces);
    bool same = source->n_bytes == info->n_bytes && source->crc32 == info->crc32;
    source->n_bytes = info->n_bytes;
    source->crc32 = info->crc32;
    source->is_undivided = info->is_undivided;
    tern_data_pieces_close(d->pieces);
    d->pieces = NULL;
    if (same || !d->is_again) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: was changed while it was read", source->path);
}

static tern_status read_piece(tern_documents *d, tern_str piece, tern_document *out,
                              tern_error *err) {
    const tern_data_pieces_info *info = tern_data_pieces_get_info(d->pieces);
    d->place = (tern_document_place){d->at, info->line, info->element};
    *out = (tern_document){.place = d->place, .text = trim(piece)};
    if (out->text.len && d->is_json) TERN_TRY(read_line(d, out->text, out, err));
    if (!out->chat) out->text = trim(out->text);
    return TERN_OK;
}

void tern_documents_rewind(tern_documents *d, double weight) {
    tern_data_pieces_close(d->pieces);
    d->pieces = NULL;
    d->rest = (tern_str){0};
    d->at = 0;
    d->above = weight;
    d->is_again = true;
}

tern_status tern_documents_next(tern_documents *d, tern_document *out, bool *more,
                                tern_error *err) {
    for (*more = true; d->at < d->n_sources;) {
        tern_str piece;
        if (d->rest.len > 0) {
            *out = (tern_document){.place = d->place, .is_rest = true};
            out->text = trim(take_piece(&d->rest));
            if (out->text.len) return TERN_OK;
            continue;
        }
        if (d->sources[d->at].weight <= d->above) {
            d->at++;
            continue;
        }
        if (!d->pieces) TERN_TRY(open_source(d, err));
        TERN_TRY(tern_data_pieces_next(d->pieces, &piece, more, err));
        if (!*more) {
            TERN_TRY(close_source(d, err));
            continue;
        }
        TERN_TRY(read_piece(d, piece, out, err));
        if (out->text.len) return TERN_OK;
    }
    *more = false;
    return TERN_OK;
}
