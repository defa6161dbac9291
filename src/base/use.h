// An object in a call that may call back. If the callback closes it, closing waits for the end of
// the call.
#ifndef TERN_BASE_USE_H
#define TERN_BASE_USE_H

#include "base/status.h"

typedef struct tern_use {
    unsigned n; // nested calls that it is in
    bool is_closed;
} tern_use;

static inline void tern_use_enter(tern_use *u) { u->n++; }
// The same if only one call at a time is possible.
static inline tern_status tern_use_begin(tern_use *u, const char *what, tern_error *err) {
    if (u->n > 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s is in a call: a callback cannot go on with it",
                         what);
    u->n = 1;
    return TERN_OK;
}
// Whether to close it now.
static inline bool tern_use_end(tern_use *u) { return --u->n == 0 && u->is_closed; }
// For its close function: whether closing must wait.
static inline bool tern_use_waits(tern_use *u) {
    u->is_closed = u->n > 0;
    return u->is_closed;
}

#endif
