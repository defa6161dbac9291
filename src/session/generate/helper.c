// A second thread of a group, for work that its steps do not wait for.
//
// A task belongs to the helper from give until it is done: meanwhile its owner does not touch its
// data. The thread is started for the first one.
#include "session/session.h"

void tern_helper_open(tern_helper *h) {
    *h = (tern_helper){0};
    h->end = &h->first;
    tern_mutex_init(&h->lock);
    tern_condition_init(&h->changed);
}

static void run(tern_helper_task *t) {
    tern_cancel_scope giver, own;
    tern_cancel_enter(&giver, t->watched);
    tern_cancel_enter(&own, &t->cancel);
    t->run(t);
    tern_cancel_leave(&own);
    tern_cancel_leave(&giver);
}

static void work(void *arg) {
    tern_helper *h = arg;
    tern_mutex_lock(&h->lock);
    while (h->first || !h->is_closing) {
        tern_helper_task *t = h->first;
        if (!t) {
            tern_condition_wait(&h->changed, &h->lock);
            continue;
        }
        h->first = t->next;
        if (!h->first) h->end = &h->first;
        t->state = TERN_TASK_RUNS;
        tern_mutex_unlock(&h->lock);
        run(t);
        tern_mutex_lock(&h->lock);
        t->state = TERN_TASK_DONE;
        tern_condition_wake_all(&h->changed);
    }
    tern_mutex_unlock(&h->lock);
}

bool tern_helper_give(tern_helper *h, tern_helper_task *t) {
    tern_mutex_lock(&h->lock);
    h->has_thread = h->has_thread || tern_thread_start(&h->thread, work, h);
    if (h->has_thread) {
        t->state = TERN_TASK_WAITS;
        t->next = NULL;
        tern_cancel_reset(&t->cancel);
        *h->end = t;
        h->end = &t->next;
        tern_condition_wake_all(&h->changed);
    }
    tern_mutex_unlock(&h->lock);
    return h->has_thread;
}

bool tern_helper_is_done(tern_helper *h, const tern_helper_task *t) {
    tern_mutex_lock(&h->lock);
    bool is_done = t->state == TERN_TASK_DONE;
    tern_mutex_unlock(&h->lock);
    return is_done;
}

void tern_helper_take_back(tern_helper *h, tern_helper_task *t) {
    tern_cancel_request(&t->cancel);
    tern_mutex_lock(&h->lock);
    if (t->state == TERN_TASK_WAITS) {
        tern_helper_task **at = &h->first;
        while (*at != t) at = &(*at)->next;
        *at = t->next;
        if (!*at) h->end = at;
        t->state = TERN_TASK_DONE;
    }
    while (t->state != TERN_TASK_DONE) tern_condition_wait(&h->changed, &h->lock);
    tern_mutex_unlock(&h->lock);
}

void tern_helper_close(tern_helper *h) {
    tern_mutex_lock(&h->lock);
    h->is_closing = true;
    tern_condition_wake_all(&h->changed);
    tern_mutex_unlock(&h->lock);
    if (h->has_thread) tern_thread_join(&h->thread);
    tern_condition_free(&h->changed);
    tern_mutex_free(&h->lock);
}
