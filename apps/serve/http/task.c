#include "apps/serve/http/task.h"

#include "apps/serve/http/share.h"
#include "base/alloc.h"
#include "base/os/os_thread.h"

#define THREADS_MAX 32 // tasks that have begun; most of them wait for a turn

typedef struct line { // of tasks, first come first served
    task *first, **end;
} line;

// A client with tasks, and its turns.
typedef struct turn_taker {
    uint64_t client, last; // last: number of its last turn; 0: none yet
    size_t n_tasks, n_turns;
} turn_taker;

struct tasks {
    size_t n_turns, n_waiting_max;
    void (*wake)(void *user);
    void *user;
    // Under the lock.
    tern_mutex lock;
    tern_condition changed;
    tern_thread threads[THREADS_MAX];
    size_t n_threads, n_idle; // idle: wait for a task without a thread
    line known;               // all unfinished tasks: they wait for a thread or a turn, or compute
    line given;               // have a turn, and wait for an idle thread to pick them up
    line over;
    share waiting; // tasks that wait for a thread
    size_t n_computing;
    turn_taker *clients; // [n_clients]
    size_t n_clients, capacity;
    uint64_t n_taken, n_submitted;
    bool closing;
};

static void put(line *l, task *e) {
    e->next = NULL;
    *l->end = e;
    l->end = &e->next;
}

static task *take_all(line *l) {
    task *list = l->first;
    l->first = NULL;
    l->end = &l->first;
    return list;
}

static void take_out(line *l, const task *e) {
    task **at = &l->first;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    if (!*at) l->end = at;
}

// ---- Turns, under the lock ---------------------------------------------------------------------

static turn_taker *client_of(const tasks *s, const task *e) {
    for (size_t i = 0; i < s->n_clients; i++)
        if (s->clients[i].client == e->client) return &s->clients[i];
    return NULL;
}

static bool know_client(tasks *s, const task *e) {
    turn_taker *c = client_of(s, e);
    if (!c) {
        if (tern_array_reserve(TERN_MEM_SESSION, &s->clients, &s->capacity, s->n_clients, 1) != 0)
            return false;
        c = &s->clients[s->n_clients++];
        *c = (turn_taker){.client = e->client, .last = s->n_taken}; // behind those that wait
    }
    c->n_tasks++;
    return true;
}

static void forget_client(tasks *s, const task *e) {
    turn_taker *c = client_of(s, e);
    if (--c->n_tasks == 0) *c = s->clients[--s->n_clients];
}

static bool may_compute(const tasks *s, const turn_taker *c) {
    size_t most = s->n_turns > 1 ? s->n_turns - 1 : 1; // one is left for others
    return c->n_turns < most;
}

static bool is_before(const turn_taker *c, const task *e, const turn_taker *d, const task *f) {
    if (c->n_turns != d->n_turns) return c->n_turns < d->n_turns;
    if (c->last != d->last) return c->last < d->last;
    return e->n_turns != f->n_turns ? e->n_turns < f->n_turns : e->number < f->number;
}

// The task whose turn it is; NULL: none, or all turns are taken.
static task *pick(const tasks *s) {
    task *best = NULL;
    const turn_taker *of = NULL;
    bool has_thread = s->n_idle > 0 || s->n_threads < THREADS_MAX;
    if (s->n_computing == s->n_turns) return NULL;
    for (task *e = s->known.first; e; e = e->next) {
        const turn_taker *c = client_of(s, e);
        if (e->computes || (!e->has_thread && !has_thread) || !may_compute(s, c)) continue;
        if (best && !is_before(c, e, of, best)) continue;
        best = e;
        of = c;
    }
    return best;
}

static void work(void *arg);

static void give_turn(tasks *s, task *e) {
    turn_taker *c = client_of(s, e);
    c->n_turns++;
    c->last = ++s->n_taken;
    s->n_computing++;
    e->n_turns++;
    e->computes = true;
}

static void take_turn(tasks *s, task *e) {
    turn_taker *c = client_of(s, e);
    c->n_turns--;
    c->last = ++s->n_taken; // behind clients that came meanwhile
    s->n_computing--;
    e->computes = false;
}

// Finds an idle thread or starts one. False: the system cannot start one now.
static bool find_thread(tasks *s) {
    if (s->n_idle > 0) {
        s->n_idle--;
        return true;
    }
    if (!tern_thread_start(&s->threads[s->n_threads], work, s)) return false;
    s->n_threads++;
    return true;
}

static void give_turns(tasks *s) {
    for (task *e; !s->closing && (e = pick(s));) {
        if (!e->has_thread) {
            if (!find_thread(s)) break; // retried when a task ends
            e->has_thread = true;
            take_out(&s->known, e);
            put(&s->given, e);
            share_give(&s->waiting, e->client, 1);
        }
        give_turn(s, e);
    }
    tern_condition_wake_all(&s->changed);
}

bool task_pause(task *e) {
    tasks *s = e->among;
    if (!s) return !tern_cancel_is_requested(&e->cancel);
    tern_mutex_lock(&s->lock);
    take_turn(s, e);
    give_turns(s);
    while (!e->computes && !s->closing) tern_condition_wait(&s->changed, &s->lock);
    if (!e->computes) give_turn(s, e); // all tasks are being ended
    tern_mutex_unlock(&s->lock);
    return !tern_cancel_is_requested(&e->cancel);
}

// ---- Threads -----------------------------------------------------------------------------------

static task *take_given(tasks *s) {
    task *e = s->given.first;
    if (!e) return NULL;
    take_out(&s->given, e);
    put(&s->known, e);
    return e;
}

static void work(void *arg) {
    tasks *s = arg;
    tern_mutex_lock(&s->lock);
    for (;;) {
        task *e = take_given(s);
        if (!e && s->closing) break;
        if (!e) {
            tern_condition_wait(&s->changed, &s->lock);
            continue;
        }
        tern_mutex_unlock(&s->lock);
        tern_cancel_watch(&e->cancel);
        if (!tern_cancel_is_requested(&e->cancel)) e->run(e);
        tern_cancel_watch(NULL);
        tern_mutex_lock(&s->lock);
        take_turn(s, e);
        take_out(&s->known, e);
        forget_client(s, e);
        put(&s->over, e);
        s->n_idle++;
        give_turns(s);
        tern_mutex_unlock(&s->lock);
        s->wake(s->user);
        tern_mutex_lock(&s->lock);
    }
    tern_mutex_unlock(&s->lock);
}

static void end_all(task *list) {
    for (task *next; list; list = next) {
        next = list->next;
        if (list->has_progress) list->progress(list);
        list->done(list);
    }
}

void tasks_report(tasks *s, task *e) {
    tern_mutex_lock(&s->lock);
    e->has_progress = true;
    tern_mutex_unlock(&s->lock);
    s->wake(s->user);
}

static task *take_one_with_progress(tasks *s) {
    tern_mutex_lock(&s->lock);
    task *e = s->known.first;
    while (e && !e->has_progress) e = e->next;
    if (e) e->has_progress = false;
    tern_mutex_unlock(&s->lock);
    return e;
}

// Only this thread frees a running task, when it is over.
void tasks_take_done(tasks *s) {
    for (task *e; (e = take_one_with_progress(s));) e->progress(e);
    tern_mutex_lock(&s->lock);
    task *list = take_all(&s->over);
    tern_mutex_unlock(&s->lock);
    end_all(list);
}

bool tasks_submit(tasks *s, task *e) {
    tern_mutex_lock(&s->lock);
    // A new task waits for a moment even if a thread is free, so it first takes a place.
    size_t room = e->is_owed ? SIZE_MAX : s->n_waiting_max;
    bool fits = !s->closing && share_take(&s->waiting, e->client, 1, room);
    if (fits && !know_client(s, e)) {
        share_give(&s->waiting, e->client, 1);
        fits = false;
    }
    if (fits) {
        e->among = s;
        e->has_thread = e->computes = false;
        e->n_turns = 0;
        e->number = ++s->n_submitted;
        put(&s->known, e);
        give_turns(s);
    }
    tern_mutex_unlock(&s->lock);
    return fits;
}

// ---- Opening -----------------------------------------------------------------------------------

tern_status tasks_open(tasks **out, size_t n_turns, size_t n_waiting_max, void (*wake)(void *user),
                       void *user, tern_error *err) {
    tasks *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    *out = NULL;
    if (!s) return tern_fail_memory(err, sizeof *s);
    *s = (tasks){.n_turns = n_turns, .n_waiting_max = n_waiting_max, .wake = wake, .user = user};
    s->known.end = &s->known.first;
    s->given.end = &s->given.first;
    s->over.end = &s->over.first;
    tern_mutex_init(&s->lock);
    tern_condition_init(&s->changed);
    // Starts one thread now, so that there is always one for submitted tasks.
    if (tern_thread_start(&s->threads[0], work, s)) {
        s->n_threads = s->n_idle = 1;
        *out = s;
        return TERN_OK;
    }
    tasks_close(s);
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the system has no thread to give");
}

void tasks_close(tasks *s) {
    if (!s) return;
    tern_mutex_lock(&s->lock);
    s->closing = true;
    for (task *e = s->known.first; e; e = e->next) tern_cancel_request(&e->cancel);
    for (task *e = s->given.first; e; e = e->next) tern_cancel_request(&e->cancel);
    size_t n_threads = s->n_threads;
    tern_mutex_unlock(&s->lock);
    tern_condition_wake_all(&s->changed);
    for (size_t i = 0; i < n_threads; i++) tern_thread_join(&s->threads[i]);
    end_all(take_all(&s->known)); // tasks that never began
    end_all(take_all(&s->over));
    share_free(&s->waiting);
    tern_free(s->clients);
    tern_condition_free(&s->changed);
    tern_mutex_free(&s->lock);
    tern_free(s);
}
