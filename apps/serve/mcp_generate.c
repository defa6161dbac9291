// The tool that generates text: a request as OpenAI's clients make it, answered as a tool's result.
#include <string.h>
#include "apps/serve/answer_forms.h"
#include "apps/serve/interfaces.h"
#include "apps/serve/mcp_server.h"

// ---- The result --------------------------------------------------------------------------------

// The text as a value, where a schema made it JSON and nothing cut it. It is written again: a line
// of a stream has no line ends, and the model may have made some.
static void put_value(tern_json_writer *w, const ask *a, const choice *c) {
    tern_json_doc doc;
    if (!a->format.param || a->format.kind != TERN_GRAMMAR_JSON_SCHEMA || openai_was_cut(c)) return;
    if (tern_json_parse(&doc, tern_strbuf_text(&c->text), c->text.len, NULL) != TERN_OK) return;
    tern_json_put_value(w, "value", &doc, tern_json_root(&doc));
    tern_json_free(&doc);
}

static void put_result(request *x, tern_strbuf *out) {
    const ask *a = x->ask;
    const choice *c = &a->choices[0];
    ask_usage u = ask_usage_of(a);
    tern_strbuf reasoning = {0};
    tern_json_writer w = mcp_open_result(&x->mcp->call, out);
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

static void put_delta(request *x, choice *c, const text_delta *d, tern_strbuf *out) {
    (void)d;
    mcp_send_progress(x, (double)c->n_ids, x->ask->params.max_tokens, out);
}

static void put_over(request *x, choice *c, tern_strbuf *out) {
    (void)x;
    (void)c;
    (void)out;
}

static void put_end(request *x, tern_strbuf *out) {
    tern_strbuf line = {0};
    put_result(x, &line);
    mcp_put_event(x, &line, out);
    tern_strbuf_free(&line);
}

static void put_error(request *x, const api_error *e, tern_strbuf *out) {
    tern_strbuf line = {0};
    mcp_put_failure(&x->mcp->call, e->message, &line);
    mcp_put_event(x, &line, out);
    tern_strbuf_free(&line);
}

static const ask_writer writer = {
    "text/event-stream", put_result, NULL, put_delta, put_over, put_end, put_error};

// ---- The arguments -----------------------------------------------------------------------------

// A prompt is a conversation of one message, unless it is to be gone on with as it is.
static void read_prompt(request *x, const fields *f, messages *m) {
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
        ask_add_text(x, prompt, "prompt", f->error);
        return;
    }
    if (system.ptr) messages_add(m, TERN_STR("system"), system, "system", f->error);
    if (prompt.ptr)
        messages_add(m, TERN_STR("user"), prompt, "prompt", f->error);
    else
        openai_read_messages(f, m, &prefill);
    ask_add_chat(x, m, prefill, f->error);
}

static void generate(request *x) {
    api_error e = {0};
    messages m = {0};
    fields f;
    ask *a = ask_start(x, &writer, &f, &e);
    if (!a) return;
    a->is_chat = true;
    a->stream = mcp_may_stream(x);
    ask_read_model(x, &f);
    ask_read_sampling(x, &f, 2);
    ask_read_max_tokens(x, &f, "max_tokens");
    ask_read_stops(x, &f, "stop", 16);
    openai_read_thinking(x, &f);
    ask_read_formats(x, &f);
    read_prompt(x, &f, &m);
    messages_free(&m);
    ask_begin(x, &e);
}

void mcp_generate(request *x) { mcp_with_model(x, "completion", generate); }
