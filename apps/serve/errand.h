// Errands: work that is neither a step of the scheduler nor quick enough for the loop's thread,
// such as the vectors of a thousand texts. Threads run them in the order in which they came; what
// they found comes back to the loop's thread, which is woken for it.
#ifndef TERN_SERVE_ERRAND_H
#define TERN_SERVE_ERRAND_H

#include <stdatomic.h>
#include "base/status.h"

typedef struct errands errands;

// The first member of what an errand needs, all of which is its own: whoever asked may have gone.
typedef struct errand {
    struct errand *next;
    void (*run)(struct errand *e);  // on a thread of its own; looks at `cancelled` now and then
    void (*done)(struct errand *e); // on the loop's thread, once; frees it. Also if it never ran
    void (*news)(struct errand *e); // on the loop's thread, after errands_tell; NULL: none come
    void *user;                     // of the loop's thread; NULL: nobody wants it any more
    bool has_news;                  // under the errands' lock
    atomic_bool cancelled;
} errand;

// n_waiting_max: errands that wait for a thread. wake: one is done, called by its thread.
tern_status errands_open(errands **out, size_t n_threads, size_t n_waiting_max,
                         void (*wake)(void *user), void *user, tern_error *err);
// Cancels all, waits for those that run, and calls `done` for each. NULL is allowed.
void errands_close(errands *s);
// False: too many wait.
bool errands_submit(errands *s, errand *e);
// On an errand's thread: `news` is to be called soon, once for all that has been told by then, and
// before `done`.
void errands_tell(errands *s, errand *e);
void errands_take_done(errands *s); // calls `done` for those that are, and `news`

#endif
