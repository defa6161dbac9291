// The scheduler: one thread that owns the model's group of sessions and steps it. Jobs come to it
// through an inbox; text goes back as events, which another thread takes when it is woken.
//
// Each step serves all running jobs: one token each, and pieces of the prompts of those that have
// just begun. Between two steps cancelled jobs are removed, and others take their slots. A job's
// text does not depend on what else runs (tern_group_add's promise).
#ifndef TERN_SERVE_SCHEDULER_H
#define TERN_SERVE_SCHEDULER_H

#include "apps/serve/engine/job.h"
#include "apps/serve/engine/slots.h"

typedef struct scheduler scheduler;

typedef struct scheduler_desc {
    slots_desc slots;
    size_t n_waiting_max;     // jobs that wait for a slot; clients share these places (share.h)
    void (*wake)(void *user); // called by the scheduler's thread when there are events
    void (*complain)(void *user, const char *what); // of files; by any thread; may be NULL
    void *user;
} scheduler_desc;

tern_status scheduler_open(scheduler **out, const scheduler_desc *desc, tern_error *err);
// Cancels running jobs, waits for their end, and frees everything, including jobs whose events were
// not taken. NULL is allowed.
void scheduler_close(scheduler *s);

// Submits all of them, or none: false if the queue has no room for all (share.h), or the scheduler
// is stopping.
bool scheduler_submit(scheduler *s, job *const *jobs, size_t n);
// The job ends within a step; its last event still comes.
void scheduler_cancel(scheduler *s, job *j);
// The events since the last call, in order; free each with job_event_free after handling it, and
// free the job after its last event.
job_event *scheduler_take_events(scheduler *s);
void job_event_free(job_event *e);
// Calls fn on the engine's thread, between two steps, and waits until it is done. Not for the
// loop's thread, nor while the scheduler is being closed.
void scheduler_visit(scheduler *s, void (*fn)(void *user, slots *slots), void *user);
// To be called about once a second, for periodic work.
void scheduler_tick(scheduler *s);
// Takes no more jobs; those that it has go on.
void scheduler_stop(scheduler *s);

typedef struct scheduler_view {
    size_t n_running, n_waiting, n_parallel;
    uint64_t n_steps, n_step_jobs; // n_step_jobs: jobs that ran, added over all steps
    prefix_cache_view prefixes;
    double step_began; // when the current step began, by tern_seconds; 0: none runs
} scheduler_view;
void scheduler_look(scheduler *s, scheduler_view *out);
// What runs in each slot, as of the last step: writes up to n, returns how many slots there are.
typedef struct slot_view {
    uint64_t job; // 0: none, and the rest is 0, too
    size_t n_prompt, n_generated;
    int32_t max_tokens; // 0: no limit
    bool has_new_line, ignores_end;
    tern_sampling sampling;
} slot_view;
size_t scheduler_look_slots(scheduler *s, slot_view *out, size_t n);
// Waits until a step is finished, or no step is due. Another thread that computes with the same
// model alternates with the steps this way: one piece of work for each.
void scheduler_wait_step(scheduler *s);

#endif
