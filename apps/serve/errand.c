#include "apps/serve/errand.h"

#include "base/alloc.h"
#include "base/os_thread.h"

typedef struct line { // of errands, first come first served
    errand *first, **end;
} line;

struct errands {
    size_t n_threads, n_waiting_max;
    tern_thread *threads; // [n_threads]
    void (*wake)(void *user);
    void *user;
    // Under the lock.
    tern_mutex lock;
    tern_condition changed;
    line waiting, over;
    size_t n_waiting;
    errand **running; // [n_threads], NULL: none
    size_t n_started; // threads, each of which knows its place by this
    bool closing;
};

static void put(line *l, errand *e) {
    e->next = NULL;
    *l->end = e;
    l->end = &e->next;
}

static errand *take_all(line *l) {
    errand *list = l->first;
    l->first = NULL;
    l->end = &l->first;
    return list;
}

static errand *take_first(line *l) {
    errand *e = l->first;
    l->first = e->next;
    if (!l->first) l->end = &l->first;
    return e;
}

static void work(void *arg) {
    errands *s = arg;
    tern_mutex_lock(&s->lock);
    size_t place = s->n_started++;
    while (!s->closing) {
        if (!s->waiting.first) {
            tern_condition_wait(&s->changed, &s->lock);
            continue;
        }
        errand *e = s->running[place] = take_first(&s->waiting);
        s->n_waiting--;
        tern_mutex_unlock(&s->lock);
        if (!atomic_load(&e->cancelled)) e->run(e);
        tern_mutex_lock(&s->lock);
        s->running[place] = NULL;
        put(&s->over, e);
        tern_mutex_unlock(&s->lock);
        s->wake(s->user);
        tern_mutex_lock(&s->lock);
    }
    tern_mutex_unlock(&s->lock);
}

static void end_all(errand *list) {
    for (errand *next; list; list = next) {
        next = list->next;
        list->done(list);
    }
}

void errands_tell(errands *s, errand *e) {
    atomic_store(&e->has_news, true);
    s->wake(s->user);
}

// Those that run stay until `done`, which only this thread calls.
static void take_news(errands *s) {
    for (size_t i = 0; i < s->n_threads; i++) {
        tern_mutex_lock(&s->lock);
        errand *e = s->running[i];
        tern_mutex_unlock(&s->lock);
        if (e && e->news && atomic_exchange(&e->has_news, false)) e->news(e);
    }
}

void errands_take_done(errands *s) {
    take_news(s);
    tern_mutex_lock(&s->lock);
    errand *list = take_all(&s->over);
    tern_mutex_unlock(&s->lock);
    end_all(list);
}

bool errands_submit(errands *s, errand *e) {
    tern_mutex_lock(&s->lock);
    bool fits = s->n_waiting < s->n_waiting_max && !s->closing;
    if (fits) {
        put(&s->waiting, e);
        s->n_waiting++;
    }
    tern_mutex_unlock(&s->lock);
    if (fits) tern_condition_wake_all(&s->changed);
    return fits;
}

tern_status errands_open(errands **out, size_t n_threads, size_t n_waiting_max,
                         void (*wake)(void *user), void *user, tern_error *err) {
    errands *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    *out = NULL;
    if (!s) return tern_fail_memory(err, sizeof *s);
    *s = (errands){.n_waiting_max = n_waiting_max, .wake = wake, .user = user};
    s->waiting.end = &s->waiting.first;
    s->over.end = &s->over.first;
    tern_mutex_init(&s->lock);
    tern_condition_init(&s->changed);
    s->threads = tern_alloc_array(TERN_MEM_SESSION, n_threads, sizeof *s->threads);
    s->running = tern_alloc_array(TERN_MEM_SESSION, n_threads, sizeof *s->running);
    tern_status status =
        s->threads && s->running ? TERN_OK : tern_fail_memory(err, n_threads * sizeof *s->threads);
    while (status == TERN_OK && s->n_threads < n_threads) {
        if (tern_thread_start(&s->threads[s->n_threads], work, s))
            s->n_threads++;
        else
            status = tern_fail(err, TERN_ERR_UNSUPPORTED, "the system has no thread to give");
    }
    if (status == TERN_OK)
        *out = s;
    else
        errands_close(s);
    return status;
}

void errands_close(errands *s) {
    if (!s) return;
    tern_mutex_lock(&s->lock);
    s->closing = true;
    for (errand *e = s->waiting.first; e; e = e->next) atomic_store(&e->cancelled, true);
    for (size_t i = 0; s->running && i < s->n_threads; i++)
        if (s->running[i]) atomic_store(&s->running[i]->cancelled, true);
    tern_mutex_unlock(&s->lock);
    tern_condition_wake_all(&s->changed);
    for (size_t i = 0; i < s->n_threads; i++) tern_thread_join(&s->threads[i]);
    end_all(take_all(&s->waiting));
    end_all(take_all(&s->over));
    tern_condition_free(&s->changed);
    tern_mutex_free(&s->lock);
    tern_free(s->threads);
    tern_free(s->running);
    tern_free(s);
}
