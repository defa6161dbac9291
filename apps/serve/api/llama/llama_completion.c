// llama-server's POST /completion, and /infill, whose answers are the same.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/infill.h"
#include "apps/serve/request/long_text.h"
#include "base/alloc.h"

static double rate(size_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

static void put_timings(tern_json_writer *w, const tern_generate_stats *s) {
    size_t n_prompt = s->n_prompt - s->n_reused, n = s->n_generated;
    double each_prompt = n_prompt ? s->prompt_seconds / (double)n_prompt : 0;
    double each = n ? s->generate_seconds / (double)n : 0;
    tern_json_open(w, "timings", '{');
    tern_json_put_int(w, "cache_n", (int64_t)s->n_reused);
    tern_json_put_int(w, "prompt_n", (int64_t)n_prompt);
    tern_json_put_number(w, "prompt_ms", s->prompt_seconds * 1e3);
    tern_json_put_number(w, "prompt_per_token_ms", each_prompt * 1e3);
    tern_json_put_number(w, "prompt_per_second", rate(n_prompt, s->prompt_seconds));
    tern_json_put_int(w, "predicted_n", (int64_t)n);
    tern_json_put_number(w, "predicted_ms", s->generate_seconds * 1e3);
    tern_json_put_number(w, "predicted_per_token_ms", each * 1e3);
    tern_json_put_number(w, "predicted_per_second", rate(n, s->generate_seconds));
    if (s->draft.n_drafted) {
        tern_json_put_int(w, "draft_n", (int64_t)s->draft.n_drafted);
        tern_json_put_int(w, "draft_n_accepted", (int64_t)s->draft.n_accepted);
    }
    tern_json_close(w, '}');
}

static void put_probability(tern_json_writer *w, const served *s, const tern_token_logprob *t) {
    tern_strbuf piece = {0};
    put_piece(s, t->id, &piece);
    tern_json_put_int(w, "id", t->id);
    tern_json_put_bytes(w, "token", tern_strbuf_text(&piece), piece.len);
    tern_json_open(w, "bytes", '[');
    for (size_t i = 0; i < piece.len; i++) tern_json_put_int(w, NULL, (unsigned char)piece.ptr[i]);
    tern_json_close(w, ']');
    tern_json_put_float(w, "logprob", isfinite(t->logprob) ? t->logprob : -9999.0f);
    w->out->failed |= piece.failed;
    tern_strbuf_free(&piece);
}

static void put_probabilities(tern_json_writer *w, const request *req, const choice *c,
                              size_t first, size_t n) {
    if (!req->generation->params.logprobs) return;
    tern_json_open(w, "completion_probabilities", '[');
    for (size_t i = first; i < first + n; i++) {
        const tern_token_logprob *row = c->logprobs + i * c->n_each;
        tern_json_open(w, NULL, '{');
        put_probability(w, req->model, row);
        tern_json_open(w, "top_logprobs", '[');
        for (size_t k = 1; k < c->n_each; k++) {
            tern_json_open(w, NULL, '{');
            put_probability(w, req->model, row + k);
            tern_json_close(w, '}');
        }
        tern_json_close(w, ']');
        tern_json_close(w, '}');
    }
    tern_json_close(w, ']');
}

static void put_tokens(tern_json_writer *w, const generation *a, const choice *c, size_t first,
                       size_t n) {
    tern_json_open(w, "tokens", '[');
    for (size_t i = first; a->with_ids && i < first + n; i++) tern_json_put_int(w, NULL, c->ids[i]);
    tern_json_close(w, ']');
}

// The last object, with all of its fields.
static void put_all_fields(tern_json_writer *w, request *req, const choice *c, bool whole) {
    static const char *const types[] = {"eos", "limit", "word", "limit", "none"};
    const tern_generate_stats *s = &c->stats;
    const generation *a = req->generation;
    size_t n = whole ? c->n_ids : 0;
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "index", c->index);
    tern_json_put_bytes(w, "content", tern_strbuf_text(&c->text), whole ? c->text.len : 0);
    put_tokens(w, a, c, 0, n);
    tern_json_put_int(w, "id_slot", 0);
    tern_json_put_bool(w, "stop", true);
    tern_json_put_text(w, "model", a->model);
    tern_json_put_int(w, "tokens_predicted", (int64_t)s->n_generated);
    tern_json_put_int(w, "tokens_evaluated", (int64_t)s->n_prompt);
    tern_json_put_int(w, "tokens_cached", (int64_t)(s->n_prompt + s->n_generated));
    tern_json_put_bool(w, "has_new_line", c->text.len && memchr(c->text.ptr, '\n', c->text.len));
    tern_json_put_bool(w, "truncated", s->reason == TERN_STOP_CONTEXT);
    tern_json_put_text(w, "stop_type", types[s->reason]);
    tern_json_put_text(w, "stopping_word", s->reason == TERN_STOP_STRING ? a->stops[s->stop] : "");
    if (whole) put_probabilities(w, req, c, 0, n);
    put_timings(w, s);
    tern_json_close(w, '}');
}

#define NAME_BYTES 256 // of a field's path

// The member at a path such as "timings/prompt_n". NULL: there is none.
static const tern_json *find_path(const tern_json_doc *doc, const char *path) {
    const tern_json *at = tern_json_root(doc);
    char key[NAME_BYTES + 1];
    for (bool more = true; at && more; path += more) {
        const size_t n = strcspn(path, "/");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        at = tern_json_is(at, TERN_JSON_OBJECT) ? tern_json_get(doc, at, key) : NULL;
        path += n;
        more = *path != 0;
    }
    return at;
}

// "response_fields": only these, each under its path.
static void put_chosen(tern_json_writer *w, const generation *a, const tern_strbuf *all) {
    tern_json_doc doc = {0};
    const char *path = a->response_fields.ptr, *end = path + a->response_fields.len;
    if (all->failed || tern_json_parse(&doc, all->ptr, all->len, NULL) != TERN_OK) {
        w->out->failed = true;
        return;
    }
    tern_json_open(w, NULL, '{');
    for (; path < end; path += strlen(path) + 1) {
        const tern_str name = {path, strlen(path)};
        const tern_json *value = name.len ? find_path(&doc, path) : NULL;
        if (value) tern_json_put_member(w, name, &doc, value);
    }
    tern_json_close(w, '}');
    tern_json_free(&doc);
}

// With the whole text, or, at the end of a stream, without text.
static void put_last(tern_json_writer *w, request *req, const choice *c, bool whole) {
    tern_strbuf all = {0};
    if (!req->generation->response_fields.len) {
        put_all_fields(w, req, c, whole);
        return;
    }
    put_all_fields(&(tern_json_writer){.out = &all}, req, c, whole);
    put_chosen(w, req->generation, &all);
    tern_strbuf_free(&all);
}

static void put_whole(request *req, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    generation *a = req->generation;
    if (a->n_choices > 1) tern_json_open(&w, NULL, '[');
    for (size_t i = 0; i < a->n_choices; i++) put_last(&w, req, &a->choices[i], true);
    if (a->n_choices > 1) tern_json_close(&w, ']');
}

static void put_text(request *req, choice *c, const text_delta *d, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf_puts(out, "data: ");
    tern_json_open(&w, NULL, '{');
    tern_json_put_int(&w, "index", c->index);
    tern_json_put_bytes(&w, "content", d->text, d->n_text);
    put_tokens(&w, req->generation, c, d->first, d->n_tokens);
    tern_json_put_bool(&w, "stop", false);
    tern_json_put_int(&w, "tokens_predicted", (int64_t)c->n_ids);
    tern_json_put_int(&w, "tokens_evaluated",
                      (int64_t)req->generation->prompts[c->index / req->generation->n].n_ids);
    put_probabilities(&w, req, c, d->first, d->n_tokens);
    tern_json_close(&w, '}');
    tern_strbuf_puts(out, "\n\n");
}

static void put_over(request *req, choice *c, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf_puts(out, "data: ");
    put_last(&w, req, c, false);
    tern_strbuf_puts(out, "\n\n");
}

static void put_stream_error(request *req, const api_error *e, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf_puts(out, "data: ");
    error_format_llama.put_error(&w, req, e);
    tern_strbuf_puts(out, "\n\n");
}

static const generation_writer writer = {
    "text/event-stream", put_whole, NULL, put_text, put_over, NULL, put_stream_error};

// ---- The request -------------------------------------------------------------------------------

// Tokenizes a prompt of mixed texts and ids into one list of ids.
typedef struct prompt_ids {
    int32_t *ids;
    size_t n, capacity;
} prompt_ids;

static void append_part(request *req, const tern_json *part, bool first, prompt_ids *to,
                        api_error *e) {
    const text_wanted wanted = {.text = tern_json_str(part),
                                .flags = TERN_TOKENIZE_SPECIAL | (first ? TERN_TOKENIZE_BOS : 0u)};
    const int32_t one = (int32_t)tern_json_int(part, -1);
    size_t n_added = 1;
    int32_t *added = wanted.text.ptr ? read_tokens(req, &wanted, 0, &n_added, "prompt", e) : NULL;
    bool ok = added || !wanted.text.ptr;
    if (ok && tern_array_reserve(TERN_MEM_SESSION, &to->ids, &to->capacity, to->n, n_added) != 0) {
        api_fail_memory(e);
        ok = false;
    }
    if (ok && n_added) memcpy(to->ids + to->n, added ? added : &one, n_added * sizeof one);
    if (ok) to->n += n_added;
    tern_free(added);
}

static void add_mixed(request *req, const fields *f, const tern_json *list) {
    prompt_ids all = {0};
    const tern_json *first = tern_json_first(f->doc, list);
    for (const tern_json *part = first; part && !is_refused(f->error);
         part = tern_json_next(f->doc, list, part))
        append_part(req, part, part == first, &all, f->error);
    if (f->error->status)
        tern_free(all.ids);
    else
        generation_add_given(req, all.ids, all.n, "prompt", f->error);
}

#define MARK "<__media__>" // llama-server's image placeholder

// A text with the model's own image tokens.
static void put_places(const served *s, tern_str text, tern_strbuf *out) {
    tern_media_info info;
    tern_model_get_media_info(s->model, &info);
    const int32_t around[] = {info.begin_token, info.image_token, info.end_token};
    for (const char *at; (at = memmem(text.ptr, text.len, MARK, strlen(MARK)));) {
        size_t n_before = (size_t)(at - text.ptr), n;
        tern_strbuf_append(out, text.ptr, n_before);
        for (int i = 0; i < 3; i++) {
            const char *token = tern_token_text(s->model, around[i], &n);
            if (token) tern_strbuf_append(out, token, n);
        }
        text = (tern_str){at + strlen(MARK), text.len - n_before - strlen(MARK)};
    }
    tern_strbuf_append(out, text.ptr, text.len);
}

// {"prompt_string": "... <__media__> ...", "multimodal_data": [base64]}
static void add_with_images(request *req, const fields *f, const tern_json *prompt) {
    const fields inner = {f->doc, prompt, "prompt.", f->error};
    const tern_json *list = field_array(&inner, "multimodal_data");
    const tern_str said = field_text(&inner, "prompt_string");
    images p = {0};
    tern_strbuf text = {0};
    if (!said.ptr) field_fail(&inner, "prompt_string", "a string");
    for (const tern_json *item = list ? tern_json_first(f->doc, list) : NULL;
         item && !f->error->status; item = tern_json_next(f->doc, list, item))
        images_add(&p, tern_json_str(item), "prompt.multimodal_data", f->error);
    if (p.n && !served_sees(req->model))
        api_fail(f->error, 400, "unsupported_content", "prompt",
                 "there is an image, and this model reads text only");
    if (!f->error->status) put_places(req->model, said, &text);
    if (text.failed) api_fail_memory(f->error);
    const text_wanted wanted = {.text = {tern_strbuf_text(&text), text.len},
                                .images = &p,
                                .flags = TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS};
    if (!is_refused(f->error) && generation_may_fit(req->model, text.len, "prompt", f->error)) {
        size_t n;
        int32_t *ids = read_tokens(req, &wanted, 0, &n, "prompt", f->error);
        if (ids) generation_add_prompt(req, ids, n, "prompt", f->error);
    }
    images_free(&p);
    tern_strbuf_free(&text);
}

// Whether a list is one prompt: of tokens, with texts among them or not. Else its items are
// prompts.
static bool is_one_prompt(const fields *f, const tern_json *list) {
    bool has_token = false;
    for (const tern_json *item = tern_json_first(f->doc, list); item;
         item = tern_json_next(f->doc, list, item)) {
        const bool is_token = tern_json_is(item, TERN_JSON_NUMBER);
        if (!is_token && !tern_json_is(item, TERN_JSON_STRING)) return false;
        has_token |= is_token;
    }
    return has_token;
}

static void add_one(request *req, const fields *f, const tern_json *prompt) {
    if (tern_json_is(prompt, TERN_JSON_STRING))
        generation_add_text(req, tern_json_str(prompt), "prompt", f->error);
    else if (tern_json_is(prompt, TERN_JSON_ARRAY) && prompt->n)
        add_mixed(req, f, prompt);
    else if (tern_json_is(prompt, TERN_JSON_OBJECT))
        add_with_images(req, f, prompt);
    else
        field_fail(f, "prompt",
                   "a string, a list of strings and tokens, an object, or a list of these");
}

static void read_prompt(request *req, const fields *f) {
    const tern_json *prompt = field_any(f, "prompt");
    const bool is_list = tern_json_is(prompt, TERN_JSON_ARRAY) && prompt->n;
    if (!is_list || is_one_prompt(f, prompt)) {
        add_one(req, f, prompt);
        return;
    }
    for (const tern_json *item = tern_json_first(f->doc, prompt); item && !is_refused(f->error);
         item = tern_json_next(f->doc, prompt, item))
        add_one(req, f, item);
}

// Only these fields of the answer are sent.
static void read_response_fields(generation *a, const fields *f) {
    const tern_json *list = field_array(f, "response_fields");
    if (list && list->n > 64) field_fail(f, "response_fields", "a list of at most 64 names");
    for (const tern_json *item = list ? tern_json_first(f->doc, list) : NULL;
         item && !f->error->status; item = tern_json_next(f->doc, list, item)) {
        const tern_str name = tern_json_str(item);
        if (!name.ptr || memchr(name.ptr, 0, name.len) || name.len > NAME_BYTES)
            field_fail(f, "response_fields", "a list of names, as in \"timings/prompt_n\"");
        tern_strbuf_append(&a->response_fields, name.ptr, name.len);
        tern_strbuf_append(&a->response_fields, "", 1);
    }
    if (a->response_fields.failed) api_fail_memory(f->error);
}

// All fields but the prompt's.
static void read_fields(request *req, const fields *f) {
    generation *a = req->generation;
    generation_read_model(req, f);
    generation_read_sampling(req, f, 100);
    int64_t n = field_int(f, "n_predict", -1, -2, INT32_MAX);
    if (n < 0) n = field_int(f, "max_tokens", -1, -2, INT32_MAX);
    a->params.max_tokens = n > 0 ? (int32_t)n : 0;
    a->only_reads = n == 0;
    generation_read_stops(req, f, "stop", 64);
    generation_read_biases(req, f, "logit_bias");
    a->n = (int)field_int(f, "n_cmpl", field_int(f, "n", 1, 1, 128), 1, 128);
    a->stream = field_bool(f, "stream", false);
    a->with_ids = field_bool(f, "return_tokens", false);
    a->params.n_top_logprobs = (int32_t)field_int(f, "n_probs", 0, 0, TERN_TOP_LOGPROBS_MAX);
    a->params.logprobs = a->params.n_top_logprobs > 0;
    a->n_indent = (int32_t)field_int(f, "n_indent", 0, 0, 4096);
    const double most = field_number(f, "t_max_predict_ms", -1, -1, 1e9);
    a->seconds = most > 0 ? most / 1e3 : 0;
    read_response_fields(a, f);
    field_refuse(f, "echo");
    openai_refuse_unsupported(f);
    generation_read_formats(req, f);
}

void llama_completion(request *req) {
    api_error e = {0};
    fields f;
    if (!generation_start(req, &writer, &f, &e)) return;
    static const char *const names[] = {"suffix", "input_prefix", "input_suffix"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) field_refuse(&f, names[i]);
    read_fields(req, &f);
    read_prompt(req, &f);
    generation_begin(req, &e);
}

// Both sides of the cursor must be there, if empty.
void llama_infill(request *req) {
    api_error e = {0};
    fields f;
    if (!generation_start(req, &writer, &f, &e)) return;
    read_fields(req, &f);
    const infill_wanted w = {.prefix = field_text(&f, "input_prefix"),
                             .begun = field_text(&f, "prompt"),
                             .suffix = field_text(&f, "input_suffix"),
                             .extra = field_array(&f, "input_extra"),
                             .is_file = true};
    if (!w.prefix.ptr) field_fail(&f, "input_prefix", "a string");
    if (!w.suffix.ptr) field_fail(&f, "input_suffix", "a string");
    generation_add_infill(req, &w, &f);
    generation_begin(req, &e);
}
