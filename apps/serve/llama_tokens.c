// llama-server's routes about tokens: /tokenize, /detokenize, /apply-template.
#include <string.h>
#include "apps/serve/interfaces.h"
#include "apps/serve/long_text.h"
#include "base/alloc.h"

static bool append(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

// ---- From text ---------------------------------------------------------------------------------

// A piece that is not text alone is its bytes.
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

// Of a long text the answer is written on the thread that reads its tokens: pieces take longer.
typedef struct tokenizing {
    errand errand;
    served *model;
    char *text;
    size_t n_text;
    unsigned flags;
    bool pieces;
    tern_strbuf out;
    api_error error;
} tokenizing;

static void run(errand *e) {
    tokenizing *t = (tokenizing *)e;
    size_t n;
    tern_json_writer w = {.out = &t->out};
    int32_t *ids =
        read_text(t->model, (tern_str){t->text, t->n_text}, t->flags, 0, &n, "content", &t->error);
    if (!ids) return;
    tern_json_open(&w, NULL, '{');
    tern_json_open(&w, "tokens", '[');
    for (size_t i = 0; i < n; i++) {
        if (t->pieces)
            put_token(&w, t->model, ids[i]);
        else
            tern_json_put_int(&w, NULL, ids[i]);
    }
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    tern_free(ids);
}

static void done(errand *e) {
    tokenizing *t = (tokenizing *)e;
    exchange *x = e->user;
    if (x) {
        x->errand = NULL;
        if (t->error.status)
            reply_error(x, &t->error);
        else
            reply_json(x, &t->out);
    }
    registry_release(t->model);
    tern_free(t->text);
    tern_strbuf_free(&t->out);
    tern_free(t);
}

static void begin(exchange *x, tokenizing *t) {
    t->errand = (errand){.run = run, .done = done, .user = x};
    t->model = x->model;
    registry_hold(t->model);
    x->errand = &t->errand;
    if (t->n_text <= LONG_TEXT) {
        run(&t->errand);
    } else if (errands_submit(x->server->readers, &t->errand)) {
        return;
    } else {
        api_fail_full(&t->error);
    }
    done(&t->errand);
}

void llama_tokenize(exchange *x) {
    api_error e = {0};
    fields f = fields_of_body(x, &e);
    tern_str content = field_text(&f, "content");
    tokenizing *t = tern_alloc(TERN_MEM_SESSION, sizeof *t);
    if (t) {
        t->text = tern_strndup(TERN_MEM_SESSION, content.ptr ? content.ptr : "", content.len);
        t->n_text = content.len;
        t->pieces = field_bool(&f, "with_pieces", false);
        t->flags = (field_bool(&f, "add_special", false) ? TERN_TOKENIZE_BOS : 0u) |
                   (field_bool(&f, "parse_special", true) ? TERN_TOKENIZE_SPECIAL : 0u);
    }
    if (!t || !t->text) api_fail_memory(&e);
    if (!e.status) {
        begin(x, t);
        return;
    }
    if (t) tern_free(t->text);
    tern_free(t);
    reply_error(x, &e);
}

// ---- To text -----------------------------------------------------------------------------------

void llama_detokenize(exchange *x) {
    api_error e = {0};
    tern_error err = {0};
    fields f = fields_of_body(x, &e);
    const tern_json *list = field_array(&f, "tokens");
    tern_strbuf text = {0}, out = {0};
    tern_json_writer w = {.out = &out};
    size_t n = 0;
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, list ? list->n : 0, sizeof *ids);
    if (!ids) api_fail_memory(&e);
    for (const tern_json *t = tern_json_first(f.doc, list); t && ids;
         t = tern_json_next(f.doc, list, t))
        ids[n++] = (int32_t)tern_json_int(t, -1);
    if (!e.status && tern_detokenize(x->model->model, ids, n, true, append, &text, &err))
        api_fail_status(&e, &err, "tokens");
    if (e.status) {
        reply_error(x, &e);
    } else {
        tern_json_open(&w, NULL, '{');
        tern_json_put_bytes(&w, "content", tern_strbuf_text(&text), text.len);
        tern_json_close(&w, '}');
        reply_json(x, &out);
    }
    tern_free(ids);
    tern_strbuf_free(&text);
    tern_strbuf_free(&out);
}

void llama_apply_template(exchange *x) {
    api_error e = {0};
    ask *a = ask_new(x, NULL, &e);
    fields f = fields_of_body(x, &e);
    messages m = {0};
    bool prefill;
    tern_strbuf text = {0}, out = {0};
    tern_json_writer w = {.out = &out};
    openai_refuse_unsupported(&f);
    if (a) openai_read_tools(x, &f), openai_read_thinking(x, &f);
    openai_read_messages(&f, &m, &prefill);
    bool prompts = field_bool(&f, "add_generation_prompt", true);
    if (!e.status) chat_text(x, &m, m.n, prompts, &text, &e);
    if (e.status) {
        reply_error(x, &e);
    } else {
        tern_json_open(&w, NULL, '{');
        tern_json_put_bytes(&w, "prompt", tern_strbuf_text(&text), text.len);
        tern_json_close(&w, '}');
        reply_json(x, &out);
    }
    messages_free(&m);
    tern_strbuf_free(&text);
    tern_strbuf_free(&out);
}
