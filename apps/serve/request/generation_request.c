// From a request to jobs, and from their events to pieces of the answer: see generation_request.h.
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/request/away.h"
#include "apps/serve/http/serve_log.h"

#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "base/utf8.h"

#define LOGPROB_BYTES 64 // of a token's likelihood in JSON, about

size_t generation_adapters(const request *req, float *scales) {
    const adapters *of = &req->server->registry->adapters;
    if (req->adapter)
        adapters_alone(of, req->adapter - 1, scales);
    else if (of->n)
        memcpy(scales, of->scales, of->n * sizeof *of->scales);
    return of->n;
}

generation *generation_new(request *req, const generation_writer *writer, api_error *e) {
    generation *a = tern_alloc(TERN_MEM_SESSION, sizeof *a);
    if (!a) {
        api_fail_memory(e);
        return NULL;
    }
    a->writer = writer;
    a->sampling = tern_sampling_default();
    a->n = 1;
    a->created = (int64_t)time(NULL);
    a->began = req->arrived;
    a->n_loras = generation_adapters(req, a->lora_scales);
    req->generation = a;
    return a;
}

generation *generation_start(request *req, const generation_writer *writer, fields *f,
                             api_error *e) {
    generation *a = generation_new(req, writer, e);
    *f = fields_of_body(req, e);
    if (!a) reply_error(req, e);
    return a;
}

void generation_count(request *req, const generation_writer *writer,
                      bool (*read)(request *req, const fields *f), const char *before) {
    api_error e = {0};
    fields f;
    tern_strbuf out = {0};
    generation *a = generation_start(req, writer, &f, &e);
    if (!a) return;
    if (!read(req, &f)) {
        reply_error(req, &e);
        return;
    }
    tern_strbuf_printf(&out, "{%s%zu}", before, a->prompts[0].n_ids);
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void free_choice(choice *c) {
    if (c->job) { // its last event then finds no choice
        c->job->user = NULL;
        scheduler_cancel(c->request->model->scheduler, c->job);
    }
    blocks_free(&c->blocks);
    tern_strbuf_free(&c->text);
    tern_free(c->ids);
    tern_free(c->logprobs);
}

void generation_free(generation *a) {
    if (!a) return;
    for (size_t i = 0; i < a->n_choices; i++) free_choice(&a->choices[i]);
    for (size_t i = 0; i < a->n_prompts; i++) {
        tern_free(a->prompts[i].ids);
        tern_free(a->prompts[i].scores);
    }
    for (size_t i = 0; i < a->params.n_stops; i++) tern_free(a->stops[i]);
    for (size_t i = 0; a->jobs && i < a->n_choices; i++) job_free(a->jobs[i]);
    tern_free(a->jobs);
    tern_free(a->choices);
    tern_free(a->prompts);
    tern_free(a->stops);
    for (size_t i = 0; i < a->params.n_bad_words; i++) tern_free(a->bad_words[i]);
    for (size_t i = 0; i < a->params.n_dry_sequence_breakers; i++) tern_free(a->breakers[i]);
    tern_free(a->bad_words);
    tern_free(a->breakers);
    tern_free(a->stop_ids);
    tern_free(a->allowed_ids);
    tern_free(a->biases);
    tern_free(a->before.ids);
    tern_free(a->model);
    tern_strbuf_free(&a->echoed);
    tern_strbuf_free(&a->response_fields);
    tern_strbuf_free(&a->tools);
    tern_strbuf_free(&a->allowed);
    tern_strbuf_free(&a->switches);
    tern_strbuf_free(&a->rendered);
    tern_strbuf_free(&a->format.text);
    tern_strbuf_free(&a->format.tool);
    tern_strbuf_free(&a->format.tools);
    tern_strbuf_free(&a->tool);
    shared_grammar_release(a->grammar);
    tern_free(a);
}

// ---- The answer comes --------------------------------------------------------------------------

// In a stream the status has been sent already: the error is its last event.
static void fail(request *req, const api_error *e) {
    generation *a = req->generation;
    if (a->has_failed) return;
    a->has_failed = true;
    for (size_t i = 0; i < a->n_choices; i++)
        if (a->choices[i].job) scheduler_cancel(req->model->scheduler, a->choices[i].job);
    if (!req->is_stream) {
        reply_error(req, e);
        return;
    }
    a->writer->error(req, e, &req->piece);
    reply_piece(req, &req->piece);
    reply_end(req);
}

static void fail_memory(request *req) {
    api_error e = {0};
    api_fail_memory(&e);
    fail(req, &e);
}

static bool keep(choice *c, const job_event *e) {
    size_t n_rows = e->n_tokens * e->n_each, n_have = c->n_ids * e->n_each;
    if (tern_array_reserve(TERN_MEM_SESSION, &c->ids, &c->ids_capacity, c->n_ids, e->n_tokens) != 0)
        return false;
    if (e->n_tokens) memcpy(c->ids + c->n_ids, e->ids, e->n_tokens * sizeof *c->ids);
    if (e->logprobs) {
        if (tern_array_reserve(TERN_MEM_SESSION, &c->logprobs, &c->logprobs_capacity, n_have,
                               n_rows) != 0)
            return false;
        memcpy(c->logprobs + n_have, e->logprobs, n_rows * sizeof *c->logprobs);
        c->n_each = e->n_each;
    }
    c->n_ids += e->n_tokens;
    c->n_raw += e->n_text;
    blocks *b = &c->blocks;
    if (!blocks_take(b, e->text, e->n_text, e->kind == JOB_END)) return false;
    for (size_t i = 0; i < b->n_parts; i++) {
        const answer_part *p = &b->parts[i];
        const answer_block *of = &b->list[p->block];
        if (of->kind == BLOCK_TEXT) tern_strbuf_append(&c->text, of->text.ptr + p->at, p->n);
    }
    if (b->n && b->list[b->n - 1].kind == BLOCK_REASONING) {
        c->n_reasoning += e->n_tokens;
        c->n_aside = c->n_ids;
    }
    return !c->text.failed;
}

// Whether the text that is new since n_before ends the answer, which is cut there: see n_indent.
static bool is_cut_now(const generation *a, choice *c, size_t n_before) {
    tern_strbuf *text = &c->text;
    for (size_t i = n_before; i < text->len; i++) {
        const char each = text->ptr[i];
        const bool is_indent = each == ' ' || each == '\t', is_new = c->line > 0 && !c->is_begun;
        if (a->n_indent && is_new && !is_indent && i - c->line < (size_t)a->n_indent) {
            text->len = i;
            return true;
        }
        c->is_begun |= !is_indent;
        if (each != '\n') continue;
        c->line = i + 1;
        c->is_begun = false;
        if (a->seconds <= 0 || tern_seconds() - c->first <= a->seconds) continue;
        text->len = i + 1;
        return true;
    }
    return false;
}

static void send_end(request *req) {
    generation *a = req->generation;
    if (a->stream) {
        if (a->writer->end) a->writer->end(req, &req->piece);
        reply_piece(req, &req->piece);
        reply_end(req);
    } else {
        a->writer->whole(req, &req->piece);
        reply_json(req, &req->piece);
    }
}

// A long answer, or one that repeats much of the request, is written away.
static void finish_answer(request *req) {
    const generation *a = req->generation;
    size_t n = req->n_body;
    for (size_t i = 0; i < a->n_prompts; i++)
        if (a->prompts[i].scores)
            n += LOGPROB_BYTES * a->prompts[i].n_ids * (1 + (size_t)a->params.n_top_logprobs);
    for (size_t i = 0; i < a->n_choices && !a->stream; i++)
        n += a->choices[i].text.len + LOGPROB_BYTES * a->choices[i].n_ids * a->choices[i].n_each;
    if (n > SHORT_BYTES)
        request_do_away(req, req->server->readers, true, send_end, NULL);
    else
        send_end(req);
}

static void end_choice(request *req, choice *c, const job *j) {
    generation *a = req->generation;
    c->job = NULL;
    c->stats = j->stats;
    if (c->is_cut) c->stats.reason = TERN_STOP_LENGTH;
    if (a->only_reads) {
        c->stats.n_generated = 0;
        c->stats.generate_seconds = 0;
        c->stats.reason = TERN_STOP_LENGTH;
    }
    if (j->error.status != TERN_OK) {
        api_error e = {0};
        api_fail_status(&e, &j->error, NULL);
        fail(req, &e);
        return;
    }
    if (a->stream) {
        a->writer->over(req, c, &req->piece);
        reply_piece(req, &req->piece);
    }
    if (++a->n_over == a->n_choices) finish_answer(req);
}

static void on_event(void *user, const job_event *e) {
    choice *c = user;
    request *req = c->request;
    generation *a = req->generation;
    job_event silent;
    if (a->only_reads || c->is_cut) {
        silent = (job_event){.job = e->job, .kind = e->kind, .text = ""};
        e = &silent;
    }
    const size_t n_text = c->text.len;
    text_delta d = {NULL, 0, c->n_ids, e->n_tokens};
    if (a->has_failed || req->is_over) {
        if (e->kind == JOB_END) c->job = NULL;
        return;
    }
    if (!keep(c, e)) {
        if (e->kind == JOB_END) c->job = NULL;
        fail_memory(req);
        return;
    }
    if (c->first == 0) c->first = a->seconds > 0 ? tern_seconds() : 1;
    if ((a->n_indent || a->seconds > 0) && !c->is_cut && is_cut_now(a, c, n_text)) {
        if (c->text.ptr) c->text.ptr[c->text.len] = 0;
        c->is_cut = true;
        if (e->kind != JOB_END) scheduler_cancel(req->model->scheduler, c->job);
    }
    d.text = tern_strbuf_text(&c->text) + n_text, d.n_text = c->text.len - n_text;
    if (a->stream && (c->blocks.n_parts || d.n_tokens)) {
        a->writer->text(req, c, &d, &req->piece);
        if (req->piece.len || req->piece.failed) reply_piece(req, &req->piece);
    }
    if (e->kind == JOB_END) {
        if (a->has_failed)
            c->job = NULL;
        else
            end_choice(req, c, e->job);
    }
}

void generation_take_events(server *s, served *m) {
    for (job_event *e = scheduler_take_events(m->scheduler), *next; e; e = next) {
        job *j = e->job, *done = e->kind == JOB_END ? j : NULL;
        next = e->next;
        m->counts.n_generated_tokens += e->n_tokens;
        if (done) metrics_count_job(&s->metrics, &m->counts, done);
        if (j->user) j->on_event(j->user, e);
        job_event_free(e);
        job_free(done);
        if (done) registry_release(m);
    }
}

// ---- Beginning ---------------------------------------------------------------------------------

static bool open_answer(request *req, choice *c) {
    generation *a = req->generation;
    const char *tools = a->tools.len ? a->tools.ptr : NULL;
    c->blocks.salt = req->id, c->blocks.index = c->index, c->blocks.one_call = a->one_call;
    if (!a->takes_apart) return true;
    if (tern_answer_open(&c->blocks.answer, req->model->model, tern_strbuf_text(&a->rendered),
                         tools, NULL) != TERN_OK)
        return false;
    a->params.with_special |= tern_answer_with_special(c->blocks.answer);
    return true;
}

// A job for each choice. Seeds count up from the requested one, so that choices differ.
static bool make_jobs(request *req, job **jobs) {
    generation *a = req->generation;
    a->params.sampling = &a->sampling;
    if (a->only_reads) { // the engine's least is one token, which nobody sees
        a->params.max_tokens = 1;
        a->params.min_tokens = 0;
    }
    a->params.stops = (const char *const *)a->stops;
    a->params.biases = a->biases;
    a->params.stop_token_ids = a->stop_ids;
    a->params.allowed_token_ids = a->allowed_ids;
    a->params.bad_words = (const char *const *)a->bad_words;
    a->params.dry_sequence_breakers = (const char *const *)a->breakers;
    for (size_t i = 0; i < a->n_choices; i++) {
        const generation_prompt *p = &a->prompts[i / (size_t)a->n];
        choice *c = &a->choices[i];
        *c = (choice){.request = req, .index = (int)i};
        if (!open_answer(req, c)) return false;
        job *j = jobs[i] = job_new(p->ids, p->n_ids, &a->params);
        if (!j) return false;
        j->grammar = shared_grammar_hold(a->grammar);
        if (j->sampling.seed) j->sampling.seed += i % (size_t)a->n;
        j->client = req->client;
        j->owner = req->owner;
        j->n_loras = a->n_loras;
        memcpy(j->lora_scales, a->lora_scales, sizeof j->lora_scales);
        j->on_event = on_event;
        j->user = c;
    }
    return true;
}

static void prepare(request *req, api_error *e) {
    generation *a = req->generation;
    size_t n = a->n_choices = a->n_prompts * (size_t)a->n;
    a->choices = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *a->choices);
    a->jobs = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *a->jobs);
    if (!a->choices || !a->jobs) a->n_choices = 0;
    if (!a->choices || !a->jobs || !make_jobs(req, a->jobs)) api_fail_memory(e);
    if (!e->status && a->stream && a->writer->begin) a->writer->begin(req, &req->piece);
}

void generation_leave_out(generation *a, tern_str type) {
    const size_t most = sizeof a->left_out - 1, n = type.len < most ? type.len : most;
    if (a->n_left_out++) return;
    memcpy(a->left_out, type.ptr, n);
    a->left_out[n] = 0;
}

static void submit(request *req) {
    generation *a = req->generation;
    api_error e = {0};
    if (a->n_left_out && !req->server->desc->is_silent)
        log_line("left_out", "id=%s tools=%zu first=\"%s\"", req->id, a->n_left_out, a->left_out);
    if (req->server->stopping)
        api_fail(&e, 503, "stopping", NULL, "the server is stopping");
    else if (!scheduler_submit(req->model->scheduler, a->jobs, a->n_choices))
        api_fail_full(&e);
    if (e.status) {
        reply_error(req, &e);
        return;
    }
    for (size_t i = 0; i < a->n_choices; i++) {
        a->choices[i].job = a->jobs[i];
        registry_hold(req->model); // until its last event
    }
    tern_free(a->jobs);
    a->jobs = NULL;
    if (!a->stream) return;
    reply_stream(req, a->writer->type);
    reply_piece(req, &req->piece);
}

void generation_begin(request *req, api_error *e) {
    generation *a = req->generation;
    if (!e->status && a->n_prompts == 0) api_fail(e, 400, NULL, "prompt", "there is no prompt");
    generation_check_limits(req, e);
    generation_open_format(req, e);
    if (!e->status) prepare(req, e);
    if (e->status)
        reply_error(req, e);
    else
        request_then(req, submit);
}

generation_usage generation_usage_of(const generation *a) {
    generation_usage u = {0};
    for (size_t i = 0; i < a->n_choices; i++) {
        const tern_generate_stats *s = &a->choices[i].stats;
        if (i % (size_t)a->n == 0) { // a prompt counts once, for any number of answers
            u.n_prompt += s->n_prompt;
            u.n_cached += s->n_reused;
        }
        u.n_generated += s->n_generated;
        u.prompt_seconds += s->prompt_seconds;
        u.generate_seconds += s->generate_seconds;
    }
    return u;
}

static bool append(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

void put_piece(const served *s, int32_t id, tern_strbuf *out) {
    tern_token_piece(s->model, id, append, out, NULL);
}

bool is_text(const tern_strbuf *piece) {
    uint32_t code;
    for (size_t i = 0; i < piece->len;) {
        const int length = tern_utf8_decode(piece->ptr + i, piece->len - i, &code);
        if (length <= 0) return false;
        i += (size_t)length;
    }
    return true;
}
