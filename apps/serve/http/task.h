// Tasks: work that is neither a step of the scheduler nor quick enough for the loop's thread, such
// as the vectors of a thousand texts. Threads run them; the loop's thread is woken to take the
// results.
//
// Clients take turns. At most n_turns tasks compute at once. Each task has its own thread from its
// first turn to its end, so that a long one can let others go first in the middle of its work
// (task_pause). The next turn goes to the client that has the fewest turns, among such clients to
// the one that has waited longest, and within a client to the task that has had the fewest. So a
// client with a thousand tasks, or a very long one, delays another client's only task by no more
// than one piece of its own.
#ifndef TERN_SERVE_TASK_H
#define TERN_SERVE_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"

typedef struct tasks tasks;

// The first member of a task's data. The task owns all of its data, since the request may have been
// freed.
typedef struct task {
    struct task *next;
    // On its own thread, which watches `cancel`: calls of the library stop when that is set.
    void (*run)(struct task *e);
    // On the loop's thread, after tasks_report and before `done`; NULL: not called.
    void (*progress)(struct task *e);
    void (*done)(struct task *e); // on the loop's thread, once, even if it never ran; frees it
    void *user;                   // for the loop's thread; NULL: the result is no longer wanted
    uint64_t client;              // clients take turns
    // Under the tasks' lock.
    struct tasks *among; // NULL: not submitted
    bool has_progress, has_thread, computes;
    bool is_owed; // it completes accepted work: there is always a place for it
    uint64_t n_turns, number;
    tern_cancel cancel;
} task;

// n_turns: tasks that compute at once; if more than one, no client gets all of them. n_waiting_max:
// tasks that wait for a thread (share.h says what that means for each client). wake: called by a
// task's thread when tasks_take_done should be called.
tern_status tasks_open(tasks **out, size_t n_turns, size_t n_waiting_max, void (*wake)(void *user),
                       void *user, tern_error *err);
// Cancels all tasks, waits for running ones, and calls `done` for each. NULL is allowed.
void tasks_close(tasks *s);
// False: too many wait.
bool tasks_submit(tasks *s, task *e);
// On a task's thread, between two pieces of its work: lets others go first if it is their turn.
// False: it is cancelled.
bool task_pause(task *e);
// On a task's thread: has `progress` called soon, once for all reports until then, and before
// `done`.
void tasks_report(tasks *s, task *e);
void tasks_take_done(tasks *s); // calls `progress` and `done` as due

#endif
