// The tokens of messages that are read and not learnt.
//
// A template may write a message anywhere and in any form, so it is asked: the chat is rendered
// twice more, with another text instead of the message, and what all three have in common, in front
// and at the end, is not the message's. Two texts, since the message may begin or end as one of
// them. Then the span grows to the answers that it touches, as --assistant-only finds them: to
// what the template itself writes there ("<think>"), and to the token that ends the turn.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "input/input.h"
#include "session/session.h"
#include "train/data/data.h"

// Text to render for one chat: each message costs two times the whole.
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

static void put_messages(tern_json_writer *w, const tern_json_doc *doc, uint32_t other,
                         const char *text) {
    const tern_json *list = tern_json_get(doc, tern_json_root(doc), "messages");
    uint32_t i = 0;
    tern_json_open(w, "messages", '[');
    for (const tern_json *m = tern_json_first(doc, list); m; m = tern_json_next(doc, list, m), i++)
        if (i == other)
            put_other(w, doc, m, text);
        else
            tern_json_put_value(w, NULL, doc, m);
    tern_json_close(w, ']');
}

static void put_request(tern_strbuf *out, const tern_json_doc *doc, uint32_t other,
                        const char *text) {
    tern_json_writer w = {.out = out};
    const tern_json *root = tern_json_root(doc);
    tern_json_open(&w, NULL, '{');
    for (const tern_json *key = tern_json_first(doc, root); key;
         key = tern_json_next(doc, root, key))
        if (!tern_str_is(tern_json_str(key), "messages"))
            tern_json_put_member(&w, tern_json_str(key), doc, tern_json_value_of(doc, key));
    put_messages(&w, doc, other, text);
    tern_json_close(&w, '}');
}

static tern_status encode_other(const tern_left_out *l, const tern_json_doc *doc, uint32_t other,
                                const char *text, tern_ids *out, tern_error *err) {
    tern_strbuf request = {0}, rendered = {0};
    out->n = 0;
    put_request(&request, doc, other, text);
    tern_status status = request.failed ? tern_fail_memory(err, request.len) : TERN_OK;
    if (status == TERN_OK)
        status = tern_template_chat_json(l->template, l->tokenizer, request.ptr, request.len,
                                         &rendered, err);
    if (status == TERN_OK && rendered.failed) status = tern_fail_memory(err, rendered.len);
    if (status == TERN_OK)
        status = tern_chat_encode(l->tokenizer,
                                  (tern_str){tern_strbuf_text(&rendered), rendered.len}, out, err);
    if (status == TERN_ERR_ARGUMENT ||
        status == TERN_ERR_FORMAT) { // what err says is the template's
        tern_strbuf why = {0};
        tern_strbuf_printf(&why,
                           "where message %u is, which is not to be learnt, cannot be found: %s",
                           other + 1, err ? err->message : "");
        status = tern_fail(err, TERN_ERR_FORMAT, "%s", tern_strbuf_text(&why));
        tern_strbuf_free(&why);
    }
    tern_strbuf_free(&request);
    tern_strbuf_free(&rendered);
    return status;
}

// ---- What differs -------------------------------------------------------------------------------

static void narrow(const tern_ids *ids, const tern_ids *other, size_t *n_before, size_t *n_after) {
    size_t n = ids->n < other->n ? ids->n : other->n, before = 0, after = 0;
    while (before < n && ids->ids[before] == other->ids[before]) before++;
    while (after < n && ids->ids[ids->n - 1 - after] == other->ids[other->n - 1 - after]) after++;
    if (before < *n_before) *n_before = before;
    if (after < *n_after) *n_after = after;
}

// says[i]: token i is an assistant's; NULL: not known.
static tern_token_span grow(const tern_left_out *l, const tern_ids *ids, const uint8_t *says,
                            tern_token_span s) {
    bool inside = says && (s.end > s.first ? says[s.end - 1] : s.end < ids->n && says[s.end]);
    while (says && s.first > 0 && says[s.first - 1] &&
           !tern_tokenizer_is_end(l->tokenizer, ids->ids[s.first - 1]))
        s.first--;
    while (inside && s.end < ids->n && says[s.end] &&
           !tern_tokenizer_is_end(l->tokenizer, ids->ids[s.end]))
        s.end++;
    if (s.end < ids->n && tern_tokenizer_is_end(l->tokenizer, ids->ids[s.end])) s.end++;
    return s;
}

static tern_status find_spoken(const tern_left_out *l, const tern_ids *ids, uint8_t **says,
                               tern_error *err) {
    *says = NULL;
    if (!l->assistant || ids->n < 2) return TERN_OK;
    int32_t *targets = tern_alloc_array(TERN_MEM_MISC, ids->n, sizeof *targets); // zeros
    uint8_t *marks = tern_alloc_array(TERN_MEM_MISC, ids->n, 1);
    if (targets && marks) {
        tern_assistant_mask(l->assistant, ids->ids, marks, (int32_t)(ids->n - 1), targets);
        for (size_t i = 1; i < ids->n; i++) marks[i] = targets[i - 1] >= 0;
        *says = marks;
    } else {
        tern_free(marks);
    }
    tern_free(targets);
    return *says ? TERN_OK : tern_fail_memory(err, ids->n * sizeof *targets);
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
                                const tern_ids *ids, tern_token_span *out, tern_error *err) {
    static const char *const texts[] = {"x", "0"};
    size_t n_before = ids->n, n_after = ids->n;
    tern_ids other = {0};
    tern_status status = TERN_OK;
    for (int i = 0; i < 2 && status == TERN_OK; i++) {
        status = encode_other(l, doc, message, texts[i], &other, err);
        if (status == TERN_OK) narrow(ids, &other, &n_before, &n_after);
    }
    tern_free(other.ids);
    size_t end = ids->n - n_after;
    *out = (tern_token_span){n_before, end > n_before ? end : n_before};
    return status;
}

static tern_status find_all(const tern_left_out *l, const tern_json_doc *doc, const tern_ids *ids,
                            const uint8_t *says, tern_token_spans *out, tern_error *err) {
    for (size_t i = 0; i < l->n_messages; i++) {
        tern_token_span span;
        TERN_TRY(find_message(l, doc, l->messages[i], ids, &span, err));
        span = grow(l, ids, says, span);
        if (span.first == span.end) continue; // the template does not write it
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
    uint8_t *says;
    out->n = 0;
    if (l->n_messages > RENDER_BYTES_MAX / 2 / l->request.len)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%zu messages are not to be learnt in a chat of %zu bytes: too many to "
                         "find them all",
                         l->n_messages, l->request.len);
    TERN_TRY(find_spoken(l, ids, &says, err));
    tern_status status = tern_json_parse(&doc, l->request.ptr, l->request.len, err);
    if (status == TERN_OK) status = find_all(l, &doc, ids, says, out, err);
    tern_json_free(&doc);
    tern_free(says);
    return status;
}
