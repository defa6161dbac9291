#include "apps/load/load_stream.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"

static const tern_json *first_of(const tern_json_doc *doc, const char *name) {
    return tern_json_first(doc, tern_json_get(doc, tern_json_root(doc), name));
}

static bool has_text(const tern_json_doc *doc, const tern_json *delta) {
    static const char *const names[] = {"content", "reasoning_content", "reasoning"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tern_json_str(tern_json_get(doc, delta, names[i])).len) return true;
    return tern_json_is(tern_json_get(doc, delta, "tool_calls"), TERN_JSON_ARRAY);
}

static bool note_piece(load_request *r, double now) {
    if (tern_array_reserve(TERN_MEM_MISC, &r->pieces, &r->capacity, r->n_pieces, 1) != 0)
        return false;
    if (!r->n_pieces) r->first = now;
    r->pieces[r->n_pieces++] = now;
    return true;
}

static void note_usage(load_request *r, const tern_json_doc *doc) {
    const tern_json *usage = tern_json_get(doc, tern_json_root(doc), "usage");
    const tern_json *details = tern_json_get(doc, usage, "prompt_tokens_details");
    int64_t prompt = tern_json_int(tern_json_get(doc, usage, "prompt_tokens"), 0);
    int64_t answer = tern_json_int(tern_json_get(doc, usage, "completion_tokens"), 0);
    int64_t cached = tern_json_int(tern_json_get(doc, details, "cached_tokens"), 0);
    if (prompt > 0) r->n_prompt = (size_t)prompt;
    if (answer > 0) r->n_answer = (size_t)answer;
    if (cached > 0) r->n_cached = (size_t)cached;
}

// "error" is an object with a message in OpenAI's interface, a string in others.
static void note_error(load_request *r, const tern_json_doc *doc, const char *otherwise) {
    const tern_json *error = tern_json_get(doc, tern_json_root(doc), "error");
    tern_str said = tern_json_str(error);
    if (!said.ptr) said = tern_json_str(tern_json_get(doc, error, "message"));
    if (!said.ptr) said = (tern_str){otherwise, strlen(otherwise)};
    if (!r->error[0])
        snprintf(r->error, sizeof r->error, "%.*s", said.len < 150 ? (int)said.len : 150, said.ptr);
}

static bool take_event(load_stream *s, const char *json, size_t n, double now) {
    tern_json_doc doc = {0};
    bool ok = true;
    if (tern_json_parse(&doc, json, n, NULL) != TERN_OK) return true; // "[DONE]"
    const tern_json *choice = first_of(&doc, "choices");
    if (has_text(&doc, tern_json_get(&doc, choice, "delta"))) ok = note_piece(s->request, now);
    note_usage(s->request, &doc);
    if (tern_json_get(&doc, tern_json_root(&doc), "error"))
        note_error(s->request, &doc, "the stream ended with an error");
    tern_json_free(&doc);
    return ok;
}

static bool take_line(load_stream *s, double now) {
    static const char data[] = "data:";
    const char *text = tern_strbuf_text(&s->line);
    if (s->line.len < sizeof data || memcmp(text, data, sizeof data - 1)) return true;
    return take_event(s, text + sizeof data - 1, s->line.len - (sizeof data - 1), now);
}

bool load_stream_take(load_stream *s, const char *bytes, size_t n, double now) {
    if (s->request->status != 200) {
        if (s->body.len < 4096) tern_strbuf_append(&s->body, bytes, n);
        return !s->body.failed;
    }
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            if (bytes[i] != '\r') tern_strbuf_putc(&s->line, bytes[i]);
            continue;
        }
        if (s->line.failed || !take_line(s, now)) return false;
        tern_strbuf_clear(&s->line);
    }
    return !s->line.failed;
}

void load_stream_end(load_stream *s) {
    load_request *r = s->request;
    if (r->error[0]) return;
    if (r->status != 200) {
        tern_json_doc doc = {0};
        char status[40];
        snprintf(status, sizeof status, "status %d", r->status);
        if (tern_json_parse(&doc, tern_strbuf_text(&s->body), s->body.len, NULL) == TERN_OK)
            note_error(r, &doc, status);
        else
            snprintf(r->error, sizeof r->error, "%s", status);
        tern_json_free(&doc);
    } else if (!r->n_pieces) {
        snprintf(r->error, sizeof r->error, "an answer without text");
    }
    // If the server does not count tokens: on nearly all servers a piece is a token.
    if (!r->n_answer) r->n_answer = r->n_pieces;
}

void load_stream_free(load_stream *s) {
    tern_strbuf_free(&s->line);
    tern_strbuf_free(&s->body);
}

size_t load_read_prompt_tokens(const char *json, size_t n) {
    tern_json_doc doc = {0};
    load_request r = {0};
    if (tern_json_parse(&doc, json, n, NULL) == TERN_OK) note_usage(&r, &doc);
    tern_json_free(&doc);
    return r.n_prompt;
}
