// POST /v1/chat/completions.
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/api/infill.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/request/request_sounds.h"

static void put_prefix(tern_json_writer *w, const request *req, const char *object) {
    char id[64];
    snprintf(id, sizeof id, "chatcmpl-%s", req->id + 4);
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "id", id);
    tern_json_put_text(w, "object", object);
    tern_json_put_int(w, "created", req->generation->created);
    tern_json_put_text(w, "model", req->generation->model);
    tern_json_put_text(w, "system_fingerprint", "fp_tern");
}

static void put_usage(tern_json_writer *w, const generation *a) {
    generation_usage u = generation_usage_of(a);
    tern_json_open(w, "usage", '{');
    tern_json_put_int(w, "prompt_tokens", (int64_t)u.n_prompt);
    tern_json_put_int(w, "completion_tokens", (int64_t)u.n_generated);
    tern_json_put_int(w, "total_tokens", (int64_t)(u.n_prompt + u.n_generated));
    tern_json_open(w, "prompt_tokens_details", '{');
    tern_json_put_int(w, "cached_tokens", (int64_t)u.n_cached);
    tern_json_close(w, '}');
    tern_json_open(w, "completion_tokens_details", '{');
    size_t n_reasoning = 0;
    for (size_t i = 0; i < a->n_choices; i++) n_reasoning += a->choices[i].n_reasoning;
    tern_json_put_int(w, "reasoning_tokens", (int64_t)n_reasoning);
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}

static void put_logprobs(tern_json_writer *w, request *req, choice *c) {
    if (!req->generation->params.logprobs) {
        tern_json_put_null(w, "logprobs");
        return;
    }
    tern_json_open(w, "logprobs", '{');
    tern_json_open(w, "content", '[');
    put_token_logprobs(w, req, c);
    tern_json_close(w, ']');
    tern_json_put_null(w, "refusal");
    tern_json_close(w, '}');
}

// A custom tool, whose input is a text.
static void put_custom_call(tern_json_writer *w, const answer_block *b) {
    tern_strbuf input = {0};
    responses_put_input(b, &input);
    tern_json_put_text(w, "id", b->id);
    tern_json_put_text(w, "type", "custom");
    tern_json_open(w, "custom", '{');
    tern_json_put_bytes(w, "name", tern_strbuf_text(&b->name), b->name.len);
    tern_json_put_bytes(w, "input", tern_strbuf_text(&input), input.len);
    tern_json_close(w, '}');
    w->out->failed |= input.failed;
    tern_strbuf_free(&input);
}

static bool is_custom(const request *req, answer_block *b) {
    return b->kind == BLOCK_CALL && responses_called_tool(req, b)->is_custom;
}

// A call, whole.
static void put_call(tern_json_writer *w, const request *req, answer_block *b) {
    tern_json_open(w, NULL, '{');
    if (is_custom(req, b)) {
        put_custom_call(w, b);
        tern_json_close(w, '}');
        return;
    }
    tern_json_put_text(w, "id", b->id);
    tern_json_put_text(w, "type", "function");
    tern_json_open(w, "function", '{');
    tern_json_put_bytes(w, "name", tern_strbuf_text(&b->name), b->name.len);
    tern_json_put_text(w, "arguments", block_arguments(b));
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}

static void put_message(tern_json_writer *w, const choice *c) {
    const blocks *b = &c->blocks;
    tern_strbuf reasoning = {0};
    blocks_text(b, BLOCK_REASONING, &reasoning);
    tern_json_open(w, "message", '{');
    tern_json_put_text(w, "role", "assistant");
    if (c->text.len || !b->n_calls)
        tern_json_put_bytes(w, "content", tern_strbuf_text(&c->text), c->text.len);
    else
        tern_json_put_null(w, "content");
    if (reasoning.len) tern_json_put_bytes(w, "reasoning_content", reasoning.ptr, reasoning.len);
    if (b->n_calls) tern_json_open(w, "tool_calls", '[');
    for (size_t i = 0; i < b->n; i++)
        if (b->list[i].kind == BLOCK_CALL) put_call(w, c->request, &b->list[i]);
    if (b->n_calls) tern_json_close(w, ']');
    tern_json_put_null(w, "refusal");
    tern_json_close(w, '}');
    w->out->failed |= reasoning.failed;
    tern_strbuf_free(&reasoning);
}

// A function that had to be called by its name is an end like others, as OpenAI has it.
static const char *finish_reason(const choice *c) {
    const char *reason = openai_finish_reason(c);
    const bool is_named = c->request->generation->tool.len > 0;
    return is_named && !strcmp(reason, "tool_calls") ? "stop" : reason;
}

static void put_whole(request *req, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    generation *a = req->generation;
    put_prefix(&w, req, "chat.completion");
    tern_json_open(&w, "choices", '[');
    for (size_t i = 0; i < a->n_choices; i++) {
        choice *c = &a->choices[i];
        tern_json_open(&w, NULL, '{');
        tern_json_put_int(&w, "index", c->index);
        put_message(&w, c);
        put_logprobs(&w, req, c);
        tern_json_put_text(&w, "finish_reason", finish_reason(c));
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    put_usage(&w, a);
    tern_json_close(&w, '}');
}

// ---- As a stream -------------------------------------------------------------------------------

// An event: a chunk with one choice or none. delta: its JSON; finish: its finish reason.
static void put_chunk(request *req, choice *c, const char *delta, bool has_logprobs,
                      const char *finish, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf_puts(out, "data: ");
    put_prefix(&w, req, "chat.completion.chunk");
    tern_json_open(&w, "choices", '[');
    if (c) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_int(&w, "index", c->index);
        tern_json_put_raw(&w, "delta", delta);
        if (has_logprobs)
            put_logprobs(&w, req, c);
        else
            tern_json_put_null(&w, "logprobs");
        tern_json_put_text(&w, "finish_reason", finish);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    if (!c)
        put_usage(&w, req->generation);
    else if (req->generation->with_usage)
        tern_json_put_null(&w, "usage");
    tern_json_close(&w, '}');
    tern_strbuf_puts(out, "\n\n");
}

static void begin_stream(request *req, tern_strbuf *out) {
    for (size_t i = 0; i < req->generation->n_choices; i++)
        put_chunk(req, &req->generation->choices[i], "{\"role\":\"assistant\",\"content\":\"\"}",
                  false, NULL, out);
}

// Every piece of a call has the call's index: clients sort pieces by it.
static void put_call_delta(tern_json_writer *w, const answer_block *b, const answer_part *p) {
    tern_json_open(w, "tool_calls", '[');
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "index", b->call);
    if (p->begins) {
        tern_json_put_text(w, "id", b->id);
        tern_json_put_text(w, "type", "function");
    }
    tern_json_open(w, "function", '{');
    if (p->begins) tern_json_put_bytes(w, "name", tern_strbuf_text(&b->name), b->name.len);
    tern_json_put_bytes(w, "arguments", tern_strbuf_text(&b->text) + p->at, p->n);
    tern_json_close(w, '}');
    tern_json_close(w, '}');
    tern_json_close(w, ']');
}

static void put_delta(request *req, choice *c, const answer_part *p, bool has_logprobs,
                      tern_strbuf *out) {
    static const char *const names[] = {"content", "reasoning_content"};
    const answer_block *b = p ? &c->blocks.list[p->block] : NULL;
    tern_strbuf delta = {0};
    tern_json_writer w = {.out = &delta};
    tern_json_open(&w, NULL, '{');
    if (!b)
        tern_json_put_text(&w, "content", "");
    else if (b->kind == BLOCK_CALL)
        put_call_delta(&w, b, p);
    else
        tern_json_put_bytes(&w, names[b->kind], tern_strbuf_text(&b->text) + p->at, p->n);
    tern_json_close(&w, '}');
    put_chunk(req, c, tern_strbuf_text(&delta), has_logprobs, NULL, out);
    out->failed |= delta.failed;
    tern_strbuf_free(&delta);
}

// The tokens' likelihoods are sent with the first piece; or alone, if their text is still held
// back.
static void put_text(request *req, choice *c, const text_delta *d, tern_strbuf *out) {
    const blocks *b = &c->blocks;
    (void)d;
    if (b->n_parts == 0 && has_to_send(req, c)) put_delta(req, c, NULL, true, out);
    for (size_t i = 0; i < b->n_parts; i++)
        if (!is_custom(req, &b->list[b->parts[i].block]))
            put_delta(req, c, &b->parts[i], i == 0, out);
}

// The input of a custom tool is known when its arguments are whole: such calls come at the end.
static void put_custom_calls(request *req, choice *c, tern_strbuf *out) {
    for (size_t i = 0; i < c->blocks.n; i++) {
        answer_block *b = &c->blocks.list[i];
        tern_strbuf delta = {0};
        tern_json_writer w = {.out = &delta};
        if (!is_custom(req, b)) continue;
        tern_json_open(&w, NULL, '{');
        tern_json_open(&w, "tool_calls", '[');
        tern_json_open(&w, NULL, '{');
        tern_json_put_int(&w, "index", b->call);
        put_custom_call(&w, b);
        tern_json_close(&w, '}');
        tern_json_close(&w, ']');
        tern_json_close(&w, '}');
        put_chunk(req, c, tern_strbuf_text(&delta), false, NULL, out);
        out->failed |= delta.failed;
        tern_strbuf_free(&delta);
    }
}

static void put_over(request *req, choice *c, tern_strbuf *out) {
    put_custom_calls(req, c, out);
    put_chunk(req, c, "{}", has_to_send(req, c), finish_reason(c), out);
}

static void end_stream(request *req, tern_strbuf *out) {
    if (req->generation->with_usage) put_chunk(req, NULL, NULL, false, NULL, out);
    tern_strbuf_puts(out, "data: [DONE]\n\n");
}

static const generation_writer writer = {
    "text/event-stream",    put_whole, begin_stream, put_text, put_over, end_stream,
    openai_put_stream_error};

// ---- The request -------------------------------------------------------------------------------

void openai_chat(request *req) {
    api_error e = {0};
    messages m = {0};
    bool prefill;
    fields f = fields_of_body(req, &e);
    if (!request_hear(req, &f, field_any(&f, "messages"))) return;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    m.images.heard = req->heard;
    a->is_chat = true;
    generation_read_model(req, &f);
    generation_read_sampling(req, &f, 2);
    generation_read_max_tokens(req, &f, "max_tokens");
    generation_read_max_tokens(req, &f, "max_completion_tokens"); // the newer name wins
    generation_read_stops(req, &f, "stop", 16);
    generation_read_biases(req, &f, "logit_bias");
    a->n = (int)field_int(&f, "n", 1, 1, 128);
    a->stream = field_bool(&f, "stream", false);
    fields options = fields_within(&f, "stream_options", "stream_options.");
    a->with_usage = field_bool(&options, "include_usage", false);
    a->params.logprobs = field_bool(&f, "logprobs", false);
    a->params.n_top_logprobs = (int32_t)field_int(&f, "top_logprobs", 0, 0, TERN_TOP_LOGPROBS_MAX);
    if (a->params.n_top_logprobs && !a->params.logprobs)
        field_fail(&f, "top_logprobs", "given together with 'logprobs'");
    field_refuse(&f, "echo");
    field_refuse(&f, "suffix");
    field_int(&f, "best_of", 1, 1, 1);
    openai_refuse_unsupported(&f);
    openai_read_tools(req, &f);
    openai_read_thinking(req, &f);
    generation_read_formats(req, &f);
    openai_read_messages(&f, &m, &prefill);
    openai_read_ending(req, &f, &prefill);
    generation_add_chat(req, &m, prefill, &e);
    messages_free(&m);
    generation_begin(req, &e);
}

// Mistral's: text between a prompt and a suffix, answered as chats are.
void mistral_fim(request *req) {
    api_error e = {0};
    fields f;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    generation_read_model(req, &f);
    generation_read_sampling(req, &f, 2);
    if (field_any(&f, "random_seed")) generation_read_seed(req, &f, "random_seed");
    generation_read_max_tokens(req, &f, "max_tokens");
    generation_read_stops(req, &f, "stop", 16);
    a->stream = field_bool(&f, "stream", false);
    openai_refuse_unsupported(&f);
    generation_read_formats(req, &f);
    const infill_wanted w = {.prefix = field_text(&f, "prompt"),
                             .suffix = field_text(&f, "suffix")};
    if (!w.prefix.ptr) field_fail(&f, "prompt", "a string");
    generation_add_infill(req, &w, &f);
    generation_begin(req, &e);
}
