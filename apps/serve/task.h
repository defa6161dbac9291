// Tasks: work that is neither a step of the scheduler nor quick enough for the loop's thread,
// such as the vectors of a thousand texts. Threads run them; what they found comes back to the
// loop's thread, which is woken for it.
//
// Clients take turns. So many tasks compute at once as there are turns, and each has a thread of
// its own from its first turn to its end, so that a long one can let others go first in the middle
// of its work (task_pause). Next comes a task of the client that has the fewest turns, and
// among such clients of the one that had none for longest; of one client's tasks the one that
// has had the fewest. So a client with a thousand tasks, or a very long one, delays another's
// only one by no more than a piece of its own.
#ifndef TERN_SERVE_TASK_H
#define TERN_SERVE_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

typedef struct tasks tasks;

// The first member of what a task needs, all of which is its own: whoever asked may have gone.
typedef struct task {
    struct task *next;
    // On a thread of its own, which watches `cancel`: calls of the library stop where that is
    // requested.
    void (*run)(struct task *e);
    // On the loop's thread, after tasks_report and before `done`; NULL: never.
    void (*progress)(struct task *e);
    void (*done)(struct task *e); // on the loop's thread, once; frees it. Also if it never ran
    void *user;                   // of the loop's thread; NULL: nobody wants it any more
    uint64_t client;              // who asks: clients take turns
    // Under the tasks' lock.
    struct tasks *among; // NULL: it was not submitted
    bool has_progress, has_thread, computes;
    bool is_owed; // it is the end of what was accepted: there is always a place for it
    uint64_t n_turns, number;
    tern_cancel cancel;
} task;

// n_turns: tasks that compute at once; where there are several, no client has all of them.
// n_waiting_max: tasks that wait for a thread (share.h says what that means for each client).
// wake: one is done, called by its thread.
tern_status tasks_open(tasks **out, size_t n_turns, size_t n_waiting_max, void (*wake)(void *user),
                       void *user, tern_error *err);
// Cancels all, waits for those that run, and calls `done` for each. NULL is allowed.
void tasks_close(tasks *s);
// False: too many wait.
bool tasks_submit(tasks *s, task *e);
// On a task's thread, between two pieces of its work: others whose turn it is go first. False:
// it is cancelled.
bool task_pause(task *e);
// On a task's thread: `progress` is to be called soon, once for all reports until then,
// and before `done`.
void tasks_report(tasks *s, task *e);
void tasks_take_done(tasks *s); // calls `done` for those that are, and `progress`

#endif
