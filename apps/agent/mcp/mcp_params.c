// Arguments of calls that are also sent as HTTP fields, so that proxies can route by them: with
// revision 2026-07-28's "x-mcp-header": "Region" in its schema a property is sent as
// "Mcp-Param-Region: ...".
#include <string.h>
#include <strings.h>
#include "apps/agent/mcp/mcp_client.h"
#include "base/alloc.h"

#define HEADER     "x-mcp-header"
#define PARAMS_MAX 64

// ---- What a schema says ------------------------------------------------------------------------

// A token of RFC 9110.
static bool is_token(tern_str s) {
    for (size_t i = 0; i < s.len; i++) {
        char l = (char)(s.ptr[i] | 32);
        bool is_plain = (l >= 'a' && l <= 'z') || (s.ptr[i] >= '0' && s.ptr[i] <= '9');
        if (!is_plain && (!s.ptr[i] || !strchr("!#$%&'*+-.^_`|~", s.ptr[i]))) return false;
    }
    return s.len > 0 && s.len <= 100;
}

static bool is_param_type(tern_str type) {
    return tern_str_is(type, "string") || tern_str_is(type, "integer") ||
           tern_str_is(type, "boolean");
}

// Also a list of types, which may include null.
static bool has_param_type(const tern_json_doc *doc, const tern_json *schema) {
    const tern_json *type = tern_json_get(doc, schema, "type");
    size_t n = 0;
    if (!tern_json_is(type, TERN_JSON_ARRAY)) return is_param_type(tern_json_str(type));
    for (const tern_json *e = tern_json_first(doc, type); e; e = tern_json_next(doc, type, e)) {
        if (tern_str_is(tern_json_str(e), "null")) continue;
        if (!is_param_type(tern_json_str(e))) return false;
        n++;
    }
    return n > 0;
}

static bool is_one_of(tern_str name, const char *const *list) {
    for (; *list; list++)
        if (tern_str_is(name, *list)) return true;
    return false;
}

// How many schemas at any depth in this one have the keyword.
static size_t count_words(const tern_json_doc *doc, const tern_json *v, bool is_schema) {
    static const char *const of_values[] = {"default", "const", "enum", "examples", NULL};
    static const char *const of_names[] = {"properties",       "patternProperties", "$defs",
                                           "dependentSchemas", "definitions",       NULL};
    size_t n = 0;
    if (tern_json_is(v, TERN_JSON_ARRAY))
        for (const tern_json *e = tern_json_first(doc, v); e; e = tern_json_next(doc, v, e))
            n += count_words(doc, e, true);
    if (!tern_json_is(v, TERN_JSON_OBJECT)) return n;
    for (const tern_json *key = tern_json_first(doc, v); key; key = tern_json_next(doc, v, key)) {
        tern_str name = tern_json_str(key);
        if (is_schema && tern_str_is(name, HEADER)) n++;
        if (is_schema && is_one_of(name, of_values)) continue;
        n += count_words(doc, tern_json_value_of(doc, key),
                         !is_schema || !is_one_of(name, of_names));
    }
    return n;
}

typedef struct finding {
    const tern_json_doc *doc, *given; // the schema's; the arguments', NULL: only check
    tern_str names[PARAMS_MAX];       // [n]
    size_t n;
    const char *why; // why it is invalid; NULL: valid
    tern_strbuf *out;
} finding;

static void put_field(finding *f, tern_str name, const tern_json *value) {
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    tern_str s = tern_json_str(value);
    uint64_t whole;
    bool is_negative;
    if (!value || tern_json_is(value, TERN_JSON_NULL)) return;
    if (s.ptr)
        tern_strbuf_append(&text, s.ptr, s.len);
    else if (tern_json_whole(value, &whole, &is_negative)) // 42, also for 42.0
        tern_strbuf_printf(&text, "%s%llu", is_negative ? "-" : "",
                           (unsigned long long)(is_negative ? 0 - whole : whole));
    else
        tern_json_put_value(&w, NULL, f->given, value);
    tern_strbuf_puts(f->out, "Mcp-Param-");
    tern_strbuf_append(f->out, name.ptr, name.len);
    tern_strbuf_puts(f->out, ": ");
    mcp_field_value((tern_str){tern_strbuf_text(&text), text.len}, f->out);
    tern_strbuf_putc(f->out, '\n');
    f->out->failed |= text.failed;
    tern_strbuf_free(&text);
}

static void take_param(finding *f, const tern_json *schema, const tern_json *word,
                       const tern_json *value) {
    tern_str name = tern_json_str(word);
    if (!is_token(name)) f->why = "its " HEADER " is not a field's name";
    if (!has_param_type(f->doc, schema)) f->why = "its " HEADER " is not of a simple type";
    for (size_t i = 0; i < f->n; i++)
        if (name.len == f->names[i].len && !strncasecmp(name.ptr, f->names[i].ptr, name.len))
            f->why = "two of its properties have the same " HEADER;
    if (f->n == PARAMS_MAX) f->why = "more than 64 of its properties have an " HEADER;
    if (f->why) return;
    f->names[f->n++] = name;
    if (f->given) put_field(f, name, value);
}

static const tern_json *find_member(const tern_json_doc *doc, const tern_json *object,
                                    tern_str name) {
    if (!doc || !tern_json_is(object, TERN_JSON_OBJECT)) return NULL;
    for (const tern_json *k = tern_json_first(doc, object); k; k = tern_json_next(doc, object, k))
        if (tern_str_eq(tern_json_str(k), name)) return tern_json_value_of(doc, k);
    return NULL;
}

// Properties and nested ones: the keyword is allowed nowhere else.
static void walk(finding *f, const tern_json *schema, const tern_json *object) {
    const tern_json *list = tern_json_get(f->doc, schema, "properties");
    if (!tern_json_is(list, TERN_JSON_OBJECT)) return;
    for (const tern_json *key = tern_json_first(f->doc, list); key && !f->why;
         key = tern_json_next(f->doc, list, key)) {
        const tern_json *inner = tern_json_value_of(f->doc, key);
        const tern_json *word = tern_json_get(f->doc, inner, HEADER);
        const tern_json *value = find_member(f->given, object, tern_json_str(key));
        if (word) take_param(f, inner, word, value);
        walk(f, inner, value);
    }
}

const char *mcp_params_check(const tern_json_doc *doc, const tern_json *schema) {
    finding f = {.doc = doc};
    walk(&f, schema, NULL);
    if (!f.why && f.n != count_words(doc, schema, true))
        f.why = "it has an " HEADER " outside of a property";
    return f.why;
}

tern_status mcp_params_put(const char *schema, const char *arguments, tern_strbuf *out,
                           tern_error *err) {
    tern_json_doc doc = {0}, given = {0};
    tern_status status = tern_json_parse(&doc, schema, strlen(schema), err);
    if (status == TERN_OK) status = tern_json_parse(&given, arguments, strlen(arguments), err);
    finding f = {.doc = &doc, .given = &given, .out = out};
    if (status == TERN_OK) walk(&f, tern_json_root(&doc), tern_json_root(&given));
    if (status == TERN_OK && out->failed) status = tern_fail_memory(err, out->len);
    tern_json_free(&doc);
    tern_json_free(&given);
    return status;
}
