// Reading arguments: see web_args.h.
#include "web_args.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"

#define COUNT_MAX 0x1p53 // whole numbers beyond it are not exact in JSON

static tern_status refuse(tern_error *err, const char *what, tern_str name, const char *wanted) {
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s: \"%.*s\" must be %s", what,
                     name.len < 60 ? (int)name.len : 60, name.ptr, wanted);
}

// A terminated copy that lives as long as args.
static tern_status keep_string(web_args *args, const char *what, tern_str name, tern_str text,
                               const char **out, tern_error *err) {
    if (memchr(text.ptr ? text.ptr : "", 0, text.len))
        return refuse(err, what, name, "text without zero bytes");
    if (tern_array_reserve(TERN_MEM_MISC, &args->strings, &args->capacity, args->n_strings, 1) != 0)
        return tern_fail_memory(err, sizeof *args->strings);
    char *copy = tern_strndup(TERN_MEM_MISC, text.ptr, text.len);
    if (!copy) return tern_fail_memory(err, text.len);
    args->strings[args->n_strings++] = copy;
    *out = copy;
    return TERN_OK;
}

// ---- One value --------------------------------------------------------------------------------

static tern_status read_number(const web_field *f, const char *what, tern_str name,
                               const tern_json *value, tern_error *err) {
    double v = tern_json_number(value, 0);
    bool whole = f->kind != WEB_NUMBER;
    double min = f->kind == WEB_COUNT ? 0 : f->min;
    double max = f->kind == WEB_COUNT ? COUNT_MAX : f->max;
    if (!tern_json_is(value, TERN_JSON_NUMBER))
        return refuse(err, what, name, whole ? "a whole number" : "a number");
    if (!(v >= min && v <= max) || (whole && v != (double)(int64_t)v))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: \"%s\" must be a %snumber from %.15g to %.15g", what, f->name,
                         whole ? "whole " : "", min, max);
    if (f->kind == WEB_INT)
        *(int32_t *)f->to = (int32_t)v;
    else if (f->kind == WEB_COUNT)
        *(uint64_t *)f->to = (uint64_t)v;
    else
        *(float *)f->to = (float)v;
    return TERN_OK;
}

static tern_status read_choice(const web_field *f, const char *what, tern_str name,
                               const tern_json *value, tern_error *err) {
    tern_str text = tern_json_str(value);
    int32_t i = 0;
    for (const char *word = f->words; *word; i++) {
        size_t n = strcspn(word, " ");
        if (text.ptr && tern_str_eq(text, (tern_str){word, n})) {
            *(int32_t *)f->to = i;
            return TERN_OK;
        }
        word += n + (word[n] == ' ');
    }
    char wanted[160];
    snprintf(wanted, sizeof wanted, "one of: %s", f->words);
    return refuse(err, what, name, wanted);
}

static tern_status read_value(web_args *args, const web_field *f, const char *what, tern_str name,
                              const tern_json *value, tern_error *err) {
    if (tern_json_is(value, TERN_JSON_NULL)) return TERN_OK;
    switch (f->kind) {
    case WEB_STRING:
    case WEB_TEXT:
        if (!tern_json_is(value, TERN_JSON_STRING)) return refuse(err, what, name, "text");
        if (f->kind == WEB_STRING)
            return keep_string(args, what, name, tern_json_str(value), f->to, err);
        *(tern_str *)f->to = tern_json_str(value);
        return TERN_OK;
    case WEB_BOOL:
        if (!tern_json_is(value, TERN_JSON_BOOL)) return refuse(err, what, name, "true or false");
        *(bool *)f->to = tern_json_bool(value, false);
        return TERN_OK;
    case WEB_INT:
    case WEB_COUNT:
    case WEB_NUMBER: return read_number(f, what, name, value, err);
    case WEB_CHOICE: return read_choice(f, what, name, value, err);
    case WEB_ARRAY:
        if (!tern_json_is(value, TERN_JSON_ARRAY)) return refuse(err, what, name, "an array");
        *(const tern_json **)f->to = value;
        return TERN_OK;
    }
    return TERN_OK;
}

// ---- Objects ----------------------------------------------------------------------------------

static const web_field *find_field(const web_field *fields, size_t n_fields, tern_str name) {
    for (size_t i = 0; i < n_fields; i++)
        if (tern_str_is(name, fields[i].name)) return &fields[i];
    return NULL;
}

tern_status web_args_object(web_args *args, const char *what, const tern_json *object,
                            const web_field *fields, size_t n_fields, tern_error *err) {
    if (!tern_json_is(object, TERN_JSON_OBJECT))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: an object is needed", what);
    for (const tern_json *key = tern_json_first(&args->doc, object); key;
         key = tern_json_next(&args->doc, object, key)) {
        tern_str name = tern_json_str(key);
        const web_field *f = find_field(fields, n_fields, name);
        if (!f)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there is no \"%.*s\"", what,
                             name.len < 60 ? (int)name.len : 60, name.ptr);
        TERN_TRY(read_value(args, f, what, name, tern_json_value_of(&args->doc, key), err));
    }
    return TERN_OK;
}

tern_status web_args_read(web_args *args, const char *what, const char *json, size_t n,
                          const web_field *fields, size_t n_fields, tern_error *err) {
    *args = (web_args){0};
    if (n == 0) return TERN_OK;
    tern_status status = tern_json_parse(&args->doc, json, n, err);
    if (status != TERN_OK)
        return tern_fail_prefix(err, status == TERN_ERR_MEMORY ? status : TERN_ERR_ARGUMENT, what);
    return web_args_object(args, what, tern_json_root(&args->doc), fields, n_fields, err);
}

void web_args_free(web_args *args) {
    for (size_t i = 0; i < args->n_strings; i++) tern_free(args->strings[i]);
    tern_free(args->strings);
    tern_json_free(&args->doc);
    *args = (web_args){0};
}

// ---- Arrays -----------------------------------------------------------------------------------

tern_status web_args_ids(const web_args *args, const char *what, const tern_json *array,
                         int32_t **ids, size_t *n_ids, tern_error *err) {
    size_t n = 0;
    *n_ids = 0;
    *ids = tern_alloc_array(TERN_MEM_MISC, array->n, sizeof **ids);
    if (!*ids) return tern_fail_memory(err, array->n * sizeof **ids);
    for (const tern_json *item = tern_json_first(&args->doc, array); item;
         item = tern_json_next(&args->doc, array, item)) {
        int64_t id = tern_json_int(item, -1);
        if (id < 0 || id > INT32_MAX) {
            tern_free(*ids);
            *ids = NULL;
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: \"ids\"[%zu] is not a token's id", what,
                             n);
        }
        (*ids)[n++] = (int32_t)id;
    }
    *n_ids = n;
    return TERN_OK;
}

tern_status web_args_strings(web_args *args, const char *what, const char *name,
                             const tern_json *array, const char *const **texts, tern_error *err) {
    size_t first = args->n_strings;
    const char *ignored;
    *texts = NULL;
    for (const tern_json *item = tern_json_first(&args->doc, array); item;
         item = tern_json_next(&args->doc, array, item)) {
        if (!tern_json_is(item, TERN_JSON_STRING))
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: \"%s\" must be texts", what, name);
        const tern_str of = {name, strlen(name)};
        TERN_TRY(keep_string(args, what, of, tern_json_str(item), &ignored, err));
    }
    // A copy of the pointers: the list grows when further texts are kept.
    size_t n = args->n_strings - first;
    const char **copy = tern_alloc_array(TERN_MEM_MISC, n, sizeof *copy);
    if (!copy || tern_array_reserve(TERN_MEM_MISC, &args->strings, &args->capacity, args->n_strings,
                                    1) != 0) {
        tern_free(copy);
        return tern_fail_memory(err, n * sizeof *copy);
    }
    if (n) memcpy(copy, args->strings + first, n * sizeof *copy);
    args->strings[args->n_strings++] = (char *)copy;
    *texts = copy;
    return TERN_OK;
}
