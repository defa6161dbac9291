// Whether what a thread computes is to stop. Whoever computes for long asks tern_is_cancelled()
// between parts of some milliseconds; nothing has to be handed down for that, since a thread knows
// what its callers watch: what tern_cancel_watch named, and what the calls that it is in stand for
// (a session's own request, say).
#ifndef TERN_BASE_CANCEL_H
#define TERN_BASE_CANCEL_H

#include "base/status.h"

// A call that watches a request of its own, until it leaves. On the stack of that call.
typedef struct tern_cancel_scope {
    const tern_cancel *watched;
    struct tern_cancel_scope *outer;
} tern_cancel_scope;
void tern_cancel_enter(tern_cancel_scope *scope, const tern_cancel *cancel);
void tern_cancel_leave(const tern_cancel_scope *scope); // the last one that was entered

bool tern_is_cancelled(void);
// Fails with TERN_ERR_CANCELLED if it is; what: "the conversion".
tern_status tern_check_cancelled(const char *what, tern_error *err);
// Tells a listener (or NULL) how far a long operation is. False: it is to stop, because the
// listener says so or somebody requested it.
bool tern_progress(tern_progress_fn fn, void *user, const char *phase, double fraction);

#endif
