// A second thread of a group, for work that its steps do not wait for.
//
// A job belongs to the helper from give until it is done: meanwhile its owner does not touch its
// data. The thread is started for the first one.
#include "session/session.h"

void tern_helper_open(tern_helper *h) {
    *h = (tern_helper){0};
    h->end = &h->first;
    tern_mutex_init(&h->lock);
    tern_condition_init(&h->changed);
}

static void run(tern_job *j) {
    tern_cancel_scope giver, own;
    tern_cancel_enter(&giver, j->watched);
    tern_cancel_enter(&own, &j->cancel);
    j->run(j);
    tern_cancel_leave(&own);
    tern_cancel_leave(&giver);
}

static void work(void *arg) {
    tern_helper *h = arg;
    tern_mutex_lock(&h->lock);
    while (h->first || !h->is_closing) {
        tern_job *j = h->first;
        if (!j) {
            tern_condition_wait(&h->changed, &h->lock);
            continue;
        }
        h->first = j->next;
        if (!h->first) h->end = &h->first;
        j->state = TERN_JOB_RUNS;
        tern_mutex_unlock(&h->lock);
        run(j);
        tern_mutex_lock(&h->lock);
        j->state = TERN_JOB_DONE;
        tern_condition_wake_all(&h->changed);
    }
    tern_mutex_unlock(&h->lock);
}

bool tern_helper_give(tern_helper *h, tern_job *j) {
    tern_mutex_lock(&h->lock);
    h->has_thread = h->has_thread || tern_thread_start(&h->thread, work, h);
    if (h->has_thread) {
        j->state = TERN_JOB_WAITS;
        j->next = NULL;
        tern_cancel_reset(&j->cancel);
        *h->end = j;
        h->end = &j->next;
        tern_condition_wake_all(&h->changed);
    }
    tern_mutex_unlock(&h->lock);
    return h->has_thread;
}

bool tern_helper_is_done(tern_helper *h, const tern_job *j) {
    tern_mutex_lock(&h->lock);
    bool is_done = j->state == TERN_JOB_DONE;
    tern_mutex_unlock(&h->lock);
    return is_done;
}

void tern_helper_take_back(tern_helper *h, tern_job *j) {
    tern_cancel_request(&j->cancel);
    tern_mutex_lock(&h->lock);
    if (j->state == TERN_JOB_WAITS) {
        tern_job **at = &h->first;
        while (*at != j) at = &(*at)->next;
        *at = j->next;
        if (!*at) h->end = at;
        j->state = TERN_JOB_DONE;
    }
    while (j->state != TERN_JOB_DONE) tern_condition_wait(&h->changed, &h->lock);
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
