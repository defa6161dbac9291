// The scheduler: one thread that owns the model's group of sessions and steps it. Jobs come to it
// through an inbox; text goes back as events, which another thread takes when it is woken.
//
// Each step serves all running jobs: one token each, and pieces of the prompts of those that have
// just begun. Between two steps jobs that were cancelled go, and others take their slots. A job's
// text does not depend on what else runs (tern_group_add's promise).
#ifndef TERN_SERVE_SCHEDULER_H
#define TERN_SERVE_SCHEDULER_H

#include "apps/serve/job.h"
#include "apps/serve/slots.h"

typedef struct scheduler scheduler;

typedef struct scheduler_desc {
    slots_desc slots;
    size_t n_waiting_max;     // jobs that wait for a slot; clients share them (share.h)
    void (*wake)(void *user); // there are events: called by the scheduler's thread
    void (*complain)(void *user, const char *what); // of files; by any thread. May be NULL
    void *user;
} scheduler_desc;

tern_status scheduler_open(scheduler **out, const scheduler_desc *desc, tern_error *err);
// Cancels what runs, waits for its end, and frees everything, jobs with events not taken included.
// NULL is allowed.
void scheduler_close(scheduler *s);

// All of them, or none: false if that many do not fit in the queue (share.h), or the
// scheduler is stopping.
bool scheduler_submit(scheduler *s, job *const *jobs, size_t n);
// The job ends within a step; its last event still comes.
void scheduler_cancel(scheduler *s, job *j);
// The events since the last call, in order; free each with job_event_free after handling it, and
// after the last one of a job the job.
job_event *scheduler_take_events(scheduler *s);
void job_event_free(job_event *e);
// Calls fn on the engine's thread, between two steps, and waits until it is done. Not for the
// loop's thread, nor while the scheduler is being closed.
void scheduler_visit(scheduler *s, void (*fn)(void *user, slots *slots), void *user);
// About once a second: what is done now and then.
void scheduler_tick(scheduler *s);
// Takes no more jobs; those that it has go on.
void scheduler_stop(scheduler *s);

typedef struct scheduler_view {
    size_t n_running, n_waiting, n_parallel;
    uint64_t n_steps, n_step_jobs; // n_step_jobs: jobs that ran, added over all steps
    prefix_cache_view prefixes;
    double step_began; // when the step that is being computed began, by tern_seconds; 0: none is
} scheduler_view;
void scheduler_look(scheduler *s, scheduler_view *out);
// What runs in each slot, as of the last step: up to n of them, and how many there are.
typedef struct slot_view {
    uint64_t job; // 0: none, and the rest is 0, too
    size_t n_prompt, n_generated;
    int32_t max_tokens; // 0: no limit
    bool has_new_line, ignores_end;
    tern_sampling sampling;
} slot_view;
size_t scheduler_look_slots(scheduler *s, slot_view *out, size_t n);
// Waits until a step has been done, or none is to be done: what computes with the same model on
// another thread takes turns with the steps by this, a piece of its work for each of them.
void scheduler_wait_step(scheduler *s);

#endif
