// New tokens for a vocabulary: lists of them, and how a model's tokenizer grows by them.
//
// `tern data build` is where they are named. The tokenizer beside the shards has them, and a model
// that is tuned on these shards grows to it (train/grow.c).
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "train/data/data.h"

#define TOKENS_MAX ((size_t)65536)
#define LIST_MAX   ((size_t)64 << 20) // bytes

void tern_new_tokens_free(tern_new_tokens *n) {
    for (size_t i = 0; i < n->n; i++) tern_free((void *)(uintptr_t)n->list[i].text.ptr);
    tern_free(n->list);
    *n = (tern_new_tokens){0};
}

tern_status tern_new_tokens_push(tern_new_tokens *n, tern_str text, bool is_special,
                                 tern_error *err) {
    if (tern_array_reserve(TERN_MEM_TOKENIZER, &n->list, &n->capacity, n->n, 1) != 0)
        return tern_fail_memory(err, (n->n + 1) * sizeof *n->list);
    char *copy = tern_strndup(TERN_MEM_TOKENIZER, text.ptr, text.len);
    if (!copy) return tern_fail_memory(err, text.len);
    n->list[n->n++] = (tern_new_token){{copy, text.len}, is_special};
    return TERN_OK;
}

// ---- Lists -------------------------------------------------------------------------------------

typedef struct reading {
    tern_new_tokens *out;
    const tern_tokenizer *tokenizer;
    const char *name; // of the file, or of the option
    bool is_special;
    tern_error *err;
} reading;

// As much of a token as a message has room for.
static int shown(tern_str text) {
    return (int)tern_utf8_complete_prefix(text.ptr, text.len < 60 ? text.len : 60);
}

static bool is_utf8(tern_str text) {
    uint32_t code;
    for (size_t at = 0; at < text.len;) {
        int n = tern_utf8_decode(text.ptr + at, text.len - at, &code);
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

static tern_status check(const reading *r, tern_str text) {
    int32_t id = tern_tokenizer_find(r->tokenizer, text);
    if (text.len == 0) return tern_fail(r->err, TERN_ERR_ARGUMENT, "an empty token");
    if (text.len > TERN_ADDED_TOKEN_MAX)
        return tern_fail(r->err, TERN_ERR_ARGUMENT, "a token of %zu bytes: at most %d are matched",
                         text.len, TERN_ADDED_TOKEN_MAX);
    if (!is_utf8(text)) return tern_fail(r->err, TERN_ERR_ARGUMENT, "a token that is not UTF-8");
    if (id >= 0)
        return tern_fail(r->err, TERN_ERR_ARGUMENT,
                         "'%.*s' is in the vocabulary already, as token %d", shown(text), text.ptr,
                         (int)id);
    if (r->out->n == TOKENS_MAX)
        return tern_fail(r->err, TERN_ERR_ARGUMENT, "more than %zu new tokens", TOKENS_MAX);
    return TERN_OK;
}

static tern_status take(const reading *r, tern_str text, const char *what, size_t place) {
    char where[40];
    tern_status status = check(r, text);
    if (status == TERN_OK) return tern_new_tokens_push(r->out, text, r->is_special, r->err);
    snprintf(where, sizeof where, "%s %zu", what, place);
    return tern_fail_prefix(r->err, tern_fail_prefix(r->err, status, where), r->name);
}

static tern_status take_json(const reading *r, tern_str text) {
    tern_json_doc doc = {0};
    tern_status status = tern_json_parse(&doc, text.ptr, text.len, r->err);
    if (status != TERN_OK) return tern_fail_prefix(r->err, status, r->name);
    const tern_json *root = tern_json_root(&doc);
    if (!tern_json_is(root, TERN_JSON_ARRAY))
        status = tern_fail(r->err, TERN_ERR_ARGUMENT, "%s: not a list of texts", r->name);
    size_t place = 1;
    for (const tern_json *e = status == TERN_OK ? tern_json_first(&doc, root) : NULL;
         e && status == TERN_OK; e = tern_json_next(&doc, root, e), place++) {
        tern_str token = tern_json_str(e);
        status = token.ptr ? take(r, token, "element", place)
                           : tern_fail(r->err, TERN_ERR_ARGUMENT, "%s: element %zu is not a text",
                                       r->name, place);
    }
    tern_json_free(&doc);
    return status;
}

static tern_status take_lines(const reading *r, tern_str text) {
    size_t line = 1;
    for (size_t at = tern_utf8_mark(text.ptr, text.len); at < text.len; line++) {
        const char *end = memchr(text.ptr + at, '\n', text.len - at);
        size_t n = end ? (size_t)(end - text.ptr) - at : text.len - at;
        tern_str token = {text.ptr + at, n};
        at += n + 1;
        if (n && token.ptr[n - 1] == '\r') token.len--;
        TERN_TRY(take(r, token, "line", line));
    }
    return TERN_OK;
}

static tern_status read_file(const char *path, tern_strbuf *out, tern_error *err) {
    tern_stream *from;
    char piece[4096];
    size_t n = 1;
    TERN_TRY(tern_stream_open(&from, path, err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && n > 0 && out->len <= LIST_MAX) {
        status = tern_stream_read(from, piece, sizeof piece, &n, err);
        if (status == TERN_OK) tern_strbuf_append(out, piece, n);
    }
    tern_stream_close(from);
    if (status == TERN_OK && out->failed) status = tern_fail_memory(err, out->len);
    if (status != TERN_OK || out->len <= LIST_MAX) return status;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s: more than %zu bytes of new tokens", path,
                     LIST_MAX);
}

static tern_status take_list(reading *r, const char *list) {
    size_t n = strlen(list);
    tern_strbuf text = {0};
    if (*list == '[') return take_json(r, (tern_str){list, n});
    r->name = list;
    tern_status status = read_file(list, &text, r->err);
    const tern_str whole = {tern_strbuf_text(&text), text.len};
    bool json = n > 5 && strcmp(list + n - 5, ".json") == 0;
    if (status == TERN_OK) status = json ? take_json(r, whole) : take_lines(r, whole);
    tern_strbuf_free(&text);
    return status;
}

// ---- Growing -----------------------------------------------------------------------------------

tern_status tern_new_tokens_add(const tern_new_tokens *n, tern_file *file,
                                tern_tokenizer **tokenizer, tern_error *err) {
    int32_t first = tern_tokenizer_n_named(*tokenizer);
    tern_tokenizer *grown;
    TERN_TRY(tern_file_add_tokens(file, (size_t)first, n->list, n->n, err));
    TERN_TRY(tern_tokenizer_open(&grown, file, err));
    tern_tokenizer_free(*tokenizer);
    *tokenizer = grown;
    // If two entries have one text, the later one is found.
    for (size_t i = 0; i < n->n; i++) {
        int32_t found = tern_tokenizer_find(grown, n->list[i].text), id = first + (int32_t)i;
        if (found != id)
            return tern_fail(err, TERN_ERR_ARGUMENT, "new tokens: '%.*s' is there twice",
                             shown(n->list[i].text), n->list[i].text.ptr);
    }
    return TERN_OK;
}

tern_status tern_data_add_tokens(const tern_data_build_desc *d, tern_file *file,
                                 tern_tokenizer **tokenizer, tern_data_build_stats *stats,
                                 tern_error *err) {
    tern_new_tokens all = {0};
    const char *const lists[] = {d->add_tokens, d->add_special_tokens};
    static const char *const names[] = {"add_tokens", "add_special_tokens"};
    tern_status status = TERN_OK;
    for (int i = 0; i < 2 && status == TERN_OK; i++) {
        reading r = {&all, *tokenizer, names[i], i == 1, err};
        if (lists[i]) status = take_list(&r, lists[i]);
    }
    stats->first_new_token = tern_tokenizer_n_named(*tokenizer);
    stats->n_new_tokens = (int32_t)all.n;
    if (status == TERN_OK && all.n) status = tern_new_tokens_add(&all, file, tokenizer, err);
    tern_new_tokens_free(&all);
    return status;
}
