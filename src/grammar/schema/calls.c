// Calls of tools. A call is the function's name between marks of the family, and arguments: one
// JSON object, or parameters one by one with marks around each.
//
// Unless a schema says which other arguments may be given, none may: a call with names that the
// function does not have is useless.
#include "grammar/schema/calls.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/json/json_write.h"
#include "grammar/rules/pattern.h"
#include "grammar/schema/schema.h"

typedef struct maker {
    tern_rules *r;
    const tern_call_form *form;
    tern_json_doc doc;
    tern_term space;
    tern_error *err;
} maker;

typedef struct tool {
    tern_str name;
    const tern_json *schema; // NULL: no arguments
    size_t index;
} tool;

static tern_expr bytes(const maker *m, tern_str s) {
    return tern_expr_term(m->r, tern_term_text(m->r->terms, s.ptr ? s.ptr : "", s.len));
}
static tern_expr text(const maker *m, const char *s) { return bytes(m, (tern_str){s, strlen(s)}); }
static tern_expr space(const maker *m) { return tern_expr_term(m->r, m->space); }
static tern_expr maybe(const maker *m, const char *s) {
    return tern_expr_or(m->r, TERN_EXPR_EMPTY, text(m, s));
}
static tern_expr cat(const maker *m, const tern_expr *parts, size_t n) {
    tern_expr all = TERN_EXPR_EMPTY;
    while (n > 0) all = tern_expr_cat(m->r, parts[--n], all);
    return all;
}
#define CAT(m, ...)                                                                                \
    cat(m, (const tern_expr[]){__VA_ARGS__},                                                       \
        sizeof((const tern_expr[]){__VA_ARGS__}) / sizeof(tern_expr))

static const tern_json *get(const maker *m, const tern_json *of, const char *name) {
    return tern_json_get(&m->doc, of, name);
}

static tern_status fail(const maker *m, const tool *t, const char *what) {
    return tern_fail(m->err, TERN_ERR_UNSUPPORTED, "the tool '%.*s': %s",
                     t->name.len < 64 ? (int)t->name.len : 64, t->name.ptr, what);
}

// ---- Schemas ------------------------------------------------------------------------------------

// NULL: the schema is a plain list of properties; else a keyword that constrains the arguments
// otherwise.
static const char *what_else(const maker *m, const tern_json *schema) {
    static const char *const plain[] = {"type",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "description",
                                        "title",
                                        "$schema",
                                        "$defs",
                                        "definitions",
                                        "$id",
                                        "default",
                                        "examples",
                                        "$comment",
                                        "strict",
                                        "unevaluatedProperties"};
    for (const tern_json *k = schema ? tern_json_first(&m->doc, schema) : NULL; k;
         k = tern_json_next(&m->doc, schema, k)) {
        bool is_plain = false;
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
            is_plain |= tern_str_is(tern_json_str(k), plain[i]);
        if (!is_plain) return k->text;
    }
    return NULL;
}

static bool is_object(const maker *m, const tool *t) {
    const tern_json *type = get(m, t->schema, "type");
    return !t->schema || (tern_json_is(t->schema, TERN_JSON_OBJECT) &&
                          (!type || tern_str_is(tern_json_str(type), "object")));
}

// The schema of the arguments as JSON; a plain one that does not forbid others is closed.
static void put_schema(const maker *m, const tool *t, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    const bool closes = !what_else(m, t->schema) && !get(m, t->schema, "additionalProperties") &&
                        !get(m, t->schema, "unevaluatedProperties");
    tern_json_open(&w, NULL, '{');
    for (const tern_json *k = t->schema ? tern_json_first(&m->doc, t->schema) : NULL; k;
         k = tern_json_next(&m->doc, t->schema, k))
        tern_json_put_member(&w, tern_json_str(k), &m->doc, tern_json_value_of(&m->doc, k));
    if (!get(m, t->schema, "type")) tern_json_put_text(&w, "type", "object");
    if (closes) tern_json_put_bool(&w, "additionalProperties", false);
    tern_json_close(&w, '}');
}

static tern_status schema_expr(const maker *m, const tool *t, const tern_json_way *way,
                               tern_str member, tern_expr *out) {
    tern_strbuf schema = {0};
    if (!is_object(m, t)) return fail(m, t, "its parameters must be a schema of an object");
    put_schema(m, t, &schema);
    tern_status status = schema.failed ? tern_fail_memory(m->err, schema.len)
                                       : tern_schema_expr(m->r, (tern_str){schema.ptr, schema.len},
                                                          way, member, out, m->err);
    tern_strbuf_free(&schema);
    if (status == TERN_OK && *out == TERN_EXPR_NOTHING) { // also if memory ran out
        if (m->r->failed) return tern_fail_memory(m->err, sizeof *m->r->exprs);
        TERN_TRY(tern_terms_check(m->r->terms, m->err));
        return fail(m, t, "no arguments satisfy its schema");
    }
    if (status == TERN_OK) return TERN_OK;
    char name[80];
    snprintf(name, sizeof name, "the tool '%.*s'", t->name.len < 60 ? (int)t->name.len : 60,
             t->name.ptr);
    return tern_fail_prefix(m->err, status, name);
}

// ---- Parameters one by one ----------------------------------------------------------------------

// One parameter, with the family's marks around it.
static tern_status parameter(const maker *m, const tool *t, const tern_json *key, tern_expr *out) {
    const tern_str name = tern_json_str(key);
    const tern_json *schema = tern_json_value_of(&m->doc, key);
    tern_json_way way = {.compact = false};
    tern_expr value;
    if (m->form->body == TERN_CALLS_TAGS) {
        // A text is written between the marks as it is; other values are JSON.
        const bool is_text = tern_str_is(tern_json_str(get(m, schema, "type")), "string");
        if (is_text)
            way = (tern_json_way){.quote = TERN_STR("\n"),
                                  .unquote = TERN_STR("\n</parameter>\n"),
                                  .forbidden = TERN_STR("</parameter>")};
        TERN_TRY(schema_expr(m, t, &way, name, &value));
        tern_expr begin = CAT(m, text(m, "<parameter="), bytes(m, name), text(m, ">"));
        *out = is_text ? tern_expr_cat(m->r, begin, value)
                       : CAT(m, begin, text(m, "\n"), value, text(m, "\n</parameter>\n"));
        return TERN_OK;
    }
    const bool is_python = m->form->body == TERN_CALLS_PYTHON;
    if (is_python)
        way.is_python = true;
    else
        way = (tern_json_way){.compact = true,
                              .quote = m->form->quote,
                              .unquote = m->form->quote,
                              .forbidden = m->form->forbidden};
    TERN_TRY(schema_expr(m, t, &way, name, &value));
    *out = CAT(m, bytes(m, name), text(m, is_python ? "=" : ":"), value);
    return TERN_OK;
}

static bool is_required(const maker *m, const tool *t, tern_str name) {
    const tern_json *list = get(m, t->schema, "required");
    bool found = false;
    for (const tern_json *e = list ? tern_json_first(&m->doc, list) : NULL; e;
         e = tern_json_next(&m->doc, list, e))
        found |= tern_str_eq(tern_json_str(e), name);
    return found;
}

// All parameters in their order; those that are not required may be left out.
static tern_status parameters(const maker *m, const tool *t, tern_expr *out) {
    const tern_json *map = get(m, t->schema, "properties");
    const char *odd = what_else(m, t->schema);
    const size_t n = tern_json_is(map, TERN_JSON_OBJECT) ? map->n : 0;
    if (odd) return fail(m, t, "its parameters are more than a list of properties");
    const tern_json **keys = tern_alloc_array(TERN_MEM_SESSION, n + 1, sizeof *keys);
    if (!keys) return tern_fail_memory(m->err, n * sizeof *keys);
    size_t at = 0;
    for (const tern_json *k = n ? tern_json_first(&m->doc, map) : NULL; k;
         k = tern_json_next(&m->doc, map, k))
        keys[at++] = k;
    // What may follow before the first one is written, and after.
    tern_expr first = TERN_EXPR_EMPTY, more = TERN_EXPR_EMPTY, one = TERN_EXPR_EMPTY;
    const char *comma = m->form->body == TERN_CALLS_TAGS     ? ""
                        : m->form->body == TERN_CALLS_PYTHON ? ", "
                                                             : ",";
    tern_status status = TERN_OK;
    while (at > 0 && status == TERN_OK) {
        const tern_json *k = keys[--at];
        const bool needed = is_required(m, t, tern_json_str(k));
        status = parameter(m, t, k, &one);
        one = tern_expr_cat(m->r, one, more);
        tern_expr then = tern_expr_cat(m->r, text(m, comma), one);
        first = needed ? one : tern_expr_or(m->r, first, one);
        more = needed ? then : tern_expr_or(m->r, more, then);
        if (at % 16 == 15) {
            first = tern_expr_rule(m->r, first);
            more = tern_expr_rule(m->r, more);
        }
    }
    tern_free(keys);
    *out = first;
    return status;
}

// ---- Calls --------------------------------------------------------------------------------------

static tern_status one_call(const maker *m, const tool *t, tern_expr *out) {
    const tern_json_way json = {.compact = false};
    const tern_call_form *f = m->form;
    const tern_expr name = bytes(m, t->name);
    tern_expr args = TERN_EXPR_EMPTY;
    if (f->body == TERN_CALLS_JSON || f->body == TERN_CALLS_NAMED)
        TERN_TRY(schema_expr(m, t, &json, (tern_str){0}, &args));
    else
        TERN_TRY(parameters(m, t, &args));
    if (f->body == TERN_CALLS_JSON || f->is_list) {
        tern_term spelled =
            tern_term_spelled(m->r->terms, t->name.ptr, t->name.len, TERN_SPELL_JSON);
        tern_expr colon = tern_expr_cat(m->r, text(m, ":"), maybe(m, " "));
        tern_expr type = CAT(m, text(m, "\"type\""), colon, text(m, "\"function\","), space(m));
        // Some answers of Llama 3 have it; where a call is forced, it may be left out.
        type =
            f->is_bare && f->is_open ? tern_expr_or(m->r, TERN_EXPR_EMPTY, type) : TERN_EXPR_EMPTY;
        *out = CAT(m, text(m, "{"), space(m), type, text(m, "\"name\""), colon, text(m, "\""),
                   tern_expr_term(m->r, spelled), text(m, "\","), space(m),
                   text(m, f->is_bare ? "\"parameters\"" : "\"arguments\""), colon, args, space(m),
                   text(m, "}"));
    } else if (f->body == TERN_CALLS_NAMED) {
        *out = CAT(m, name, bytes(m, f->args), args);
    } else if (f->body == TERN_CALLS_TAGS) {
        *out = CAT(m, text(m, "<function="), name, text(m, ">\n"), args, text(m, "</function>"));
    } else if (f->body == TERN_CALLS_PYTHON) {
        *out = CAT(m, name, text(m, "("), args, text(m, ")"));
    } else {
        *out = CAT(m, name, text(m, "{"), args, text(m, "}"));
    }
    return TERN_OK;
}

// A call of any of the tools.
static tern_status any_call(maker *m, tern_expr *out) {
    const tern_json *list = tern_json_root(&m->doc);
    tool t = {.index = 0};
    *out = TERN_EXPR_NOTHING;
    if (!tern_json_is(list, TERN_JSON_ARRAY))
        return tern_fail(m->err, TERN_ERR_ARGUMENT, "the tools must be a JSON array");
    for (const tern_json *e = tern_json_first(&m->doc, list); e;
         e = tern_json_next(&m->doc, list, e), t.index++) {
        const tern_json *function = get(m, e, "function");
        if (!function) function = e; // not wrapped
        t.name = tern_json_str(get(m, function, "name"));
        t.schema = get(m, function, "parameters");
        if (tern_json_is(t.schema, TERN_JSON_NULL)) t.schema = NULL;
        tern_expr call;
        if (!t.name.len) return tern_fail(m->err, TERN_ERR_ARGUMENT, "a tool without a name");
        if (m->form->only.len && !tern_str_eq(t.name, m->form->only)) continue;
        TERN_TRY(one_call(m, &t, &call));
        *out = tern_expr_or(m->r, *out, call);
    }
    if (m->r->failed) return tern_fail_memory(m->err, sizeof *m->r->exprs);
    TERN_TRY(tern_terms_check(m->r->terms, m->err));
    if (*out != TERN_EXPR_NOTHING) return TERN_OK;
    if (m->form->only.len)
        return tern_fail(m->err, TERN_ERR_ARGUMENT, "no tool is called '%.*s'",
                         (int)m->form->only.len, m->form->only.ptr);
    return tern_fail(m->err, TERN_ERR_ARGUMENT, "there are no tools");
}

// a, or several of them with `between` in between.
static tern_expr several(const maker *m, tern_expr a, tern_expr between) {
    if (m->form->one_call) return a;
    tern_expr more = tern_expr_loop(m->r, tern_expr_cat(m->r, between, a));
    return tern_expr_cat(m->r, a, more);
}

static tern_expr all_calls(const maker *m, tern_expr call) {
    const tern_call_form *f = m->form;
    const bool is_json = f->body == TERN_CALLS_JSON, is_python = f->body == TERN_CALLS_PYTHON;
    tern_expr open = bytes(m, f->open), close = bytes(m, f->close), body = call;
    // The text after a call that had begun is free: a token may hold the call's end and more.
    tern_expr rest = tern_expr_term(m->r, f->is_open ? TERN_TERM_ALL : TERN_TERM_EMPTY);
    if (f->is_bare) return tern_expr_cat(m->r, several(m, call, text(m, "; ")), rest);
    if (f->is_list || is_python) {
        body = CAT(m, text(m, "["), several(m, call, text(m, ", ")), text(m, "]"));
        body = tern_expr_cat(m->r, body, close);
        if (!is_python) body = tern_expr_cat(m->r, maybe(m, " "), body);
        return f->is_open ? tern_expr_cat(m->r, body, rest) : tern_expr_cat(m->r, open, body);
    }
    if (is_json || f->body == TERN_CALLS_TAGS) // on lines of their own
        body = CAT(m, maybe(m, "\n"), call, maybe(m, "\n"));
    body = tern_expr_cat(m->r, body, close);
    if (f->is_open) return tern_expr_cat(m->r, body, rest);
    return several(m, tern_expr_cat(m->r, open, body), maybe(m, "\n"));
}

tern_status tern_calls_expr(tern_rules *r, tern_str tools, const tern_call_form *form,
                            tern_expr *root, tern_error *err) {
    static const char usual[] = "(?: |\\n[ \\t]{0,40})?";
    maker m = {.r = r, .form = form, .err = err};
    tern_expr call;
    if (!form || form->body == TERN_CALLS_NONE)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "the model has no way to call tools");
    TERN_TRY(tern_pattern_term(r->terms, usual, sizeof usual - 1,
                               (tern_pattern_way){.spelling = TERN_SPELL_UTF8}, &m.space, err));
    tern_status status = tern_json_parse(&m.doc, tools.ptr, tools.len, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, "the tools");
    status = any_call(&m, &call);
    if (status == TERN_OK) *root = all_calls(&m, call);
    tern_json_free(&m.doc);
    return status;
}
