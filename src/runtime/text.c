// The public text functions of a model: tokens, pieces, chat templates, and the graph's report.
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"
#include "tern_tools.h"

tern_status tern_text_give(tern_strbuf *text, tern_text_fn on_text, void *user, tern_error *err) {
    tern_status status = TERN_OK;
    if (text->failed)
        status = tern_fail_memory(err, text->len);
    else if (!on_text(user, tern_strbuf_text(text), text->len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    tern_strbuf_free(text);
    return status;
}

void tern_ids_give(tern_ids *out, const int32_t *ids, size_t n) {
    const size_t n_fit = n < out->capacity ? n : out->capacity;
    if (n_fit) memcpy(out->ids, ids, n_fit * sizeof *ids);
    out->n = n;
}

static tern_status need_tokenizer(const tern_model *m, tern_error *err) {
    if (m->tokenizer) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path);
}

tern_status tern_tokenize(const tern_model *m, const char *text, size_t n_bytes, unsigned flags,
                          tern_ids *out, tern_error *err) {
    tern_clear(err);
    tern_ids list = {0};
    TERN_NEED(m);
    TERN_NEED_ARRAY(text, n_bytes);
    TERN_NEED(out);
    TERN_NEED_ARRAY(out->ids, out->capacity);
    out->n = 0;
    if (flags & ~(unsigned)(TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there are no flags %u", __func__, flags);
    TERN_TRY(need_tokenizer(m, err));
    if (!text) text = "";
    tern_status status = tern_tokenizer_encode(m->tokenizer, text, n_bytes, flags, &list, err);
    if (status == TERN_OK) tern_ids_give(out, list.ids, list.n);
    tern_free(list.ids);
    return status;
}

tern_status tern_detokenize(const tern_model *m, const tern_ids *ids, bool with_special,
                            tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    tern_strbuf text = {0};
    tern_decoder d = {.with_special = with_special};
    TERN_NEED(m);
    TERN_NEED(ids);
    TERN_NEED_ARRAY(ids->ids, ids->n);
    TERN_NEED(on_text);
    TERN_TRY(need_tokenizer(m, err));
    for (size_t i = 0; i < ids->n; i++) {
        const int32_t id = ids->ids[i];
        if (id < 0 || id >= tern_tokenizer_n_vocab(m->tokenizer)) {
            tern_strbuf_free(&text);
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d at place %zu is not in 0..%d",
                             (int)id, i + 1, (int)tern_tokenizer_n_vocab(m->tokenizer) - 1);
        }
        tern_tokenizer_decode(m->tokenizer, &d, id, &text);
    }
    tern_tokenizer_decode_end(&d, &text);
    return tern_text_give(&text, on_text, user, err);
}

tern_status tern_token_piece(const tern_model *m, int32_t id, tern_text_fn on_text, void *user,
                             tern_error *err) {
    tern_clear(err);
    tern_strbuf text = {0};
    tern_decoder d = {.with_special = true, .started = true, .raw = true};
    TERN_NEED(m);
    TERN_NEED(on_text);
    TERN_TRY(need_tokenizer(m, err));
    if (id < 0 || id >= m->info.n_vocab)
        return tern_fail(err, TERN_ERR_ARGUMENT, "token %d is not in 0..%d", (int)id,
                         (int)m->info.n_vocab - 1);
    tern_tokenizer_decode(m->tokenizer, &d, id, &text);
    return tern_text_give(&text, on_text, user, err);
}

const char *tern_token_text(const tern_model *m, int32_t id, size_t *n_bytes) {
    tern_str s = {NULL, 0};
    if (m && m->tokenizer) s = tern_tokenizer_text(m->tokenizer, id);
    if (n_bytes) *n_bytes = s.len;
    return s.ptr;
}

bool tern_token_is_end(const tern_model *m, int32_t id) {
    return m && m->tokenizer && tern_tokenizer_is_end(m->tokenizer, id);
}

void tern_model_get_infill_info(const tern_model *m, tern_infill_info *info) {
    if (!info) return;
    *info = (tern_infill_info){-1, -1, -1, -1, -1, -1, false, false};
    if (m && m->tokenizer) tern_tokenizer_infill(m->tokenizer, info);
}

static tern_status need_template(const tern_model *m, tern_error *err) {
    TERN_NEED(m);
    TERN_TRY(need_tokenizer(m, err));
    if (m->chat_template) return TERN_OK;
    if (err) *err = m->template_error;
    return tern_fail_prefix(err, m->template_error.status, m->path);
}

tern_status tern_chat_format(const tern_model *m, const tern_message *messages, size_t n_messages,
                             tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    tern_strbuf text = {0};
    TERN_NEED(m);
    TERN_NEED_ARRAY(messages, n_messages);
    for (size_t i = 0; i < n_messages; i++) {
        TERN_NEED(messages[i].role);
        TERN_NEED(messages[i].content);
    }
    TERN_NEED(on_text);
    TERN_TRY(need_template(m, err));
    tern_status status =
        tern_template_chat(m->chat_template, m->tokenizer, messages, n_messages, true, &text, err);
    if (status == TERN_OK) return tern_text_give(&text, on_text, user, err);
    tern_strbuf_free(&text);
    return status;
}

tern_status tern_chat_format_json(const tern_model *m, const char *request, size_t n_bytes,
                                  tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    tern_strbuf text = {0};
    TERN_NEED(request);
    TERN_NEED(on_text);
    TERN_TRY(need_template(m, err));
    tern_status status =
        tern_template_chat_json(m->chat_template, m->tokenizer, request, n_bytes, &text, err);
    if (status == TERN_OK) return tern_text_give(&text, on_text, user, err);
    tern_strbuf_free(&text);
    return status;
}

static void let_go(const void *model) { tern_model_let_go(model); }

tern_status tern_answer_open(tern_answer **out, const tern_model *m, const char *prompt,
                             const char *tools, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_TRY(need_template(m, err));
    TERN_TRY(tern_answer_create(out, tern_template_answer_style(m->chat_template), m->tokenizer,
                                prompt, tools, err));
    tern_model_hold(m);
    tern_answer_own(*out, m, let_go);
    return TERN_OK;
}

// As an image, the fused graph is enough.
static void report_graph(tern_model *m, int graph, tern_format format, tern_strbuf *out) {
    const tern_model_graph *g = &m->graphs[graph];
    const char *between = format == TERN_FORMAT_JSON ? ",\n" : "\n";
    if (format != TERN_FORMAT_DOT) {
        tern_graph_print(&g->built, g->name, "built", NULL, format, out);
        tern_strbuf_puts(out, between);
        tern_graph_print(&g->lowered, g->name, "lowered", NULL, format, out);
        tern_strbuf_puts(out, between);
    }
    tern_model_print_plan(m, graph, format, out);
}

tern_status tern_graph_report(const tern_model *model, const char *graph, tern_format format,
                              tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    tern_model *m = (tern_model *)(uintptr_t)model; // the lock is not part of its value
    tern_strbuf text = {0};
    bool json = format == TERN_FORMAT_JSON;
    TERN_NEED(m);
    TERN_NEED(on_text);
    TERN_NEED_ENUM(format, TERN_FORMAT_DOT);
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    int only = graph ? tern_model_graph_find(m, graph, err) : 0;
    if (only < 0) return TERN_ERR_ARGUMENT;
    if (json) tern_strbuf_puts(&text, "[");
    for (int i = only; i < (graph ? only + 1 : m->n_graphs); i++) {
        if (i > only) tern_strbuf_puts(&text, json ? ",\n" : "\n");
        report_graph(m, i, format, &text);
    }
    if (json) tern_strbuf_puts(&text, "]\n");
    return tern_text_give(&text, on_text, user, err);
}
