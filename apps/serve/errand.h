// Errands: work that is neither a step of the scheduler nor quick enough for the loop's thread,
// such as the vectors of a thousand texts. Threads run them; what they found comes back to the
// loop's thread, which is woken for it.
//
// Clients take turns. So many errands compute at once as there are turns, and each has a thread of
// its own from its first turn to its end, so that a long one can let others go first in the middle
// of its work (errand_pause). Next comes an errand of the client that has the fewest turns, and
// among such clients of the one that had none for longest; of one client's errands the one that
// has had the fewest. So a client with a thousand errands, or a very long one, delays another's
// only one by no more than a piece of its own.
#ifndef TERN_SERVE_ERRAND_H
#define TERN_SERVE_ERRAND_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

typedef struct errands errands;

// The first member of what an errand needs, all of which is its own: whoever asked may have gone.
typedef struct errand {
    struct errand *next;
    // On a thread of its own, which watches `cancel`: calls of the library stop where that is
    // requested.
    void (*run)(struct errand *e);
    // On the loop's thread, after errands_report and before `done`; NULL: never.
    void (*progress)(struct errand *e);
    void (*done)(struct errand *e); // on the loop's thread, once; frees it. Also if it never ran
    void *user;                     // of the loop's thread; NULL: nobody wants it any more
    uint64_t client;                // who asks: clients take turns
    // Under the errands' lock.
    struct errands *among; // NULL: it was not submitted
    bool has_progress, has_thread, computes;
    bool is_owed; // it is the end of what was accepted: there is always a place for it
    uint64_t n_turns, number;
    tern_cancel cancel;
} errand;

// n_turns: errands that compute at once; where there are several, no client has all of them.
// n_waiting_max: errands that wait for a thread (share.h says what that means for each client).
// wake: one is done, called by its thread.
tern_status errands_open(errands **out, size_t n_turns, size_t n_waiting_max,
                         void (*wake)(void *user), void *user, tern_error *err);
// Cancels all, waits for those that run, and calls `done` for each. NULL is allowed.
void errands_close(errands *s);
// False: too many wait.
bool errands_submit(errands *s, errand *e);
// On an errand's thread, between two pieces of its work: others whose turn it is go first. False:
// it is cancelled.
bool errand_pause(errand *e);
// On an errand's thread: `progress` is to be called soon, once for all reports until then,
// and before `done`.
void errands_report(errands *s, errand *e);
void errands_take_done(errands *s); // calls `done` for those that are, and `progress`

#endif
