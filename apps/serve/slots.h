// Slots: places for jobs that run, each with a session. A job goes on from the longest prefix of
// its prompt that there is: one that is kept (prefix_cache.h), or what another slot has just
// computed.
#ifndef TERN_SERVE_SLOTS_H
#define TERN_SERVE_SLOTS_H

#include "apps/serve/prefix_cache.h"
#include "apps/serve/job.h"

typedef struct slot {
    tern_session *session; // of the job
    job *job;              // that runs in it; NULL: it is free
    cached_prefix *last;   // what the last one left; NULL: that is not kept
} slot;

typedef struct slots_desc {
    size_t n_parallel;          // jobs at once
    prefix_cache_desc prefixes; // with the model and how its sessions are opened
} slots_desc;

typedef struct slots {
    slots_desc desc;
    slot *list; // [n]
    size_t n, n_busy;
    prefix_cache prefixes;
} slots;

tern_status slots_open(slots *s, const slots_desc *desc, tern_error *err);
void slots_close(slots *s);
// Whether a job had better wait: no slot is free, or a longer part of its prefix than there is
// comes from disk, which this begins, or is just being computed by another job.
bool slots_should_wait(slots *s, job *j);
// Gives the job a slot whose session has as much of its prefix as any. One must be free.
tern_status slots_take(slots *s, job *j, slot **out, tern_error *err);
// The job's answer is over. keeps: what its session has is kept, while there is memory.
void slots_release(slots *s, slot *at, bool keeps);

// For those who save and restore what a slot has; `at` is a slot's number. What another owner's job
// left there is not theirs: for them the slot is empty.
typedef enum slots_state {
    SLOTS_READY,
    SLOTS_BUSY,   // a job runs in it
    SLOTS_COMING, // from disk: ask again
} slots_state;
// A session with what the last job left, NULL if there is none.
slots_state slots_copy(slots *s, size_t at, size_t owner, tern_session **out, tern_error *err);
void slots_put(slots *s, size_t at, size_t owner, tern_session *session); // as if a job had left it
size_t slots_erase(slots *s, size_t at, size_t owner); // returns how many tokens that were

// Now and then.
void slots_tick(slots *s);
// Memory is needed: false if there is nothing more to be given back.
bool slots_give_back(slots *s);

#endif
