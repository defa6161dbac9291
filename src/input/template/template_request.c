// Variables of a chat template: a client's request, converted to the form that templates need.
//
// Templates are written for transformers: contents are texts, arguments of calls are objects, and
// functions are wrapped. Clients send contents in parts, arguments as texts, and functions without
// parameters; most templates would fail or, worse, print these as they are.
#include "input/input.h"

#include <string.h>
#include "base/json/json.h"
#include "base/json/json_write.h"

typedef struct request {
    const tern_json_doc *doc;
    const tern_answer_style *style;
    tern_json_writer w;
    bool merges;        // puts system messages before the next user's text
    tern_strbuf system; // the text of these, so far
} request;

static void put_token(request *r, const char *name, const tern_tokenizer *tokenizer, int32_t id) {
    tern_str text = id >= 0 ? tern_tokenizer_text(tokenizer, id) : (tern_str){0};
    tern_json_put_bytes(&r->w, name, text.ptr ? text.ptr : "", text.len);
}

// ---- Calls --------------------------------------------------------------------------------------

static void put_python(tern_strbuf *out, const tern_json_doc *doc, const tern_json *value) {
    tern_json_writer w = {.out = out};
    const char *between = "";
    bool is_object = tern_json_is(value, TERN_JSON_OBJECT);
    if (tern_json_is(value, TERN_JSON_BOOL)) {
        tern_strbuf_puts(out, value->n ? "True" : "False");
    } else if (tern_json_is(value, TERN_JSON_NULL)) {
        tern_strbuf_puts(out, "None");
    } else if (is_object || tern_json_is(value, TERN_JSON_ARRAY)) {
        tern_strbuf_putc(out, is_object ? '{' : '[');
        for (const tern_json *at = tern_json_first(doc, value); at;
             at = tern_json_next(doc, value, at), between = ", ") {
            tern_strbuf_puts(out, between);
            if (is_object) tern_strbuf_json(out, at->text, at->n), tern_strbuf_puts(out, ": ");
            put_python(out, doc, is_object ? tern_json_value_of(doc, at) : at);
        }
        tern_strbuf_putc(out, is_object ? '}' : ']');
    } else {
        tern_json_put_value(&w, NULL, doc, value);
    }
}

static void put_python_call(tern_strbuf *out, tern_str name, const tern_json_doc *doc,
                            const tern_json *arguments) {
    const char *between = "";
    tern_strbuf_append(out, name.ptr, name.len);
    tern_strbuf_putc(out, '(');
    for (const tern_json *at =
             tern_json_is(arguments, TERN_JSON_OBJECT) ? tern_json_first(doc, arguments) : NULL;
         at; at = tern_json_next(doc, arguments, at), between = ", ") {
        tern_strbuf_puts(out, between);
        tern_strbuf_append(out, at->text, at->n);
        tern_strbuf_putc(out, '=');
        put_python(out, doc, tern_json_value_of(doc, at));
    }
    tern_strbuf_putc(out, ')');
}

static void put_json_call(tern_strbuf *out, tern_str name, const tern_json_doc *doc,
                          const tern_json *arguments) {
    tern_json_writer w = {.out = out};
    tern_json_open(&w, NULL, '{');
    tern_json_put_bytes(&w, "name", name.ptr, name.len);
    tern_json_put_value(&w, "arguments", doc, arguments);
    tern_json_close(&w, '}');
}

typedef void (*put_call_fn)(tern_strbuf *out, tern_str name, const tern_json_doc *doc,
                            const tern_json *arguments);

// The arguments; a text that is a JSON object becomes the object.
static const tern_json *arguments_of(const tern_json_doc *doc, const tern_json *function,
                                     tern_json_doc *own, const tern_json_doc **of) {
    const tern_json *value = tern_json_get(doc, function, "arguments");
    tern_str text = tern_json_str(value);
    *own = (tern_json_doc){0}, *of = doc;
    if (!text.ptr || tern_json_parse(own, text.ptr, text.len, NULL) != TERN_OK) return value;
    if (!tern_json_is(tern_json_root(own), TERN_JSON_OBJECT)) return value;
    return *of = own, tern_json_root(own);
}

static const tern_json *function_of(const tern_json_doc *doc, const tern_json *call) {
    const tern_json *function = tern_json_get(doc, call, "function");
    return tern_json_is(function, TERN_JSON_OBJECT) ? function : call;
}

// Writes calls as the model does, for a template that cannot render them.
static void write_calls(request *r, const tern_json *calls, tern_strbuf *out) {
    const tern_answer_style *style = r->style;
    bool is_python = style->body == TERN_CALLS_PYTHON;
    put_call_fn put = is_python ? put_python_call : put_json_call;
    const char *open = style->open ? style->open : "", *close = style->close ? style->close : "";
    const char *between = "";
    if (is_python) tern_strbuf_printf(out, "%s[", open);
    for (const tern_json *call = tern_json_first(r->doc, calls); call;
         call = tern_json_next(r->doc, calls, call), between = is_python ? ", " : "\n") {
        const tern_json *function = function_of(r->doc, call);
        tern_json_doc own;
        const tern_json_doc *of;
        const tern_json *arguments = arguments_of(r->doc, function, &own, &of);
        tern_strbuf_printf(out, "%s%s", between, is_python ? "" : open);
        put(out, tern_json_str(tern_json_get(r->doc, function, "name")), of, arguments);
        if (!is_python) tern_strbuf_puts(out, close);
        tern_json_free(&own);
    }
    if (is_python) tern_strbuf_printf(out, "]%s", close);
}

static void put_calls(request *r, const tern_json *calls) {
    tern_json_open(&r->w, "tool_calls", '[');
    for (const tern_json *call = tern_json_first(r->doc, calls); call;
         call = tern_json_next(r->doc, calls, call)) {
        const tern_json *function = function_of(r->doc, call);
        const tern_json *id = tern_json_get(r->doc, call, "id");
        tern_json_doc own;
        const tern_json_doc *of;
        tern_json_open(&r->w, NULL, '{');
        if (id) tern_json_put_value(&r->w, "id", r->doc, id);
        tern_json_put_text(&r->w, "type", "function");
        tern_json_open(&r->w, "function", '{');
        tern_json_put_value(&r->w, "name", r->doc, tern_json_get(r->doc, function, "name"));
        const tern_json *arguments = arguments_of(r->doc, function, &own, &of);
        tern_json_put_value(&r->w, "arguments", of, arguments);
        tern_json_free(&own);
        tern_json_close(&r->w, '}');
        tern_json_close(&r->w, '}');
    }
    tern_json_close(&r->w, ']');
}

// ---- Messages -----------------------------------------------------------------------------------

// The text of a content, or of its parts if all are texts. False: other parts; the content stays.
static bool read_content(request *r, const tern_json *content, tern_strbuf *out) {
    if (!tern_json_is(content, TERN_JSON_ARRAY)) {
        tern_str text = tern_json_str(content);
        tern_strbuf_append(out, text.ptr ? text.ptr : "", text.len);
        return !content || text.ptr || tern_json_is(content, TERN_JSON_NULL);
    }
    for (const tern_json *part = tern_json_first(r->doc, content); part;
         part = tern_json_next(r->doc, content, part)) {
        const tern_json *text = tern_json_get(r->doc, part, "text");
        tern_str s = tern_json_str(tern_json_is(part, TERN_JSON_STRING) ? part : text);
        if (!s.ptr) {
            tern_strbuf_clear(out);
            return false;
        }
        tern_strbuf_append(out, s.ptr, s.len);
    }
    return true;
}

// Writes parts, after the text of system messages.
static void put_parts(request *r, const tern_json *parts) {
    tern_json_open(&r->w, "content", '[');
    tern_json_open(&r->w, NULL, '{');
    tern_json_put_text(&r->w, "type", "text");
    tern_json_put_bytes(&r->w, "text", tern_strbuf_text(&r->system), r->system.len);
    tern_json_close(&r->w, '}');
    for (const tern_json *part = tern_json_first(r->doc, parts); part;
         part = tern_json_next(r->doc, parts, part))
        tern_json_put_value(&r->w, NULL, r->doc, part);
    tern_json_close(&r->w, ']');
}

static void put_message(request *r, const tern_json *message) {
    const tern_json *content = tern_json_get(r->doc, message, "content");
    const tern_json *calls = tern_json_get(r->doc, message, "tool_calls");
    tern_str role = tern_json_str(tern_json_get(r->doc, message, "role"));
    tern_strbuf text = {0};
    bool has_calls = tern_json_is(calls, TERN_JSON_ARRAY) && calls->n > 0;
    if (tern_str_is(role, "developer")) role = TERN_STR("system"); // OpenAI's newer word
    tern_json_open(&r->w, NULL, '{');
    tern_json_put_bytes(&r->w, "role", role.ptr ? role.ptr : "user", role.ptr ? role.len : 4);
    bool is_text = read_content(r, content, &text);
    if (has_calls && !r->style->renders_calls) write_calls(r, calls, &text);
    if (is_text && r->system.len) {
        tern_strbuf_append(&r->system, tern_strbuf_text(&text), text.len);
        tern_json_put_bytes(&r->w, "content", tern_strbuf_text(&r->system), r->system.len);
    } else if (is_text || text.len) {
        tern_json_put_bytes(&r->w, "content", tern_strbuf_text(&text), text.len);
    } else if (r->system.len) {
        put_parts(r, content);
    } else {
        tern_json_put_value(&r->w, "content", r->doc, content);
    }
    tern_strbuf_clear(&r->system);
    if (has_calls && r->style->renders_calls) put_calls(r, calls);
    for (const tern_json *key = tern_json_first(r->doc, message); key;
         key = tern_json_next(r->doc, message, key)) {
        tern_str name = tern_json_str(key);
        const tern_json *value = tern_json_value_of(r->doc, key);
        if (tern_str_is(name, "role") || tern_str_is(name, "content") ||
            tern_str_is(name, "tool_calls") || tern_json_is(value, TERN_JSON_NULL))
            continue;
        tern_json_put_member(&r->w, name, r->doc, value);
    }
    tern_json_close(&r->w, '}');
    r->w.out->failed |= text.failed;
    tern_strbuf_free(&text);
}

// System messages that no user's text follows become a user's message.
static void put_system(request *r) {
    if (r->system.len == 0) return;
    tern_json_open(&r->w, NULL, '{');
    tern_json_put_text(&r->w, "role", "user");
    tern_json_put_bytes(&r->w, "content", r->system.ptr, r->system.len - 2);
    tern_json_close(&r->w, '}');
    tern_strbuf_clear(&r->system);
}

static bool is_system(tern_str role) {
    return tern_str_is(role, "system") || tern_str_is(role, "developer");
}

// A message for templates without the role "system": its text becomes part of the user's, as in
// Gemma 3's template.
static void put_merged(request *r, const tern_json *message) {
    tern_str role = tern_json_str(tern_json_get(r->doc, message, "role"));
    if (is_system(role)) {
        if (read_content(r, tern_json_get(r->doc, message, "content"), &r->system))
            tern_strbuf_puts(&r->system, "\n\n");
        return;
    }
    if (role.ptr && !tern_str_is(role, "user")) put_system(r);
    put_message(r, message);
}

// Writes a function wrapped, and with parameters: an empty object if it has none.
static void put_tool(request *r, const tern_json *tool) {
    const tern_json *function = function_of(r->doc, tool);
    const tern_json *parameters = tern_json_get(r->doc, function, "parameters");
    tern_json_open(&r->w, NULL, '{');
    tern_json_put_text(&r->w, "type", "function");
    tern_json_open(&r->w, "function", '{');
    for (const tern_json *key = tern_json_first(r->doc, function); key;
         key = tern_json_next(r->doc, function, key)) {
        tern_str name = tern_json_str(key);
        bool is_empty =
            tern_str_is(name, "parameters") && !tern_json_is(parameters, TERN_JSON_OBJECT);
        if (!is_empty && !tern_str_is(name, "type") && !tern_str_is(name, "strict"))
            tern_json_put_member(&r->w, name, r->doc, tern_json_value_of(r->doc, key));
    }
    if (!tern_json_is(parameters, TERN_JSON_OBJECT))
        tern_json_put_raw(&r->w, "parameters", "{\"type\":\"object\",\"properties\":{}}");
    tern_json_close(&r->w, '}');
    tern_json_close(&r->w, '}');
}

static tern_status put_members(request *r, const tern_json *root, tern_error *err) {
    for (const tern_json *key = tern_json_first(r->doc, root); key;
         key = tern_json_next(r->doc, root, key)) {
        tern_str name = tern_json_str(key);
        const tern_json *value = tern_json_value_of(r->doc, key);
        bool is_messages = tern_str_is(name, "messages"), is_tools = tern_str_is(name, "tools");
        if (!is_messages && !is_tools) {
            tern_json_put_member(&r->w, name, r->doc, value);
            continue;
        }
        if (is_tools && (!value->n || tern_json_is(value, TERN_JSON_NULL))) continue;
        if (!tern_json_is(value, TERN_JSON_ARRAY))
            return tern_fail(err, TERN_ERR_ARGUMENT, "\"%s\" must be a list",
                             is_tools ? "tools" : "messages");
        if (is_tools && !r->style->takes_tools)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "the model's chat template takes no tools");
        tern_json_open(&r->w, is_tools ? "tools" : "messages", '[');
        for (const tern_json *at = tern_json_first(r->doc, value); at;
             at = tern_json_next(r->doc, value, at)) {
            if (!tern_json_is(at, TERN_JSON_OBJECT))
                return tern_fail(err, TERN_ERR_ARGUMENT, "\"%s\" must be a list of objects",
                                 is_tools ? "tools" : "messages");
            if (is_tools)
                put_tool(r, at);
            else if (r->merges)
                put_merged(r, at);
            else
                put_message(r, at);
        }
        if (is_messages) put_system(r);
        tern_json_close(&r->w, ']');
    }
    return TERN_OK;
}

static bool has_system(const tern_json_doc *doc) {
    const tern_json *messages = tern_json_get(doc, tern_json_root(doc), "messages");
    for (const tern_json *at = tern_json_first(doc, messages); at;
         at = tern_json_next(doc, messages, at)) {
        if (tern_json_is(at, TERN_JSON_OBJECT) &&
            is_system(tern_json_str(tern_json_get(doc, at, "role"))))
            return true;
    }
    return false;
}

static tern_status render_as(const tern_template *t, const tern_tokenizer *tokenizer,
                             const tern_json_doc *doc, bool merges, tern_strbuf *out,
                             tern_error *err) {
    const tern_json *root = tern_json_root(doc);
    tern_strbuf json = {0};
    request r = {doc, tern_template_answer_style(t), {.out = &json}, .merges = merges};
    tern_json_open(&r.w, NULL, '{');
    put_token(&r, "bos_token", tokenizer, tern_tokenizer_bos(tokenizer));
    put_token(&r, "eos_token", tokenizer, tern_tokenizer_eos(tokenizer));
    if (tern_template_thinking(t) != TERN_THINKING_AUTO &&
        !tern_json_get(doc, root, "enable_thinking"))
        tern_json_put_bool(&r.w, "enable_thinking", tern_template_thinking(t) == TERN_THINKING_ON);
    if (!tern_json_get(doc, root, "add_generation_prompt"))
        tern_json_put_bool(&r.w, "add_generation_prompt", true);
    tern_status status = put_members(&r, root, err);
    tern_json_close(&r.w, '}');
    json.failed |= r.system.failed;
    if (status == TERN_OK)
        status = json.failed ? tern_fail_memory(err, json.len)
                             : tern_template_render(t, json.ptr, json.len, out, err);
    tern_strbuf_free(&r.system);
    tern_strbuf_free(&json);
    return status;
}

// If a template refuses a system message, with raise_exception, the message is merged into the
// user's; if that fails, too, the first error is returned. After other failures, such as its
// budget, there is no second try.
static tern_status render(const tern_template *t, const tern_tokenizer *tokenizer,
                          const tern_json_doc *doc, tern_strbuf *out, tern_error *err) {
    tern_error why = {0};
    size_t n = out->len;
    if (!tern_json_is(tern_json_get(doc, tern_json_root(doc), "messages"), TERN_JSON_ARRAY))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "the request must be an object with a list \"messages\"");
    tern_status status = render_as(t, tokenizer, doc, false, out, &why);
    if (status == TERN_ERR_ARGUMENT && has_system(doc)) {
        out->len = n;
        tern_status merged = render_as(t, tokenizer, doc, true, out, NULL);
        if (merged == TERN_OK) return TERN_OK;
        out->len = n;
    }
    if (status != TERN_OK && err) *err = why;
    return status;
}

tern_status tern_template_chat_json(const tern_template *t, const tern_tokenizer *tokenizer,
                                    const char *text, size_t n_bytes, tern_strbuf *out,
                                    tern_error *err) {
    tern_json_doc doc = {0};
    tern_status status = tern_json_parse(&doc, text, n_bytes, err);
    if (status == TERN_OK)
        status = render(t, tokenizer, &doc, out, err);
    else
        tern_fail_prefix(err, status, "the request");
    tern_json_free(&doc);
    return status;
}

// A message with images becomes a list of parts, as templates of vision models expect.
static void write_message(tern_json_writer *w, const tern_message *m) {
    const char *text = m->content ? m->content : "";
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "role", m->role ? m->role : "user");
    if (m->n_images == 0) {
        tern_json_put_text(w, "content", text);
    } else {
        tern_json_open(w, "content", '[');
        for (size_t i = 0; i < m->n_images; i++) tern_json_put_raw(w, NULL, "{\"type\":\"image\"}");
        tern_json_open(w, NULL, '{');
        tern_json_put_text(w, "type", "text");
        tern_json_put_text(w, "text", text);
        tern_json_close(w, '}');
        tern_json_close(w, ']');
    }
    tern_json_close(w, '}');
}

tern_status tern_template_chat(const tern_template *t, const tern_tokenizer *tokenizer,
                               const tern_message *messages, size_t n_messages,
                               bool add_generation_prompt, tern_strbuf *out, tern_error *err) {
    tern_strbuf json = {0};
    tern_json_writer w = {.out = &json};
    tern_json_open(&w, NULL, '{');
    tern_json_put_bool(&w, "add_generation_prompt", add_generation_prompt);
    tern_json_open(&w, "messages", '[');
    for (size_t i = 0; i < n_messages; i++) write_message(&w, &messages[i]);
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    tern_status status = json.failed
                             ? tern_fail_memory(err, json.len)
                             : tern_template_chat_json(t, tokenizer, json.ptr, json.len, out, err);
    tern_strbuf_free(&json);
    return status;
}
