// Agents: the loop. See tern_agent.h; agent.h describes the other two files.
//
// A step is an answer of the model, and the calls in it. It runs in its own group rather than in
// tern_generate_ids: a group returns after each piece of a prompt, so a time budget or a callback
// can stop it even while a long prompt is computed.
#include "session/chat/agent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"

const char *tern_agent_end_name(tern_agent_end end) {
    static const char *const names[] = {"finished", "steps",   "tokens",
                                        "time",     "context", "stopped"};
    return (size_t)end < sizeof names / sizeof *names ? names[end] : "";
}

bool tern_agent_tell(tern_agent *a, const tern_agent_event *event) {
    if (a->desc.on_event && !a->desc.on_event(a->desc.user, event)) a->is_stopped = true;
    if (tern_is_cancelled()) a->is_stopped = true;
    return !a->is_stopped;
}

static bool tell_text(tern_agent *a, tern_agent_event_kind kind, const tern_strbuf *text,
                      size_t from) {
    return tern_agent_tell(a, &(tern_agent_event){.kind = kind,
                                                  .text = tern_strbuf_text(text) + from,
                                                  .n_bytes = text->len - from});
}

double tern_agent_seconds_left(const tern_agent *a) {
    if (a->desc.max_seconds <= 0) return 0;
    double left = a->begin + a->desc.max_seconds - tern_seconds();
    return left > 0.001 ? left : 0.001;
}

static bool is_late(tern_agent *a) {
    a->is_late |= a->desc.max_seconds > 0 && tern_seconds() - a->begin >= a->desc.max_seconds;
    return a->is_late;
}

// ---- An answer ---------------------------------------------------------------------------------

#define CALLS_MAX 16 // in an answer: a small model may write calls until the context is full

typedef struct answering {
    tern_agent *agent;
    agent_message *m; // the answer so far
    tern_answer *reader;
    tern_generate_stats stats;
    tern_error err;
    bool has_enough;          // calls
    bool is_over, has_failed; // failed: no memory
} answering;

// Nine letters and digits: the only form that all templates accept (Mistral's requires it).
static void begin_call(answering *w, const tern_part *p) {
    tern_agent *a = w->agent;
    agent_message *m = w->m;
    if (tern_array_reserve(TERN_MEM_SESSION, &m->calls, &m->calls_capacity, m->n_calls, 1) != 0) {
        w->has_failed = true;
        return;
    }
    agent_call *c = &m->calls[m->n_calls++];
    *c = (agent_call){0};
    snprintf(c->id, sizeof c->id, "call%05u", (unsigned)(a->n_calls++ % 100000));
    tern_strbuf_append(&c->name, p->text, p->n_bytes);
    w->has_failed |= c->name.failed;
    c->tool = tern_agent_find_tool(a, tern_strbuf_text(&c->name));
}

static void on_part(void *user, const tern_part *p) {
    answering *w = user;
    agent_message *m = w->m;
    bool is_reasoning = p->kind == TERN_PART_REASONING;
    if (w->has_enough || w->has_failed) return;
    if (p->kind == TERN_PART_TEXT || is_reasoning) {
        tern_strbuf *to = is_reasoning ? &m->reasoning : &m->content;
        size_t from = to->len;
        tern_strbuf_append(to, p->text, p->n_bytes);
        w->has_failed |= to->failed;
        if (!to->failed)
            tell_text(w->agent, is_reasoning ? TERN_AGENT_REASONING : TERN_AGENT_TEXT, to, from);
    } else if (p->kind == TERN_PART_CALL) {
        begin_call(w, p);
    } else if (p->kind == TERN_PART_ARGUMENTS) {
        tern_strbuf_append(&m->calls[m->n_calls - 1].arguments, p->text, p->n_bytes);
        w->has_failed |= m->calls[m->n_calls - 1].arguments.failed;
    } else {
        m->calls[m->n_calls - 1].is_whole = true;
        w->has_enough = m->n_calls == (w->agent->desc.one_call ? 1 : CALLS_MAX);
    }
}

static bool may_go_on(answering *w) {
    return !w->has_failed && !w->has_enough && !w->agent->is_stopped && !is_late(w->agent);
}

static bool on_text(void *user, const char *text, size_t n) {
    answering *w = user;
    if (tern_answer_put(w->reader, text, n, on_part, w, NULL) != TERN_OK) w->has_failed = true;
    return may_go_on(w);
}

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *err) {
    answering *w = user;
    (void)session;
    w->stats = *stats;
    w->err = *err;
    w->is_over = true;
}

static tern_status generate(answering *w, const tern_generate_params *params, tern_error *err) {
    tern_agent *a = w->agent;
    const tern_agent_event working = {.kind = TERN_AGENT_WORKING, .text = ""};
    TERN_TRY(tern_group_add(a->group, a->session, a->ids.ids, a->ids.n, params, err));
    while (!w->is_over) {
        size_t n_running;
        tern_status status = tern_group_step(a->group, &n_running, err);
        if (tern_is_cancelled()) a->is_stopped = true;
        if (status != TERN_OK) tern_group_stop(a->session);
        if (status == TERN_ERR_CANCELLED && a->is_stopped)
            tern_clear(err);
        else if (status != TERN_OK)
            return status;
        tern_agent_tell(a, &working);
        if (!w->is_over && !may_go_on(w)) tern_group_stop(a->session);
    }
    if (tern_is_cancelled()) a->is_stopped = true;
    a->result.n_prompt += w->stats.n_prompt - w->stats.n_reused;
    a->result.n_generated += w->stats.n_generated;
    if (w->err.status != TERN_OK) return tern_fail(err, w->err.status, "%s", w->err.message);
    if (tern_answer_end(w->reader, on_part, w, NULL) != TERN_OK) w->has_failed = true;
    return w->has_failed ? tern_fail_memory(err, w->m->content.len) : TERN_OK;
}

static int32_t tokens_left(const tern_agent *a) {
    uint64_t most = (uint64_t)a->desc.max_tokens, used = a->result.n_generated;
    return used < most ? (int32_t)(most - used) : 0;
}

// Arguments as one line of JSON, whatever blanks the model has written in them. False: they are not
// an object, and templates could not render them.
static bool settle_arguments(tern_strbuf *text, bool *failed) {
    tern_json_doc doc = {0};
    tern_strbuf line = {0};
    tern_json_writer w = {.out = &line};
    bool ok = text->len && tern_json_parse(&doc, text->ptr, text->len, NULL) == TERN_OK &&
              tern_json_is(tern_json_root(&doc), TERN_JSON_OBJECT);
    if (ok) tern_json_put_value(&w, NULL, &doc, tern_json_root(&doc));
    *failed |= line.failed;
    ok |= !text->len;
    tern_json_free(&doc);
    tern_strbuf_free(text);
    *text = line;
    return ok;
}

static tern_status settle_calls(agent_message *m, tern_error *err) {
    bool failed = false;
    for (size_t i = 0; i < m->n_calls; i++) {
        agent_call *c = &m->calls[i];
        c->is_whole = settle_arguments(&c->arguments, &failed) && c->is_whole;
    }
    return failed ? tern_fail_memory(err, m->content.len) : TERN_OK;
}

static tern_status answer(tern_agent *a, agent_message *m, tern_stop_reason *reason,
                          tern_error *err) {
    answering w = {.agent = a, .m = m};
    tern_generate_params params = {.sampling = &a->sampling,
                                   .max_tokens = a->desc.max_tokens ? tokens_left(a) : 0,
                                   .on_text = on_text,
                                   .on_end = on_end,
                                   .user = &w};
    double begin = tern_seconds();
    bool must_call = a->desc.must_call && a->result.n_steps == 1;
    TERN_TRY(tern_agent_take_grammar(a, must_call, &params.grammar, err));
    TERN_TRY(tern_answer_open(&w.reader, a->model, tern_strbuf_text(&a->rendered),
                              a->shown.len ? a->shown.ptr : NULL, err));
    params.with_special = tern_answer_with_special(w.reader);
    tern_status status = generate(&w, &params, err);
    tern_answer_close(w.reader);
    TERN_TRY(status);
    TERN_TRY(settle_calls(m, err));
    *reason = w.stats.reason;
    tern_strbuf json = {0};
    tern_json_writer writer = {.out = &json};
    tern_agent_put_message(m, &writer);
    if (!json.failed)
        tern_agent_tell(a, &(tern_agent_event){.kind = TERN_AGENT_MESSAGE,
                                               .text = json.ptr,
                                               .n_bytes = json.len,
                                               .stats = &w.stats,
                                               .seconds = tern_seconds() - begin});
    status = json.failed ? tern_fail_memory(err, json.len) : TERN_OK;
    tern_strbuf_free(&json);
    return status;
}

// ---- A step ------------------------------------------------------------------------------------

static bool copy_call(agent_message *to, const agent_call *c) {
    if (tern_array_reserve(TERN_MEM_SESSION, &to->calls, &to->calls_capacity, 0, 1) != 0)
        return false;
    to->calls[0] = (agent_call){.tool = c->tool, .is_whole = c->is_whole};
    to->n_calls = 1;
    memcpy(to->calls[0].id, c->id, sizeof c->id);
    tern_strbuf_append(&to->calls[0].name, c->name.ptr, c->name.len);
    tern_strbuf_append(&to->calls[0].arguments, tern_strbuf_text(&c->arguments), c->arguments.len);
    return !to->calls[0].name.failed && !to->calls[0].arguments.failed;
}

// Runs the calls of the message, which is the last one; a result follows for each. Calls that are
// no longer run get a result that says so, since templates require a result for every call.
static tern_status run_calls(tern_agent *a, tern_error *err) {
    size_t at = a->n_messages - 1, n = a->messages[at].n_calls;
    for (size_t i = 0; i < n; i++) {
        agent_message *m;
        tern_agent_call call;
        size_t n_before = 0;
        TERN_TRY(tern_agent_add(a, AGENT_RESULT, &m, err));
        if (!copy_call(m, &a->messages[at].calls[i])) return tern_fail_memory(err, sizeof *m);
        if (a->is_stopped || is_late(a)) {
            tern_strbuf_puts(&m->content, "[not run]");
            continue;
        }
        tern_agent_call_view(a, &m->calls[0], &call);
        a->result.n_calls++;
        tern_agent_tell(a, &(tern_agent_event){.kind = TERN_AGENT_CALL, .text = "", .call = &call});
        double begin = tern_seconds();
        bool ok = !a->is_stopped && tern_agent_run_call(a, &m->calls[0], &m->content, &n_before);
        if (m->content.failed) return tern_fail_memory(err, m->content.len);
        if (!ok) a->result.n_failed++;
        tern_agent_tell(a, &(tern_agent_event){.kind = TERN_AGENT_RESULT,
                                               .text = tern_strbuf_text(&m->content),
                                               .n_bytes = m->content.len,
                                               .n_before = n_before,
                                               .call = &call,
                                               .failed = !ok,
                                               .seconds = tern_seconds() - begin});
    }
    return TERN_OK;
}

static tern_status end_with(tern_agent *a, tern_agent_end end, bool *goes_on) {
    a->result.end = end;
    *goes_on = false;
    return TERN_OK;
}

static tern_status step(tern_agent *a, bool *goes_on, tern_error *err) {
    const tern_agent_event begins = {.kind = TERN_AGENT_STEP, .text = ""};
    agent_message *m;
    bool fits = false;
    tern_stop_reason reason = TERN_STOP_END;
    if (a->result.n_steps == a->desc.max_steps) return end_with(a, TERN_AGENT_STEPS, goes_on);
    if (a->desc.max_tokens && !tokens_left(a)) return end_with(a, TERN_AGENT_TOKENS, goes_on);
    TERN_TRY(tern_agent_render(a, &fits, err));
    if (!fits) return end_with(a, TERN_AGENT_CONTEXT, goes_on);
    a->result.n_steps++;
    tern_agent_tell(a, &begins);
    TERN_TRY(tern_agent_add(a, AGENT_ASSISTANT, &m, err));
    TERN_TRY(answer(a, m, &reason, err));
    bool is_cut = reason == TERN_STOP_LENGTH || reason == TERN_STOP_CONTEXT;
    if (a->is_stopped) return end_with(a, TERN_AGENT_STOPPED, goes_on);
    if (is_late(a)) return end_with(a, TERN_AGENT_TIME, goes_on);
    if (is_cut && a->desc.max_tokens && !tokens_left(a))
        return end_with(a, TERN_AGENT_TOKENS, goes_on);
    if (is_cut) { // by the context: generated again where there is more room
        if (!tern_agent_shorten(a)) return end_with(a, TERN_AGENT_CONTEXT, goes_on);
        tern_agent_free_message(&a->messages[--a->n_messages]);
        return TERN_OK;
    }
    if (m->n_calls == 0) return end_with(a, TERN_AGENT_FINISHED, goes_on);
    TERN_TRY(run_calls(a, err));
    if (a->is_stopped) return end_with(a, TERN_AGENT_STOPPED, goes_on);
    if (is_late(a)) return end_with(a, TERN_AGENT_TIME, goes_on);
    return TERN_OK;
}

// ---- A run -------------------------------------------------------------------------------------

static tern_status add_text(tern_agent *a, agent_role role, const char *text, tern_error *err) {
    agent_message *m;
    TERN_TRY(tern_agent_add(a, role, &m, err));
    tern_strbuf_puts(&m->content, text);
    return m->content.failed ? tern_fail_memory(err, strlen(text)) : TERN_OK;
}

static void tell_notes(tern_agent *a) {
    for (char *line = a->notes.ptr, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        tern_agent_tell(a, &(tern_agent_event){.kind = TERN_AGENT_NOTE,
                                               .text = line,
                                               .n_bytes = (size_t)(end - line)});
    }
    tern_strbuf_clear(&a->notes);
}

// A run that failed or was stopped may have left calls without results, or an answer cut short:
// they are removed, so that the conversation ends where another role may speak.
static void close_turn(tern_agent *a) {
    if (a->result.end == TERN_AGENT_FINISHED) return;
    while (a->n_messages > 0) {
        const agent_message *m = &a->messages[a->n_messages - 1];
        if (m->role != AGENT_ASSISTANT || (m->n_calls == 0 && m->content.len)) break;
        tern_agent_free_message(&a->messages[--a->n_messages]);
    }
}

static void take_answer(tern_agent *a) {
    a->result.answer = "";
    for (size_t i = a->n_messages; i-- > 0;) {
        const agent_message *m = &a->messages[i];
        if (m->role == AGENT_USER) return; // there was no answer
        if (m->role != AGENT_ASSISTANT) continue;
        a->result.answer = tern_strbuf_text(&m->content);
        a->result.n_bytes = m->content.len;
        return;
    }
}

static tern_status run(tern_agent *a, const char *task, tern_agent_result *result,
                       tern_error *err) {
    bool goes_on = true;
    tern_status status = TERN_OK;
    a->result = (tern_agent_result){.end = TERN_AGENT_STOPPED};
    a->begin = tern_seconds();
    a->is_stopped = a->is_late = false;
    size_t before = a->n_messages;
    if (before == 0 && a->system) status = add_text(a, AGENT_SYSTEM, a->system, err);
    if (status == TERN_OK) status = add_text(a, AGENT_USER, task, err);
    tell_notes(a);
    while (status == TERN_OK && goes_on) status = step(a, &goes_on, err);
    close_turn(a);
    take_answer(a);
    // A failed task is not part of the further conversation.
    while (status != TERN_OK && a->n_messages > before)
        tern_agent_free_message(&a->messages[--a->n_messages]);
    if (status != TERN_OK) a->result.answer = "", a->result.n_bytes = 0;
    a->result.seconds = tern_seconds() - a->begin;
    *result = a->result;
    return status;
}

tern_status tern_agent_run(tern_agent *a, const char *task, tern_agent_result *result,
                           tern_error *err) {
    tern_clear(err);
    TERN_NEED(a);
    TERN_NEED(task);
    TERN_NEED(result);
    if (a->is_running) return tern_fail(err, TERN_ERR_ARGUMENT, "the agent is running");
    tern_session_call call;
    tern_session_enter(&call, a->session);
    a->is_running = true;
    tern_status status = run(a, task, result, err);
    a->is_running = false;
    tern_session_leave(&call);
    if (a->is_closed) {
        result->answer = "", result->n_bytes = 0;
        tern_agent_close(a);
    }
    return status;
}

tern_status tern_agent_messages(const tern_agent *a, tern_text_fn on_text_fn, void *user,
                                tern_error *err) {
    tern_clear(err);
    TERN_NEED(a);
    TERN_NEED(on_text_fn);
    tern_strbuf json = {0};
    tern_json_writer w = {.out = &json};
    tern_json_open(&w, NULL, '[');
    for (size_t i = 0; i < a->n_messages; i++) tern_agent_put_message(&a->messages[i], &w);
    tern_json_close(&w, ']');
    tern_status status = json.failed ? tern_fail_memory(err, json.len) : TERN_OK;
    if (status == TERN_OK && !on_text_fn(user, json.ptr, json.len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    tern_strbuf_free(&json);
    return status;
}

// ---- Opening -----------------------------------------------------------------------------------

static void fill_defaults(tern_agent *a, const tern_agent_desc *desc) {
    tern_agent_desc *d = &a->desc;
    int32_t quarter = tern_session_n_context(a->session) / 4;
    *d = *desc;
    a->sampling = desc->sampling ? *desc->sampling : tern_sampling_default();
    d->sampling = &a->sampling;
    if (d->max_steps <= 0) d->max_steps = 20;
    if (d->max_tokens < 0) d->max_tokens = 0;
    if (d->answer_tokens <= 0 || d->answer_tokens > quarter)
        d->answer_tokens = d->answer_tokens <= 0 && quarter > 1024 ? 1024 : quarter;
    if (d->answer_tokens < 1) d->answer_tokens = 1;
    if (d->result_bytes == 0) d->result_bytes = 16384;
    d->tools = NULL;
    d->n_tools = 0;
}

tern_status tern_agent_open(tern_agent **out, tern_session *session, const tern_agent_desc *desc,
                            tern_error *err) {
    tern_clear(err);
    const tern_agent_desc none = {0};
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(session);
    if (!desc) desc = &none;
    TERN_NEED_ARRAY(desc->tools, desc->n_tools);
    if (isnan(desc->max_seconds))
        return tern_fail(err, TERN_ERR_ARGUMENT, "max_seconds is not a number");
    tern_agent *a = tern_alloc(TERN_MEM_SESSION, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    a->session = session;
    tern_session_hold(session);
    a->model = session->model;
    fill_defaults(a, desc);
    tern_status status = TERN_OK;
    if (desc->system && *desc->system && !(a->system = tern_strdup(TERN_MEM_SESSION, desc->system)))
        status = tern_fail_memory(err, strlen(desc->system));
    if (status == TERN_OK) status = tern_agent_take_tools(a, desc, err);
    if (status == TERN_OK) status = tern_group_open(&a->group, a->model, NULL, err);
    if (status == TERN_OK)
        *out = a;
    else
        tern_agent_close(a);
    return status;
}

void tern_agent_close(tern_agent *a) {
    if (!a) return;
    if (a->is_running) { // in its own callback: freed when the run has ended
        a->is_closed = a->is_stopped = true;
        return;
    }
    tern_group_close(a->group);
    tern_agent_free_tools(a);
    for (size_t i = 0; i < a->n_messages; i++) tern_agent_free_message(&a->messages[i]);
    tern_free(a->messages);
    tern_free(a->system);
    tern_strbuf_free(&a->rendered);
    tern_free(a->ids.ids);
    tern_session_let_go(a->session);
    tern_free(a);
}
