// Vectors of texts, by five interfaces: OpenAI's POST /v1/embeddings, llama-server's /embedding,
// Ollama's /api/embed and its older /api/embeddings, and MCP's tool.
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/mcp/mcp_server.h"
#include "apps/serve/api/ollama/ollama.h"
#include "apps/serve/request/texts.h"
#include "base/alloc.h"

// ---- Vectors as JSON ---------------------------------------------------------------------------

static void put_numbers(tern_json_writer *w, const char *key, const texts *t, size_t i) {
    tern_json_open(w, key, '[');
    for (size_t k = 0; k < t->width; k++)
        tern_json_put_float(w, NULL, t->numbers[i * t->width + k]);
    tern_json_close(w, ']');
}

// The bytes of float32 numbers as in memory, which is little-endian.
static void put_base64(tern_json_writer *w, const char *key, const float *numbers, size_t n) {
    tern_strbuf text = {0};
    tern_strbuf_base64(&text, numbers, n * sizeof *numbers);
    tern_json_put_bytes(w, key, tern_strbuf_text(&text), text.len);
    w->out->failed |= text.failed;
    tern_strbuf_free(&text);
}

static void reply_openai(request *req, const texts *t) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    int64_t n = (int64_t)texts_count_tokens(t);
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "object", "list");
    tern_json_put_text(&w, "model", req->generation->model);
    tern_json_open(&w, "data", '[');
    for (size_t i = 0; i < t->n; i++) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_text(&w, "object", "embedding");
        tern_json_put_int(&w, "index", (int64_t)i);
        if (t->as_base64)
            put_base64(&w, "embedding", t->numbers + i * t->width, t->width);
        else
            put_numbers(&w, "embedding", t, i);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    tern_json_open(&w, "usage", '{');
    tern_json_put_int(&w, "prompt_tokens", n);
    tern_json_put_int(&w, "total_tokens", n);
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

// llama-server has a list of vectors for each text: one if it pools.
static void reply_llama(request *req, const texts *t) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_json_open(&w, NULL, '[');
    for (size_t i = 0; i < t->n; i++) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_int(&w, "index", (int64_t)i);
        tern_json_open(&w, "embedding", '[');
        put_numbers(&w, NULL, t, i);
        tern_json_close(&w, ']');
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void put_ollama(tern_strbuf *out, const request *req, const texts *t) {
    tern_json_writer w = {.out = out};
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "model", req->generation->model);
    tern_json_open(&w, "embeddings", '[');
    for (size_t i = 0; t && i < t->n; i++) put_numbers(&w, NULL, t, i);
    tern_json_close(&w, ']');
    tern_json_put_int(&w, "total_duration", (int64_t)(ollama_since(req->generation->began) * 1e9));
    tern_json_put_int(&w, "load_duration", (int64_t)(req->waited * 1e9));
    tern_json_put_int(&w, "prompt_eval_count", t ? (int64_t)texts_count_tokens(t) : 0);
    tern_json_close(&w, '}');
}

static void reply_ollama(request *req, const texts *t) {
    tern_strbuf out = {0};
    put_ollama(&out, req, t);
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void reply_ollama_old(request *req, const texts *t) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_json_open(&w, NULL, '{');
    put_numbers(&w, "embedding", t, 0);
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

// For programs; a model that calls the tool gets only how many there are.
static void reply_mcp(request *req, const texts *t) {
    tern_strbuf out = {0}, words = {0};
    tern_json_writer w = mcp_open_result(&req->mcp->call, &out);
    tern_strbuf_printf(&words, "%zu vector%s of %zu numbers", t->n, t->n == 1 ? "" : "s", t->width);
    mcp_put_text(&w, tern_strbuf_text(&words), words.len);
    tern_json_open(&w, "structuredContent", '{');
    tern_json_put_text(&w, "model", req->generation->model);
    tern_json_put_int(&w, "dimensions", (int64_t)t->width);
    tern_json_open(&w, "embeddings", '[');
    for (size_t i = 0; i < t->n; i++) put_numbers(&w, NULL, t, i);
    tern_json_close(&w, ']');
    tern_json_put_int(&w, "tokens", (int64_t)texts_count_tokens(t));
    tern_json_close(&w, '}');
    tern_json_put_bool(&w, "isError", false);
    mcp_close_result(&w);
    out.failed |= words.failed;
    mcp_reply(req, 200, &out);
    tern_strbuf_free(&words);
    tern_strbuf_free(&out);
}

// ---- Requests ----------------------------------------------------------------------------------

static void check_model(const request *req, const fields *f) {
    tern_embedding_info info;
    tern_embedding_get_info(req->model->model, &info);
    if (info.n_dims > 0 && info.n_labels == 0) return;
    // llama-server sends status 501; OpenAI's clients would retry that.
    const int unsupported = req->error_format->unsupported;
    api_fail(f->error, unsupported ? unsupported : 400, "unsupported_model", "model",
             "this model makes no embeddings: serve one that does, or this one with --pooling");
}

// The texts, whose list the caller fills; NULL: answered already.
static texts *begin(request *req, fields *f, const char *param, api_error *e,
                    void (*reply)(request *req, const texts *t)) {
    texts *t = generation_new(req, NULL, e) ? texts_new(req, param, reply, e) : NULL;
    *f = fields_of_body(req, e);
    if (!t) {
        reply_error(req, e);
        return NULL;
    }
    generation_read_model(req, f);
    check_model(req, f);
    return t;
}

static void read_dimensions(texts *t, const fields *f) {
    tern_embedding_info info;
    tern_embedding_get_info(t->model->model, &info);
    int64_t most = info.n_dims > 0 ? info.n_dims : 1;
    t->n_dims = (int32_t)field_int(f, "dimensions", 0, 1, most);
}

// One of the prompts that the model's files have.
static void read_prompt_name(texts *t, const fields *f) {
    tern_str prompt = field_text(f, "prompt_name");
    if (prompt.ptr && !(t->prompt = tern_strndup(TERN_MEM_SESSION, prompt.ptr, prompt.len)))
        api_fail_memory(f->error);
}

void openai_embeddings(request *req) {
    api_error e = {0};
    fields f;
    texts *t = begin(req, &f, "input", &e, reply_openai);
    if (!t) return;
    tern_str format = field_text(&f, "encoding_format");
    t->as_base64 = tern_str_is(format, "base64");
    if (format.ptr && !t->as_base64 && !tern_str_is(format, "float"))
        field_fail(&f, "encoding_format", "float or base64");
    read_dimensions(t, &f);
    read_prompt_name(t, &f);
    if (!e.status) texts_add_list(t, &f, field_any(&f, "input"));
    texts_begin(req, t, &e);
}

static void embed_for_tool(request *req) {
    api_error e = {0};
    fields f;
    texts *t = begin(req, &f, "texts", &e, reply_mcp);
    if (!t) return;
    read_dimensions(t, &f);
    read_prompt_name(t, &f);
    if (!e.status) texts_add_list(t, &f, field_any(&f, "texts"));
    if (!e.status) mcp_begin_stream(req);
    texts_begin(req, t, &e);
}
void mcp_embed(request *req) { mcp_with_model(req, "embedding", embed_for_tool); }

void llama_embedding(request *req) {
    api_error e = {0};
    fields f;
    texts *t = begin(req, &f, "content", &e, reply_llama);
    if (!t) return;
    const tern_json *content = field_any(&f, "content");
    if (!content) content = field_any(&f, "input");
    field_int(&f, "embd_normalize", 2, 2, 2); // only to length 1
    if (!e.status) texts_add_list(t, &f, content);
    texts_begin(req, t, &e);
}

static void embed(request *req) {
    api_error e = {0};
    fields f;
    texts *t = begin(req, &f, "input", &e, reply_ollama);
    if (!t) return;
    const tern_json *input = field_any(&f, "input");
    read_dimensions(t, &f);
    t->cuts = field_bool(&f, "truncate", true);
    bool is_text = tern_json_is(input, TERN_JSON_STRING);
    if (!e.status && (!input || ((is_text || tern_json_is(input, TERN_JSON_ARRAY)) && !input->n))) {
        texts_free(t); // no texts: the request only loads the model
        reply_ollama(req, NULL);
        return;
    }
    if (!e.status) texts_add_list(t, &f, input);
    texts_begin(req, t, &e);
}

static void embed_one(request *req) {
    api_error e = {0};
    fields f;
    texts *t = begin(req, &f, "prompt", &e, reply_ollama_old);
    if (!t) return;
    tern_str prompt = field_text(&f, "prompt");
    t->cuts = true;
    if (!e.status && prompt.len == 0) {
        tern_strbuf out = {0};
        tern_strbuf_puts(&out, "{\"embedding\":[]}");
        texts_free(t);
        reply_json(req, &out);
        tern_strbuf_free(&out);
        return;
    }
    if (!e.status) texts_add_text(t, prompt, &e);
    texts_begin(req, t, &e);
}

void ollama_embed(request *req) { ollama_with_model(req, NULL, embed); }
void ollama_embeddings(request *req) { ollama_with_model(req, NULL, embed_one); }
