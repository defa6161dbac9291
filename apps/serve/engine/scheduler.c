#include "apps/serve/engine/scheduler.h"

#include <string.h>
#include "apps/serve/http/share.h"
#include "apps/serve/engine/waiting.h"
#include "base/alloc.h"
#include "base/os/os_thread.h"
#include "base/os/os_time.h"
#include "base/status.h"

typedef struct visit {
    struct visit *next;
    void (*fn)(void *user, slots *slots);
    void *user;
    bool is_done;
} visit;

struct scheduler {
    scheduler_desc desc;
    tern_thread thread;
    // Shared, under the lock.
    tern_mutex lock;
    tern_condition changed;
    job *inbox, **inbox_end;
    share jobs; // jobs taken whose last event is not posted yet
    job_event *events, **events_end;
    size_t n_watching; // threads in scheduler_wait_step
    visit *visits;
    bool stopping, closing, ticked, has_files; // has_files: the files' thread has finished a task
    scheduler_view view;
    slot_view *slot_views; // [slots.n]
    uint64_t n_submitted;
    // Used by the thread alone.
    tern_group *group;
    slots slots;
    waiting waiting;
};

// ---- Events ------------------------------------------------------------------------------------

static void post(scheduler *s, job_event *e) {
    tern_mutex_lock(&s->lock);
    bool was_empty = !s->events;
    e->next = NULL;
    *s->events_end = e;
    s->events_end = &e->next;
    if (e->kind == JOB_END) share_give(&s->jobs, e->job->client, 1);
    tern_mutex_unlock(&s->lock);
    if (was_empty) s->desc.wake(s->desc.user);
}

job_event *scheduler_take_events(scheduler *s) {
    tern_mutex_lock(&s->lock);
    job_event *list = s->events;
    s->events = NULL;
    s->events_end = &s->events;
    tern_mutex_unlock(&s->lock);
    return list;
}

void job_event_free(job_event *e) {
    if (e->kind != JOB_END) tern_free(e); // JOB_END is part of its job
}

// An event with the answer's tokens that have not been sent. One block: the event, the likelihoods,
// the ids, the text.
static job_event *make_event(job *j, const char *text, size_t n_text) {
    size_t n, n_rows, n_each;
    const int32_t *ids = tern_session_generated(j->slot->session, &n);
    const tern_token_logprob *rows =
        tern_session_token_logprobs(j->slot->session, &n_rows, &n_each);
    size_t from = j->n_sent, n_new = n - from;
    size_t rows_bytes = rows ? n_new * n_each * sizeof *rows : 0, ids_bytes = n_new * sizeof *ids;
    job_event *e = tern_alloc(TERN_MEM_SESSION, sizeof *e + rows_bytes + ids_bytes + n_text);
    if (!e) return NULL;
    char *to = (char *)(e + 1);
    *e = (job_event){.job = j, .kind = JOB_TEXT, .n_text = n_text, .n_tokens = n_new};
    if (rows_bytes) {
        e->logprobs = memcpy(to, rows + from * n_each, rows_bytes);
        e->n_each = n_each;
    }
    if (ids_bytes) e->ids = memcpy(to + rows_bytes, ids + from, ids_bytes);
    e->text = to + rows_bytes + ids_bytes;
    if (n_text) memcpy(to + rows_bytes + ids_bytes, text, n_text);
    j->n_sent = n;
    return e;
}

static bool on_text(void *user, const char *text, size_t n) {
    job *j = user;
    if (atomic_load(&j->cancelled)) return false;
    if (j->first == 0) j->first = tern_seconds();
    j->has_new_line = j->has_new_line || (n && memchr(text, '\n', n));
    job_event *e = make_event(j, text, n);
    if (e)
        post(j->scheduler, e);
    else
        tern_fail_memory(&j->error, n);
    return e != NULL; // if it cannot be sent, the answer ends
}

// ---- Jobs begin and end ------------------------------------------------------------------------

static void finish(scheduler *s, job *j) {
    j->ended = tern_seconds();
    waiting_done(&s->waiting, j);
    post(s, &j->end); // from here on the job is the other thread's
}

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *err) {
    job *j = user;
    scheduler *s = j->scheduler;
    size_t n;
    j->stats = *stats;
    if (err->status != TERN_OK) j->error = *err; // else perhaps fail_all's or on_text's
    tern_session_generated(session, &n);
    job_event *rest = n > j->n_sent ? make_event(j, "", 0) : NULL;
    if (rest)
        post(s, rest);
    else if (n > j->n_sent)
        tern_fail_memory(&j->error, n);
    slots_release(&s->slots, j->slot, j->error.status == TERN_OK);
    finish(s, j);
}

static tern_status add_to_group(scheduler *s, const slot *at, job *j) {
    j->error = (tern_error){0};
    j->params.on_text = on_text;
    j->params.on_end = on_end;
    j->params.user = j;
    return tern_group_add(s->group, at->session, j->ids, j->n_ids, &j->params, &j->error);
}

static void begin(scheduler *s, job *j) {
    slot *at;
    j->started = tern_seconds();
    tern_status status = slots_take(&s->slots, j, &at, &j->error);
    if (status == TERN_OK) {
        status = add_to_group(s, at, j);
        while (status == TERN_ERR_MEMORY && slots_give_back(&s->slots))
            status = add_to_group(s, at, j);
        if (status != TERN_OK) slots_release(&s->slots, at, false);
    }
    if (status != TERN_OK) finish(s, j);
}

static bool may_begin(void *user, job *j) {
    scheduler *s = user;
    return !slots_should_wait(&s->slots, j);
}

static void begin_some(scheduler *s) {
    while (s->slots.n_busy < s->slots.desc.n_parallel) {
        job *j = waiting_take(&s->waiting, may_begin, s);
        if (!j) return;
        begin(s, j);
    }
}

static void cancel_some(scheduler *s) {
    for (size_t i = 0; i < s->slots.n; i++) {
        const job *j = s->slots.list[i].job;
        if (j && atomic_load(&j->cancelled)) tern_session_cancel(s->slots.list[i].session);
    }
    for (job *j; (j = waiting_take_cancelled(&s->waiting));) {
        j->stats.reason = TERN_STOP_CALLER;
        j->ended = tern_seconds();
        post(s, &j->end);
    }
}

// ---- The thread --------------------------------------------------------------------------------

// No single job is at fault if a step fails. All running jobs end with the error, since the next
// step would most likely fail, too.
static void fail_all(scheduler *s, const tern_error *why) {
    for (size_t i = 0; i < s->slots.n; i++) {
        job *j = s->slots.list[i].job;
        if (!j) continue;
        j->error = *why;
        tern_session_cancel(s->slots.list[i].session);
    }
}

static void step(scheduler *s) {
    size_t n_running;
    tern_error err = {0};
    tern_status status = tern_group_step(s->group, &n_running, &err);
    while (status == TERN_ERR_MEMORY && slots_give_back(&s->slots))
        status = tern_group_step(s->group, &n_running, &err);
    if (status != TERN_OK) fail_all(s, &err);
    tern_group_info info;
    tern_group_get_info(s->group, &info);
    s->slots.prefixes.worth.compute = info.row_seconds;
}

static job *take_inbox(scheduler *s) { // with the lock held
    job *list = s->inbox;
    s->inbox = NULL;
    s->inbox_end = &s->inbox;
    return list;
}

static void note_new(scheduler *s, job *list) {
    for (job *j = list, *next; j; j = next) {
        next = j->next;
        if (waiting_add(&s->waiting, j)) continue;
        tern_fail_memory(&j->error, sizeof *j);
        post(s, &j->end);
    }
}

static void cancel_all(scheduler *s) {
    for (job *j = s->waiting.first; j; j = j->next) atomic_store(&j->cancelled, true);
    for (size_t i = 0; i < s->slots.n; i++)
        if (s->slots.list[i].job) atomic_store(&s->slots.list[i].job->cancelled, true);
}

static slot_view look_at_slot(const slot *at) {
    const job *j = at->job;
    if (!j) return (slot_view){0};
    return (slot_view){.job = j->id,
                       .n_prompt = j->n_ids,
                       .n_generated = j->n_sent,
                       .max_tokens = j->params.max_tokens,
                       .has_new_line = j->has_new_line,
                       .ignores_end = j->params.ignore_end,
                       .sampling = j->sampling};
}

static void show(scheduler *s, bool stepping) {
    scheduler_view *v = &s->view;
    v->n_running = s->slots.n_busy;
    for (size_t i = 0; i < s->slots.n; i++) s->slot_views[i] = look_at_slot(&s->slots.list[i]);
    v->prefixes = s->slots.prefixes.view;
    v->step_began = stepping ? tern_seconds() : 0;
    v->n_steps += stepping;
    v->n_step_jobs += stepping ? s->slots.n_busy : 0;
    if (s->n_watching) tern_condition_wake_all(&s->changed);
}

static void receive(scheduler *s) {
    tern_mutex_lock(&s->lock);
    for (visit *v; (v = s->visits);) {
        s->visits = v->next;
        tern_mutex_unlock(&s->lock);
        v->fn(v->user, &s->slots);
        tern_mutex_lock(&s->lock);
        v->is_done = true;
        tern_condition_wake_all(&s->changed);
    }
    tern_mutex_unlock(&s->lock);
}

static void run(void *arg) {
    scheduler *s = arg;
    bool awaits = false; // no job could begin: those that wait need their prefix from disk
    tern_mutex_lock(&s->lock);
    for (;;) {
        bool is_idle = s->slots.n_busy == 0 && (s->waiting.n == 0 || (awaits && !s->closing));
        bool closing = s->closing;
        show(s, s->slots.n_busy > 0);
        if (is_idle && !s->inbox && !s->ticked && !s->has_files && !s->visits) {
            if (closing) break;
            tern_condition_wait(&s->changed, &s->lock);
            continue;
        }
        job *list = take_inbox(s);
        bool ticked = s->ticked, has_files = s->has_files;
        s->ticked = s->has_files = false;
        tern_mutex_unlock(&s->lock);
        if (has_files) prefix_cache_take_done(&s->slots.prefixes);
        receive(s);
        if (ticked) slots_tick(&s->slots);
        note_new(s, list);
        if (closing) cancel_all(s);
        cancel_some(s);
        begin_some(s);
        awaits = s->slots.n_busy == 0;
        if (!awaits) step(s);
        tern_mutex_lock(&s->lock);
    }
    tern_mutex_unlock(&s->lock);
}

// ---- From the other thread ---------------------------------------------------------------------

// Usually all are one client's.
static bool take_places(scheduler *s, job *const *jobs, size_t n, size_t room) {
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && jobs[k]->client == jobs[i]->client;) k++;
        if (share_take(&s->jobs, jobs[i]->client, k - i, room)) continue;
        while (i > 0) share_give(&s->jobs, jobs[--i]->client, 1);
        return false;
    }
    return true;
}

bool scheduler_submit(scheduler *s, job *const *jobs, size_t n) {
    double now = tern_seconds();
    tern_mutex_lock(&s->lock);
    size_t room = s->desc.n_waiting_max + s->view.n_parallel;
    bool fits = !s->stopping && take_places(s, jobs, n, room);
    for (size_t i = 0; fits && i < n; i++) {
        jobs[i]->scheduler = s;
        jobs[i]->id = ++s->n_submitted;
        jobs[i]->submitted = now;
        jobs[i]->next = NULL;
        *s->inbox_end = jobs[i];
        s->inbox_end = &jobs[i]->next;
    }
    tern_mutex_unlock(&s->lock);
    if (fits) tern_condition_wake_all(&s->changed);
    return fits;
}

void scheduler_cancel(scheduler *s, job *j) {
    (void)s; // the next step sees it
    atomic_store(&j->cancelled, true);
}

void scheduler_visit(scheduler *s, void (*fn)(void *user, slots *slots), void *user) {
    visit v = {.fn = fn, .user = user};
    tern_mutex_lock(&s->lock);
    v.next = s->visits;
    s->visits = &v;
    tern_condition_wake_all(&s->changed);
    while (!v.is_done) tern_condition_wait(&s->changed, &s->lock);
    tern_mutex_unlock(&s->lock);
}

void scheduler_tick(scheduler *s) {
    tern_mutex_lock(&s->lock);
    s->ticked = true;
    tern_mutex_unlock(&s->lock);
    tern_condition_wake_all(&s->changed);
}

static void on_files(void *user) { // the files' thread
    scheduler *s = user;
    tern_mutex_lock(&s->lock);
    s->has_files = true;
    tern_mutex_unlock(&s->lock);
    tern_condition_wake_all(&s->changed);
}

static void on_complaint(void *user, const char *what) {
    const scheduler *s = user;
    if (s->desc.complain) s->desc.complain(s->desc.user, what);
}

void scheduler_stop(scheduler *s) {
    tern_mutex_lock(&s->lock);
    s->stopping = true;
    tern_mutex_unlock(&s->lock);
}

void scheduler_wait_step(scheduler *s) {
    tern_mutex_lock(&s->lock);
    uint64_t before = s->view.n_steps;
    s->n_watching++;
    // The next step has begun, so this one is done.
    while (s->view.n_running > 0 && s->view.n_steps == before)
        tern_condition_wait(&s->changed, &s->lock);
    s->n_watching--;
    tern_mutex_unlock(&s->lock);
}

size_t scheduler_look_slots(scheduler *s, slot_view *out, size_t n) {
    tern_mutex_lock(&s->lock);
    size_t n_all = s->slots.n;
    for (size_t i = 0; i < n && i < n_all; i++) out[i] = s->slot_views[i];
    tern_mutex_unlock(&s->lock);
    return n_all;
}

void scheduler_look(scheduler *s, scheduler_view *out) {
    tern_mutex_lock(&s->lock);
    *out = s->view;
    out->n_waiting = s->jobs.n > out->n_running ? s->jobs.n - out->n_running : 0;
    tern_mutex_unlock(&s->lock);
}

tern_status scheduler_open(scheduler **out, const scheduler_desc *desc, tern_error *err) {
    scheduler *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    *out = NULL;
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->desc = *desc;
    s->inbox_end = &s->inbox;
    s->events_end = &s->events;
    s->view.n_parallel = desc->slots.n_parallel;
    tern_mutex_init(&s->lock);
    tern_condition_init(&s->changed);
    prefix_files_desc *files = &s->desc.slots.prefixes.files;
    files->wake = on_files;
    files->complain = on_complaint;
    files->user = s;
    tern_status status = slots_open(&s->slots, &s->desc.slots, err);
    s->slot_views = tern_alloc_array(TERN_MEM_SESSION, s->slots.n, sizeof *s->slot_views);
    if (status == TERN_OK && !s->slot_views)
        status = tern_fail_memory(err, s->slots.n * sizeof *s->slot_views);
    if (status == TERN_OK) status = tern_group_open(&s->group, files->model, NULL, err);
    if (status == TERN_OK && !tern_thread_start(&s->thread, run, s))
        status = tern_fail(err, TERN_ERR_UNSUPPORTED, "the system has no thread to give");
    if (status == TERN_OK) {
        *out = s;
        return TERN_OK;
    }
    tern_group_close(s->group);
    slots_close(&s->slots);
    tern_free(s->slot_views);
    tern_condition_free(&s->changed);
    tern_mutex_free(&s->lock);
    tern_free(s);
    return status;
}

void scheduler_close(scheduler *s) {
    if (!s) return;
    tern_mutex_lock(&s->lock);
    s->stopping = s->closing = true;
    tern_mutex_unlock(&s->lock);
    tern_condition_wake_all(&s->changed);
    tern_thread_join(&s->thread);
    for (job_event *e = scheduler_take_events(s), *next; e; e = next) {
        next = e->next;
        job *done = e->kind == JOB_END ? e->job : NULL;
        job_event_free(e);
        job_free(done);
    }
    tern_group_close(s->group);
    slots_close(&s->slots);
    tern_free(s->slot_views);
    waiting_free(&s->waiting);
    share_free(&s->jobs);
    tern_condition_free(&s->changed);
    tern_mutex_free(&s->lock);
    tern_free(s);
}
