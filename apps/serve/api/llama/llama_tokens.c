// llama-server's routes about tokens: /tokenize, /detokenize, /apply-template.
#include <string.h>
#include "apps/serve/request/away.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/request/long_text.h"
#include "apps/serve/request/request_sounds.h"
#include "base/alloc.h"

static bool append(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

// ---- From text ---------------------------------------------------------------------------------

// A piece that is not valid text is written as its bytes.
static void put_token(tern_json_writer *w, const served *s, int32_t id) {
    tern_strbuf piece = {0};
    put_piece(s, id, &piece);
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "id", id);
    if (is_text(&piece)) {
        tern_json_put_bytes(w, "piece", tern_strbuf_text(&piece), piece.len);
    } else {
        tern_json_open(w, "piece", '[');
        for (size_t i = 0; i < piece.len; i++)
            tern_json_put_int(w, NULL, (unsigned char)piece.ptr[i]);
        tern_json_close(w, ']');
    }
    tern_json_close(w, '}');
    w->out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}

static void put_tokens(request *req, const int32_t *ids, size_t n, bool pieces, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_json_open(&w, NULL, '{');
    tern_json_open(&w, "tokens", '[');
    for (size_t i = 0; i < n; i++) {
        if (i % 4096 == 4095 && !request_pause(req)) break;
        if (pieces)
            put_token(&w, req->model, ids[i]);
        else
            tern_json_put_int(&w, NULL, ids[i]);
    }
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
}

void llama_tokenize(request *req) {
    api_error e = {0};
    fields f = fields_of_body(req, &e);
    tern_str content = field_text(&f, "content");
    tern_strbuf out = {0};
    size_t n = 0;
    bool pieces = field_bool(&f, "with_pieces", false);
    unsigned flags = (field_bool(&f, "add_special", false) ? TERN_TOKENIZE_BOS : 0u) |
                     (field_bool(&f, "parse_special", true) ? TERN_TOKENIZE_SPECIAL : 0u);
    int32_t *ids = NULL;
    if (!content.ptr) content = TERN_STR("");
    if (!e.status)
        ids = read_text(req->model, &(text_wanted){.text = content, .flags = flags}, 0, &n,
                        "content", &e);
    if (e.status) {
        reply_error(req, &e);
    } else {
        put_tokens(req, ids, n, pieces, &out);
        reply_json(req, &out);
    }
    tern_free(ids);
    tern_strbuf_free(&out);
}

// ---- To text -----------------------------------------------------------------------------------

void llama_detokenize(request *req) {
    api_error e = {0};
    tern_error err = {0};
    fields f = fields_of_body(req, &e);
    const tern_json *list = field_array(&f, "tokens");
    tern_strbuf text = {0}, out = {0};
    tern_json_writer w = {.out = &out};
    size_t n = 0;
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, list ? list->n : 0, sizeof *ids);
    if (!ids) api_fail_memory(&e);
    for (const tern_json *t = tern_json_first(f.doc, list); t && ids;
         t = tern_json_next(f.doc, list, t))
        ids[n++] = (int32_t)tern_json_int(t, -1);
    const tern_ids all = {ids, n, n};
    if (!e.status && tern_detokenize(req->model->model, &all, true, append, &text, &err))
        api_fail_status(&e, &err, "tokens");
    if (e.status) {
        reply_error(req, &e);
    } else {
        tern_json_open(&w, NULL, '{');
        tern_json_put_bytes(&w, "content", tern_strbuf_text(&text), text.len);
        tern_json_close(&w, '}');
        reply_json(req, &out);
    }
    tern_free(ids);
    tern_strbuf_free(&text);
    tern_strbuf_free(&out);
}

void llama_apply_template(request *req) {
    api_error e = {0};
    fields f = fields_of_body(req, &e);
    if (!request_hear(req, &f, field_any(&f, "messages"))) return;
    generation *a = generation_new(req, NULL, &e);
    messages m = {.images.heard = req->heard};
    bool prefill;
    tern_strbuf text = {0}, out = {0};
    tern_json_writer w = {.out = &out};
    openai_refuse_unsupported(&f);
    generation_refuse(req, &f);
    if (a) openai_read_tools(req, &f), openai_read_thinking(req, &f);
    openai_read_messages(&f, &m, &prefill);
    bool prompts = field_bool(&f, "add_generation_prompt", true);
    if (!e.status) chat_text(req, &m, m.n, prompts, &text, &e);
    if (e.status) {
        reply_error(req, &e);
    } else {
        tern_json_open(&w, NULL, '{');
        tern_json_put_bytes(&w, "prompt", tern_strbuf_text(&text), text.len);
        tern_json_close(&w, '}');
        reply_json(req, &out);
    }
    messages_free(&m);
    tern_strbuf_free(&text);
    tern_strbuf_free(&out);
}
