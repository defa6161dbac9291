// What a model's file says about itself, and what the model says to the program that opened it.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"

void tern_model_log(const tern_model *m, tern_log_level level, const char *format, ...) {
    char line[1024];
    if (!m->on_log) return;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 32) *c = ' ';
    m->on_log(m->user, level, line);
}

// ---- A folder's config as keys -----------------------------------------------------------------

static tern_status add_key(tern_model *m, const tern_strbuf *name, const tern_json *value,
                           tern_error *err) {
    if (name->failed ||
        tern_array_reserve(TERN_MEM_GRAPH, &m->keys, &m->keys_capacity, m->n_keys, 1) != 0)
        return tern_fail_memory(err, (m->n_keys + 1) * sizeof *m->keys);
    char *copy = tern_strndup(TERN_MEM_GRAPH, name->ptr, name->len);
    if (!copy) return tern_fail_memory(err, name->len + 1);
    m->keys[m->n_keys++] = (tern_model_key){copy, value};
    return TERN_OK;
}

// An object that is being walked through: where it ends, and the length of its name.
typedef struct level {
    size_t end, n_name;
} level;

static tern_status read_keys(tern_model *m, const tern_json_doc *doc, tern_strbuf *name,
                             tern_error *err) {
    level levels[TERN_JSON_DEPTH_MAX + 1] = {{.end = doc->nodes[0].next}};
    int depth = 0;
    for (size_t i = 1;;) {
        while (depth > 0 && i >= levels[depth].end) depth--;
        if (i >= levels[depth].end) return TERN_OK;
        const tern_json *value = tern_json_value_of(doc, &doc->nodes[i]);
        const tern_str key = tern_json_str(&doc->nodes[i]);
        name->len = levels[depth].n_name;
        if (name->len) tern_strbuf_putc(name, '.');
        tern_strbuf_append(name, key.ptr, key.len);
        i = (size_t)(value - doc->nodes) + 1;
        if (tern_json_is(value, TERN_JSON_OBJECT) && depth < TERN_JSON_DEPTH_MAX) {
            levels[++depth] = (level){value->next, name->len};
            continue;
        }
        i = value->next;
        if (!tern_json_is(value, TERN_JSON_NULL)) TERN_TRY(add_key(m, name, value, err));
    }
}

tern_status tern_model_read_keys(tern_model *m, tern_error *err) {
    const tern_json_doc *doc = &m->file->config;
    tern_strbuf name = {0};
    if (m->file->kind != TERN_FILE_HF || !tern_json_is(tern_json_root(doc), TERN_JSON_OBJECT))
        return TERN_OK;
    tern_status status = read_keys(m, doc, &name, err);
    tern_strbuf_free(&name);
    return status;
}

void tern_model_free_keys(tern_model *m) {
    for (size_t i = 0; i < m->n_keys; i++) tern_free(m->keys[i].name);
    tern_free(m->keys);
}

// ---- Values ------------------------------------------------------------------------------------

static bool take_text(tern_metadata *out, tern_str text) {
    out->kind = TERN_METADATA_STRING;
    out->text = text.ptr;
    out->n = text.len;
    return true;
}

static bool take_number(tern_metadata *out, tern_metadata_kind kind, int64_t whole, double number) {
    out->kind = kind;
    out->integer = whole;
    out->number = number;
    out->n = 1;
    return true;
}

static bool take_meta_number(tern_metadata *out, tern_meta_number v) {
    switch (v.kind) {
    case TERN_META_IS_INT: return take_number(out, TERN_METADATA_INT, v.i, v.f);
    case TERN_META_IS_FLOAT: return take_number(out, TERN_METADATA_FLOAT, 0, v.f);
    case TERN_META_IS_BOOL: return take_number(out, TERN_METADATA_BOOL, v.i, v.f);
    case TERN_META_NO_NUMBER: break;
    }
    return false;
}

static bool take_meta(tern_metadata *out, const tern_meta *meta) {
    out->key = meta->key;
    if (meta->type == TERN_META_STRING)
        return take_text(out, (tern_str){meta->data, (size_t)meta->n});
    if (meta->type != TERN_META_ARRAY) return take_meta_number(out, tern_meta_number_at(meta, 0));
    out->kind = TERN_METADATA_ARRAY;
    out->n = (size_t)meta->n;
    return true;
}

static bool take_json(tern_metadata *out, const tern_json *value) {
    uint64_t whole;
    bool is_negative;
    switch ((tern_json_type)value->type) {
    case TERN_JSON_STRING: return take_text(out, tern_json_str(value));
    case TERN_JSON_BOOL: return take_number(out, TERN_METADATA_BOOL, value->n, value->n);
    case TERN_JSON_NUMBER:
        if (value->n != TERN_JSON_FRACTION && tern_json_whole(value, &whole, &is_negative) &&
            (is_negative || whole <= INT64_MAX))
            return take_number(out, TERN_METADATA_INT, (int64_t)whole, value->number);
        return take_number(out, TERN_METADATA_FLOAT, 0, value->number);
    case TERN_JSON_ARRAY:
        out->kind = TERN_METADATA_ARRAY;
        out->n = value->n;
        return true;
    case TERN_JSON_NULL:
    case TERN_JSON_OBJECT: break;
    }
    return false;
}

static bool take_key(tern_metadata *out, const tern_model_key *key) {
    out->key = key->name;
    return take_json(out, key->value);
}

static const tern_model_key *find_key(const tern_model *m, const char *name) {
    for (size_t i = 0; i < m->n_keys; i++)
        if (!strcmp(m->keys[i].name, name)) return &m->keys[i];
    return NULL;
}

// ---- What the program asks ---------------------------------------------------------------------

size_t tern_model_n_metadata(const tern_model *m) {
    return !m ? 0 : m->file->kind == TERN_FILE_GGUF ? m->file->n_metas : m->n_keys;
}

bool tern_model_metadata_at(const tern_model *m, size_t i, tern_metadata *out) {
    if (out) *out = (tern_metadata){0};
    if (!m || !out || i >= tern_model_n_metadata(m)) return false;
    return m->file->kind == TERN_FILE_GGUF ? take_meta(out, &m->file->metas[i])
                                           : take_key(out, &m->keys[i]);
}

bool tern_model_metadata(const tern_model *m, const char *key, tern_metadata *out) {
    if (out) *out = (tern_metadata){0};
    if (!m || !key || !out) return false;
    const tern_meta *meta = tern_file_meta(m->file, key);
    const tern_model_key *found = meta ? NULL : find_key(m, key);
    return meta ? take_meta(out, meta) : found && take_key(out, found);
}

static bool take_meta_element(tern_metadata *out, const tern_meta *meta, size_t i) {
    if (meta->type != TERN_META_ARRAY || i >= meta->n) return false;
    if (meta->strings) return take_text(out, meta->strings[i]);
    return take_meta_number(out, tern_meta_number_at(meta, i));
}

static bool take_json_element(const tern_model *m, tern_metadata *out, const tern_json *list,
                              size_t i) {
    const tern_json_doc *doc = &m->file->config;
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return false;
    const tern_json *item = tern_json_first(doc, list);
    for (; item && i > 0; i--) item = tern_json_next(doc, list, item);
    return item && !tern_json_is(item, TERN_JSON_ARRAY) && take_json(out, item);
}

bool tern_model_metadata_element(const tern_model *m, const char *key, size_t i,
                                 tern_metadata *out) {
    if (out) *out = (tern_metadata){0};
    if (!m || !key || !out) return false;
    const tern_meta *meta = tern_file_meta(m->file, key);
    const tern_model_key *found = meta ? NULL : find_key(m, key);
    bool ok = meta ? take_meta_element(out, meta, i)
                   : found && take_json_element(m, out, found->value, i);
    if (ok) out->key = meta ? meta->key : found->name;
    if (!ok) *out = (tern_metadata){0};
    return ok;
}
