#include "apps/serve/request/answer_forms.h"

#include <stdio.h>
#include <string.h>
#include "apps/serve/request/long_text.h"
#include "base/alloc.h"
#include "base/json/json_write.h"

shared_grammar *format_open(const served *s, const format_wanted *w, api_error *e) {
    tern_error err = {0};
    shared_grammar *g = NULL;
    const tern_status status = shared_grammar_open(&g, s, w, &err);
    if (status == TERN_OK) return g;
    bool is_asked = status == TERN_ERR_UNSUPPORTED || status == TERN_ERR_FORMAT;
    const bool is_of_tool = w->tools.len && !strncmp(err.message, "the tool", 8);
    const bool is_grammar = strstr(err.message, "/x-grammar: ") != NULL;
    if (is_asked)
        api_fail(e, 400, is_grammar ? "unsupported_grammar" : "unsupported_schema",
                 is_of_tool ? "tools" : w->param, "%s", err.message);
    else
        api_fail_status(e, &err, w->param);
    return NULL;
}

// ---- Reading -----------------------------------------------------------------------------------

// Takes ownership of the text.
static void want(request *req, format_wanted *w, api_error *e) {
    generation *a = req->generation;
    if (e->status) {
        tern_strbuf_free(&w->text);
        return;
    }
    if (w->text.failed)
        api_fail_memory(e);
    else if (a->format.param)
        api_fail(e, 400, NULL, w->param, "'%s' is not the only form that is asked for", w->param);
    tern_strbuf_free(&a->format.text);
    a->format = *w;
}

static const tern_strbuf *callable(const generation *a) {
    return a->allowed.len ? &a->allowed : &a->tools;
}

// Required calls are constrained from the start; optional ones follow their tools' schemas from
// their opening mark on.
static void want_calls(generation *a, api_error *e) {
    format_wanted *w = &a->format;
    w->kind = TERN_GRAMMAR_CALLS;
    w->param = a->must_call ? "tool_choice" : "tools";
    w->one_call = a->one_call || a->tool.len > 0;
    w->is_optional = !a->must_call;
    tern_strbuf_append(&w->text, callable(a)->ptr, callable(a)->len);
    tern_strbuf_append(&w->tool, tern_strbuf_text(&a->tool), a->tool.len);
    if (w->text.failed || w->tool.failed) api_fail_memory(e);
}

// Tools and a form: the model calls, or it answers in the form. If it must call, the form applies
// to the later answer, after the results.
static void want_both(generation *a, api_error *e) {
    format_wanted *w = &a->format;
    if (a->must_call) {
        tern_strbuf_free(&w->text);
        *w = (format_wanted){0};
        return;
    }
    w->one_call = a->one_call;
    tern_strbuf_append(&w->tools, callable(a)->ptr, callable(a)->len);
    if (w->tools.failed) api_fail_memory(e);
}

void generation_open_format(request *req, api_error *e) {
    generation *a = req->generation;
    format_wanted *w = &a->format;
    if (w->param && a->tools.len && !w->tools.len && !e->status) want_both(a, e);
    if (!w->param && a->tools.len && !e->status) want_calls(a, e);
    if (!w->param || e->status || req->server->stopping) return; // then all requests are refused
    const size_t room = sizeof w->prompt - 1, n = a->rendered.len;
    if (n) snprintf(w->prompt, sizeof w->prompt, "%s", a->rendered.ptr + (n > room ? n - room : 0));
    a->grammar = read_grammar(req, w, e);
    // An unsupported schema of a tool is ignored, unless the call is required or strict; a grammar
    // is not.
    bool is_unknown = e->code && !strcmp(e->code, "unsupported_schema");
    if (is_unknown && w->is_optional && !a->is_strict) *e = (api_error){0};
    a->params.grammar = shared_grammar_get(a->grammar);
}

static void want_value(request *req, const fields *f, const tern_json *v, tern_grammar_kind kind,
                       const char *param) {
    format_wanted w = {.kind = kind, .param = param};
    tern_json_writer writer = {.out = &w.text};
    if (tern_json_is(v, TERN_JSON_STRING))
        tern_strbuf_append(&w.text, v->text, v->n);
    else
        tern_json_put_value(&writer, NULL, f->doc, v);
    want(req, &w, f->error);
}

static void want_json(request *req, const fields *f, const char *param) {
    format_wanted w = {.kind = TERN_GRAMMAR_JSON_SCHEMA, .param = param};
    tern_strbuf_puts(&w.text, "{\"type\":\"object\"}");
    want(req, &w, f->error);
}

// A schema is an object, true or false, or a string with its JSON.
static void want_schema(request *req, const fields *f, const tern_json *v, const char *param) {
    if (tern_json_is(v, TERN_JSON_ARRAY) || tern_json_is(v, TERN_JSON_NUMBER)) {
        api_fail(f->error, 400, NULL, param, "'%s' must be a JSON Schema", param);
        return;
    }
    want_value(req, f, v, TERN_GRAMMAR_JSON_SCHEMA, param);
}

// The notation of rules: the first sign after a name is "::=" in GBNF, ":" in Lark's.
static tern_grammar_kind notation_of(const tern_json *v) {
    const tern_str text = tern_json_str(v);
    size_t at = 0;
    for (; at < text.len && strchr(" \t\r\n#/", text.ptr[at]); at++)
        if (text.ptr[at] == '#' || text.ptr[at] == '/')
            while (at + 1 < text.len && text.ptr[at] != '\n') at++;
    const char *sign = at < text.len ? memchr(text.ptr + at, ':', text.len - at) : NULL;
    const size_t left = sign ? (size_t)(text.ptr + text.len - sign) : 0;
    const bool is_gbnf = !sign || (left >= 3 && memcmp(sign, "::=", 3) == 0);
    return is_gbnf ? TERN_GRAMMAR_GBNF : TERN_GRAMMAR_LARK;
}

void generation_read_format(request *req, const fields *format, const char *name) {
    const tern_str type = field_text(format, "type");
    const bool is_chat = strcmp(name, "response_format") == 0;
    if (!type.ptr || tern_str_is(type, "text") || format->error->status) return;
    // In OpenAI's older interface the schema is a level deeper than in the newer one and in
    // llama-server.
    fields deeper = fields_within(format, "json_schema", "response_format.json_schema.");
    const tern_json *schema = field_any(deeper.object ? &deeper : format, "schema");
    const char *param = deeper.object ? "response_format.json_schema.schema"
                        : is_chat     ? "response_format.json_schema"
                                      : "text.format.schema";
    if (!strcmp(name, "output_config.format")) param = "output_config.format.schema";
    bool is_schema = tern_str_is(type, "json_schema");
    if (schema && (is_schema || tern_str_is(type, "json_object")))
        want_schema(req, format, schema, param);
    else if (is_schema)
        api_fail(format->error, 400, NULL, param, "'%s' is missing", param);
    else if (tern_str_is(type, "json_object"))
        want_json(req, format, name);
    else if (tern_str_is(type, "grammar") && field_any(format, "grammar"))
        want_value(req, format, field_any(format, "grammar"),
                   notation_of(field_any(format, "grammar")), name);
    else
        api_fail(format->error, 400, "unsupported_parameter", name,
                 "'%s' of type '%.*s' is not supported by this server", name,
                 type.len < 40 ? (int)type.len : 40, type.ptr);
}

// "choice": strings.
static void want_choices(request *req, const fields *f, const tern_json *v, const char *param) {
    bool ok = tern_json_is(v, TERN_JSON_ARRAY) && v->n > 0;
    for (const tern_json *e = ok ? tern_json_first(f->doc, v) : NULL; e && ok;
         e = tern_json_next(f->doc, v, e))
        ok = tern_json_is(e, TERN_JSON_STRING) && !memchr(e->text, 0, e->n);
    if (ok)
        want_value(req, f, v, TERN_GRAMMAR_CHOICES, param);
    else
        api_fail(f->error, 400, NULL, param, "'%s' must be a list of strings", param);
}

static void want_text(request *req, const fields *f, const tern_json *v, tern_grammar_kind kind,
                      const char *param) {
    if (tern_json_is(v, TERN_JSON_STRING))
        want_value(req, f, v, kind, param);
    else
        api_fail(f->error, 400, NULL, param, "'%s' must be a string", param);
}

// The four kinds under other names.
static void read_named(request *req, const fields *f, const char *const names[4],
                       const char *const params[4]) {
    for (int i = 0; i < 4; i++) {
        const tern_json *v = field_any(f, names[i]);
        bool is_empty = tern_json_is(v, TERN_JSON_STRING) && v->n == 0;
        if (!v || is_empty || f->error->status) continue;
        if (i == 0) want_schema(req, f, v, params[i]);
        if (i == 1) want_text(req, f, v, notation_of(v), params[i]);
        if (i == 2) want_text(req, f, v, TERN_GRAMMAR_REGEX, params[i]);
        if (i == 3) want_choices(req, f, v, params[i]);
    }
}

void generation_read_formats(request *req, const fields *f) {
    static const char *const llama[] = {"json_schema", "grammar", "regex", "choice"};
    static const char *const guided[] = {"guided_json", "guided_grammar", "guided_regex",
                                         "guided_choice"};
    static const char *const inner[] = {"json", "grammar", "regex", "choice"};
    static const char *const outer[] = {"structured_outputs.json", "structured_outputs.grammar",
                                        "structured_outputs.regex", "structured_outputs.choice"};
    fields format = fields_within(f, "response_format", "response_format.");
    fields structured = fields_within(f, "structured_outputs", "structured_outputs.");
    if (format.object) generation_read_format(req, &format, "response_format");
    read_named(req, f, llama, llama);
    read_named(req, f, guided, guided);
    if (structured.object) read_named(req, &structured, inner, outer);
}

void generation_read_ollama_format(request *req, const fields *f) {
    const tern_json *v = field_any(f, "format");
    bool is_text = tern_json_is(v, TERN_JSON_STRING);
    if (!v || (is_text && v->n == 0)) return;
    if (is_text && tern_str_is(tern_json_str(v), "json"))
        want_json(req, f, "format");
    else if (is_text || !tern_json_is(v, TERN_JSON_OBJECT))
        field_fail(f, "format", "\"json\", or a JSON Schema");
    else
        want_schema(req, f, v, "format");
}
