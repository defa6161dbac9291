// The server's scheduler: jobs together say what each says alone, clients take turns, cancelled
// jobs end, prefixes are shared and never mixed up, and the queue has an end.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "apps/serve/engine/scheduler.h"
#include "apps/serve/engine/waiting.h"
#include "base/alloc.h"
#include "tests/serve/patience.h"
#include "tests/support/harness.h"

// ---- Turns -------------------------------------------------------------------------------------

static job *wait_as(waiting *w, uint64_t client) {
    job *j = job_new(NULL, 0, &(tern_generate_params){0});
    j->client = client;
    CHECK(waiting_add(w, j));
    return j;
}

// Seen to fail: with turns that are not counted, and with what runs not counted.
TEST(serve_clients_take_turns) {
    waiting w = {0};
    job *a[4], *b[2], *taken[6];
    for (int i = 0; i < 4; i++) a[i] = wait_as(&w, 1);
    for (int i = 0; i < 2; i++) b[i] = wait_as(&w, 2);
    for (int i = 0; i < 4; i++) taken[i] = waiting_take(&w, NULL, NULL);
    CHECK(taken[0] == a[0] && taken[1] == b[0] && taken[2] == a[1] && taken[3] == b[1]);
    waiting_done(&w, b[0]);
    job *more = wait_as(&w, 2); // client 2 had the last turn, but one of it runs against two
    CHECK(waiting_take(&w, NULL, NULL) == more);
    taken[4] = waiting_take(&w, NULL, NULL);
    CHECK(taken[4] == a[2]);
    waiting_done(&w, a[0]);
    waiting_done(&w, a[1]);
    waiting_done(&w, b[1]);
    job *late = wait_as(&w, 2); // one runs of each: client 2's turn is longer ago
    CHECK(waiting_take(&w, NULL, NULL) == late);
    atomic_store(&a[3]->cancelled, true);
    CHECK(waiting_take_cancelled(&w) == a[3] && waiting_take_cancelled(&w) == NULL && w.n == 0);
    waiting_done(&w, a[2]);
    waiting_done(&w, more);
    waiting_done(&w, late);
    CHECK(w.n_clients == 0);
    for (int i = 0; i < 4; i++) job_free(a[i]);
    for (int i = 0; i < 2; i++) job_free(b[i]);
    job_free(late);
    job_free(more);
    waiting_free(&w);
}

// ---- With a model ------------------------------------------------------------------------------

enum { N_JOBS = 16, N_TOKENS = 24 };

typedef struct answer {
    job *job;
    char text[4096];
    size_t n_tokens, n_events;
    bool is_over;
    tern_generate_stats stats;
    tern_status status;
} answer;

typedef struct fixture { // where the events come in
    scheduler *s;
    tern_model *model;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool is_woken;
    bool holds; // the scheduler's thread waits until its events are handled
} fixture;

static void wake(void *user) {
    fixture *d = user;
    pthread_mutex_lock(&d->lock);
    d->is_woken = true;
    pthread_cond_broadcast(&d->woken);
    while (d->holds && d->is_woken) pthread_cond_wait(&d->woken, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static void hold(fixture *d, bool holds) {
    pthread_mutex_lock(&d->lock);
    d->holds = holds;
    d->is_woken = false;
    pthread_cond_broadcast(&d->woken);
    pthread_mutex_unlock(&d->lock);
}

static bool open_fixture(fixture *d, size_t n_parallel, size_t n_waiting_max,
                         uint64_t cache_bytes) {
    tern_error err = {0};
    *d = (fixture){0};
    pthread_mutex_init(&d->lock, NULL);
    patient_condition(&d->woken);
    bool ok = !tern_model_open(&d->model, "models/stories.gguf", &(tern_model_desc){.n_threads = 1},
                               &err);
    const scheduler_desc desc = {
        .slots = {.n_parallel = n_parallel, .prefixes = {{cache_bytes}, {.model = d->model}}},
        .n_waiting_max = n_waiting_max,
        .wake = wake,
        .user = d};
    ok = ok && !scheduler_open(&d->s, &desc, &err);
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

static void close_fixture(fixture *d) {
    scheduler_close(d->s);
    tern_model_close(d->model);
    pthread_cond_destroy(&d->woken);
    pthread_mutex_destroy(&d->lock);
}

static void take(void *user, const job_event *e) {
    answer *a = user;
    if (!a) return;
    a->n_events++;
    a->n_tokens += e->n_tokens;
    if (e->n_text && strlen(a->text) + e->n_text < sizeof a->text)
        strncat(a->text, e->text, e->n_text);
    if (e->kind != JOB_END) return;
    a->is_over = true;
    a->stats = e->job->stats;
    a->status = e->job->error.status;
}

// Handles events until n answers are over; at the first of each, `on_first`.
static void serve(fixture *d, size_t n, void (*on_first)(fixture *, answer *)) {
    const struct timespec end = time_in(600); // however slow the machine is
    for (size_t n_over = 0; n_over < n;) {
        pthread_mutex_lock(&d->lock);
        int late = 0;
        while (!d->is_woken && !late) late = pthread_cond_timedwait(&d->woken, &d->lock, &end);
        d->is_woken = d->is_woken && d->holds;
        pthread_mutex_unlock(&d->lock);
        if (late) {
            CHECK_MSG(false, "%zu of %zu answers in ten minutes", n_over, n);
            hold(d, false);
            return;
        }
        for (job_event *e = scheduler_take_events(d->s), *next; e; e = next) {
            next = e->next;
            job *done = e->kind == JOB_END ? e->job : NULL;
            answer *a = e->job->user;
            take(a, e);
            if (on_first && a && a->n_events == 1) on_first(d, a);
            job_event_free(e);
            n_over += done != NULL;
            job_free(done);
        }
        if (d->holds) hold(d, true); // it may go on
    }
}

static job *ask(fixture *d, answer *a, const char *prompt, uint64_t seed, int32_t max_tokens) {
    tern_ids ids = {(int32_t[256]){0}, 256, 0};
    const tern_sampling sampling = {.temperature = 1, .top_k = 40, .seed = seed};
    const tern_generate_params params = {.sampling = &sampling, .max_tokens = max_tokens};
    tern_tokenize(d->model, prompt, strlen(prompt), TERN_TOKENIZE_BOS, &ids, NULL);
    *a = (answer){.job = job_new(ids.ids, ids.n, &params)};
    a->job->user = a;
    a->job->client = seed % 3;
    return a->job;
}

#define FRONT                                                                                      \
    "Once upon a time, in a small village at the edge of a big forest, there lived a girl and "    \
    "her "                                                                                         \
    "grandmother, who had three sheep and one very old "
static const char *const prompts[] = {FRONT "goat. One day", FRONT "dog that could not bark.",
                                      "The little girl", "Tom and his dog went to the park. They"};

static void say_alone(fixture *d, size_t i, char *out, size_t size) {
    answer a;
    job *j = ask(d, &a, prompts[i % 4], i + 1, N_TOKENS);
    REQUIRE(scheduler_submit(d->s, &j, 1));
    serve(d, 1, NULL);
    CHECK(a.is_over && a.status == TERN_OK && a.stats.n_generated == a.n_tokens);
    snprintf(out, size, "%s", a.text);
}

// Sixteen jobs in four slots, on prefixes that others left. Seen to fail: with prefixes
// that are not shared, and with events that are taken newest first.
TEST(serve_jobs_together_say_what_each_says_alone) {
    static char alone[N_JOBS][4096];
    static answer answers[N_JOBS];
    fixture d;
    size_t n_reused = 0;
    if (!open_fixture(&d, 1, 0, 0)) return;
    for (size_t i = 0; i < N_JOBS; i++) say_alone(&d, i, alone[i], sizeof alone[i]);
    close_fixture(&d);
    if (!open_fixture(&d, 4, N_JOBS, 64 << 20)) return;
    for (int round = 0; round < 2; round++) {
        job *jobs[N_JOBS];
        for (size_t i = 0; i < N_JOBS; i++)
            jobs[i] = ask(&d, &answers[i], prompts[i % 4], i + 1, N_TOKENS);
        CHECK(scheduler_submit(d.s, jobs, N_JOBS));
        serve(&d, N_JOBS, NULL);
        for (size_t i = 0; i < N_JOBS; i++) {
            CHECK_MSG(!strcmp(answers[i].text, alone[i]), "job %zu: '%s', alone '%s'", i,
                      answers[i].text, alone[i]);
            n_reused += answers[i].stats.n_reused;
        }
    }
    CHECK_MSG(n_reused > 100, "%zu tokens of prefixes were shared", n_reused);
    close_fixture(&d);
}

static void cancel(fixture *d, answer *a) { scheduler_cancel(d->s, a->job); }

// Seen to fail: without cancel_some, and with room for one more.
TEST(serve_jobs_are_cancelled_and_the_queue_has_an_end) {
    fixture d;
    answer a[4];
    job *jobs[4];
    if (!open_fixture(&d, 1, 2, 1 << 20)) return;
    hold(&d, true); // else an answer may be over before this thread cancels it
    for (size_t i = 0; i < 4; i++) jobs[i] = ask(&d, &a[i], prompts[i], i + 1, 900);
    CHECK(!scheduler_submit(d.s, jobs, 4));
    CHECK(scheduler_submit(d.s, jobs, 3));
    CHECK(!scheduler_submit(d.s, jobs + 3, 1));
    scheduler_cancel(d.s, jobs[1]); // it waits
    serve(&d, 3, cancel);
    for (size_t i = 0; i < 3; i++)
        CHECK(a[i].is_over && a[i].stats.reason == TERN_STOP_CALLER && a[i].n_tokens < 100);
    CHECK(a[1].n_tokens == 0);
    hold(&d, false);
    CHECK(scheduler_submit(d.s, jobs + 3, 1));
    scheduler_stop(d.s);
    scheduler_close(d.s); // frees the last one
    d.s = NULL;
    close_fixture(&d);
}
