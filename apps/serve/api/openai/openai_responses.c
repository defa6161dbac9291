// POST /v1/responses, without a store: a client sends the whole conversation each time.
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "apps/serve/api/interfaces.h"
#include "apps/serve/request/request_sounds.h"
#include "apps/serve/cache/item_store.h"

// ---- The response ------------------------------------------------------------------------------

static const char *status_of(const choice *c) {
    return openai_was_cut(c) ? "incomplete" : "completed";
}

static void put_usage(tern_json_writer *w, const generation *a) {
    generation_usage u = generation_usage_of(a);
    tern_json_open(w, "usage", '{');
    tern_json_put_int(w, "input_tokens", (int64_t)u.n_prompt);
    tern_json_open(w, "input_tokens_details", '{');
    tern_json_put_int(w, "cached_tokens", (int64_t)u.n_cached);
    tern_json_put_int(w, "cache_write_tokens", 0);
    tern_json_close(w, '}');
    tern_json_put_int(w, "output_tokens", (int64_t)u.n_generated);
    tern_json_open(w, "output_tokens_details", '{');
    tern_json_put_int(w, "reasoning_tokens", (int64_t)a->choices[0].n_reasoning);
    tern_json_close(w, '}');
    tern_json_put_int(w, "total_tokens", (int64_t)(u.n_prompt + u.n_generated));
    tern_json_close(w, '}');
}

// The answer's blocks are items: messages, reasoning, calls. b NULL: a message that says nothing.

static void put_part(tern_json_writer *w, const char *key, request *req, choice *c,
                     const answer_block *b, bool is_whole) {
    bool is_reasoning = b && b->kind == BLOCK_REASONING;
    bool has = is_whole && b;
    tern_json_open(w, key, '{');
    tern_json_put_text(w, "type", is_reasoning ? "reasoning_text" : "output_text");
    tern_json_put_bytes(w, "text", has ? tern_strbuf_text(&b->text) : "", has ? b->text.len : 0);
    if (!is_reasoning) {
        tern_json_put_raw(w, "annotations", "[]");
        tern_json_open(w, "logprobs", '[');
        if (is_whole) c->sent = (sent_tokens){0}; // from the start again
        if (is_whole && req->generation->params.logprobs) put_token_logprobs(w, req, c);
        tern_json_close(w, ']');
    }
    tern_json_close(w, '}');
}

// Whether a block is a call of a custom tool.
static bool is_custom(const request *req, answer_block *b) {
    return b && b->kind == BLOCK_CALL && responses_called_tool(req, b)->is_custom;
}

static void put_item_id(tern_json_writer *w, const char *key, const request *req, answer_block *b,
                        size_t i) {
    static const char *const kinds[] = {"msg", "rs", "fc"};
    char id[80];
    snprintf(id, sizeof id, "%s_%s_%zu",
             is_custom(req, b) ? "ctc" : kinds[b ? b->kind : BLOCK_TEXT], req->id + 4, i);
    tern_json_put_text(w, key, id);
}

static void put_text_of(tern_json_writer *w, const char *key, const answer_block *b) {
    tern_strbuf text = {0};
    responses_put_input(b, &text);
    tern_json_put_bytes(w, key, tern_strbuf_text(&text), text.len);
    w->out->failed |= text.failed;
    tern_strbuf_free(&text);
}

static void put_call(tern_json_writer *w, const request *req, answer_block *b, bool is_whole) {
    const called_tool *tool = responses_called_tool(req, b);
    char id[24];
    snprintf(id, sizeof id, "call_%s", b->id);
    tern_json_put_text(w, "call_id", id);
    tern_json_put_bytes(w, "name", tool->name.ptr, tool->name.len);
    if (tool->space.len) tern_json_put_bytes(w, "namespace", tool->space.ptr, tool->space.len);
    if (!tool->is_custom)
        tern_json_put_text(w, "arguments", is_whole ? block_arguments(b) : "");
    else if (is_whole)
        put_text_of(w, "input", b);
    else
        tern_json_put_text(w, "input", "");
}

// A block of a choice, number i of the answer's; NULL: an answer without any.
typedef struct item_at {
    choice *c;
    answer_block *b;
    size_t i;
} item_at;

static void put_item(tern_json_writer *w, const char *key, request *req, item_at at,
                     bool is_whole) {
    choice *c = at.c;
    answer_block *b = at.b;
    const size_t i = at.i;
    block_kind kind = b ? b->kind : BLOCK_TEXT;
    bool is_last = i + 1 >= c->blocks.n;
    tern_json_open(w, key, '{');
    put_item_id(w, "id", req, b, i);
    tern_json_put_text(w, "type",
                       is_custom(req, b)    ? "custom_tool_call"
                       : kind == BLOCK_CALL ? "function_call"
                       : kind == BLOCK_TEXT ? "message"
                                            : "reasoning");
    tern_json_put_text(w, "status",
                       !is_whole ? "in_progress"
                       : is_last ? status_of(c)
                                 : "completed");
    if (kind == BLOCK_CALL) {
        put_call(w, req, b, is_whole);
        tern_json_close(w, '}');
        return;
    }
    if (kind == BLOCK_TEXT)
        tern_json_put_text(w, "role", "assistant");
    else
        tern_json_put_raw(w, "summary", "[]");
    tern_json_open(w, "content", '[');
    if (is_whole) put_part(w, NULL, req, c, b, true);
    tern_json_close(w, ']');
    tern_json_close(w, '}');
}

// Echoes a field of the request, a scalar of any type.
static void put_same(tern_json_writer *w, const request *req, const char *name) {
    const tern_json *v = tern_json_get(&req->body, tern_json_root(&req->body), name);
    if (tern_json_is(v, TERN_JSON_STRING))
        tern_json_put_bytes(w, name, v->text, v->n);
    else if (tern_json_is(v, TERN_JSON_NUMBER))
        tern_json_put_number(w, name, v->number);
    else
        tern_json_put_null(w, name);
}

static void put_metadata(tern_json_writer *w, const request *req) {
    const tern_json_doc *doc = &req->body;
    const tern_json *object = tern_json_get(doc, tern_json_root(doc), "metadata");
    bool has = tern_json_is(object, TERN_JSON_OBJECT);
    tern_strbuf name = {0};
    tern_json_open(w, "metadata", '{');
    for (const tern_json *key = has ? tern_json_first(doc, object) : NULL; key;
         key = tern_json_next(doc, object, key)) {
        tern_str k = tern_json_str(key), value = tern_json_str(tern_json_value_of(doc, key));
        if (!value.ptr || memchr(k.ptr, 0, k.len)) continue;
        tern_strbuf_clear(&name);
        tern_strbuf_append(&name, k.ptr, k.len);
        tern_json_put_bytes(w, tern_strbuf_text(&name), value.ptr, value.len);
    }
    tern_json_close(w, '}');
    w->out->failed |= name.failed;
    tern_strbuf_free(&name);
}

// The tools as received: clients expect all of their members back.
static void put_tools(tern_json_writer *w, const request *req) {
    const tern_json *tools = tern_json_get(&req->body, tern_json_root(&req->body), "tools");
    if (tern_json_is(tools, TERN_JSON_ARRAY))
        tern_json_put_value(w, "tools", &req->body, tools);
    else
        tern_json_put_raw(w, "tools", "[]");
}

// Echoes a field as it was received. otherwise: JSON, if it was not.
static void put_echo(tern_json_writer *w, const request *req, const char *name,
                     const char *otherwise) {
    const tern_json *v = tern_json_get(&req->body, tern_json_root(&req->body), name);
    if (v && !tern_json_is(v, TERN_JSON_NULL))
        tern_json_put_value(w, name, &req->body, v);
    else
        tern_json_put_raw(w, name, otherwise);
}

static void put_text_format(tern_json_writer *w, const request *req) {
    const tern_json *text = tern_json_get(&req->body, tern_json_root(&req->body), "text");
    const tern_json *verbosity = tern_json_get(&req->body, text, "verbosity");
    if (tern_json_get(&req->body, text, "format")) {
        tern_json_put_value(w, "text", &req->body, text);
        return;
    }
    tern_json_open(w, "text", '{');
    tern_json_put_raw(w, "format", "{\"type\":\"text\"}");
    if (verbosity) tern_json_put_value(w, "verbosity", &req->body, verbosity);
    tern_json_close(w, '}');
}

static void put_settings(tern_json_writer *w, const request *req) {
    put_same(w, req, "instructions");
    put_same(w, req, "max_output_tokens");
    put_metadata(w, req);
    tern_json_put_text(w, "model", req->generation->model);
    tern_json_put_bool(w, "parallel_tool_calls", !req->generation->one_call);
    tern_json_put_null(w, "previous_response_id");
    put_echo(w, req, "reasoning", "{\"effort\":null,\"summary\":null}");
    tern_json_put_bool(w, "store", false);
    put_same(w, req, "temperature");
    put_text_format(w, req);
    put_echo(w, req, "tool_choice", "\"auto\"");
    put_tools(w, req);
    tern_json_put_int(w, "top_logprobs", req->generation->params.n_top_logprobs);
    put_same(w, req, "top_p");
    put_echo(w, req, "truncation", "\"disabled\"");
    static const char *const names[] = {"max_tool_calls", "prompt_cache_key", "safety_identifier",
                                        "service_tier", "user"};
    const tern_json *body = tern_json_root(&req->body);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) // not all of them may be null
        if (tern_json_get(&req->body, body, names[i])) put_echo(w, req, names[i], "null");
}

// For requests that refer to it, unless the client says that it will not.
static void keep_item(const request *req, const tern_strbuf *out, size_t from, answer_block *b,
                      size_t i) {
    const tern_json_doc *doc = &req->body;
    tern_strbuf id = {0};
    tern_json_writer w = {.out = &id};
    if (!tern_json_bool(tern_json_get(doc, tern_json_root(doc), "store"), true) || out->failed)
        return;
    put_item_id(&w, NULL, req, b, i); // within quotation marks
    from += out->ptr[from] == ',';
    if (id.len > 2)
        item_store_put(req->server->items, req->owner, (tern_str){id.ptr + 1, id.len - 2},
                       (tern_str){out->ptr + from, out->len - from});
    tern_strbuf_free(&id);
}

// c: the answer, once it is over. Until then usage is left out, not null.
static void put_response(tern_json_writer *w, const char *key, request *req, choice *c) {
    bool is_cut = c && !strcmp(status_of(c), "incomplete");
    char id[64];
    snprintf(id, sizeof id, "resp_%s", req->id + 4);
    tern_json_open(w, key, '{');
    tern_json_put_text(w, "id", id);
    tern_json_put_text(w, "object", "response");
    tern_json_put_int(w, "created_at", req->generation->created);
    tern_json_put_text(w, "status", c ? status_of(c) : "in_progress");
    if (c)
        tern_json_put_int(w, "completed_at", (int64_t)time(NULL));
    else
        tern_json_put_null(w, "completed_at");
    tern_json_put_bool(w, "background", false);
    tern_json_put_null(w, "error");
    tern_json_put_raw(w, "incomplete_details",
                      is_cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    tern_json_open(w, "output", '[');
    for (size_t i = 0; c && i < c->blocks.n; i++) {
        const size_t from = w->out->len;
        put_item(w, NULL, req, (item_at){c, &c->blocks.list[i], i}, true);
        keep_item(req, w->out, from, &c->blocks.list[i], i);
    }
    if (c && !c->blocks.n) put_item(w, NULL, req, (item_at){c, NULL, 0}, true);
    tern_json_close(w, ']');
    put_settings(w, req);
    if (c) put_usage(w, req->generation);
    tern_json_close(w, '}');
}

static void put_whole(request *req, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    put_response(&w, NULL, req, &req->generation->choices[0]);
}

// ---- As a stream: every event has its name twice, and its number -------------------------------

static tern_json_writer open_event(request *req, tern_strbuf *out, const char *type) {
    tern_json_writer w = {.out = out};
    tern_strbuf_printf(out, "event: %s\ndata: ", type);
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "type", type);
    tern_json_put_int(&w, "sequence_number", (int64_t)req->generation->n_events++);
    return w;
}

static void close_event(tern_json_writer *w) {
    tern_json_close(w, '}');
    tern_strbuf_puts(w->out, "\n\n");
}

// An event about a piece of an item.
static tern_json_writer open_item_event(request *req, tern_strbuf *out, const char *type,
                                        answer_block *b, size_t i) {
    tern_json_writer w = open_event(req, out, type);
    put_item_id(&w, "item_id", req, b, i);
    tern_json_put_int(&w, "output_index", (int64_t)i);
    if (!b || b->kind != BLOCK_CALL) tern_json_put_int(&w, "content_index", 0);
    return w;
}

static void put_item_event(request *req, const char *type, item_at at, bool is_whole,
                           tern_strbuf *out) {
    tern_json_writer w = open_event(req, out, type);
    tern_json_put_int(&w, "output_index", (int64_t)at.i);
    put_item(&w, "item", req, at, is_whole);
    close_event(&w);
}

static void put_response_event(request *req, choice *c, const char *type, tern_strbuf *out) {
    tern_json_writer w = open_event(req, out, type);
    put_response(&w, "response", req, c);
    close_event(&w);
}

static void put_part_event(request *req, const char *type, item_at at, bool is_whole,
                           tern_strbuf *out) {
    if (at.b && at.b->kind == BLOCK_CALL) return;
    tern_json_writer w = open_item_event(req, out, type, at.b, at.i);
    put_part(&w, "part", req, at.c, at.b, is_whole);
    close_event(&w);
}

static void begin_stream(request *req, tern_strbuf *out) {
    put_response_event(req, NULL, "response.created", out);
    put_response_event(req, NULL, "response.in_progress", out);
}

static void begin_item(request *req, choice *c, answer_block *b, size_t i, tern_strbuf *out) {
    put_item_event(req, "response.output_item.added", (item_at){c, b, i}, false, out);
    put_part_event(req, "response.content_part.added", (item_at){c, b, i}, false, out);
}

// A custom tool's text is within the arguments, and is sent once they are complete.
static void end_custom(request *req, choice *c, answer_block *b, size_t i, tern_strbuf *out) {
    tern_json_writer w = open_item_event(req, out, "response.custom_tool_call_input.delta", b, i);
    put_text_of(&w, "delta", b);
    close_event(&w);
    w = open_item_event(req, out, "response.custom_tool_call_input.done", b, i);
    put_text_of(&w, "input", b);
    close_event(&w);
    put_item_event(req, "response.output_item.done", (item_at){c, b, i}, true, out);
}

static void end_item(request *req, choice *c, answer_block *b, size_t i, tern_strbuf *out) {
    static const char *const types[] = {"response.output_text.done", "response.reasoning_text.done",
                                        "response.function_call_arguments.done"};
    block_kind kind = b ? b->kind : BLOCK_TEXT;
    if (is_custom(req, b)) {
        end_custom(req, c, b, i, out);
        return;
    }
    tern_json_writer w = open_item_event(req, out, types[kind], b, i);
    if (kind == BLOCK_CALL) {
        const called_tool *tool = responses_called_tool(req, b);
        tern_json_put_bytes(&w, "name", tool->name.ptr, tool->name.len);
        tern_json_put_text(&w, "arguments", block_arguments(b));
    } else {
        tern_json_put_bytes(&w, "text", b ? tern_strbuf_text(&b->text) : "", b ? b->text.len : 0);
    }
    if (kind == BLOCK_TEXT) {
        tern_json_open(&w, "logprobs", '[');
        c->sent = (sent_tokens){0};
        if (req->generation->params.logprobs) put_token_logprobs(&w, req, c);
        tern_json_close(&w, ']');
    }
    close_event(&w);
    put_part_event(req, "response.content_part.done", (item_at){c, b, i}, true, out);
    put_item_event(req, "response.output_item.done", (item_at){c, b, i}, true, out);
}

// Tokens whose text is still held back are sent with the next piece that has text.
static void put_piece_event(request *req, choice *c, const answer_part *p, tern_strbuf *out) {
    static const char *const types[] = {"response.output_text.delta",
                                        "response.reasoning_text.delta",
                                        "response.function_call_arguments.delta"};
    answer_block *b = &c->blocks.list[p->block];
    if (is_custom(req, b)) return;
    tern_json_writer w = open_item_event(req, out, types[b->kind], b, p->block);
    tern_json_put_bytes(&w, "delta", tern_strbuf_text(&b->text) + p->at, p->n);
    if (b->kind == BLOCK_TEXT) {
        tern_json_open(&w, "logprobs", '[');
        if (req->generation->params.logprobs) put_token_logprobs(&w, req, c);
        tern_json_close(&w, ']');
    }
    close_event(&w);
}

static void put_text(request *req, choice *c, const text_delta *d, tern_strbuf *out) {
    (void)d;
    for (size_t i = 0; i < c->blocks.n_parts; i++) {
        const answer_part *p = &c->blocks.parts[i];
        if (p->begins && p->block > 0)
            end_item(req, c, &c->blocks.list[p->block - 1], p->block - 1, out);
        if (p->begins) begin_item(req, c, &c->blocks.list[p->block], p->block, out);
        if (p->n) put_piece_event(req, c, p, out);
    }
}

static void put_over(request *req, choice *c, tern_strbuf *out) {
    size_t n = c->blocks.n;
    if (!n) begin_item(req, c, NULL, 0, out);
    end_item(req, c, n ? &c->blocks.list[n - 1] : NULL, n ? n - 1 : 0, out);
    put_response_event(req, c, openai_was_cut(c) ? "response.incomplete" : "response.completed",
                       out);
}

static void put_stream_error(request *req, const api_error *e, tern_strbuf *out) {
    tern_json_writer w = open_event(req, out, "error");
    tern_json_put_text(&w, "code", e->code);
    tern_json_put_text(&w, "message", e->message);
    tern_json_put_text(&w, "param", e->param[0] ? e->param : NULL);
    close_event(&w);
}

static const generation_writer writer = {
    "text/event-stream", put_whole, begin_stream, put_text, put_over, NULL, put_stream_error};

// ---- The request -------------------------------------------------------------------------------

// Likelihoods are requested by name, in a list with values that this server does not support.
static void read_logprobs(generation *a, const fields *f) {
    const tern_json *list = field_array(f, "include");
    for (const tern_json *item = tern_json_first(f->doc, list); item;
         item = tern_json_next(f->doc, list, item))
        a->params.logprobs |= tern_str_is(tern_json_str(item), "message.output_text.logprobs");
    a->params.n_top_logprobs = (int32_t)field_int(f, "top_logprobs", 0, 0, TERN_TOP_LOGPROBS_MAX);
    if (a->params.n_top_logprobs) a->params.logprobs = true;
}

void openai_responses(request *req) {
    api_error e = {0};
    fields f = fields_of_body(req, &e);
    if (!request_hear(req, &f, field_any(&f, "input"))) return;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    generation_read_sampling(req, &f, 2);
    a->stream = field_bool(&f, "stream", false);
    read_logprobs(a, &f);
    openai_read_response(req, &f);
    generation_begin(req, &e);
}

void openai_count_tokens(request *req) {
    api_error e = {0};
    const fields f = fields_of_body(req, &e);
    if (!request_hear(req, &f, field_any(&f, "input"))) return;
    generation_count(req, &writer, openai_read_response,
                     "\"object\":\"response.input_tokens\",\"input_tokens\":");
}
