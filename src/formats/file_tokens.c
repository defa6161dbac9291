// New tokens at the end of a file's vocabulary, in memory: added_tokens of tokenizer.json, or the
// arrays of a GGUF. All else stays as the file has it.
#include <string.h>
#include "formats/file_private.h"

typedef struct additions {
    tern_file *file;
    size_t first; // id
    const tern_new_token *list;
    size_t n;
    tern_error *err;
} additions;

// ---- GGUF --------------------------------------------------------------------------------------

enum { GGUF_USER = 4, GGUF_CONTROL = 3 };
#define SCORE (-1000.0f) // as llama.cpp's converters have it: these are never merged

static tern_meta *find_array(const additions *a, const char *key) {
    const tern_meta *m = tern_file_meta(a->file, key);
    return m && m->type == TERN_META_ARRAY ? &a->file->metas[m - a->file->metas] : NULL;
}

static void *take(const additions *a, size_t n, size_t each) {
    void *room = tern_arena_take(&a->file->priv->pool, n * each);
    if (!room) tern_fail_memory(a->err, n * each);
    return room;
}

// The array's numbers as int32 or float; the new tokens' follow.
static tern_status put_numbers(const additions *a, tern_meta *m, size_t n_all, bool types) {
    int32_t *whole = NULL;
    float *real = NULL;
    void *room = take(a, n_all, 4);
    if (!room) return TERN_ERR_MEMORY;
    if (types)
        whole = room;
    else
        real = room;
    for (size_t i = 0; i < n_all; i++) {
        double value = types ? GGUF_USER : (double)SCORE;
        bool is_new = i >= a->first && i < a->first + a->n;
        if (is_new && types && a->list[i - a->first].is_special) value = GGUF_CONTROL;
        if (!is_new && !tern_meta_element(m, i, &value))
            return tern_fail(a->err, TERN_ERR_FORMAT, "%s is not an array of numbers", m->key);
        if (types)
            whole[i] = value >= 0 && value < 16 ? (int32_t)value : 1;
        else
            real[i] = (float)value;
    }
    m->element_type = types ? TERN_META_I32 : TERN_META_F32;
    m->n = n_all;
    m->data = room;
    return TERN_OK;
}

static tern_status add_to_gguf(const additions *a) {
    tern_meta *tokens = find_array(a, "tokenizer.ggml.tokens");
    tern_meta *types = find_array(a, "tokenizer.ggml.token_type");
    tern_meta *scores = find_array(a, "tokenizer.ggml.scores");
    if (!tokens || !tokens->strings || !types || types->n != tokens->n || a->first > tokens->n ||
        (scores && scores->n != tokens->n))
        return tern_fail(a->err, TERN_ERR_UNSUPPORTED,
                         "%s: new tokens need tokenizer.ggml.token_type, one for each token",
                         a->file->path);
    size_t n_all = a->first + a->n > tokens->n ? a->first + a->n : (size_t)tokens->n;
    tern_str *texts = take(a, n_all, sizeof *texts);
    if (!texts) return TERN_ERR_MEMORY;
    memcpy(texts, tokens->strings, (size_t)tokens->n * sizeof *texts);
    for (size_t i = 0; i < a->n; i++) {
        tern_str text = a->list[i].text;
        char *copy = tern_arena_text(&a->file->priv->pool, text);
        if (!copy) return tern_fail_memory(a->err, text.len);
        texts[a->first + i] = (tern_str){copy, text.len};
    }
    TERN_TRY(put_numbers(a, types, n_all, true));
    if (scores) TERN_TRY(put_numbers(a, scores, n_all, false));
    tokens->strings = texts;
    tokens->n = n_all;
    return TERN_OK;
}

// ---- tokenizer.json ----------------------------------------------------------------------------

static size_t after_string(tern_str json, size_t at) {
    for (at++; at < json.len && json.ptr[at] != '"'; at++) at += json.ptr[at] == '\\';
    return at + 1;
}

static size_t after_blank(tern_str json, size_t at) {
    while (at < json.len && strchr(" \t\r\n", json.ptr[at])) at++;
    return at;
}

// The end of the array or object that begins here.
static size_t end_of(tern_str json, size_t at) {
    for (int depth = 0; at < json.len;) {
        char c = json.ptr[at];
        if (c == '"') {
            at = after_string(json, at);
            continue;
        }
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (depth == 0) break;
        at++;
    }
    return at;
}

static size_t after_brace(tern_str json) { // the first one, which a byte-order mark may precede
    const char *brace = memchr(json.ptr, '{', json.len);
    return brace ? (size_t)(brace - json.ptr) + 1 : json.len;
}

// Where the value of a member of the whole begins, 0: there is none. The text was parsed before, so
// it is valid.
static size_t find_member(tern_str json, const char *quoted) {
    size_t n = strlen(quoted);
    for (size_t at = after_brace(json); at < json.len;) {
        size_t key = at = after_blank(json, at);
        if (at >= json.len || json.ptr[at] != '"') return 0;
        at = after_blank(json, after_blank(json, after_string(json, at)) + 1);
        if (json.len - key >= n && memcmp(json.ptr + key, quoted, n) == 0) return at;
        while (at < json.len && json.ptr[at] != ',' && json.ptr[at] != '}') {
            char c = json.ptr[at];
            at = c == '"'               ? after_string(json, at)
                 : c == '[' || c == '{' ? end_of(json, at) + 1
                                        : at + 1;
        }
        at++; // the comma
    }
    return 0;
}

static void put_entries(const additions *a, bool follows, tern_strbuf *out) {
    for (size_t i = 0; i < a->n; i++) {
        const tern_new_token *t = &a->list[i];
        tern_strbuf_printf(out, "%s\n    {\"id\": %zu, \"content\": ", follows || i ? "," : "",
                           a->first + i);
        tern_strbuf_json(out, t->text.ptr, t->text.len);
        tern_strbuf_printf(out,
                           ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                           "\"normalized\": false, \"special\": %s}",
                           t->is_special ? "true" : "false");
    }
}

static tern_status add_to_json(const additions *a) {
    tern_str *json = &a->file->tokenizer_json;
    tern_strbuf out = {0};
    size_t list = find_member(*json, "\"added_tokens\""), begin = list;
    if (list && json->ptr[list] != '[')
        return tern_fail(a->err, TERN_ERR_FORMAT, "%s: added_tokens is not a list", a->file->path);
    if (list) begin = end_of(*json, list);
    if (!list) begin = after_brace(*json);
    tern_strbuf_append(&out, json->ptr, begin);
    if (!list) tern_strbuf_puts(&out, "\n  \"added_tokens\": [");
    put_entries(a, list && after_blank(*json, list + 1) < begin, &out);
    if (!list) tern_strbuf_puts(&out, "],");
    tern_strbuf_append(&out, json->ptr + begin, json->len - begin);
    const char *kept =
        out.failed ? NULL : tern_arena_text(&a->file->priv->pool, (tern_str){out.ptr, out.len});
    if (kept) *json = (tern_str){kept, out.len};
    tern_strbuf_free(&out);
    return kept ? TERN_OK : tern_fail_memory(a->err, json->len);
}

tern_status tern_file_add_tokens(tern_file *file, size_t first, const tern_new_token *list,
                                 size_t n, tern_error *err) {
    const additions a = {.file = file, .first = first, .list = list, .n = n, .err = err};
    if (file->kind == TERN_FILE_GGUF) return add_to_gguf(&a);
    if (file->tokenizer_json.len) return add_to_json(&a);
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: has a tokenizer.model, to which no tokens are added: convert it to a "
                     "GGUF first",
                     file->path);
}
