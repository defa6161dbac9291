// An agent's conversation as the model reads it, and how it is made to fit the context.
//
// The oldest and longest results are worth least: results of calls that the model has answered
// since are cut to their beginning first, the oldest before the others. Then the newest results are
// halved, the longest first, as often as necessary. Questions, answers and calls stay whole: a
// model that does not see its own calls repeats them.
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "session/chat/agent.h"

#define STUB_BYTES  200 // that are left of an old result
#define WORTH_BYTES 512 // a result with fewer is not cut further

static const char *const role_names[] = {"system", "user", "assistant", "tool"};

tern_status tern_agent_add(tern_agent *a, agent_role role, agent_message **out, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &a->messages, &a->capacity, a->n_messages, 1) != 0)
        return tern_fail_memory(err, sizeof **out);
    *out = &a->messages[a->n_messages++];
    **out = (agent_message){.role = role};
    return TERN_OK;
}

void tern_agent_free_message(agent_message *m) {
    for (size_t i = 0; i < m->n_calls; i++) {
        tern_strbuf_free(&m->calls[i].name);
        tern_strbuf_free(&m->calls[i].arguments);
    }
    tern_free(m->calls);
    tern_strbuf_free(&m->content);
    tern_strbuf_free(&m->reasoning);
}

void tern_agent_call_view(const tern_agent *a, const agent_call *c, tern_agent_call *out) {
    *out = (tern_agent_call){.name = tern_strbuf_text(&c->name),
                             .id = c->id,
                             .arguments = c->arguments.len ? c->arguments.ptr : "{}",
                             .tool = c->tool,
                             .seconds_left = tern_agent_seconds_left(a)};
}

// ---- Rendering ---------------------------------------------------------------------------------

static void put_calls(const agent_message *m, tern_json_writer *w) {
    tern_json_open(w, "tool_calls", '[');
    for (size_t i = 0; i < m->n_calls; i++) {
        const agent_call *c = &m->calls[i];
        tern_json_open(w, NULL, '{');
        tern_json_put_text(w, "id", c->id);
        tern_json_put_text(w, "type", "function");
        tern_json_open(w, "function", '{');
        tern_json_put_text(w, "name", tern_strbuf_text(&c->name));
        tern_json_put_raw(w, "arguments", c->arguments.len ? c->arguments.ptr : "{}");
        tern_json_close(w, '}');
        tern_json_close(w, '}');
    }
    tern_json_close(w, ']');
}

void tern_agent_put_message(const agent_message *m, tern_json_writer *w) {
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "role", role_names[m->role]);
    tern_json_put_bytes(w, "content", tern_strbuf_text(&m->content), m->content.len);
    if (m->reasoning.len)
        tern_json_put_bytes(w, "reasoning_content", m->reasoning.ptr, m->reasoning.len);
    if (m->role == AGENT_ASSISTANT && m->n_calls) put_calls(m, w);
    if (m->role == AGENT_RESULT) {
        tern_json_put_text(w, "name", tern_strbuf_text(&m->calls[0].name));
        tern_json_put_text(w, "tool_call_id", m->calls[0].id);
    }
    tern_json_close(w, '}');
}

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static tern_status render(tern_agent *a, tern_error *err) {
    tern_strbuf request = {0};
    tern_json_writer w = {.out = &request};
    tern_json_open(&w, NULL, '{');
    if (a->shown.len) tern_json_put_raw(&w, "tools", a->shown.ptr);
    tern_json_open(&w, "messages", '[');
    for (size_t i = 0; i < a->n_messages; i++) tern_agent_put_message(&a->messages[i], &w);
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    tern_strbuf_free(&a->rendered); // also after a failure
    tern_status status = request.failed ? tern_fail_memory(err, request.len)
                                        : tern_chat_format_json(a->model, request.ptr, request.len,
                                                                collect, &a->rendered, err);
    tern_strbuf_free(&request);
    if (status == TERN_OK && a->rendered.failed) status = tern_fail_memory(err, a->rendered.len);
    const tern_str text = {tern_strbuf_text(&a->rendered), a->rendered.len};
    if (status == TERN_OK) status = tern_chat_encode(a->model->tokenizer, text, &a->ids, err);
    return status;
}

// ---- Making it fit -----------------------------------------------------------------------------

size_t tern_agent_cut(const char *text, size_t n_bytes, size_t n_most) {
    return n_bytes <= n_most ? n_bytes : tern_utf8_complete_prefix(text, n_most);
}

static void cut_result(tern_agent *a, agent_message *m, size_t n_most) {
    size_t before = m->content.len;
    tern_strbuf rest = {0};
    tern_strbuf_append(&rest, m->content.ptr, tern_agent_cut(m->content.ptr, before, n_most));
    tern_strbuf_printf(&rest, "\n[shortened for lack of room: it had %zu bytes]", before);
    tern_agent_call call;
    tern_agent_call_view(a, &m->calls[0], &call);
    // If there is no memory for a shorter text, the old one is emptied, which needs none.
    if (rest.failed) {
        tern_strbuf_free(&rest);
        tern_strbuf_clear(&m->content);
    } else {
        tern_strbuf_free(&m->content);
        m->content = rest;
    }
    a->result.n_shortened++;
    tern_agent_tell(a, &(tern_agent_event){.kind = TERN_AGENT_SHORTENED,
                                           .text = tern_strbuf_text(&m->content),
                                           .n_bytes = m->content.len,
                                           .n_before = before,
                                           .call = &call});
}

bool tern_agent_shorten(tern_agent *a) {
    size_t newest = a->n_messages; // the first result that the model has not answered yet
    while (newest > 0 && a->messages[newest - 1].role == AGENT_RESULT) newest--;
    for (size_t i = 0; i < newest; i++) {
        agent_message *m = &a->messages[i];
        if (m->role != AGENT_RESULT || m->is_stub || m->content.len <= WORTH_BYTES) continue;
        m->is_stub = true;
        cut_result(a, m, STUB_BYTES);
        return true;
    }
    agent_message *longest = NULL;
    for (size_t i = newest; i < a->n_messages; i++)
        if (!longest || a->messages[i].content.len > longest->content.len)
            longest = &a->messages[i];
    if (!longest || longest->content.len <= WORTH_BYTES) return false;
    cut_result(a, longest, longest->content.len / 2);
    return true;
}

tern_status tern_agent_render(tern_agent *a, bool *fits, tern_error *err) {
    size_t room = (size_t)tern_session_n_context(a->session);
    do {
        TERN_TRY(render(a, err));
        *fits = a->ids.n + (size_t)a->desc.answer_tokens <= room;
    } while (!*fits && tern_agent_shorten(a));
    return TERN_OK;
}
