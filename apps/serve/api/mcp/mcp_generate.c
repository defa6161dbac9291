// The tool that generates text: reads arguments like an OpenAI request and answers with a tool's
// result.
#include <string.h>
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/mcp/mcp_server.h"

// ---- The result --------------------------------------------------------------------------------

// The text as a value, if a schema made it JSON and nothing cut it. It is serialised again, since
// the model may have written line ends, which a line of a stream must not have.
static void put_value(tern_json_writer *w, const generation *a, const choice *c) {
    tern_json_doc doc;
    if (!a->format.param || a->format.kind != TERN_GRAMMAR_JSON_SCHEMA || openai_was_cut(c)) return;
    if (tern_json_parse(&doc, tern_strbuf_text(&c->text), c->text.len, NULL) != TERN_OK) return;
    tern_json_put_value(w, "value", &doc, tern_json_root(&doc));
    tern_json_free(&doc);
}

static void put_result(request *req, tern_strbuf *out) {
    const generation *a = req->generation;
    const choice *c = &a->choices[0];
    generation_usage u = generation_usage_of(a);
    tern_strbuf reasoning = {0};
    tern_json_writer w = mcp_open_result(&req->mcp->call, out);
    mcp_put_text(&w, tern_strbuf_text(&c->text), c->text.len);
    tern_json_open(&w, "structuredContent", '{');
    tern_json_put_bytes(&w, "text", tern_strbuf_text(&c->text), c->text.len);
    put_value(&w, a, c);
    blocks_text(&c->blocks, BLOCK_REASONING, &reasoning);
    if (reasoning.len) tern_json_put_bytes(&w, "reasoning", reasoning.ptr, reasoning.len);
    tern_json_put_text(&w, "finish_reason", openai_finish_reason(c));
    tern_json_put_text(&w, "model", a->model);
    tern_json_open(&w, "usage", '{');
    tern_json_put_int(&w, "prompt_tokens", (int64_t)u.n_prompt);
    tern_json_put_int(&w, "cached_tokens", (int64_t)u.n_cached);
    tern_json_put_int(&w, "completion_tokens", (int64_t)u.n_generated);
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
    tern_json_put_bool(&w, "isError", false);
    mcp_close_result(&w);
    out->failed |= reasoning.failed;
    tern_strbuf_free(&reasoning);
}

static void put_delta(request *req, choice *c, const text_delta *d, tern_strbuf *out) {
    (void)d;
    mcp_send_progress(req, (double)c->n_ids, req->generation->params.max_tokens, out);
}

static void put_over(request *req, choice *c, tern_strbuf *out) {
    (void)req;
    (void)c;
    (void)out;
}

static void put_end(request *req, tern_strbuf *out) {
    tern_strbuf line = {0};
    put_result(req, &line);
    mcp_put_event(req, &line, out);
    tern_strbuf_free(&line);
}

static void put_error(request *req, const api_error *e, tern_strbuf *out) {
    tern_strbuf line = {0};
    mcp_put_failure(&req->mcp->call, e->message, &line);
    mcp_put_event(req, &line, out);
    tern_strbuf_free(&line);
}

static const generation_writer writer = {
    "text/event-stream", put_result, NULL, put_delta, put_over, put_end, put_error};

// ---- The arguments -----------------------------------------------------------------------------

// A prompt is a conversation of one message, unless the raw text should be continued.
static void read_prompt(request *req, const fields *f, messages *m) {
    tern_str prompt = field_text(f, "prompt"), system = field_text(f, "system");
    bool is_raw = field_bool(f, "raw", false), prefill = false;
    if (!prompt.ptr == !field_any(f, "messages"))
        field_fail(f, "prompt", "given, or 'messages' in its place");
    else if (!prompt.ptr && (is_raw || system.ptr))
        field_fail(f, is_raw ? "raw" : "system", "given with 'prompt' only");
    else if (is_raw && system.ptr)
        field_fail(f, "system", "left out with 'raw'");
    if (f->error->status) return;
    if (is_raw) {
        generation_add_text(req, prompt, "prompt", f->error);
        return;
    }
    if (system.ptr) messages_add(m, TERN_STR("system"), system, "system", f->error);
    if (prompt.ptr)
        messages_add(m, TERN_STR("user"), prompt, "prompt", f->error);
    else
        openai_read_messages(f, m, &prefill);
    generation_add_chat(req, m, prefill, f->error);
}

static void generate(request *req) {
    api_error e = {0};
    messages m = {0};
    fields f;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    a->is_chat = true;
    a->stream = mcp_may_stream(req);
    generation_read_model(req, &f);
    generation_read_sampling(req, &f, 2);
    generation_read_max_tokens(req, &f, "max_tokens");
    generation_read_stops(req, &f, "stop", 16);
    openai_read_thinking(req, &f);
    generation_read_formats(req, &f);
    read_prompt(req, &f, &m);
    messages_free(&m);
    generation_begin(req, &e);
}

void mcp_generate(request *req) { mcp_with_model(req, "completion", generate); }
