// Reads a request to /v1/responses: items and tools into messages and the generation.
#include <string.h>
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/cache/item_store.h"

static void read_format(request *req, const fields *f) {
    fields text = fields_within(f, "text", "text.");
    fields format = fields_within(&text, "format", "text.format.");
    generation_read_formats(req, f);
    if (format.object) generation_read_format(req, &format, "text.format");
}

static void refuse_unsupported(const fields *f) {
    // No responses are stored: an error is better than silently dropping the earlier turns.
    static const char *const names[] = {"previous_response_id", "conversation", "prompt",
                                        "background",           "logit_bias",   "stop"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) field_refuse(f, names[i]);
    field_int(f, "n", 1, 1, 1);
    openai_refuse_unsupported(f);
}

// What this or another server's model thought before it answered or called: templates show it
// where it matters. What is encrypted is another server's, and dropped.
static bool read_reasoning(const fields *f, tern_str type, messages *m) {
    if (!tern_str_is(type, "reasoning")) return false;
    const tern_json *parts = field_any(f, "content");
    if (!tern_json_is(parts, TERN_JSON_ARRAY) || !parts->n) parts = field_any(f, "summary");
    if (!tern_json_is(parts, TERN_JSON_ARRAY)) return true;
    for (const tern_json *p = tern_json_first(f->doc, parts); p;
         p = tern_json_next(f->doc, parts, p)) {
        const tern_str text = tern_json_str(tern_json_get(f->doc, p, "text"));
        if (!text.len) continue;
        if (m->reasoning.len) tern_strbuf_puts(&m->reasoning, "\n\n");
        tern_strbuf_append(&m->reasoning, text.ptr, text.len);
    }
    if (m->reasoning.failed) api_fail_memory(f->error);
    return true;
}

// To the message that was added last, if it is the assistant's.
static void place_reasoning(messages *m) {
    tern_strbuf *r = &m->reasoning;
    if (!r->len) return;
    if (!strcmp(m->list[m->n - 1].role, "assistant")) {
        tern_json_writer w = messages_more(m);
        tern_json_put_bytes(&w, "reasoning_content", r->ptr, r->len);
    }
    tern_strbuf_clear(r);
}

// Calls are separate items here; for templates those of a turn belong to one message.
static void add_call(const fields *f, messages *m, tern_str name, tern_str id, tern_str arguments) {
    if (!name.len) field_fail(f, "name", "given");
    chat_message *last = m->n ? &m->list[m->n - 1] : NULL;
    bool joins = last && !strcmp(last->role, "assistant") && !m->reasoning.len;
    if (!joins && !messages_add(m, TERN_STR("assistant"), (tern_str){"", 0}, "input", f->error))
        return;
    place_reasoning(m);
    tern_strbuf *more = &m->list[m->n - 1].more;
    tern_json_writer w = {.out = more};
    const bool is_further = more->len && more->ptr[more->len - 1] == ']';
    if (is_further) more->ptr[--more->len] = 0;
    tern_strbuf_puts(more, is_further ? "," : ",\"tool_calls\":[");
    tern_json_open(&w, NULL, '{');
    tern_json_put_bytes(&w, "id", id.ptr ? id.ptr : "", id.len);
    tern_json_put_text(&w, "type", "function");
    tern_json_open(&w, "function", '{');
    tern_json_put_bytes(&w, "name", name.ptr ? name.ptr : "", name.len);
    tern_json_put_bytes(&w, "arguments", arguments.ptr ? arguments.ptr : "{}",
                        arguments.ptr ? arguments.len : 2);
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
    tern_strbuf_putc(more, ']');
}

// Items that are calls, with what has their arguments and, where the type says it, their name.
static const struct {
    const char *type, *name, *arguments;
} calls[] = {{"function_call", NULL, NULL},
             {"custom_tool_call", NULL, "input"},
             {"local_shell_call", "local_shell", "action"},
             {"shell_call", "shell", "action"},
             {"apply_patch_call", "apply_patch", "operation"}};

// False: it is none.
static bool read_call(const fields *f, tern_str type, messages *m) {
    const size_t n = sizeof calls / sizeof *calls;
    tern_strbuf name = {0}, text = {0};
    size_t i = 0;
    while (i < n && !tern_str_is(type, calls[i].type)) i++;
    if (i == n) return false;
    tern_str id = field_text(f, "call_id"), arguments = {NULL, 0};
    if (calls[i].name)
        tern_strbuf_puts(&name, calls[i].name);
    else
        put_tool_name(field_text(f, "namespace"), field_text(f, "name"), &name);
    if (calls[i].arguments) {
        tern_json_writer w = {.out = &text};
        const tern_json *value = field_any(f, calls[i].arguments);
        const bool is_text = !strcmp(calls[i].arguments, "input");
        if (is_text) field_text(f, "input"); // a text, or an error
        if (is_text) tern_json_open(&w, NULL, '{');
        tern_json_put_value(&w, is_text ? "input" : NULL, f->doc, value);
        if (is_text) tern_json_close(&w, '}');
        arguments = (tern_str){tern_strbuf_text(&text), text.len};
    } else {
        arguments = field_text(f, "arguments");
    }
    if (name.failed || text.failed) api_fail_memory(f->error);
    if (!f->error->status)
        add_call(f, m, (tern_str){tern_strbuf_text(&name), name.len}, id, arguments);
    tern_strbuf_free(&name);
    tern_strbuf_free(&text);
    return true;
}

// What a call gave: a text, parts, or, of a shell, objects, which the model reads as they are.
static void read_result(const fields *f, tern_str type, messages *m) {
    message_content c = {0};
    tern_str id = field_text(f, "call_id");
    const tern_json *output = field_any(f, "output");
    const bool is_shell = tern_str_is(type, "shell_call_output");
    if (!id.ptr) id = field_text(f, "id");
    bool ok = true;
    if (is_shell && !tern_json_is(output, TERN_JSON_STRING)) {
        tern_json_writer w = {.out = &c.text};
        tern_json_put_value(&w, NULL, f->doc, output);
    } else if (output || !tern_str_is(type, "apply_patch_call_output")) {
        ok = content_read(&c, &m->images, f, output, "input.output");
    } else {
        tern_str status = field_text(f, "status");
        tern_strbuf_append(&c.text, status.ptr ? status.ptr : "", status.len);
    }
    if (ok && messages_add_content(m, TERN_STR("tool"), &c, "input", f->error)) {
        tern_json_writer w = messages_more(m);
        tern_json_put_bytes(&w, "tool_call_id", id.ptr ? id.ptr : "", id.len);
    }
    content_free(&c);
}

static bool is_result(tern_str type) {
    static const char *const types[] = {"function_call_output", "custom_tool_call_output",
                                        "local_shell_call_output", "shell_call_output",
                                        "apply_patch_call_output"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (tern_str_is(type, types[i])) return true;
    return false;
}

// What another server has done by itself: useless to this one.
static bool is_of_another(tern_str type) {
    static const char *const types[] = {"additional_tools", // they have been read
                                        "web_search_call",       "file_search_call",
                                        "image_generation_call", "code_interpreter_call",
                                        "computer_call",         "computer_call_output",
                                        "tool_search_call",      "tool_search_output",
                                        "mcp_list_tools",        "mcp_call",
                                        "mcp_approval_request",  "mcp_approval_response"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (tern_str_is(type, types[i])) return true;
    return false;
}

static void read_item(const request *req, const fields *f, const tern_json *item, messages *m);

// An item of an earlier answer, by its id alone.
static void read_reference(const request *req, const fields *f, messages *m) {
    const tern_str id = field_text(f, "id");
    tern_strbuf text = {0};
    tern_json_doc doc = {0};
    const bool has = item_store_get(req->server->items, req->owner, id, &text);
    m->n_referred += text.len;
    if (text.failed)
        api_fail_memory(f->error);
    else if (!has)
        api_fail(f->error, 400, "unsupported_content", "input.id",
                 "'input' refers to an item '%.*s' that this server does not have (any more): send "
                 "the items themselves (\"store\": false)",
                 id.len < 80 ? (int)id.len : 80, id.ptr ? id.ptr : "");
    else if (m->n_referred > ITEM_STORE_BYTES)
        api_fail(f->error, 400, NULL, "input.id", "'input' refers to more than %u bytes of items",
                 ITEM_STORE_BYTES);
    else if (tern_json_parse(&doc, text.ptr, text.len, NULL) != TERN_OK)
        api_fail_memory(f->error);
    const fields kept = {&doc, NULL, f->prefix, f->error};
    if (!f->error->status) read_item(req, &kept, tern_json_root(&doc), m);
    tern_json_free(&doc);
    tern_strbuf_free(&text);
}

static void read_item(const request *req, const fields *f, const tern_json *item, messages *m) {
    fields inner = {f->doc, item, "input.", f->error};
    message_content c = {0};
    if (!tern_json_is(item, TERN_JSON_OBJECT)) {
        field_fail(f, "input", "a text, or an array of objects");
        return;
    }
    tern_str type = field_text(&inner, "type"), role = field_text(&inner, "role");
    const tern_json *value = field_any(&inner, "content");
    if (is_of_another(type) || read_reasoning(&inner, type, m) || read_call(&inner, type, m))
        return;
    if (is_result(type)) {
        read_result(&inner, type, m);
        return;
    }
    if (tern_str_is(type, "item_reference")) {
        read_reference(req, &inner, m);
        return;
    }
    if (type.ptr && !tern_str_is(type, "message"))
        api_fail(f->error, 400, "unsupported_content", "input.type",
                 "'input' has an item of type '%.*s', which is not supported by this server",
                 type.len < 40 ? (int)type.len : 40, type.ptr);
    if (!role.ptr) field_fail(&inner, "role", "given");
    if (!value) field_fail(&inner, "content", "given");
    if (!f->error->status && content_read(&c, &m->images, f, value, "input.content"))
        if (openai_add_message(m, role, &c, "input.content", f->error)) place_reasoning(m);
    content_free(&c);
}

static void read_input(const request *req, const fields *f, messages *m, bool *prefill) {
    const tern_json *input = field_any(f, "input");
    tern_str text = tern_json_str(input), instructions = field_text(f, "instructions");
    if (instructions.len)
        messages_add(m, TERN_STR("system"), instructions, "instructions", f->error);
    if (text.ptr)
        messages_add(m, TERN_STR("user"), text, "input", f->error);
    else if (!tern_json_is(input, TERN_JSON_ARRAY) || input->n == 0)
        field_fail(f, "input", "a text, or an array of at least one item");
    const size_t n = m->n;
    for (const tern_json *item = text.ptr ? NULL : tern_json_first(f->doc, input);
         item && !f->error->status; item = tern_json_next(f->doc, input, item))
        read_item(req, f, item, m);
    if (!text.ptr && m->n == n && !m->n_referred && !f->error->status)
        api_fail(f->error, 400, "unsupported_content", "input.type",
                 "'input' has no message and no call, only what other servers made");
    *prefill =
        m->n > 0 && !strcmp(m->list[m->n - 1].role, "assistant") && !m->list[m->n - 1].more.len;
}

bool openai_read_response(request *req, const fields *f) {
    messages m = {0};
    bool prefill;
    m.images.heard = req->heard;
    generation_read_model(req, f);
    generation_read_max_tokens(req, f, "max_output_tokens");
    refuse_unsupported(f);
    responses_read_tools(req, f);
    openai_read_thinking(req, f);
    read_format(req, f);
    read_input(req, f, &m, &prefill);
    const tern_str cut = field_text(f, "truncation");
    if (cut.ptr && !tern_str_is(cut, "auto") && !tern_str_is(cut, "disabled"))
        field_fail(f, "truncation", "\"auto\" or \"disabled\"");
    if (tern_str_is(cut, "auto"))
        generation_add_chat_cut(req, &m, prefill, f->error);
    else
        generation_add_chat(req, &m, prefill, f->error);
    messages_free(&m);
    return f->error->status == 0;
}
