#include "base/cancel.h"

static _Thread_local tern_cancel *named;
static _Thread_local tern_cancel_scope *innermost;

// The compiler's own atomics, so that the public struct is plain C and C++; on every system that
// tern runs on they are single instructions, which a signal handler may use.
void tern_cancel_request(tern_cancel *c) {
    if (c) __atomic_store_n(&c->is_requested, 1, __ATOMIC_RELEASE);
}

void tern_cancel_reset(tern_cancel *c) {
    if (c) __atomic_store_n(&c->is_requested, 0, __ATOMIC_RELEASE);
}

bool tern_cancel_is_requested(const tern_cancel *c) {
    return c && __atomic_load_n(&c->is_requested, __ATOMIC_ACQUIRE) != 0;
}

tern_cancel *tern_cancel_watch(tern_cancel *c) {
    tern_cancel *before = named;
    named = c;
    return before;
}

void tern_cancel_enter(tern_cancel_scope *scope, const tern_cancel *c) {
    *scope = (tern_cancel_scope){c, innermost};
    innermost = scope;
}

void tern_cancel_leave(const tern_cancel_scope *scope) { innermost = scope->outer; }

bool tern_is_cancelled(void) {
    if (tern_cancel_is_requested(named)) return true;
    for (const tern_cancel_scope *s = innermost; s; s = s->outer)
        if (tern_cancel_is_requested(s->watched)) return true;
    return false;
}

tern_status tern_check_cancelled(const char *what, tern_error *err) {
    if (!tern_is_cancelled()) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "%s was cancelled", what);
}

bool tern_progress(tern_progress_fn fn, void *user, const char *phase, double fraction) {
    return !tern_is_cancelled() && (!fn || fn(user, phase, fraction));
}
