// The tokens of messages that are read and not learnt.
//
// A template may write a message anywhere and in any form, so it is asked: the chat is rendered
// twice more, with another text instead of the message, and what all three have in common, in front
// and at the end, is not the message's. Two texts, since the message may begin or end as one of
// them. An assistant's begins where a model that is asked for it would go on, which is before what
// the template writes into it ("<think>"). The token that ends it belongs to it.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "input/input.h"
#include "session/session.h"
#include "train/data/data.h"

// Text to render for one chat: each message costs four times the whole at most.
#define RENDER_BYTES_MAX ((size_t)1 << 30)

// ---- The chat with another text in a message ----------------------------------------------------

static void put_other(tern_json_writer *w, const tern_json_doc *doc, const tern_json *message,
                      const char *text) {
    static const char *const kept[] = {"role", "name", "tool_call_id"};
    tern_json_open(w, NULL, '{');
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const tern_json *value = tern_json_get(doc, message, kept[i]);
        if (value) tern_json_put_value(w, kept[i], doc, value);
    }
    tern_json_put_text(w, "content", text);
    tern_json_close(w, '}');
}

// How the chat is rendered.
typedef struct variant {
    uint32_t message;
    const char *text; // instead of the message; NULL: the chat ends before it
    bool asks;        // with the mark that makes the model answer
} variant;

static void put_messages(tern_json_writer *w, const tern_json_doc *doc, const variant *v) {
    const tern_json *list = tern_json_get(doc, tern_json_root(doc), "messages");
    uint32_t i = 0;
    tern_json_open(w, "messages", '[');
    for (const tern_json *m = tern_json_first(doc, list); m && (v->text || i < v->message);
         m = tern_json_next(doc, list, m), i++)
        if (i == v->message)
            put_other(w, doc, m, v->text);
        else
            tern_json_put_value(w, NULL, doc, m);
    tern_json_close(w, ']');
}

static void put_request(tern_strbuf *out, const tern_json_doc *doc, const variant *v) {
    tern_json_writer w = {.out = out};
    const tern_json *root = tern_json_root(doc);
    tern_json_open(&w, NULL, '{');
    for (const tern_json *key = tern_json_first(doc, root); key;
         key = tern_json_next(doc, root, key)) {
        tern_str name = tern_json_str(key);
        if (!tern_str_is(name, "messages") && !tern_str_is(name, "add_generation_prompt"))
            tern_json_put_member(&w, name, doc, tern_json_value_of(doc, key));
    }
    tern_json_put_bool(&w, "add_generation_prompt", v->asks);
    put_messages(&w, doc, v);
    tern_json_close(&w, '}');
}

static tern_status encode(const tern_left_out *l, const tern_json_doc *doc, const variant *v,
                          tern_ids *out, tern_error *err) {
    tern_strbuf request = {0}, rendered = {0};
    out->n = 0;
    put_request(&request, doc, v);
    tern_status status = request.failed ? tern_fail_memory(err, request.len) : TERN_OK;
    if (status == TERN_OK)
        status = tern_template_chat_json(l->template, l->tokenizer, request.ptr, request.len,
                                         &rendered, err);
    if (status == TERN_OK && rendered.failed) status = tern_fail_memory(err, rendered.len);
    if (status == TERN_OK)
        status = tern_chat_encode(l->tokenizer,
                                  (tern_str){tern_strbuf_text(&rendered), rendered.len}, out, err);
    tern_strbuf_free(&request);
    tern_strbuf_free(&rendered);
    return status;
}

// ---- What differs -------------------------------------------------------------------------------

static size_t n_same_after(const tern_ids *a, const tern_ids *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->ids[a->n - 1 - n] == b->ids[b->n - 1 - n]) n++;
    return n;
}

static tern_status find_text(const tern_left_out *l, const tern_json_doc *doc, uint32_t message,
                             const tern_ids *ids, tern_token_span *out, tern_error *err) {
    static const char *const texts[] = {"x", "0"};
    size_t n_before = ids->n, n_after = ids->n;
    tern_ids other = {0};
    tern_error why = {0};
    tern_status status = TERN_OK;
    for (int i = 0; i < 2 && status == TERN_OK; i++) {
        const variant v = {.message = message, .text = texts[i]};
        status = encode(l, doc, &v, &other, &why);
        if (status != TERN_OK) break;
        size_t before = tern_ids_n_common(ids, &other), after = n_same_after(ids, &other);
        if (before < n_before) n_before = before;
        if (after < n_after) n_after = after;
    }
    tern_free(other.ids);
    size_t end = ids->n - n_after;
    *out = (tern_token_span){n_before, end > n_before ? end : n_before};
    if (status == TERN_OK || status == TERN_ERR_MEMORY) {
        if (status != TERN_OK) *err = why;
        return status;
    }
    return tern_fail(err, TERN_ERR_FORMAT,
                     "where message %u is, which is not to be learnt, cannot be found: %s",
                     message + 1, why.message);
}

// Where a model would begin this answer: the tokens of the prompt, which ends in a mark. If the
// mark is written in another way in the whole chat, what they share of it. A prompt whose earlier
// text differs, or that the template refuses, says nothing.
static tern_status find_begin(const tern_left_out *l, const tern_json_doc *doc, uint32_t message,
                              const tern_ids *ids, tern_token_span *span, tern_error *err) {
    tern_ids asked = {0}, before = {0};
    variant v = {.message = message};
    tern_status status = encode(l, doc, &v, &before, err);
    v.asks = true;
    if (status == TERN_OK) status = encode(l, doc, &v, &asked, err);
    size_t n_shared = tern_ids_n_common(ids, &asked);
    if (status == TERN_OK && n_shared >= tern_ids_n_common(&before, &asked) &&
        n_shared < span->first)
        span->first = n_shared;
    tern_free(asked.ids);
    tern_free(before.ids);
    return status == TERN_ERR_MEMORY ? status : TERN_OK;
}

static bool is_assistant(const tern_json_doc *doc, uint32_t message) {
    const tern_json *list = tern_json_get(doc, tern_json_root(doc), "messages");
    const tern_json *m = tern_json_first(doc, list);
    while (m && message-- > 0) m = tern_json_next(doc, list, m);
    return tern_str_is(tern_json_str(tern_json_get(doc, m, "role")), "assistant");
}

static int by_first(const void *a, const void *b) {
    uint64_t x = ((const tern_token_span *)a)->first, y = ((const tern_token_span *)b)->first;
    return (x > y) - (x < y);
}

// In order, those that touch as one: a template may write messages in another order.
static void unite(tern_token_spans *spans) {
    size_t n = 0;
    if (spans->n) qsort(spans->list, spans->n, sizeof *spans->list, by_first);
    for (size_t i = 0; i < spans->n; i++) {
        tern_token_span s = spans->list[i];
        if (n && s.first <= spans->list[n - 1].end) {
            if (s.end > spans->list[n - 1].end) spans->list[n - 1].end = s.end;
        } else {
            spans->list[n++] = s;
        }
    }
    spans->n = n;
}

static tern_status find_message(const tern_left_out *l, const tern_json_doc *doc, uint32_t message,
                                const tern_ids *ids, tern_token_span *span, tern_error *err) {
    TERN_TRY(find_text(l, doc, message, ids, span, err));
    if (span->first == ids->n) return TERN_OK; // the template does not write it
    if (is_assistant(doc, message)) TERN_TRY(find_begin(l, doc, message, ids, span, err));
    if (span->end < ids->n && tern_tokenizer_is_end(l->tokenizer, ids->ids[span->end])) span->end++;
    return TERN_OK;
}

static tern_status find_all(const tern_left_out *l, const tern_json_doc *doc, const tern_ids *ids,
                            tern_token_spans *out, tern_error *err) {
    for (size_t i = 0; i < l->n_messages; i++) {
        tern_token_span span;
        TERN_TRY(find_message(l, doc, l->messages[i], ids, &span, err));
        if (span.first == span.end) continue;
        if (tern_array_reserve(TERN_MEM_MISC, &out->list, &out->capacity, out->n, 1) != 0)
            return tern_fail_memory(err, out->n * sizeof *out->list);
        out->list[out->n++] = span;
    }
    unite(out);
    return TERN_OK;
}

tern_status tern_left_out_find(const tern_left_out *l, const tern_ids *ids, tern_token_spans *out,
                               tern_error *err) {
    tern_json_doc doc;
    out->n = 0;
    if (l->n_messages > RENDER_BYTES_MAX / 4 / l->request.len)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%zu messages are not to be learnt in a chat of %zu bytes: too many to "
                         "find them all",
                         l->n_messages, l->request.len);
    tern_status status = tern_json_parse(&doc, l->request.ptr, l->request.len, err);
    if (status == TERN_OK) status = find_all(l, &doc, ids, out, err);
    tern_json_free(&doc);
    return status;
}
