// Tools of a request in the formats of OpenAI's two interfaces and Ollama's.
#include <string.h>
#include "apps/serve/api/interfaces.h"

static bool names_a_function(const fields *f, const tern_json *tool) {
    const tern_json *function = tern_json_get(f->doc, tool, "function");
    tern_str type = tern_json_str(tern_json_get(f->doc, tool, "type"));
    const bool is_custom = tern_str_is(type, "custom");
    if (is_custom) function = tern_json_get(f->doc, tool, "custom");
    tern_str name = tern_json_str(tern_json_get(f->doc, function ? function : tool, "name"));
    if (type.ptr && !is_custom && !tern_str_is(type, "function")) {
        api_fail(f->error, 400, "unsupported_tool", "tools",
                 "'tools' has one of type '%.*s'; this server knows functions only",
                 type.len < 40 ? (int)type.len : 40, type.ptr);
        return false;
    }
    return name.len > 0 && !memchr(name.ptr, 0, name.len);
}

// Whether it is among those that are offered.
static bool is_offered(const generation *a, tern_str name) {
    tern_json_doc doc = {0};
    bool is = false;
    if (tern_json_parse(&doc, tern_strbuf_text(&a->tools), a->tools.len, NULL) != TERN_OK)
        return false;
    const tern_json *tools = tern_json_root(&doc);
    for (const tern_json *tool = tern_json_first(&doc, tools); tool && !is;
         tool = tern_json_next(&doc, tools, tool)) {
        const tern_json *function = tern_json_get(&doc, tool, "function");
        tern_str own = tern_json_str(tern_json_get(&doc, function ? function : tool, "name"));
        is = own.ptr && tern_str_eq(own, name);
    }
    tern_json_free(&doc);
    return is;
}

void read_tool_choice(generation *a, const fields *f, tern_str how, tern_str name) {
    const bool is_named =
        tern_str_is(how, "function") || tern_str_is(how, "tool") || tern_str_is(how, "custom");
    if (!how.ptr || tern_str_is(how, "auto") || f->error->status) return;
    if (tern_str_is(how, "none")) {
        tern_strbuf_clear(&a->tools);
    } else if (!is_named && !tern_str_is(how, "required") && !tern_str_is(how, "any")) {
        api_fail(f->error, 400, "unsupported_parameter", "tool_choice",
                 "'tool_choice' must be \"auto\", \"none\", \"required\" or a function's name");
    } else if (!a->tools.len) {
        api_fail(f->error, 400, NULL, "tool_choice",
                 "'tool_choice' is only allowed when 'tools' are specified");
    } else if (is_named && !is_offered(a, name)) {
        api_fail(f->error, 400, NULL, "tool_choice", "'tool_choice': no tool is called '%.*s'",
                 name.len < 64 ? (int)name.len : 64, name.ptr ? name.ptr : "");
    } else {
        a->must_call = true;
        if (is_named) tern_strbuf_append(&a->tool, name.ptr, name.len);
    }
}

void openai_read_tool_choice(generation *a, const fields *f) {
    const tern_json *wish = field_any(f, "tool_choice");
    tern_strbuf full = {0};
    if (read_allowed_tools(a, f)) return;
    const tern_json *function = tern_json_get(f->doc, wish, "function");
    if (!function) function = tern_json_get(f->doc, wish, "custom");
    tern_str how = tern_json_str(wish);
    if (wish && !how.ptr) how = tern_json_str(tern_json_get(f->doc, wish, "type"));
    if (wish && !how.ptr) field_fail(f, "tool_choice", "a string, or an object with a type");
    put_tool_name(tern_json_str(tern_json_get(f->doc, wish, "namespace")),
                  tern_json_str(tern_json_get(f->doc, function ? function : wish, "name")), &full);
    if (full.failed) api_fail_memory(f->error);
    read_tool_choice(a, f, how, (tern_str){tern_strbuf_text(&full), full.len});
    tern_strbuf_free(&full);
}

// A custom tool is offered as a function whose one argument is its input. Returns whether it has a
// grammar.
static bool put_tool(tern_json_writer *w, const fields *f, const tern_json *tool, bool for_model) {
    const tern_json *inner = tern_json_get(f->doc, tool, "custom");
    const fields custom = {f->doc, inner ? inner : tool, "tools.", f->error};
    if (!tern_str_is(tern_json_str(tern_json_get(f->doc, tool, "type")), "custom")) {
        tern_json_put_value(w, NULL, f->doc, tool);
        return false;
    }
    const tern_str name = tern_json_str(tern_json_get(f->doc, custom.object, "name"));
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "type", "function");
    tern_json_open(w, "function", '{');
    tern_json_put_bytes(w, "name", name.ptr ? name.ptr : "", name.len);
    put_custom_tool(w, &custom, for_model);
    tern_json_close(w, '}');
    tern_json_close(w, '}');
    return custom_has_grammar(&custom);
}

static bool put_tools(generation *a, const fields *f, const tern_json *tools, bool for_model) {
    tern_json_writer w = {.out = for_model ? &a->tools : &a->allowed};
    bool has_grammar = false;
    tern_json_open(&w, NULL, '[');
    for (const tern_json *tool = tern_json_first(f->doc, tools); tool && !f->error->status;
         tool = tern_json_next(f->doc, tools, tool)) {
        const tern_json *function = tern_json_get(f->doc, tool, "function");
        if (!names_a_function(f, tool)) field_fail(f, "tools", "an array of functions with names");
        a->is_strict |=
            tern_json_bool(tern_json_get(f->doc, function ? function : tool, "strict"), false);
        has_grammar |= put_tool(&w, f, tool, for_model);
    }
    tern_json_close(&w, ']');
    if (w.out->failed) api_fail_memory(f->error);
    return has_grammar;
}

void openai_read_tools(request *req, const fields *f) {
    generation *a = req->generation;
    const tern_json *tools = field_array(f, "tools");
    if (tools && tools->n > 0 && put_tools(a, f, tools, true)) put_tools(a, f, tools, false);
    a->one_call = !field_bool(f, "parallel_tool_calls", true);
    openai_read_tool_choice(a, f);
}

void openai_read_thinking(request *req, const fields *f) {
    tern_json_writer w = {.out = &req->generation->switches, .follows = true};
    fields more = fields_within(f, "chat_template_kwargs", "chat_template_kwargs.");
    tern_str effort = field_text(f, "reasoning_effort");
    fields reasoning = fields_within(f, "reasoning", "reasoning.");
    if (!effort.ptr) effort = field_text(&reasoning, "effort");
    if (effort.ptr && !tern_json_get(f->doc, more.object, "enable_thinking")) {
        bool is_off = tern_str_is(effort, "none") || tern_str_is(effort, "minimal");
        tern_json_put_bool(&w, "enable_thinking", !is_off);
    }
    for (const tern_json *key = more.object ? tern_json_first(f->doc, more.object) : NULL; key;
         key = tern_json_next(f->doc, more.object, key))
        tern_json_put_member(&w, tern_json_str(key), f->doc, tern_json_value_of(f->doc, key));
}
