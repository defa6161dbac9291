// Tools of requests to /v1/responses. A model calls functions only. So a custom tool, whose input
// is a text, is offered as a function with that text; a namespace's functions with its name before
// theirs; and what a server would have to do itself is left out. Calls get their own form back.
#include <stdlib.h>
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "base/alloc.h"

// ---- Names -------------------------------------------------------------------------------------

// "files__read"; servers of MCP have names that end so already.
static const char *separator(tern_str space) {
    bool ends = space.len > 1 && !memcmp(space.ptr + space.len - 2, "__", 2);
    return space.len == 0 || ends ? "" : "__";
}

void put_tool_name(tern_str space, tern_str name, tern_strbuf *out) {
    tern_strbuf_append(out, space.ptr ? space.ptr : "", space.len);
    tern_strbuf_puts(out, separator(space));
    tern_strbuf_append(out, name.ptr ? name.ptr : "", name.len);
}

static bool is_name_of(tern_str full, tern_str space, tern_str name) {
    size_t n = strlen(separator(space));
    return full.len == space.len + n + name.len && full.len > 0 &&
           (!space.len || !memcmp(full.ptr, space.ptr, space.len)) &&
           !memcmp(full.ptr + space.len, separator(space), n) &&
           (!name.len || !memcmp(full.ptr + space.len + n, name.ptr, name.len));
}

// ---- Walking through them ----------------------------------------------------------------------

// Calls `each` for every tool, also within namespaces and among the input ("additional_tools").
typedef struct tool_walk {
    const tern_json_doc *doc;
    bool (*each)(struct tool_walk *w, tern_str space, const tern_json *tool); // false: enough
    void *user;
} tool_walk;

static tern_str text_of(const tern_json_doc *doc, const tern_json *object, const char *name) {
    return tern_json_str(tern_json_get(doc, object, name));
}

// In the older interface a tool is a level deeper. NULL: it is not.
static const tern_json *inner_of(const tern_json_doc *doc, const tern_json *tool) {
    const tern_json *function = tern_json_get(doc, tool, "function");
    return function ? function : tern_json_get(doc, tool, "custom");
}

static bool walk_list(tool_walk *w, tern_str space, const tern_json *list) {
    bool goes_on = true;
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return true;
    for (const tern_json *t = tern_json_first(w->doc, list); t && goes_on;
         t = tern_json_next(w->doc, list, t)) {
        bool is_space = tern_str_is(text_of(w->doc, t, "type"), "namespace");
        const tern_json *inner = is_space ? tern_json_get(w->doc, t, "tools") : NULL;
        if (!is_space || space.len) { // they are one level deep
            goes_on = w->each(w, space, t);
            continue;
        }
        const tern_str name = text_of(w->doc, t, "name");
        for (const tern_json *k =
                 tern_json_is(inner, TERN_JSON_ARRAY) ? tern_json_first(w->doc, inner) : NULL;
             k && goes_on; k = tern_json_next(w->doc, inner, k))
            goes_on = w->each(w, name, k);
    }
    return goes_on;
}

static void walk(tool_walk *w, const tern_json *body) {
    const tern_json *input = tern_json_get(w->doc, body, "input");
    if (!walk_list(w, (tern_str){NULL, 0}, tern_json_get(w->doc, body, "tools")) ||
        !tern_json_is(input, TERN_JSON_ARRAY))
        return;
    for (const tern_json *item = tern_json_first(w->doc, input); item;
         item = tern_json_next(w->doc, input, item))
        if (tern_str_is(text_of(w->doc, item, "type"), "additional_tools") &&
            !walk_list(w, (tern_str){NULL, 0}, tern_json_get(w->doc, item, "tools")))
            return;
}

// ---- Offering ----------------------------------------------------------------------------------

typedef struct offer {
    generation *a;
    const fields *f;
    tern_json_writer w;
    bool for_model, has_grammar;
} offer;

// The format of a custom tool, in either interface.
static const tern_json *format_of(const fields *f) {
    const tern_json *given = tern_json_get(f->doc, f->object, "format"),
                    *deeper = tern_json_get(f->doc, given, "grammar");
    return deeper ? deeper : given;
}

bool custom_has_grammar(const fields *f) {
    const tern_json *format = format_of(f);
    return text_of(f->doc, format, "definition").ptr &&
           !tern_str_is(text_of(f->doc, format, "syntax"), "regex");
}

static void put_description(tern_json_writer *w, tern_str said, tern_str rules) {
    tern_strbuf text = {0};
    tern_strbuf_append(&text, said.ptr ? said.ptr : "", said.len);
    if (rules.ptr) {
        tern_strbuf_puts(&text, text.len ? "\n\nThe input's grammar:\n" : "The input's grammar:\n");
        tern_strbuf_append(&text, rules.ptr, rules.len);
    }
    if (text.len) tern_json_put_bytes(w, "description", text.ptr, text.len);
    w->out->failed |= text.failed;
    tern_strbuf_free(&text);
}

// The whole input must match.
static void put_pattern(tern_json_writer *w, tern_str pattern) {
    tern_strbuf text = {0};
    tern_strbuf_puts(&text, "^(?:");
    tern_strbuf_append(&text, pattern.ptr, pattern.len);
    tern_strbuf_puts(&text, ")$");
    tern_json_put_bytes(w, "pattern", tern_strbuf_text(&text), text.len);
    w->out->failed |= text.failed;
    tern_strbuf_free(&text);
}

void put_custom_tool(tern_json_writer *w, const fields *f, bool for_model) {
    const tern_json *format = format_of(f);
    const tern_str said = text_of(f->doc, f->object, "description"),
                   how = text_of(f->doc, format, "syntax"),
                   rules = text_of(f->doc, format, "definition");
    const bool has_grammar = custom_has_grammar(f);
    put_description(w, said, has_grammar && for_model ? rules : (tern_str){NULL, 0});
    tern_json_open(w, "parameters", '{');
    tern_json_put_raw(w, "type", "\"object\",\"required\":[\"input\"]");
    tern_json_put_bool(w, "additionalProperties", false);
    tern_json_open(w, "properties", '{');
    tern_json_open(w, "input", '{');
    tern_json_put_text(w, "type", "string");
    if (rules.ptr && !has_grammar) put_pattern(w, rules);
    if (has_grammar && !for_model) {
        tern_json_open(w, "x-grammar", '{');
        tern_json_put_bytes(w, "syntax", how.ptr ? how.ptr : "", how.len);
        tern_json_put_bytes(w, "definition", rules.ptr, rules.len);
        tern_json_close(w, '}');
    }
    for (int i = 0; i < 3; i++) tern_json_close(w, '}');
}

static bool offer_tool(tool_walk *walk, tern_str space, const tern_json *tool) {
    offer *o = walk->user;
    const fields f = {o->f->doc, tool, "tools.", o->f->error};
    const tern_json *inner =
        tern_json_get(f.doc, tool, "function"); // as the older interface has it
    const tern_json *of = tern_json_is(inner, TERN_JSON_OBJECT) ? inner : tool;
    const tern_str type = field_text(&f, "type"), name = text_of(f.doc, of, "name");
    const bool is_custom = tern_str_is(type, "custom");
    if (!tern_json_is(tool, TERN_JSON_OBJECT)) field_fail(o->f, "tools", "an array of objects");
    if (type.ptr && !is_custom && !tern_str_is(type, "function")) {
        if (o->for_model) generation_leave_out(o->a, type);
        return !f.error->status;
    }
    if (!name.len || memchr(name.ptr, 0, name.len))
        field_fail(o->f, "tools", "an array of functions with names");
    if (f.error->status) return false;
    tern_strbuf full = {0};
    put_tool_name(space, name, &full);
    tern_json_open(&o->w, NULL, '{');
    tern_json_put_text(&o->w, "type", "function");
    tern_json_put_bytes(&o->w, "name", tern_strbuf_text(&full), full.len);
    o->w.out->failed |= full.failed;
    tern_strbuf_free(&full);
    if (is_custom) {
        put_custom_tool(&o->w, &f, o->for_model);
        o->has_grammar |= custom_has_grammar(&f);
    } else {
        for (const tern_json *key = tern_json_first(f.doc, of); key;
             key = tern_json_next(f.doc, of, key)) {
            const tern_str k = tern_json_str(key);
            if (!tern_str_is(k, "type") && !tern_str_is(k, "name"))
                tern_json_put_member(&o->w, k, f.doc, tern_json_value_of(f.doc, key));
        }
        o->a->is_strict |= tern_json_bool(tern_json_get(f.doc, of, "strict"), false);
    }
    tern_json_close(&o->w, '}');
    return true;
}

// ---- What may be called ------------------------------------------------------------------------

static int by_text(const void *a, const void *b) {
    const tern_str *x = a, *y = b;
    const size_t n = x->len < y->len ? x->len : y->len;
    const int order = n ? memcmp(x->ptr, y->ptr, n) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

// The names in a list of tools, sorted; *names is the caller's. They point into *room.
static size_t list_names(const fields *f, const tern_json *list, tern_str **names,
                         tern_strbuf *room) {
    size_t n = 0, at = 0;
    *names = tern_alloc_array(TERN_MEM_SESSION, list->n, sizeof **names);
    for (int pass = 0; pass < 2 && *names && !room->failed; pass++) {
        n = 0;
        for (const tern_json *t = tern_json_first(f->doc, list); t;
             t = tern_json_next(f->doc, list, t)) {
            const tern_json *inner = inner_of(f->doc, t);
            const tern_str type = text_of(f->doc, t, "type"),
                           space = text_of(f->doc, t, "namespace"),
                           name = text_of(f->doc, inner ? inner : t, "name");
            if (type.ptr && !tern_str_is(type, "function") && !tern_str_is(type, "custom"))
                continue; // it was left out
            const size_t length = space.len + strlen(separator(space)) + name.len;
            if (pass == 0)
                put_tool_name(space, name, room);
            else
                (*names)[n++] = (tern_str){room->ptr ? room->ptr + at : "", length}, at += length;
        }
    }
    if (!*names || room->failed) api_fail_memory(f->error);
    if (n) qsort(*names, n, sizeof **names, by_text);
    return n;
}

// Keeps the offered tools whose names are among these: calls are of them, while the model reads of
// all, so that the beginning of its prompt stays the same.
static void narrow(generation *a, const fields *f, const tern_str *names, size_t n) {
    tern_json_doc doc = {0};
    tern_strbuf all = a->allowed.len ? a->allowed : a->tools;
    if (a->allowed.len) a->allowed = (tern_strbuf){0};
    tern_json_writer w = {.out = &a->allowed};
    size_t n_kept = 0;
    if (tern_json_parse(&doc, tern_strbuf_text(&all), all.len, NULL) != TERN_OK) {
        if (all.ptr != a->tools.ptr) tern_strbuf_free(&all);
        api_fail_memory(f->error);
        return;
    }
    const tern_json *list = tern_json_root(&doc);
    tern_json_open(&w, NULL, '[');
    for (const tern_json *t = tern_json_first(&doc, list); t; t = tern_json_next(&doc, list, t)) {
        const tern_json *inner = tern_json_get(&doc, t, "function");
        const tern_str name = text_of(&doc, inner ? inner : t, "name");
        if (!n || !bsearch(&name, names, n, sizeof *names, by_text)) continue;
        tern_json_put_value(&w, NULL, &doc, t);
        n_kept++;
    }
    tern_json_close(&w, ']');
    tern_json_free(&doc);
    if (all.ptr != a->tools.ptr) tern_strbuf_free(&all);
    if (a->allowed.failed) api_fail_memory(f->error);
    if (n_kept < n)
        api_fail(f->error, 400, NULL, "tool_choice",
                 "'tool_choice' allows %zu tools, and 'tools' has %zu of them", n, n_kept);
}

bool read_allowed_tools(generation *a, const fields *f) {
    const tern_json *wish = field_any(f, "tool_choice");
    if (!tern_str_is(text_of(f->doc, wish, "type"), "allowed_tools")) return false;
    const tern_json *deeper = tern_json_get(f->doc, wish, "allowed_tools"); // the older interface
    const fields inner = {f->doc, deeper ? deeper : wish, "tool_choice.", f->error};
    const tern_json *list = field_array(&inner, "tools");
    const tern_str mode = field_text(&inner, "mode");
    tern_strbuf room = {0};
    tern_str *names = NULL;
    if (!list || !list->n) field_fail(&inner, "tools", "an array of tools");
    if (mode.ptr && !tern_str_is(mode, "auto") && !tern_str_is(mode, "required"))
        field_fail(&inner, "mode", "\"auto\" or \"required\"");
    if (f->error->status) return true;
    const size_t n = list_names(f, list, &names, &room);
    const bool has = a->tools.len > 0;
    if (!f->error->status && has) narrow(a, f, names, n);
    if (!f->error->status && !has && n)
        api_fail(f->error, 400, NULL, "tool_choice",
                 "'tool_choice' is only allowed when 'tools' are specified");
    a->must_call = tern_str_is(mode, "required") && n > 0;
    if (n == 0) tern_strbuf_clear(&a->tools); // only such as were left out
    if (n == 0) tern_strbuf_clear(&a->allowed);
    tern_free(names);
    tern_strbuf_free(&room);
    return true;
}

// All tools as a list; "" if there are none. Returns whether one has a grammar.
static bool offer_all(generation *a, const fields *f, bool for_model, tern_strbuf *out) {
    offer o = {a, f, {.out = out}, for_model, false};
    tool_walk w = {f->doc, offer_tool, &o};
    tern_json_open(&o.w, NULL, '[');
    const size_t n = out->len;
    if (!f->error->status) walk(&w, f->object);
    if (out->len == n)
        tern_strbuf_clear(out);
    else
        tern_json_close(&o.w, ']');
    if (out->failed) api_fail_memory(f->error);
    return o.has_grammar;
}

void responses_read_tools(request *req, const fields *f) {
    generation *a = req->generation;
    field_array(f, "tools");
    if (offer_all(a, f, true, &a->tools)) offer_all(a, f, false, &a->allowed);
    a->one_call = !field_bool(f, "parallel_tool_calls", true);
    openai_read_tool_choice(a, f);
}

// ---- Calls -------------------------------------------------------------------------------------

typedef struct search {
    tern_str full;
    called_tool *found;
} search;

static bool is_it(tool_walk *w, tern_str space, const tern_json *tool) {
    search *s = w->user;
    const tern_json *inner = inner_of(w->doc, tool);
    const tern_str type = text_of(w->doc, tool, "type"),
                   name = text_of(w->doc, inner ? inner : tool, "name");
    const bool is_custom = tern_str_is(type, "custom");
    if (type.ptr && !is_custom && !tern_str_is(type, "function")) return true;
    if (!is_name_of(s->full, space, name)) return true;
    s->found->is_custom = is_custom;
    s->found->space = space;
    s->found->name = name;
    return false;
}

// Looks once for each call: there may be many tools.
const called_tool *responses_called_tool(const request *req, answer_block *b) {
    search s = {{tern_strbuf_text(&b->name), b->name.len}, &b->tool};
    tool_walk w = {&req->body, is_it, &s};
    if (b->tool.is_known) return &b->tool;
    b->tool = (called_tool){.is_known = true, .name = s.full};
    walk(&w, tern_json_root(&req->body));
    return &b->tool;
}

// The text among the arguments: whatever the model calls it, unless there is one by its name.
void responses_put_input(const answer_block *b, tern_strbuf *out) {
    tern_json_doc doc = {0};
    const char *text = block_arguments(b);
    if (tern_json_parse(&doc, text, strlen(text), NULL) != TERN_OK) return; // it was cut
    const tern_json *root = tern_json_root(&doc);
    const tern_json *key =
        tern_json_is(root, TERN_JSON_OBJECT) ? tern_json_first(&doc, root) : NULL;
    tern_str input = text_of(&doc, root, "input");
    if (!input.ptr && key && root->n == 1) input = tern_json_str(tern_json_value_of(&doc, key));
    if (!input.ptr) input = (tern_str){text, strlen(text)};
    tern_strbuf_append(out, input.ptr, input.len);
    tern_json_free(&doc);
}
