// Whether this thread is to stop computing. Long computations call tern_is_cancelled() every few
// milliseconds. Nothing is passed down for that: a thread has the requests that its callers watch,
// namely the one of tern_cancel_watch and those of the calls that it is in (such as a session's).
#ifndef TERN_BASE_CANCEL_H
#define TERN_BASE_CANCEL_H

#include "base/status.h"

// For a call that watches a separate request until it returns. On the stack of that call.
typedef struct tern_cancel_scope {
    const tern_cancel *watched;
    struct tern_cancel_scope *outer;
} tern_cancel_scope;
void tern_cancel_enter(tern_cancel_scope *scope, const tern_cancel *cancel);
void tern_cancel_leave(const tern_cancel_scope *scope); // the last one entered

bool tern_is_cancelled(void);
// Fails with TERN_ERR_CANCELLED if so; what: "the conversion".
tern_status tern_check_cancelled(const char *what, tern_error *err);
// Reports the progress of a long operation to a listener (or NULL). False: stop, because the
// listener says so or a cancellation was requested.
bool tern_progress(tern_progress_fn fn, void *user, const char *phase, double fraction);

#endif
