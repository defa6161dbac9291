// POST /v1/completions.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/infill.h"
#include "apps/serve/request/long_text.h"
#include "apps/serve/api/prompt_scores.h"

static void put_prefix(tern_json_writer *w, const request *req) {
    char id[64];
    snprintf(id, sizeof id, "cmpl-%s", req->id + 4);
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "id", id);
    tern_json_put_text(w, "object", "text_completion");
    tern_json_put_int(w, "created", req->generation->created);
    tern_json_put_text(w, "model", req->generation->model);
}

static void put_usage(tern_json_writer *w, const generation *a) {
    generation_usage u = generation_usage_of(a);
    tern_json_open(w, "usage", '{');
    tern_json_put_int(w, "prompt_tokens", (int64_t)u.n_prompt);
    tern_json_put_int(w, "completion_tokens", (int64_t)u.n_generated);
    tern_json_put_int(w, "total_tokens", (int64_t)(u.n_prompt + u.n_generated));
    tern_json_close(w, '}');
}

// ---- Likelihoods: four lists, one of them of objects --------------------------------------------

// A token's text in this interface: bytes that are not valid text are escaped, so that the names in
// an object differ.
static void put_name(const request *req, int32_t id, tern_strbuf *piece) {
    tern_strbuf bytes = {0};
    put_piece(req->model, id, piece);
    if (is_text(piece)) return;
    tern_strbuf_puts(&bytes, "bytes:");
    for (size_t i = 0; i < piece->len; i++)
        tern_strbuf_printf(&bytes, "\\x%02x", (unsigned char)piece->ptr[i]);
    bytes.failed |= piece->failed;
    tern_strbuf_free(piece);
    *piece = bytes;
}

static void put_value(tern_json_writer *w, const char *key, float logprob) {
    tern_json_put_float(w, key, isfinite(logprob) ? logprob : -9999.0f);
}

static void put_top(tern_json_writer *w, const request *req, const tern_token_logprob *row,
                    size_t n) {
    tern_strbuf piece = {0};
    tern_json_open(w, NULL, '{');
    for (size_t k = 1; k < n; k++) {
        tern_strbuf_clear(&piece);
        put_name(req, row[k].id, &piece);
        put_value(w, tern_strbuf_text(&piece), row[k].logprob);
    }
    tern_json_close(w, '}');
    w->out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}

// One of the lists' entries, at its place in the text. NAN: a token with none before it.
static void put_entry(tern_json_writer each[4], const request *req, const tern_token_logprob *row,
                      size_t n_each, size_t offset) {
    tern_strbuf piece = {0};
    put_name(req, row->id, &piece);
    tern_json_put_bytes(&each[0], NULL, tern_strbuf_text(&piece), piece.len);
    if (isnan(row->logprob)) {
        tern_json_put_null(&each[1], NULL);
        tern_json_put_null(&each[2], NULL);
    } else {
        put_value(&each[1], NULL, row->logprob);
        put_top(&each[2], req, row, n_each);
    }
    tern_json_put_int(&each[3], NULL, (int64_t)offset);
    each[0].out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}

// The prompt's tokens, if it is echoed: they come before the answer's. A BOS token that the text
// does not have takes no room in it.
static void put_prompt(tern_json_writer each[4], const request *req, choice *c) {
    const generation *a = req->generation;
    const generation_prompt *p = &a->prompts[c->index / a->n];
    const size_t n_each = 1 + (size_t)a->params.n_top_logprobs;
    sent_tokens *t = &c->sent;
    tern_strbuf piece = {0};
    if (!p->scores || t->has_prompt) return;
    for (size_t i = 0; i < p->n_ids; i++) {
        const bool is_added = i == 0 && req->model->info.adds_bos &&
                              !c->request->generation->is_bare &&
                              p->ids[0] == req->model->info.bos_id;
        tern_strbuf_clear(&piece);
        put_piece(req->model, p->ids[i], &piece);
        const bool is_within = piece.len && (piece.ptr[0] & 0xc0) == 0x80 && t->n_chars;
        put_entry(each, req, p->scores + i * n_each, n_each, t->n_chars - is_within);
        for (size_t k = 0; k < piece.len && !is_added; k++)
            t->n_chars += (piece.ptr[k] & 0xc0) != 0x80;
    }
    t->has_prompt = true;
    each[0].out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}

// The lists are written side by side, token by token.
static void put_logprobs(tern_json_writer *w, const request *req, choice *c) {
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    tern_strbuf lists[4] = {0}, piece = {0};
    tern_json_writer each[4];
    if (!req->generation->params.logprobs || req->generation->hides_scores) {
        tern_json_put_null(w, "logprobs");
        return;
    }
    for (int i = 0; i < 4; i++) {
        each[i] = (tern_json_writer){.out = &lists[i]};
        tern_json_open(&each[i], NULL, '[');
    }
    put_prompt(each, req, c);
    while (next_to_send(req, c, &piece))
        put_entry(each, req, c->logprobs + (c->sent.n - 1) * c->n_each, c->n_each, c->sent.offset);
    tern_json_open(w, "logprobs", '{');
    for (int i = 0; i < 4; i++) {
        tern_json_close(&each[i], ']');
        tern_json_put_raw(w, names[i], tern_strbuf_text(&lists[i]));
        w->out->failed |= lists[i].failed;
        tern_strbuf_free(&lists[i]);
    }
    tern_json_close(w, '}');
    w->out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}

// ---- Answers -----------------------------------------------------------------------------------

// With "echo" a text begins with its prompt.
static const char *echoed(const generation *a, const choice *c) {
    const char *text = tern_strbuf_text(&a->echoed);
    for (int i = 0; a->echo && i < c->index / a->n; i++) text += strlen(text) + 1;
    return a->echo ? text : "";
}

// A choice's text, or more of it.
typedef struct piece {
    tern_str text;
    bool has_logprobs;
    const char *finish; // why it ends; NULL: it goes on
} piece;

static void put_choice(tern_json_writer *w, request *req, choice *c, const piece *p) {
    const int n = req->generation->n, n_best = req->generation->n_best;
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "index", n_best ? c->index / n * n_best + c->rank : c->index);
    tern_json_put_bytes(w, "text", p->text.ptr, p->text.len);
    if (p->has_logprobs)
        put_logprobs(w, req, c);
    else
        tern_json_put_null(w, "logprobs");
    tern_json_put_text(w, "finish_reason", p->finish);
    tern_json_close(w, '}');
}

// What a token of it is worth on average; an answer without any is the last choice.
static double mean_logprob(const choice *c) {
    double sum = 0;
    for (size_t i = 0; i < c->n_ids && c->logprobs; i++)
        sum += (double)c->logprobs[i * c->n_each].logprob;
    return c->n_ids ? sum / (double)c->n_ids : -INFINITY;
}

// Among the answers to one prompt: 0 for the most likely one.
static void rank_choices(generation *a) {
    for (size_t i = 0; i < a->n_choices; i++) a->choices[i].mean = mean_logprob(&a->choices[i]);
    for (size_t i = 0; i < a->n_choices; i++) {
        const size_t first = i / (size_t)a->n * (size_t)a->n;
        const double own = a->choices[i].mean;
        a->choices[i].rank = 0;
        for (size_t k = first; k < first + (size_t)a->n; k++)
            a->choices[i].rank += a->choices[k].mean > own || (a->choices[k].mean == own && k < i);
    }
}

static void put_whole(request *req, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    generation *a = req->generation;
    if (a->n_best) rank_choices(a);
    put_prefix(&w, req);
    tern_json_open(&w, "choices", '[');
    for (size_t i = 0; i < a->n_choices; i++) {
        choice *c = &a->choices[i];
        tern_strbuf text = {0};
        if (a->n_best && c->rank >= a->n_best) continue;
        tern_strbuf_puts(&text, echoed(a, c));
        tern_strbuf_append(&text, tern_strbuf_text(&c->text), c->text.len);
        put_choice(&w, req, c,
                   &(piece){{tern_strbuf_text(&text), text.len}, true, openai_finish_reason(c)});
        out->failed |= text.failed;
        tern_strbuf_free(&text);
    }
    tern_json_close(&w, ']');
    put_usage(&w, a);
    tern_json_close(&w, '}');
}

static void put_chunk(request *req, choice *c, const piece *p, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf_puts(out, "data: ");
    put_prefix(&w, req);
    tern_json_open(&w, "choices", '[');
    if (c) put_choice(&w, req, c, p);
    tern_json_close(&w, ']');
    if (!c)
        put_usage(&w, req->generation);
    else if (req->generation->with_usage)
        tern_json_put_null(&w, "usage");
    tern_json_close(&w, '}');
    tern_strbuf_puts(out, "\n\n");
}

static void begin_stream(request *req, tern_strbuf *out) {
    for (size_t i = 0; req->generation->echo && i < req->generation->n_choices; i++) {
        const char *text = echoed(req->generation, &req->generation->choices[i]);
        put_chunk(req, &req->generation->choices[i],
                  &(piece){{text, strlen(text)}, req->generation->params.logprobs, NULL}, out);
    }
}
static void put_text(request *req, choice *c, const text_delta *d, tern_strbuf *out) {
    if (d->n_text || has_to_send(req, c))
        put_chunk(req, c, &(piece){{d->text, d->n_text}, true, NULL}, out);
}
static void put_over(request *req, choice *c, tern_strbuf *out) {
    put_chunk(req, c, &(piece){{"", 0}, has_to_send(req, c), openai_finish_reason(c)}, out);
}
static void end_stream(request *req, tern_strbuf *out) {
    if (req->generation->with_usage) put_chunk(req, NULL, NULL, out);
    tern_strbuf_puts(out, "data: [DONE]\n\n");
}

static const generation_writer writer = {
    "text/event-stream",    put_whole, begin_stream, put_text, put_over, end_stream,
    openai_put_stream_error};

// ---- The request -------------------------------------------------------------------------------

static void echo(request *req, const char *text, size_t n) {
    if (req->generation->echo) tern_strbuf_append(&req->generation->echoed, text, n);
}

static bool append(void *user, const char *text, size_t n) {
    echo(user, text, n);
    return true;
}

static void add_ids(request *req, const fields *f, const tern_json *ids) {
    generation *a = req->generation;
    if (field_text(f, "suffix").len) field_fail(f, "prompt", "a string where there is a 'suffix'");
    generation_add_ids(req, f, ids, "prompt");
    if (f->error->status || !a->echo) return;
    const generation_prompt *p = &a->prompts[a->n_prompts - 1];
    const tern_ids prompt = {p->ids, p->n_ids, p->n_ids};
    tern_detokenize(req->model->model, &prompt, false, append, req, NULL);
    echo(req, "", 1);
}

// With a "suffix" the answer is what stands between.
static void add_text(request *req, const fields *f, tern_str text) {
    const infill_wanted w = {.prefix = text, .suffix = field_text(f, "suffix")};
    if (w.suffix.len)
        generation_add_infill(req, &w, f);
    else
        generation_add_text(req, text, "prompt", f->error);
    echo(req, text.ptr, text.len);
    echo(req, "", 1);
}

// A text, a list of texts, ids, or a list of ids.
static void read_prompts(request *req, const fields *f) {
    const tern_json *prompt = field_any(f, "prompt");
    const tern_json *first = tern_json_first(f->doc, prompt);
    if (tern_json_is(prompt, TERN_JSON_STRING)) {
        add_text(req, f, tern_json_str(prompt));
        return;
    }
    if (!tern_json_is(prompt, TERN_JSON_ARRAY) || !first) {
        field_fail(f, "prompt", "a string, tokens, or a list of either");
        return;
    }
    if (tern_json_is(first, TERN_JSON_NUMBER)) {
        add_ids(req, f, prompt);
        return;
    }
    for (const tern_json *item = first; item && !is_refused(f->error);
         item = tern_json_next(f->doc, prompt, item)) {
        if (tern_json_is(item, TERN_JSON_STRING))
            add_text(req, f, tern_json_str(item));
        else if (tern_json_is(item, TERN_JSON_ARRAY))
            add_ids(req, f, item);
        else
            field_fail(f, "prompt", "a string, tokens, or a list of either");
    }
}

// Of "best_of" answers the `n` most likely ones are sent.
static void read_best_of(generation *a, const fields *f) {
    a->n = (int)field_int(f, "n", 1, 1, 128);
    const int n = (int)field_int(f, "best_of", a->n, 1, 128);
    if (n < a->n) field_fail(f, "best_of", "'n' or more");
    if (n > a->n && a->stream) field_fail(f, "best_of", "'n' in a stream");
    if (n <= a->n) return;
    a->n_best = a->n;
    a->n = n;
    a->hides_scores = !a->params.logprobs;
    a->params.logprobs = true;
}

// 0: the prompt is computed, and nothing is generated.
static void read_limit(generation *a, const fields *f) {
    const int64_t n = field_int(f, "max_tokens", 16, 0, INT32_MAX);
    a->params.max_tokens = (int32_t)n;
    a->only_reads = n == 0;
}

void openai_completions(request *req) {
    api_error e = {0};
    fields f;
    generation *a = generation_start(req, &writer, &f, &e);
    if (!a) return;
    generation_read_model(req, &f);
    generation_read_sampling(req, &f, 2);
    read_limit(a, &f);
    a->is_bare = !field_bool(&f, "add_special_tokens", true);
    generation_read_stops(req, &f, "stop", 16);
    generation_read_biases(req, &f, "logit_bias");
    a->stream = field_bool(&f, "stream", false);
    fields options = fields_within(&f, "stream_options", "stream_options.");
    a->with_usage = field_bool(&options, "include_usage", false);
    a->echo = field_bool(&f, "echo", false);
    int64_t n_top = field_int(&f, "logprobs", -1, 0, TERN_TOP_LOGPROBS_MAX);
    a->params.logprobs = n_top >= 0;
    a->params.n_top_logprobs = n_top > 0 ? (int32_t)n_top : 0;
    const bool has_scores = a->echo && a->params.logprobs;
    read_best_of(a, &f);
    openai_refuse_unsupported(&f);
    generation_read_formats(req, &f);
    read_prompts(req, &f);
    if (a->echoed.failed) api_fail_memory(&e);
    if (has_scores)
        prompt_scores_begin(req, &e);
    else
        generation_begin(req, &e);
}
