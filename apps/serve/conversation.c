// Conversations: messages as interfaces send them, rendered by the model's template into prompts.
#include <string.h>
#include "apps/serve/long_text.h"
#include "base/alloc.h"

// More than any conversation has. They are put together on the loop's thread: this many take some
// milliseconds.
#define MESSAGES_MAX 16384

bool messages_add(messages *m, tern_str role, tern_str content, const char *param, api_error *e) {
    if (e->status) return false;
    if (m->n == MESSAGES_MAX) {
        api_fail(e, 400, NULL, param, "there are more than %d messages", MESSAGES_MAX);
        return false;
    }
    if (memchr(role.ptr ? role.ptr : "", 0, role.len) ||
        memchr(content.ptr ? content.ptr : "", 0, content.len)) {
        api_fail(e, 400, NULL, param, "a message with a zero byte");
        return false;
    }
    if (tern_array_reserve(TERN_MEM_SESSION, &m->list, &m->capacity, m->n, 1) != 0) {
        api_fail_memory(e);
        return false;
    }
    char *a = tern_strndup(TERN_MEM_SESSION, role.ptr, role.len);
    char *b = tern_strndup(TERN_MEM_SESSION, content.ptr ? content.ptr : "", content.len);
    if (!a || !b) {
        tern_free(a);
        tern_free(b);
        api_fail_memory(e);
        return false;
    }
    m->list[m->n++] = (chat_message){a, b, {0}};
    return true;
}

tern_json_writer messages_more(messages *m) {
    return (tern_json_writer){.out = &m->list[m->n - 1].more, .follows = true};
}

void messages_free(messages *m) {
    for (size_t i = 0; i < m->n; i++) {
        tern_free(m->list[i].role);
        tern_free(m->list[i].content);
        tern_strbuf_free(&m->list[i].more);
    }
    tern_free(m->list);
    *m = (messages){0};
}

bool content_text(const fields *f, const tern_json *content, const char *param, tern_strbuf *out) {
    if (tern_json_is(content, TERN_JSON_STRING)) {
        tern_strbuf_append(out, content->text, content->n);
        return true;
    }
    if (!tern_json_is(content, TERN_JSON_ARRAY)) {
        api_fail(f->error, 400, NULL, param, "'%s' must be a string, or an array of parts", param);
        return false;
    }
    for (const tern_json *part = tern_json_first(f->doc, content); part;
         part = tern_json_next(f->doc, content, part)) {
        tern_str type = tern_json_str(tern_json_get(f->doc, part, "type"));
        const tern_json *text = tern_json_get(f->doc, part, "text");
        bool is_text = tern_str_is(type, "text") || tern_str_is(type, "input_text") ||
                       tern_str_is(type, "output_text");
        if (!is_text || !tern_json_is(text, TERN_JSON_STRING)) {
            api_fail(f->error, 400, "unsupported_content", param,
                     "'%s' has a part of type '%.*s': the server reads text only", param,
                     type.len < 40 ? (int)type.len : 40, type.ptr ? type.ptr : "");
            return false;
        }
        tern_strbuf_append(out, text->text, text->n);
    }
    return true;
}

// ---- Prompts -----------------------------------------------------------------------------------

// The first n messages, with the ask's tools and switches, as tern_chat_format_json takes them.
static void put_request(const exchange *x, const messages *m, size_t n, bool generate,
                        tern_strbuf *out) {
    const ask *a = x->ask;
    tern_json_writer w = {.out = out};
    tern_json_open(&w, NULL, '{');
    tern_json_put_bool(&w, "add_generation_prompt", generate);
    if (a->switches.len) tern_strbuf_append(out, a->switches.ptr, a->switches.len);
    if (a->tools.len) tern_json_put_raw(&w, "tools", a->tools.ptr);
    tern_json_open(&w, "messages", '[');
    for (size_t i = 0; i < n; i++) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_text(&w, "role", m->list[i].role);
        tern_json_put_text(&w, "content", m->list[i].content);
        tern_strbuf_append(out, tern_strbuf_text(&m->list[i].more), m->list[i].more.len);
        out->failed |= m->list[i].more.failed;
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    out->failed |= a->tools.failed || a->switches.failed;
}

void chat_text(const exchange *x, const messages *m, size_t n, bool generate, tern_strbuf *out,
               api_error *e) {
    tern_strbuf request = {0};
    put_request(x, m, n, generate, &request);
    if (request.failed)
        api_fail_memory(e);
    else
        render_chat(x->model, (tern_str){request.ptr, request.len}, out, "messages", e);
    tern_strbuf_free(&request);
}

// The beginning of an answer is tokens of their own after the words that make the model answer.
static void add_prompt(exchange *x, tern_str request, tern_str begun, api_error *e) {
    size_t n = 0, n_more = 0;
    int32_t *more = NULL;
    if (begun.len) {
        const text_wanted wanted = {.text = begun, .flags = TERN_TOKENIZE_PLAIN};
        more = read_tokens(x, &wanted, 0, &n_more, "messages", e);
    }
    const text_wanted wanted = {.text = request, .is_chat = true, .end = &x->ask->rendered};
    int32_t *ids = read_tokens(x, &wanted, n_more, &n, "messages", e);
    if (ids && n_more) memcpy(ids + n, more, n_more * sizeof *ids);
    tern_free(more);
    tern_strbuf_append(&x->ask->rendered, begun.ptr, begun.len);
    if (ids && e->status)
        tern_free(ids); // what comes before is there, its beginning is not
    else if (ids)
        ask_add_prompt(x, ids, n + n_more, "messages", e);
}

void ask_add_chat(exchange *x, messages *m, bool prefill, api_error *e) {
    tern_strbuf request = {0};
    size_t n = x->ask->tools.len;
    if (!e->status && m->n == (size_t)prefill)
        api_fail(e, 400, NULL, "messages", "'messages' must have at least one message");
    for (size_t i = 0; i < m->n; i++) n += strlen(m->list[i].content) + m->list[i].more.len;
    if (e->status || !ask_may_fit(x->model, n, "messages", e)) return;
    front_take_chat(x, m);
    x->ask->takes_apart = true;
    put_request(x, m, m->n - prefill, true, &request);
    const char *begun = prefill ? m->list[m->n - 1].content : "";
    if (request.failed)
        api_fail_memory(e);
    else
        add_prompt(x, (tern_str){request.ptr, request.len}, (tern_str){begun, strlen(begun)}, e);
    tern_strbuf_free(&request);
}
