// Reads a request to /v1/responses: items and tools into messages and the generation.
#include <string.h>
#include "apps/serve/answer_forms.h"
#include "apps/serve/interfaces.h"

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

// Calls are separate items here; for templates those of a turn belong to one message.
static void read_call(const fields *f, messages *m) {
    tern_str name = field_text(f, "name"), id = field_text(f, "call_id"),
             arguments = field_text(f, "arguments");
    if (!name.len) field_fail(f, "name", "given");
    chat_message *last = m->n ? &m->list[m->n - 1] : NULL;
    bool joins = last && !strcmp(last->role, "assistant");
    if (!joins && !messages_add(m, TERN_STR("assistant"), (tern_str){"", 0}, "input", f->error))
        return;
    tern_strbuf *more = &m->list[m->n - 1].more;
    tern_json_writer w = {.out = more};
    if (more->len) more->ptr[--more->len] = 0; // drops the "]"
    tern_strbuf_puts(more, more->len ? "," : ",\"tool_calls\":[");
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

static void read_result(const fields *f, messages *m) {
    message_content c = {0};
    tern_str id = field_text(f, "call_id");
    if (content_read(&c, &m->images, f, field_any(f, "output"), "input.output") &&
        messages_add_content(m, TERN_STR("tool"), &c, "input", f->error)) {
        tern_json_writer w = messages_more(m);
        tern_json_put_bytes(&w, "tool_call_id", id.ptr ? id.ptr : "", id.len);
    }
    content_free(&c);
}

static void read_item(const fields *f, const tern_json *item, messages *m) {
    fields inner = {f->doc, item, "input.", f->error};
    message_content c = {0};
    if (!tern_json_is(item, TERN_JSON_OBJECT)) {
        field_fail(f, "input", "a text, or an array of objects");
        return;
    }
    tern_str type = field_text(&inner, "type"), role = field_text(&inner, "role");
    const tern_json *value = field_any(&inner, "content");
    if (tern_str_is(type, "reasoning")) return; // of another model, and useless to this one
    if (tern_str_is(type, "function_call")) {
        read_call(&inner, m);
        return;
    }
    if (tern_str_is(type, "function_call_output")) {
        read_result(&inner, m);
        return;
    }
    if (type.ptr && !tern_str_is(type, "message"))
        api_fail(f->error, 400, "unsupported_content", "input.type",
                 "'input' has an item of type '%.*s', which is not supported by this server",
                 type.len < 40 ? (int)type.len : 40, type.ptr);
    if (!role.ptr) field_fail(&inner, "role", "given");
    if (!value) field_fail(&inner, "content", "given");
    if (!f->error->status && content_read(&c, &m->images, f, value, "input.content"))
        openai_add_message(m, role, &c, "input.content", f->error);
    content_free(&c);
}

static void read_input(const fields *f, messages *m, bool *prefill) {
    const tern_json *input = field_any(f, "input");
    tern_str text = tern_json_str(input), instructions = field_text(f, "instructions");
    if (instructions.len)
        messages_add(m, TERN_STR("system"), instructions, "instructions", f->error);
    if (text.ptr)
        messages_add(m, TERN_STR("user"), text, "input", f->error);
    else if (!tern_json_is(input, TERN_JSON_ARRAY) || input->n == 0)
        field_fail(f, "input", "a text, or an array of at least one item");
    for (const tern_json *item = text.ptr ? NULL : tern_json_first(f->doc, input);
         item && !f->error->status; item = tern_json_next(f->doc, input, item))
        read_item(f, item, m);
    *prefill =
        m->n > 0 && !strcmp(m->list[m->n - 1].role, "assistant") && !m->list[m->n - 1].more.len;
}

bool openai_read_response(request *req, const fields *f) {
    messages m = {0};
    bool prefill;
    generation_read_model(req, f);
    refuse_unsupported(f);
    openai_read_tools(req, f);
    openai_read_thinking(req, f);
    read_format(req, f);
    read_input(f, &m, &prefill);
    generation_add_chat(req, &m, prefill, f->error);
    messages_free(&m);
    return f->error->status == 0;
}
