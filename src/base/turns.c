#include "base/turns.h"

void tern_turns_init(tern_turns *t) {
    tern_mutex_init(&t->lock);
    tern_condition_init(&t->next);
    t->n_asked = t->n_over = 0;
}

void tern_turns_free(tern_turns *t) {
    tern_mutex_free(&t->lock);
    tern_condition_free(&t->next);
}

void tern_turns_take(tern_turns *t) {
    tern_mutex_lock(&t->lock);
    uint64_t mine = t->n_asked++;
    while (t->n_over != mine) tern_condition_wait(&t->next, &t->lock);
    tern_mutex_unlock(&t->lock);
}

void tern_turns_give(tern_turns *t) {
    tern_mutex_lock(&t->lock);
    if (++t->n_over != t->n_asked) tern_condition_wake_all(&t->next);
    tern_mutex_unlock(&t->lock);
}

uint64_t tern_turns_waiting(tern_turns *t) {
    tern_mutex_lock(&t->lock);
    uint64_t n = t->n_asked - t->n_over;
    tern_mutex_unlock(&t->lock);
    return n;
}
