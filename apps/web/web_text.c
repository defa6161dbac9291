// Text and tokens, messages and their template.
#include "web_text.h"

#include "base/alloc.h"
#include "web.h"

WEB_EXPORT(web_tokenize) int32_t web_tokenize(int32_t id, const char *json, uint32_t n);
WEB_EXPORT(web_detokenize) int32_t web_detokenize(int32_t id, const char *json, uint32_t n);
WEB_EXPORT(web_chat_tokens) int32_t web_chat_tokens(int32_t id, const char *json, uint32_t n);
WEB_EXPORT(web_request_tokens) int32_t web_request_tokens(int32_t id, const char *json, uint32_t n);
WEB_EXPORT(web_chat_format) int32_t web_chat_format(int32_t id, const char *json, uint32_t n);

// ---- Text and tokens --------------------------------------------------------------------------

int32_t web_put_ids(const int32_t *ids, size_t n, size_t n_dropped) {
    tern_strbuf *b = web_result_begin();
    tern_strbuf_puts(b, "{\"ids\":[");
    for (size_t i = 0; i < n; i++) tern_strbuf_printf(b, i ? ",%d" : "%d", ids[i]);
    tern_strbuf_printf(b, "],\"n_dropped\":%zu}", n_dropped);
    return web_result_end();
}

int32_t web_tokenize(int32_t id, const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    tern_str text = {"", 0};
    bool special = false, bos = true;
    tern_ids ids = {0};
    const web_field fields[] = {{"text", WEB_TEXT, &text, 0, 0, NULL},
                                {"special", WEB_BOOL, &special, 0, 0, NULL},
                                {"bos", WEB_BOOL, &bos, 0, 0, NULL}};
    const web_model *m = web_model_find(id, &err);
    tern_status status =
        m ? web_args_read(&args, "tokenize", json, n, fields, 3, &err) : TERN_ERR_ARGUMENT;
    if (status == TERN_OK) status = web_ids_of_text(m->model, text, special, bos, &ids, &err);
    int32_t answer = status == TERN_OK ? web_put_ids(ids.ids, ids.n, 0) : web_fail(&err);
    tern_free(ids.ids);
    web_args_free(&args);
    return answer;
}

// Makes room for as many as the capacity.
static tern_status reserve(tern_ids *out, tern_error *err) {
    tern_free(out->ids);
    out->ids = tern_alloc_array(TERN_MEM_MISC, out->capacity, sizeof *out->ids);
    return out->ids ? TERN_OK : tern_fail_memory(err, out->capacity * sizeof *out->ids);
}

tern_status web_ids_of_text(const tern_model *model, tern_str text, bool special, bool bos,
                            tern_ids *out, tern_error *err) {
    unsigned flags = (special ? TERN_TOKENIZE_SPECIAL : 0) | (bos ? TERN_TOKENIZE_BOS : 0);
    *out = (tern_ids){.capacity = text.len / 2 + 16}; // mostly enough
    for (;;) {
        TERN_TRY(reserve(out, err));
        TERN_TRY(tern_tokenize(model, text.ptr, text.len, flags, out, err));
        if (out->n <= out->capacity) return TERN_OK;
        out->capacity = out->n;
    }
}

int32_t web_detokenize(int32_t id, const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    const tern_json *array = NULL;
    bool special = false;
    tern_ids ids = {0};
    tern_strbuf text = {0};
    const web_field fields[] = {{"ids", WEB_ARRAY, &array, 0, 0, NULL},
                                {"special", WEB_BOOL, &special, 0, 0, NULL}};
    const web_model *m = web_model_find(id, &err);
    tern_status status =
        m ? web_args_read(&args, "detokenize", json, n, fields, 2, &err) : TERN_ERR_ARGUMENT;
    if (status == TERN_OK && array)
        status = web_args_ids(&args, "detokenize", array, &ids.ids, &ids.n, &err);
    if (status == TERN_OK)
        status = tern_detokenize(m->model, &ids, special, web_append, &text, &err);
    tern_free(ids.ids);
    web_args_free(&args);
    int32_t answer = status == TERN_OK ? 0 : web_fail(&err);
    if (answer == 0) {
        tern_strbuf_json(web_result_begin(), tern_strbuf_text(&text), text.len);
        answer = web_result_end();
    }
    tern_strbuf_free(&text);
    return answer;
}

// ---- Conversations ----------------------------------------------------------------------------

tern_status web_messages_read(web_args *args, const char *what, const tern_json *array,
                              tern_message **out, tern_error *err) {
    size_t i = 0;
    tern_message *messages = tern_alloc_array(TERN_MEM_MISC, array->n, sizeof *messages);
    *out = messages;
    if (!messages) return tern_fail_memory(err, array->n * sizeof *messages);
    for (const tern_json *item = tern_json_first(&args->doc, array); item;
         item = tern_json_next(&args->doc, array, item), i++) {
        const web_field fields[] = {{"role", WEB_STRING, &messages[i].role, 0, 0, NULL},
                                    {"content", WEB_STRING, &messages[i].content, 0, 0, NULL}};
        TERN_TRY(web_args_object(args, "messages", item, fields, 2, err));
        if (!messages[i].role || !messages[i].content)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: \"messages\"[%zu] needs role and content",
                             what, i);
    }
    return TERN_OK;
}

tern_status web_ids_of_chat(const tern_model *model, const tern_message *messages, size_t n,
                            const tern_chat_limits *limits, tern_ids *out, tern_error *err) {
    *out = (tern_ids){.capacity = limits->n_context > 0 ? (size_t)limits->n_context : 4096};
    for (;;) {
        TERN_TRY(reserve(out, err));
        TERN_TRY(tern_chat_tokens(model, messages, n, limits, out, err));
        if (out->n <= out->capacity) return TERN_OK;
        out->capacity = out->n;
    }
}

int32_t web_chat_tokens(int32_t id, const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    const tern_json *array = NULL;
    tern_message *messages = NULL;
    size_t n_dropped = 0;
    tern_chat_limits limits = {.n_dropped = &n_dropped};
    tern_ids ids = {0};
    const web_field fields[] = {{"messages", WEB_ARRAY, &array, 0, 0, NULL},
                                {"context", WEB_INT, &limits.n_context, 0, INT32_MAX, NULL},
                                {"answer", WEB_INT, &limits.n_answer, 0, INT32_MAX, NULL}};
    const web_model *m = web_model_find(id, &err);
    tern_status status =
        m ? web_args_read(&args, "chat_tokens", json, n, fields, 3, &err) : TERN_ERR_ARGUMENT;
    if (status == TERN_OK && !array)
        status = tern_fail(&err, TERN_ERR_ARGUMENT, "chat_tokens: \"messages\" is missing");
    if (status == TERN_OK) status = web_messages_read(&args, "chat_tokens", array, &messages, &err);
    if (status == TERN_OK)
        status = web_ids_of_chat(m->model, messages, array->n, &limits, &ids, &err);
    int32_t answer = status == TERN_OK ? web_put_ids(ids.ids, ids.n, n_dropped) : web_fail(&err);
    tern_free(ids.ids);
    tern_free(messages);
    web_args_free(&args);
    return answer;
}

// json: the request itself, as for tern_chat_format_json. Most templates write the BOS token; if
// one does not, it is added.
int32_t web_request_tokens(int32_t id, const char *json, uint32_t n) {
    tern_error err = {0};
    tern_strbuf text = {0};
    tern_ids ids = {0};
    tern_model_info info;
    const web_model *m = web_model_find(id, &err);
    tern_model_get_info(m ? m->model : NULL, &info);
    tern_status status =
        m ? tern_chat_format_json(m->model, json, n, web_append, &text, &err) : TERN_ERR_ARGUMENT;
    const tern_str all = {tern_strbuf_text(&text), text.len};
    if (status == TERN_OK) status = web_ids_of_text(m->model, all, true, false, &ids, &err);
    if (status == TERN_OK && info.adds_bos && (ids.n == 0 || ids.ids[0] != info.bos_id)) {
        tern_free(ids.ids);
        status = web_ids_of_text(m->model, all, true, true, &ids, &err);
    }
    int32_t answer = status == TERN_OK ? web_put_ids(ids.ids, ids.n, 0) : web_fail(&err);
    tern_free(ids.ids);
    tern_strbuf_free(&text);
    return answer;
}

// json: the request itself, as tern_chat_format_json takes it.
int32_t web_chat_format(int32_t id, const char *json, uint32_t n) {
    tern_error err = {0};
    tern_strbuf text = {0};
    const web_model *m = web_model_find(id, &err);
    tern_status status =
        m ? tern_chat_format_json(m->model, json, n, web_append, &text, &err) : TERN_ERR_ARGUMENT;
    int32_t answer = status == TERN_OK ? 0 : web_fail(&err);
    if (answer == 0) {
        tern_strbuf_json(web_result_begin(), tern_strbuf_text(&text), text.len);
        answer = web_result_end();
    }
    tern_strbuf_free(&text);
    return answer;
}
