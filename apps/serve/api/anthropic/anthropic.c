// Anthropic's interface: POST /v1/messages and /v1/messages/count_tokens.
#include <stdio.h>
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "base/hash.h"

static void put_error(tern_json_writer *w, const request *req, const api_error *e) {
    const char *type = e->status == 401   ? "authentication_error"
                       : e->status == 403 ? "permission_error"
                       : e->status == 404 ? "not_found_error"
                       : e->status == 413 ? "request_too_large"
                       : e->status == 429 ? "rate_limit_error"
                       : e->status == 503 ? "overloaded_error"
                       : e->status >= 500 ? "api_error"
                                          : "invalid_request_error";
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "type", "error");
    tern_json_open(w, "error", '{');
    tern_json_put_text(w, "type", type);
    tern_json_put_text(w, "message", e->message);
    tern_json_close(w, '}');
    tern_json_put_text(w, "request_id", req->id);
    tern_json_close(w, '}');
}
const error_format error_format_anthropic = {.put_error = put_error};

// ---- Answers -----------------------------------------------------------------------------------

static const char *stop_reason(const choice *c) {
    switch (c->stats.reason) {
    case TERN_STOP_LENGTH: return "max_tokens";
    case TERN_STOP_STRING: return "stop_sequence";
    case TERN_STOP_CONTEXT: return "model_context_window_exceeded";
    default: return blocks_end_in_calls(&c->blocks) ? "tool_use" : "end_turn";
    }
}

static void put_reason(tern_json_writer *w, const generation *a, const choice *c) {
    bool by_text = c && c->stats.reason == TERN_STOP_STRING;
    tern_json_put_text(w, "stop_reason", c ? stop_reason(c) : NULL);
    tern_json_put_text(w, "stop_sequence", by_text ? a->stops[c->stats.stop] : NULL);
}

// A prompt's tokens are reported as computed ones and cached ones.
static void put_usage(tern_json_writer *w, const generation *a, const choice *c) {
    size_t n_prompt = a->prompts[0].n_ids, n_cached = c ? c->stats.n_reused : 0;
    tern_json_open(w, "usage", '{');
    tern_json_put_int(w, "input_tokens", (int64_t)(n_prompt - n_cached));
    tern_json_put_int(w, "cache_creation_input_tokens", 0);
    tern_json_put_int(w, "cache_read_input_tokens", (int64_t)n_cached);
    tern_json_put_int(w, "output_tokens", c ? (int64_t)c->stats.n_generated : 0);
    tern_json_close(w, '}');
}

// Clients keep thinking for the next request only if it is signed. This server reads it unsigned,
// too: the signature is the text's hash.
static void put_signature(tern_json_writer *w, const answer_block *b) {
    char text[24];
    snprintf(text, sizeof text, "tern%016llx",
             (unsigned long long)tern_hash64(1, tern_strbuf_text(&b->text), b->text.len));
    tern_json_put_text(w, "signature", text);
}

// A block of the content. is_whole: with all of its text; else the start of a streamed block.
static void put_block(tern_json_writer *w, const char *key, const answer_block *b, bool is_whole) {
    const char *text = is_whole && b ? tern_strbuf_text(&b->text) : "";
    size_t n = is_whole && b ? b->text.len : 0;
    tern_json_open(w, key, '{');
    if (b && b->kind == BLOCK_CALL) {
        char id[24];
        snprintf(id, sizeof id, "toolu_%s", b->id);
        tern_json_put_text(w, "type", "tool_use");
        tern_json_put_text(w, "id", id);
        tern_json_put_bytes(w, "name", tern_strbuf_text(&b->name), b->name.len);
        tern_json_put_raw(w, "input",
                          is_whole && block_has_object(b) ? block_arguments(b)
                                                          : "{}"); // a call that was cut
    } else if (b && b->kind == BLOCK_REASONING) {
        tern_json_put_text(w, "type", "thinking");
        tern_json_put_bytes(w, "thinking", text, n);
        if (is_whole)
            put_signature(w, b);
        else
            tern_json_put_text(w, "signature", "");
    } else {
        tern_json_put_text(w, "type", "text");
        tern_json_put_bytes(w, "text", text, n);
    }
    tern_json_close(w, '}');
}

// The message, with its text if it is complete.
static void put_message(tern_json_writer *w, const char *key, const request *req, const choice *c) {
    char id[64];
    snprintf(id, sizeof id, "msg_%s", req->id + 4);
    tern_json_open(w, key, '{');
    tern_json_put_text(w, "id", id);
    tern_json_put_text(w, "type", "message");
    tern_json_put_text(w, "role", "assistant");
    tern_json_put_text(w, "model", req->generation->model);
    tern_json_open(w, "content", '[');
    for (size_t i = 0; c && i < c->blocks.n; i++) put_block(w, NULL, &c->blocks.list[i], true);
    if (c && !c->blocks.n) put_block(w, NULL, NULL, true); // it said nothing
    tern_json_close(w, ']');
    put_reason(w, req->generation, c);
    put_usage(w, req->generation, c);
    tern_json_close(w, '}');
}

static void put_whole(request *req, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    put_message(&w, NULL, req, &req->generation->choices[0]);
}

// ---- As a stream: every event says its name twice ----------------------------------------------

static tern_json_writer open_event(tern_strbuf *out, const char *type) {
    tern_json_writer w = {.out = out};
    tern_strbuf_printf(out, "event: %s\ndata: ", type);
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "type", type);
    return w;
}

static void close_event(tern_json_writer *w) {
    tern_json_close(w, '}');
    tern_strbuf_puts(w->out, "\n\n");
}

static void begin_stream(request *req, tern_strbuf *out) {
    tern_json_writer w = open_event(out, "message_start");
    put_message(&w, "message", req, NULL);
    close_event(&w);
    w = open_event(out, "ping");
    close_event(&w);
}

static void end_block(size_t i, const answer_block *b, tern_strbuf *out) {
    tern_json_writer w = {0};
    if (b && b->kind == BLOCK_REASONING) {
        w = open_event(out, "content_block_delta");
        tern_json_put_int(&w, "index", (int64_t)i);
        tern_json_open(&w, "delta", '{');
        tern_json_put_text(&w, "type", "signature_delta");
        put_signature(&w, b);
        tern_json_close(&w, '}');
        close_event(&w);
    }
    w = open_event(out, "content_block_stop");
    tern_json_put_int(&w, "index", (int64_t)i);
    close_event(&w);
}

static void begin_block(size_t i, const answer_block *b, tern_strbuf *out) {
    if (i > 0) end_block(i - 1, b - 1, out);
    tern_json_writer w = open_event(out, "content_block_start");
    tern_json_put_int(&w, "index", (int64_t)i);
    put_block(&w, "content_block", b, false);
    close_event(&w);
}

static void put_text(request *req, choice *c, const text_delta *d, tern_strbuf *out) {
    static const char *const types[][2] = {{"text_delta", "text"},
                                           {"thinking_delta", "thinking"},
                                           {"input_json_delta", "partial_json"}};
    (void)req;
    (void)d;
    for (size_t i = 0; i < c->blocks.n_parts; i++) {
        const answer_part *p = &c->blocks.parts[i];
        const answer_block *b = &c->blocks.list[p->block];
        if (p->begins) begin_block(p->block, b, out);
        if (p->n == 0) continue;
        tern_json_writer w = open_event(out, "content_block_delta");
        tern_json_put_int(&w, "index", (int64_t)p->block);
        tern_json_open(&w, "delta", '{');
        tern_json_put_text(&w, "type", types[b->kind][0]);
        tern_json_put_bytes(&w, types[b->kind][1], tern_strbuf_text(&b->text) + p->at, p->n);
        tern_json_close(&w, '}');
        close_event(&w);
    }
}

static void put_over(request *req, choice *c, tern_strbuf *out) {
    size_t n = c->blocks.n;
    if (!n) begin_block(0, NULL, out); // it said nothing
    end_block(n ? n - 1 : 0, n ? &c->blocks.list[n - 1] : NULL, out);
    tern_json_writer w = open_event(out, "message_delta");
    tern_json_open(&w, "delta", '{');
    put_reason(&w, req->generation, c);
    tern_json_close(&w, '}');
    put_usage(&w, req->generation, c);
    close_event(&w);
    w = open_event(out, "message_stop");
    close_event(&w);
}

static void put_stream_error(request *req, const api_error *e, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf_puts(out, "event: error\ndata: ");
    put_error(&w, req, e);
    tern_strbuf_puts(out, "\n\n");
}

static const generation_writer writer = {
    "text/event-stream", put_whole, begin_stream, put_text, put_over, NULL, put_stream_error};

// ---- Requests ----------------------------------------------------------------------------------

void anthropic_messages(request *req) {
    api_error e = {0};
    fields f;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    if (!field_any(&f, "max_tokens")) field_fail(&f, "max_tokens", "given");
    generation_read_max_tokens(req, &f, "max_tokens");
    generation_read_sampling(req, &f, 1);
    generation_read_stops(req, &f, "stop_sequences", 64);
    a->stream = field_bool(&f, "stream", false);
    anthropic_read(req, &f);
    generation_begin(req, &e);
}

void anthropic_count_tokens(request *req) {
    generation_count(req, &writer, anthropic_read, "\"input_tokens\":");
}
