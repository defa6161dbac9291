#include "apps/serve/request/away.h"

#include <stddef.h>
#include <string.h>
#include "apps/serve/request/long_body.h"
#include "base/alloc.h"
#include "base/os/os_time.h"

static request *of(task *e) { return (request *)((char *)e - offsetof(request, away)); }

// On a thread of tasks.
static void run(task *e) { of(e)->work(of(e)); }

// Sends what was written while away.
static void say(request *req) {
    if (req->counts)
        metrics_count_request(&req->server->metrics, req->route ? req->route : "other",
                              req->status);
    req->counts = false;
    if (req->model) req->model->counts.n_prompt_tokens += req->n_uncounted_tokens;
    req->n_uncounted_tokens = 0;
    if (req->said.len && req->sink->give)
        req->sink->give(req->to, &req->said);
    else if (req->said.len)
        req->sink->write(req->to, req->said.ptr, req->said.len);
    tern_strbuf_free(&req->said);
    if (!req->is_over) return;
    metrics_add(&req->server->metrics.request, tern_seconds() - req->arrived);
    req->sink->end(req->to);
}

static void back(task *e) {
    request *req = of(e);
    req->is_away = false;
    if (req->is_left) {
        request_free(req);
        return;
    }
    void (*then)(request * req) = req->then;
    req->then = NULL;
    if (req->stop && !req->is_over) { // it was stopped meanwhile
        tern_strbuf_clear(&req->said);
        then = req->stop;
        req->stop = NULL;
    }
    say(req);
    if (then && !req->is_over) then(req);
}

void request_do_away(request *req, tasks *among, bool is_owed, void (*work)(request *req),
                     void (*then)(request *req)) {
    req->away = (task){.run = run, .done = back, .client = req->client, .is_owed = is_owed};
    req->work = work;
    req->then = then;
    req->is_away = true;
    if (tasks_submit(among, &req->away)) return;
    api_error full = {0};
    req->is_away = false;
    req->then = NULL;
    api_fail_full(&full);
    reply_error(req, &full);
}

void request_do(request *req, size_t n_bytes, void (*work)(request *req),
                void (*then)(request *req)) {
    server *s = req->server;
    if (n_bytes > SHORT_BYTES && !req->is_away) {
        request_do_away(req, s->readers, false, work, then);
        return;
    }
    if (!req->is_away && n_bytes > s->n_loop_bytes) s->n_loop_bytes = n_bytes;
    work(req);
    if (then && !req->is_over) request_then(req, then);
}

void request_then(request *req, void (*then)(request *req)) {
    if (req->is_away)
        req->then = then;
    else
        then(req);
}

static void submit(request *req) {
    task *e = req->task;
    api_error full = {0};
    e->user = req;
    e->client = req->client;
    if (req->task_model) registry_hold(req->task_model); // also if the request has gone
    if (tasks_submit(req->tasks, e)) return;
    req->task = NULL;
    e->user = NULL;
    e->done(e);
    api_fail_full(&full);
    reply_error(req, &full);
}

void request_run(request *req, tasks *among, task *e, served *model) {
    req->task = e;
    req->tasks = among;
    req->task_model = model;
    request_then(req, submit);
}

bool request_is_cancelled(const request *req) {
    return req->is_away && tern_cancel_is_requested(&req->away.cancel);
}

bool request_pause(request *req) { return !req->is_away || task_pause(&req->away); }

// ---- The end -----------------------------------------------------------------------------------

static void end_task(request *req) {
    task *e = req->task;
    if (!e) return;
    req->task = NULL;
    e->user = NULL; // `done` then finds no request
    tern_cancel_request(&e->cancel);
    if (e->among) return;
    if (req->task_model) registry_hold(req->task_model); // not submitted yet
    e->done(e);
}

static void free_request(request *req) {
    tern_json_free(&req->body);
    tern_strbuf_free(&req->text);
    tern_strbuf_free(&req->merged);
    http_reader_free(&req->reader);
    upload_free(req->upload);
    req->upload = NULL;
}

// Freeing long buffers takes a while, too.
static bool is_freed_away(request *req) {
    bool is_long = req->upload || req->text.capacity + req->reader.body.capacity > SHORT_BYTES;
    if (!is_long || req->is_emptied || !req->server->readers) return false;
    req->is_emptied = true;
    req->is_left = req->is_away = true;
    req->away = (task){.run = run, .done = back, .client = req->client, .is_owed = true};
    req->work = free_request;
    if (tasks_submit(req->server->readers, &req->away)) return true;
    req->is_left = req->is_away = false;
    return false;
}

void request_free(request *req) {
    if (req->is_away) { // it is freed when it is back
        req->is_left = true;
        tern_cancel_request(&req->away.cancel);
        registry_forget(&req->wait);
        return;
    }
    if (!req->is_emptied) {
        end_task(req);
        registry_forget(&req->wait);
        request_free_parts(req);
        if (req->holds) registry_release(req->model);
        if (is_freed_away(req)) return;
    }
    free_request(req);
    budget_give(req);
    tern_strbuf_free(&req->path);
    tern_strbuf_free(&req->head);
    tern_strbuf_free(&req->piece);
    tern_strbuf_free(&req->frame);
    tern_strbuf_free(&req->said);
    tern_free(req);
}
