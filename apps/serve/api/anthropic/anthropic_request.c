// Reads a request to /v1/messages: blocks and tools into messages and the generation.
#include <string.h>
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/api/interfaces.h"

// A client's block with its version, which changes with each request and means nothing to a model.
static bool is_billing(tern_str text) {
    static const char prefix[] = "x-anthropic-billing-header:";
    return text.len >= sizeof prefix - 1 && !memcmp(text.ptr, prefix, sizeof prefix - 1);
}

static bool is_system(const fields *f, const tern_json *message) {
    return tern_str_is(tern_json_str(tern_json_get(f->doc, message, "role")), "system");
}

static void add_instructions(const fields *f, const tern_json *value, const char *name,
                             tern_strbuf *text) {
    const char *between = text->len ? "\n\n" : "";
    if (tern_json_is(value, TERN_JSON_STRING)) {
        if (!value->n) return;
        tern_strbuf_puts(text, between);
        tern_strbuf_append(text, value->text, value->n);
        return;
    }
    if (!tern_json_is(value, TERN_JSON_ARRAY))
        field_fail(f, name, "a string, or an array of texts");
    for (const tern_json *b = tern_json_first(f->doc, value); b && !f->error->status;
         b = tern_json_next(f->doc, value, b)) {
        tern_str part = tern_json_str(tern_json_get(f->doc, b, "text"));
        if (!part.ptr) field_fail(f, name, "a string, or an array of texts");
        if (!part.len || is_billing(part)) continue;
        tern_strbuf_puts(text, between);
        tern_strbuf_append(text, part.ptr, part.len);
        between = "\n";
    }
}

// "system", and what clients say to the model in the middle of the conversation: templates have
// one system message, the first, and small models take another for the user's words.
static void read_system(const fields *f, messages *m) {
    const tern_json *system = field_any(f, "system"), *list = field_any(f, "messages");
    const fields inner = {f->doc, NULL, "messages.", f->error};
    const bool has_list = tern_json_is(list, TERN_JSON_ARRAY);
    tern_strbuf text = {0};
    if (system) add_instructions(f, system, "system", &text);
    for (const tern_json *item = has_list ? tern_json_first(f->doc, list) : NULL;
         item && !f->error->status; item = tern_json_next(f->doc, list, item))
        if (is_system(f, item))
            add_instructions(&inner, tern_json_get(f->doc, item, "content"), "content", &text);
    if (text.failed) api_fail_memory(f->error);
    if (text.len)
        messages_add(m, TERN_STR("system"), (tern_str){text.ptr, text.len}, "system", f->error);
    tern_strbuf_free(&text);
}

// A message being assembled: consecutive messages of one role are merged, and results of calls,
// which are part of the user's messages, become separate messages.
typedef struct gathered {
    messages *to;
    tern_str role; // {NULL, 0}: nothing yet
    message_content said;
    tern_strbuf calls, reasoning;
    api_error *e;
} gathered;

static void finish(gathered *g) {
    bool has_more = g->calls.len || g->reasoning.len;
    bool has_said = g->said.text.len || g->said.parts.len;
    if (g->calls.failed || g->reasoning.failed) api_fail_memory(g->e);
    if (g->role.ptr && (has_said || has_more) &&
        messages_add_content(g->to, g->role, &g->said, "messages", g->e)) {
        tern_json_writer w = messages_more(g->to);
        if (g->reasoning.len)
            tern_json_put_bytes(&w, "reasoning_content", g->reasoning.ptr, g->reasoning.len);
        if (g->calls.len) {
            tern_strbuf_putc(&g->calls, ']');
            tern_json_put_raw(&w, "tool_calls", g->calls.ptr);
        }
    }
    content_free(&g->said);
    tern_strbuf_clear(&g->calls);
    tern_strbuf_clear(&g->reasoning);
}

static void add_call(gathered *g, const fields *block) {
    tern_json_writer w = {.out = &g->calls};
    tern_str name = field_text(block, "name"), id = field_text(block, "id");
    if (!name.len) field_fail(block, "name", "given");
    tern_strbuf_putc(&g->calls, g->calls.len ? ',' : '[');
    tern_json_open(&w, NULL, '{');
    tern_json_put_bytes(&w, "id", id.ptr ? id.ptr : "", id.len);
    tern_json_put_text(&w, "type", "function");
    tern_json_open(&w, "function", '{');
    tern_json_put_bytes(&w, "name", name.ptr, name.len);
    tern_json_put_value(&w, "arguments", block->doc, field_any(block, "input"));
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
}

static void add_result(gathered *g, const fields *block) {
    message_content c = {0};
    tern_str id = field_text(block, "tool_use_id");
    const tern_json *value = field_any(block, "content");
    finish(g);
    if ((!value || content_read(&c, &g->to->images, block, value, "messages.content")) &&
        messages_add_content(g->to, TERN_STR("tool"), &c, "messages", g->e)) {
        tern_json_writer w = messages_more(g->to);
        tern_json_put_bytes(&w, "tool_call_id", id.ptr ? id.ptr : "", id.len);
    }
    content_free(&c);
}

static void add_block(gathered *g, const fields *f, const tern_json *item) {
    const fields block = {f->doc, item, "messages.content.", f->error};
    tern_str type = field_text(&block, "type");
    if (tern_str_is(type, "tool_use")) {
        add_call(g, &block);
    } else if (tern_str_is(type, "tool_result")) {
        add_result(g, &block);
    } else if (tern_str_is(type, "thinking")) {
        tern_str text = field_text(&block, "thinking");
        tern_strbuf_append(&g->reasoning, text.ptr ? text.ptr : "", text.len);
    } else if (!tern_str_is(type, "redacted_thinking")) { // of another model
        content_add_part(&g->said, &g->to->images, f, item, "messages.content");
    }
}

static void read_message(gathered *g, const fields *f, const tern_json *item) {
    const fields inner = {f->doc, item, "messages.", f->error};
    tern_str role = field_text(&inner, "role");
    const tern_json *value = field_any(&inner, "content");
    if (!tern_str_is(role, "user") && !tern_str_is(role, "assistant")) {
        field_fail(&inner, "role", "user, assistant or system");
        return;
    }
    bool goes_on = g->role.ptr && tern_str_eq(role, g->role);
    if (!goes_on)
        finish(g);
    else if (g->said.text.len)
        tern_strbuf_puts(&g->said.text, "\n\n");
    g->role = role;
    if (!tern_json_is(value, TERN_JSON_ARRAY)) {
        content_read(&g->said, NULL, f, value, "messages.content");
        return;
    }
    for (const tern_json *part = tern_json_first(f->doc, value); part && !f->error->status;
         part = tern_json_next(f->doc, value, part))
        add_block(g, f, part);
}

static void read_messages(const fields *f, messages *m, bool *prefill) {
    const tern_json *list = field_array(f, "messages");
    gathered g = {.to = m, .e = f->error};
    bool is_last_said = false; // the last message is one of the conversation
    if (!list || list->n == 0) field_fail(f, "messages", "an array of at least one message");
    for (const tern_json *item = tern_json_first(f->doc, list); item && !f->error->status;
         item = tern_json_next(f->doc, list, item)) {
        is_last_said = !is_system(f, item); // read_system has read those
        if (is_last_said) read_message(&g, f, item);
    }
    finish(&g);
    content_free(&g.said);
    tern_strbuf_free(&g.calls);
    tern_strbuf_free(&g.reasoning);
    *prefill = is_last_said && m->n > 0 && !strcmp(m->list[m->n - 1].role, "assistant") &&
               !m->list[m->n - 1].more.len;
}

// Tools, with Anthropic's names for their members.
static void read_tools(generation *a, const fields *f) {
    const tern_json *tools = field_array(f, "tools");
    tern_json_writer w = {.out = &a->tools};
    fields wish = fields_within(f, "tool_choice", "tool_choice.");
    tern_str how = field_text(&wish, "type");
    a->one_call = field_bool(&wish, "disable_parallel_tool_use", false);
    if (!tools || !tools->n) {
        read_tool_choice(a, f, how, field_text(&wish, "name"));
        return;
    }
    if (tern_str_is(how, "none")) return;
    tern_json_open(&w, NULL, '[');
    const size_t n_begun = a->tools.len;
    for (const tern_json *item = tern_json_first(f->doc, tools); item && !f->error->status;
         item = tern_json_next(f->doc, tools, item)) {
        const fields tool = {f->doc, item, "tools.", f->error};
        tern_str name = field_text(&tool, "name"), type = field_text(&tool, "type");
        const tern_json *said = field_any(&tool, "description");
        a->is_strict |= field_bool(&tool, "strict", false);
        const bool is_known = type.ptr && !tern_str_is(type, "custom"); // the server's to do
        const bool is_later = field_bool(&tool, "defer_loading", false) &&
                              !field_any(&tool, "input_schema"); // it has to be searched for
        if (is_known || is_later) {
            generation_leave_out(a, is_known ? type : name);
            continue;
        }
        if (!name.len) field_fail(f, "tools", "an array of tools of one's own, with names");
        tern_json_open(&w, NULL, '{');
        tern_json_put_bytes(&w, "name", name.ptr ? name.ptr : "", name.len);
        if (said) tern_json_put_value(&w, "description", f->doc, said);
        tern_json_put_value(&w, "parameters", f->doc, field_any(&tool, "input_schema"));
        tern_json_close(&w, '}');
    }
    if (a->tools.len == n_begun)
        tern_strbuf_clear(&a->tools);
    else
        tern_json_close(&w, ']');
    read_tool_choice(a, f, how, field_text(&wish, "name"));
}

static void read_thinking(generation *a, const fields *f) {
    tern_json_writer w = {.out = &a->switches, .follows = true};
    fields thinking = fields_within(f, "thinking", "thinking.");
    tern_str type = field_text(&thinking, "type");
    if (type.ptr) tern_json_put_bool(&w, "enable_thinking", !tern_str_is(type, "disabled"));
}

static void read_format(request *req, const fields *f) {
    fields output = fields_within(f, "output_config", "output_config.");
    fields format = fields_within(&output, "format", "output_config.format.");
    if (format.object) generation_read_format(req, &format, "output_config.format");
}

bool anthropic_read(request *req, const fields *f) {
    messages m = {0};
    bool prefill;
    generation_read_model(req, f);
    static const char *const names[] = {"mcp_servers", "container", "logit_bias", "stop"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) field_refuse(f, names[i]);
    field_int(f, "n", 1, 1, 1);
    read_tools(req->generation, f);
    read_thinking(req->generation, f);
    read_format(req, f);
    read_system(f, &m);
    read_messages(f, &m, &prefill);
    generation_add_chat(req, &m, prefill, f->error);
    messages_free(&m);
    return f->error->status == 0;
}
