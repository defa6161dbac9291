// Ollama's interface, generating: lines of JSON, streamed unless asked otherwise.
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/infill.h"
#include "apps/serve/api/ollama/ollama.h"

static void put_error(tern_json_writer *w, const request *req, const api_error *e) {
    (void)req;
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "error", e->message);
    tern_json_close(w, '}');
}
const error_format error_format_ollama = {.put_error = put_error};

// ---- Answers -----------------------------------------------------------------------------------

static int64_t nanoseconds(double seconds) { return (int64_t)(seconds * 1e9); }

// Calls are sent whole, and their arguments are objects.
static void put_call(tern_json_writer *w, const answer_block *b) {
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "id", b->id);
    tern_json_open(w, "function", '{');
    tern_json_put_int(w, "index", b->call);
    tern_json_put_bytes(w, "name", tern_strbuf_text(&b->name), b->name.len);
    tern_json_put_raw(w, "arguments", block_arguments(b));
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}

// A message's members besides its text; only_new: those new in the last piece.
static void put_more(tern_json_writer *w, const blocks *b, bool only_new) {
    tern_strbuf thinking = {0};
    bool has_calls = false;
    for (size_t i = 0; i < b->n_parts && only_new; i++)
        if (b->list[b->parts[i].block].kind == BLOCK_REASONING)
            tern_strbuf_append(&thinking, b->list[b->parts[i].block].text.ptr + b->parts[i].at,
                               b->parts[i].n);
    if (!only_new) blocks_text(b, BLOCK_REASONING, &thinking);
    if (thinking.len) tern_json_put_bytes(w, "thinking", thinking.ptr, thinking.len);
    w->out->failed |= thinking.failed;
    tern_strbuf_free(&thinking);
    if (only_new) return;
    for (size_t i = 0; i < b->n; i++) {
        const answer_block *each = &b->list[i];
        if (each->kind != BLOCK_CALL || !block_has_object(each)) continue;
        if (!has_calls) tern_json_open(w, "tool_calls", '[');
        has_calls = true;
        put_call(w, each);
    }
    if (has_calls) tern_json_close(w, ']');
}

// A line without its end. text: the answer's, or a piece of it; b: its other members.
static void put_prefix(tern_json_writer *w, const request *req, const char *text, size_t n,
                       const blocks *b, bool only_new) {
    char now[40];
    ollama_time(now);
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "model", req->generation->model);
    tern_json_put_text(w, "created_at", now);
    if (req->generation->is_chat) {
        tern_json_open(w, "message", '{');
        tern_json_put_text(w, "role", "assistant");
        tern_json_put_bytes(w, "content", text, n);
        if (b) put_more(w, b, only_new);
        tern_json_close(w, '}');
    } else {
        tern_json_put_bytes(w, "response", text, n);
        if (b) put_more(w, b, only_new);
    }
}

static void put_logprobs(tern_json_writer *w, request *req, choice *c) {
    if (!req->generation->params.logprobs) return;
    tern_json_open(w, "logprobs", '[');
    put_token_logprobs(w, req, c);
    tern_json_close(w, ']');
}

static void put_done(tern_json_writer *w, const request *req, const choice *c) {
    const tern_generate_stats *s = &c->stats;
    tern_json_put_bool(w, "done", true);
    tern_json_put_text(w, "done_reason", openai_was_cut(c) ? "length" : "stop");
    if (!req->generation->is_chat &&
        !req->generation->sees) { // ids of images mean nothing to others
        const generation_prompt *p = &req->generation->prompts[0];
        tern_json_open(w, "context", '[');
        for (size_t i = 0; i < p->n_ids; i++) tern_json_put_int(w, NULL, p->ids[i]);
        for (size_t i = 0; i < c->n_ids; i++) tern_json_put_int(w, NULL, c->ids[i]);
        // An answer that ended by itself is over for the next request, too.
        const int32_t end = req->model->info.eos_id;
        const bool has_end = c->n_ids && c->ids[c->n_ids - 1] == end;
        if (s->reason == TERN_STOP_END && end >= 0 && !has_end) tern_json_put_int(w, NULL, end);
        tern_json_close(w, ']');
    }
    tern_json_put_int(w, "total_duration", nanoseconds(ollama_since(req->generation->began)));
    tern_json_put_int(w, "load_duration", nanoseconds(req->waited));
    tern_json_put_int(w, "prompt_eval_count", (int64_t)s->n_prompt);
    tern_json_put_int(w, "prompt_eval_duration", nanoseconds(s->prompt_seconds));
    tern_json_put_int(w, "eval_count", (int64_t)s->n_generated);
    tern_json_put_int(w, "eval_duration", nanoseconds(s->generate_seconds));
    tern_json_close(w, '}');
}

static void put_whole(request *req, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    choice *c = &req->generation->choices[0];
    put_prefix(&w, req, tern_strbuf_text(&c->text), c->text.len, &c->blocks, false);
    put_logprobs(&w, req, c);
    put_done(&w, req, c);
}

static void put_text(request *req, choice *c, const text_delta *d, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    bool is_reasoning =
        c->blocks.n_parts && c->blocks.list[c->blocks.parts[0].block].kind == BLOCK_REASONING;
    if (d->n_text == 0 && !is_reasoning && !has_to_send(req, c)) return;
    put_prefix(&w, req, d->text, d->n_text, &c->blocks, true);
    put_logprobs(&w, req, c);
    tern_json_put_bool(&w, "done", false);
    tern_json_close(&w, '}');
    tern_strbuf_putc(out, '\n');
}

static void put_over(request *req, choice *c, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    if (c->blocks.n_calls) {
        blocks calls = c->blocks;
        while (calls.n && calls.list->kind != BLOCK_CALL)
            calls.list++, calls.n--; // its reasoning has been sent
        put_prefix(&w, req, "", 0, &calls, false);
        tern_json_put_bool(&w, "done", false);
        tern_json_close(&w, '}');
        tern_strbuf_putc(out, '\n');
        w = (tern_json_writer){.out = out};
    }
    put_prefix(&w, req, "", 0, NULL, false);
    if (has_to_send(req, c)) put_logprobs(&w, req, c);
    put_done(&w, req, c);
    tern_strbuf_putc(out, '\n');
}

static void put_stream_error(request *req, const api_error *e, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    put_error(&w, req, e);
    tern_strbuf_putc(out, '\n');
}

static const generation_writer writer = {
    "application/x-ndjson", put_whole, NULL, put_text, put_over, NULL, put_stream_error};

// ---- Requests ----------------------------------------------------------------------------------

// "think": true, false, or how much.
static void read_think(generation *a, const fields *f) {
    tern_json_writer w = {.out = &a->switches, .follows = true};
    const tern_json *think = field_any(f, "think");
    if (!think) return;
    bool is_word = tern_json_is(think, TERN_JSON_STRING);
    if (!is_word && !tern_json_is(think, TERN_JSON_BOOL))
        field_fail(f, "think", "true, false, or a word");
    tern_json_put_bool(&w, "enable_thinking", is_word || think->n);
}

// Shared by both routes. num_gpu, num_thread and the like are the server's settings, and ignored.
static void read_common(request *req, const fields *f) {
    generation *a = req->generation;
    fields o = fields_within(f, "options", "options.");
    generation_read_model(req, f);
    generation_read_sampling(req, &o, 100);
    field_refuse(&o, "logit_bias");
    field_int(&o, "n", 1, 1, 1);
    int64_t n = field_int(&o, "num_predict", -1, -2, INT32_MAX);
    a->params.max_tokens = n > 0 ? (int32_t)n : 0;
    generation_read_stops(req, &o, "stop", 64);
    a->stream = field_bool(f, "stream", true);
    a->params.logprobs = field_bool(f, "logprobs", false);
    a->params.n_top_logprobs = (int32_t)field_int(f, "top_logprobs", 0, 0, TERN_TOP_LOGPROBS_MAX);
    read_think(a, f);
}

// A request without a prompt loads or unloads the model.
static void reply_loaded(request *req) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    put_prefix(&w, req, "", 0, NULL, false);
    tern_json_put_bool(&w, "done", true);
    tern_json_put_text(&w, "done_reason",
                       req->has_keep && req->keep_seconds == 0 ? "unload" : "load");
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void chat(request *req) {
    api_error e = {0};
    messages m = {0};
    bool prefill = false;
    fields f;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    a->is_chat = true;
    read_common(req, &f);
    const tern_json *list = field_array(&f, "messages");
    if (!e.status && (!list || list->n == 0)) {
        reply_loaded(req);
        return;
    }
    openai_read_tools(req, &f);
    generation_read_ollama_format(req, &f);
    if (!e.status) openai_read_messages(&f, &m, &prefill);
    generation_add_chat(req, &m, prefill, &e);
    messages_free(&m);
    generation_begin(req, &e);
}

static void generate(request *req) {
    api_error e = {0};
    messages m = {0};
    message_content c = {0};
    fields f;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    read_common(req, &f);
    generation_read_ollama_format(req, &f);
    field_refuse(&f, "template");
    generation_read_before(req, &f, "context");
    tern_str prompt = field_text(&f, "prompt"), system = field_text(&f, "system");
    if (!e.status && prompt.len == 0) {
        reply_loaded(req);
        return;
    }
    const infill_wanted fill = {.prefix = prompt, .suffix = field_text(&f, "suffix")};
    if (fill.suffix.len) {
        field_refuse(&f, "images");
        field_refuse(&f, "context");
        generation_add_infill(req, &fill, &f);
    } else if (field_bool(&f, "raw", false)) {
        field_refuse(&f, "images"); // their place in the text is unknown
        field_refuse(&f, "context");
        generation_add_text(req, prompt, "prompt", &e);
    } else {
        if (system.len) messages_add(&m, TERN_STR("system"), system, "system", &e);
        content_read_images(&f, &m, &c, "images");
        tern_strbuf_append(&c.text, prompt.ptr, prompt.len);
        messages_add_content(&m, TERN_STR("user"), &c, "prompt", &e);
        generation_add_chat(req, &m, false, &e);
    }
    content_free(&c);
    messages_free(&m);
    generation_begin(req, &e);
}

void ollama_chat(request *req) { ollama_with_model(req, "messages", chat); }
void ollama_generate(request *req) { ollama_with_model(req, "prompt", generate); }
