#include "apps/serve/away.h"

#include <stddef.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os_time.h"

static request *of(task *e) { return (request *)((char *)e - offsetof(request, away)); }

// On a thread of tasks.
static void run(task *e) { of(e)->work(of(e)); }

// What was written away is said now.
static void say(request *x) {
    if (x->counts)
        metrics_count_request(&x->server->metrics, x->route ? x->route : "other", x->status);
    x->counts = false;
    if (x->model) x->model->counts.n_prompt_tokens += x->n_uncounted_tokens;
    x->n_uncounted_tokens = 0;
    if (x->said.len && x->sink->give)
        x->sink->give(x->to, &x->said);
    else if (x->said.len)
        x->sink->write(x->to, x->said.ptr, x->said.len);
    tern_strbuf_free(&x->said);
    if (!x->is_over) return;
    metrics_add(&x->server->metrics.request, tern_seconds() - x->arrived);
    x->sink->end(x->to);
}

static void back(task *e) {
    request *x = of(e);
    x->is_away = false;
    if (x->is_left) {
        request_free(x);
        return;
    }
    void (*then)(request * x) = x->then;
    x->then = NULL;
    if (x->stop && !x->is_over) { // somebody wanted its end meanwhile
        tern_strbuf_clear(&x->said);
        then = x->stop;
        x->stop = NULL;
    }
    say(x);
    if (then && !x->is_over) then(x);
}

void request_do_away(request *x, tasks *among, bool is_owed, void (*work)(request *x),
                     void (*then)(request *x)) {
    x->away = (task){.run = run, .done = back, .client = x->client, .is_owed = is_owed};
    x->work = work;
    x->then = then;
    x->is_away = true;
    if (tasks_submit(among, &x->away)) return;
    api_error full = {0};
    x->is_away = false;
    x->then = NULL;
    api_fail_full(&full);
    reply_error(x, &full);
}

void request_do(request *x, size_t n_bytes, void (*work)(request *x), void (*then)(request *x)) {
    server *s = x->server;
    if (n_bytes > SHORT_BYTES && !x->is_away) {
        request_do_away(x, s->readers, false, work, then);
        return;
    }
    if (!x->is_away && n_bytes > s->n_loop_bytes) s->n_loop_bytes = n_bytes;
    work(x);
    if (then && !x->is_over) request_then(x, then);
}

void request_then(request *x, void (*then)(request *x)) {
    if (x->is_away)
        x->then = then;
    else
        then(x);
}

static void submit(request *x) {
    task *e = x->task;
    api_error full = {0};
    e->user = x;
    e->client = x->client;
    if (x->task_model) registry_hold(x->task_model); // also if who asked has gone
    if (tasks_submit(x->tasks, e)) return;
    x->task = NULL;
    e->user = NULL;
    e->done(e);
    api_fail_full(&full);
    reply_error(x, &full);
}

void request_run(request *x, tasks *among, task *e, served *model) {
    x->task = e;
    x->tasks = among;
    x->task_model = model;
    request_then(x, submit);
}

bool request_is_cancelled(const request *x) {
    return x->is_away && tern_cancel_is_requested(&x->away.cancel);
}

bool request_pause(request *x) { return !x->is_away || task_pause(&x->away); }

// ---- The end -----------------------------------------------------------------------------------

static void end_task(request *x) {
    task *e = x->task;
    if (!e) return;
    x->task = NULL;
    e->user = NULL; // when it is done it finds nobody
    tern_cancel_request(&e->cancel);
    if (e->among) return;
    if (x->task_model) registry_hold(x->task_model); // it was not handed over yet
    e->done(e);
}

static void free_request(request *x) {
    tern_json_free(&x->body);
    tern_strbuf_free(&x->text);
    http_reader_free(&x->reader);
}

// What is long takes the system a while to take back, too.
static bool is_freed_away(request *x) {
    bool is_long = x->text.capacity + x->reader.body.capacity > SHORT_BYTES;
    if (!is_long || x->is_emptied || !x->server->readers) return false;
    x->is_emptied = true;
    x->is_left = x->is_away = true;
    x->away = (task){.run = run, .done = back, .client = x->client, .is_owed = true};
    x->work = free_request;
    if (tasks_submit(x->server->readers, &x->away)) return true;
    x->is_left = x->is_away = false;
    return false;
}

void request_free(request *x) {
    if (x->is_away) { // who works for it frees it
        x->is_left = true;
        tern_cancel_request(&x->away.cancel);
        registry_forget(&x->wait);
        return;
    }
    if (!x->is_emptied) {
        end_task(x);
        registry_forget(&x->wait);
        request_free_parts(x);
        if (x->holds) registry_release(x->model);
        if (is_freed_away(x)) return;
    }
    free_request(x);
    budget_give(x);
    tern_strbuf_free(&x->path);
    tern_strbuf_free(&x->head);
    tern_strbuf_free(&x->piece);
    tern_strbuf_free(&x->frame);
    tern_strbuf_free(&x->said);
    tern_free(x);
}
