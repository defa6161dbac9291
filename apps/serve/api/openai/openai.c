// OpenAI's interface, the parts that its routes share: errors, models, messages, likelihoods.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "apps/serve/http/dates.h"

// ---- Errors ------------------------------------------------------------------------------------

static void put_error(tern_json_writer *w, const request *req, const api_error *e) {
    const char *type = e->status == 401   ? "authentication_error"
                       : e->status == 403 ? "permission_error"
                       : e->status == 429 ? "rate_limit_error"
                       : e->status == 503 ? "unavailable_error"
                       : e->status >= 500 ? "server_error"
                                          : "invalid_request_error";
    (void)req;
    tern_json_open(w, NULL, '{');
    tern_json_open(w, "error", '{');
    tern_json_put_text(w, "message", e->message);
    tern_json_put_text(w, "type", type);
    tern_json_put_text(w, "param", e->param[0] ? e->param : NULL);
    tern_json_put_text(w, "code", e->code);
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}
const error_format error_format_openai = {.put_error = put_error};

bool openai_was_cut(const choice *c) {
    return c->stats.reason == TERN_STOP_LENGTH || c->stats.reason == TERN_STOP_CONTEXT;
}

void openai_put_stream_error(request *req, const api_error *e, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf_puts(out, "data: ");
    error_format_openai.put_error(&w, req, e);
    tern_strbuf_puts(out, "\n\n");
}

const char *openai_finish_reason(const choice *c) {
    if (openai_was_cut(c)) return "length";
    return blocks_end_in_calls(&c->blocks) ? "tool_calls" : "stop";
}

// ---- Models ------------------------------------------------------------------------------------

// llama-server's word for it.
static const char *state_name(const served *s) {
    return s->state == SERVED_OPEN                                   ? "loaded"
           : s->state == SERVED_OPENING || s->state == SERVED_WANTED ? "loading"
                                                                     : "unloaded";
}

// vLLM's: an adapter of the model, under its own name or an alias.
static void put_parent(tern_json_writer *w, tern_str name, const served *s) {
    const size_t adapter = registry_adapter(s->registry, name);
    if (adapter == SIZE_MAX) return;
    tern_json_put_text(w, "root", s->registry->adapters.list[adapter].path);
    tern_json_put_text(w, "parent", s->about.name);
}

// OpenAI's members, Anthropic's, and llama-server's in "meta" and "status", in one object.
static void put_model(tern_json_writer *w, tern_str name, const served *s) {
    const hub_facts *f = &s->facts;
    tern_json_open(w, NULL, '{');
    tern_json_put_bytes(w, "id", name.ptr, name.len);
    tern_json_put_text(w, "object", "model");
    tern_json_put_int(w, "created", s->about.modified);
    date_put(w, "created_at", (time_t)s->about.modified); // Anthropic's
    tern_json_put_text(w, "owned_by", "tern");
    tern_json_put_text(w, "type", "model");
    tern_json_put_text(w, "display_name", f->label[0] ? f->label : s->about.name);
    put_parent(w, name, s);
    tern_json_open(w, "meta", '{');
    tern_json_put_int(w, "n_vocab", f->n_vocab);
    tern_json_put_int(w, "n_ctx_train", f->n_context);
    if (s->state == SERVED_OPEN) tern_json_put_int(w, "n_ctx", s->n_context);
    tern_json_put_int(w, "n_embd", f->n_embd);
    tern_json_put_int(w, "n_params", f->n_weights);
    tern_json_put_int(w, "size", f->file_bytes);
    tern_json_close(w, '}');
    tern_json_open(w, "capabilities", '[');
    tern_json_put_text(w, NULL, served_ability(s));
    if (served_sees(s)) tern_json_put_text(w, NULL, "multimodal"); // llama-server's word
    tern_json_close(w, ']');
    tern_json_open(w, "status", '{');
    tern_json_put_text(w, "value", state_name(s));
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}

static void put_name(tern_json_writer *w, const char *key, tern_str name) {
    if (name.ptr)
        tern_json_put_bytes(w, key, name.ptr, name.len);
    else
        tern_json_put_text(w, key, NULL);
}

void openai_models(request *req) {
    registry *r = req->server->registry;
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_str first = {NULL, 0}, last = {NULL, 0}, name;
    served *s;
    registry_refresh(r);
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "object", "list");
    tern_json_open(&w, "data", '[');
    for (size_t i = 0; (name = registry_name(r, i, &s)).ptr; i++, last = name) {
        put_model(&w, name, s);
        if (i == 0) first = name;
    }
    tern_json_close(&w, ']');
    tern_json_put_bool(&w, "has_more", false);
    put_name(&w, "first_id", first);
    put_name(&w, "last_id", last);
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

void openai_model(request *req) {
    static const char prefix[] = "/v1/models/";
    tern_str name = {req->path.ptr + sizeof prefix - 1, req->path.len - (sizeof prefix - 1)};
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_error err = {0};
    api_error e = {0};
    const served *s = registry_find(req->server->registry, name, &err);
    if (s) {
        put_model(&w, name, s);
        reply_json(req, &out);
        tern_strbuf_free(&out);
        return;
    }
    api_fail(&e, 404, "model_not_found", "model", "%s", err.message);
    reply_error(req, &e);
}

// ---- Messages ----------------------------------------------------------------------------------

void openai_refuse_unsupported(const fields *f) {
    static const char *const names[] = {"functions", "audio", "modalities", "web_search_options"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tern_json *only = tern_json_first(f->doc, field_any(f, names[i]));
        bool is_text = !strcmp(names[i], "modalities") && tern_str_is(tern_json_str(only), "text");
        if (!is_text) field_refuse(f, names[i]);
    }
}

// Templates support one system message, at the beginning: a second one is joined to it.
bool openai_add_message(messages *m, tern_str role, message_content *c, const char *param,
                        api_error *e) {
    if (tern_str_is(role, "developer")) role = TERN_STR("system");
    bool is_second = m->n == 1 && tern_str_is(role, "system") && !strcmp(m->list[0].role, "system");
    if (!is_second || c->parts.len) return messages_add_content(m, role, c, param, e);
    message_content joined = {0};
    tern_strbuf_printf(&joined.text, "%s\n\n", m->list[0].content);
    tern_strbuf_append(&joined.text, tern_strbuf_text(&c->text), c->text.len);
    joined.text.failed |= c->text.failed;
    const struct heard *heard = m->images.heard;
    messages_free(m);
    m->images.heard = heard;
    bool ok = messages_add_content(m, role, &joined, param, e);
    content_free(&joined);
    return ok;
}

// A call as this or another server sent it; Ollama's arguments are objects.
static void check_calls(const fields *f, const tern_json *calls) {
    bool ok = tern_json_is(calls, TERN_JSON_ARRAY);
    for (const tern_json *call = ok ? tern_json_first(f->doc, calls) : NULL; call;
         call = tern_json_next(f->doc, calls, call)) {
        const tern_json *function = tern_json_get(f->doc, call, "function");
        if (!function) function = tern_json_get(f->doc, call, "custom");
        ok &= tern_json_str(tern_json_get(f->doc, function, "name")).len > 0;
    }
    if (!ok) field_fail(f, "tool_calls", "an array of calls of functions");
}

// Templates know calls of functions: a custom tool's input is the one argument.
static void put_calls(tern_json_writer *w, const fields *f, const tern_json *calls) {
    tern_json_open(w, "tool_calls", '[');
    for (const tern_json *call = tern_json_first(f->doc, calls); call;
         call = tern_json_next(f->doc, calls, call)) {
        const tern_json *custom = tern_json_get(f->doc, call, "custom");
        tern_strbuf input = {0};
        tern_json_writer inner = {.out = &input};
        if (!custom) {
            tern_json_put_value(w, NULL, f->doc, call);
            continue;
        }
        tern_json_open(&inner, NULL, '{');
        tern_json_put_value(&inner, "input", f->doc, tern_json_get(f->doc, custom, "input"));
        tern_json_close(&inner, '}');
        tern_json_open(w, NULL, '{');
        tern_json_put_value(w, "id", f->doc, tern_json_get(f->doc, call, "id"));
        tern_json_put_text(w, "type", "function");
        tern_json_open(w, "function", '{');
        tern_json_put_value(w, "name", f->doc, tern_json_get(f->doc, custom, "name"));
        tern_json_put_bytes(w, "arguments", tern_strbuf_text(&input), input.len);
        tern_json_close(w, '}');
        tern_json_close(w, '}');
        w->out->failed |= input.failed;
        tern_strbuf_free(&input);
    }
    tern_json_close(w, ']');
}

// Further members of a message that templates use. Ollama has other names for some.
static void read_more(const fields *f, messages *m) {
    static const char *const names[][2] = {{"tool_calls", "tool_calls"},
                                           {"tool_call_id", "tool_call_id"},
                                           {"name", "name"},
                                           {"reasoning_content", "reasoning_content"},
                                           {"reasoning", "reasoning_content"},
                                           {"thinking", "reasoning_content"},
                                           {"tool_name", "name"}};
    tern_json_writer w = messages_more(m);
    bool is_taken[sizeof names / sizeof *names] = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tern_json *value = field_any(f, names[i][0]);
        for (size_t k = 0; k < i; k++)
            is_taken[i] |= is_taken[k] && !strcmp(names[k][1], names[i][1]);
        if (!value || is_taken[i]) continue;
        if (i == 0)
            check_calls(f, value);
        else
            field_text(f, names[i][0]); // a string, or an error
        is_taken[i] = true;
        if (i > 0)
            tern_json_put_value(&w, names[i][1], f->doc, value);
        else if (!f->error->status)
            put_calls(&w, f, value);
    }
}

static void read_message(const fields *f, const tern_json *message, messages *m) {
    fields inner = {f->doc, message, "messages.", f->error};
    message_content c = {0};
    if (!tern_json_is(message, TERN_JSON_OBJECT)) {
        field_fail(f, "messages", "an array of objects");
        return;
    }
    tern_str role = field_text(&inner, "role");
    const tern_json *value = field_any(&inner, "content");
    field_refuse(&inner, "function_call");
    if (!role.ptr) field_fail(&inner, "role", "given");
    tern_str refusal = field_text(&inner, "refusal"); // beside content: what was said instead
    bool may_lack = refusal.ptr || field_any(&inner, "tool_calls") != NULL;
    if (!value && !may_lack) field_fail(&inner, "content", "given");
    content_read_images(&inner, m, &c, "messages.images");
    bool ok = !f->error->status &&
              (!value || content_read(&c, &m->images, &inner, value, "messages.content"));
    if (ok && refusal.len) tern_strbuf_append(&c.text, refusal.ptr, refusal.len);
    if (ok && openai_add_message(m, role, &c, "messages.content", f->error)) read_more(&inner, m);
    content_free(&c);
}

void openai_read_messages(const fields *f, messages *m, bool *prefill) {
    const tern_json *list = field_array(f, "messages");
    *prefill = false;
    if (!list || list->n == 0) field_fail(f, "messages", "an array of at least one message");
    for (const tern_json *item = tern_json_first(f->doc, list); item && !f->error->status;
         item = tern_json_next(f->doc, list, item))
        read_message(f, item, m);
    *prefill =
        m->n > 0 && !strcmp(m->list[m->n - 1].role, "assistant") && !m->list[m->n - 1].more.len;
}

// vLLM's two fields. By default a last message of the assistant is continued, and after any other
// one the model is made to answer.
void openai_read_ending(request *req, const fields *f, bool *prefill) {
    const bool is_said = field_any(f, "continue_final_message") != NULL;
    const bool goes_on = field_bool(f, "continue_final_message", false);
    const bool answers = field_bool(f, "add_generation_prompt", !goes_on);
    if (f->error->status) return;
    if (goes_on && answers)
        api_fail(f->error, 400, NULL, "continue_final_message",
                 "'continue_final_message' and 'add_generation_prompt' exclude each other");
    else if (goes_on && !*prefill)
        api_fail(f->error, 400, NULL, "continue_final_message",
                 "'continue_final_message': the last message is not a text of the assistant");
    else if (is_said || !answers)
        *prefill = goes_on;
    req->generation->is_closed = !answers && !goes_on;
}

// ---- Likelihoods -------------------------------------------------------------------------------

static void put_logprob(tern_json_writer *w, const served *s, const tern_token_logprob *t) {
    tern_strbuf piece = {0};
    put_piece(s, t->id, &piece);
    tern_json_put_bytes(w, "token", tern_strbuf_text(&piece), piece.len);
    // JSON has no infinity: this is OpenAI's substitute.
    tern_json_put_float(w, "logprob", isfinite(t->logprob) ? t->logprob : -9999.0f);
    tern_json_open(w, "bytes", '[');
    for (size_t i = 0; i < piece.len; i++) tern_json_put_int(w, NULL, (unsigned char)piece.ptr[i]);
    tern_json_close(w, ']');
    w->out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}

bool next_to_send(const request *req, choice *c, tern_strbuf *piece) {
    sent_tokens *t = &c->sent;
    const bool is_over = !c->job, is_cut = !is_over || c->stats.reason == TERN_STOP_STRING;
    if (req->generation->takes_apart && !c->blocks.n && !is_over)
        return false; // reasoning may come
    while (t->n < c->n_ids && (t->n_bytes < c->n_raw || !is_cut)) {
        const bool is_aside = t->n < c->n_aside;
        tern_strbuf_clear(piece);
        put_piece(req->model, c->logprobs[t->n++ * c->n_each].id, piece);
        t->n_bytes += piece->len;
        if (is_aside) continue;
        // A token may begin within a character: its place is then that character's.
        const bool is_within = piece->len && (piece->ptr[0] & 0xc0) == 0x80 && t->n_chars;
        t->offset = t->n_chars - is_within;
        for (size_t i = 0; i < piece->len; i++) t->n_chars += (piece->ptr[i] & 0xc0) != 0x80;
        return true;
    }
    return false;
}

bool has_to_send(const request *req, const choice *c) {
    choice same = *c;
    tern_strbuf piece = {0};
    const bool has = req->generation->params.logprobs && next_to_send(req, &same, &piece);
    tern_strbuf_free(&piece);
    return has;
}

void put_token_logprobs(tern_json_writer *w, const request *req, choice *c) {
    tern_strbuf piece = {0};
    while (next_to_send(req, c, &piece)) {
        const tern_token_logprob *row = c->logprobs + (c->sent.n - 1) * c->n_each;
        tern_json_open(w, NULL, '{');
        put_logprob(w, req->model, row);
        tern_json_open(w, "top_logprobs", '[');
        for (size_t k = 1; k < c->n_each; k++) {
            tern_json_open(w, NULL, '{');
            put_logprob(w, req->model, row + k);
            tern_json_close(w, '}');
        }
        tern_json_close(w, ']');
        tern_json_close(w, '}');
    }
    w->out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}
