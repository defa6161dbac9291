// Slots: places for running jobs, each with a session. A job continues from the longest available
// prefix of its prompt: one in the prefix cache (prefix_cache.h), or one that another slot has just
// computed.
#ifndef TERN_SERVE_SLOTS_H
#define TERN_SERVE_SLOTS_H

#include "apps/serve/cache/prefix_cache.h"
#include "apps/serve/engine/job.h"

typedef struct slot {
    tern_session *session; // the job's
    job *job;              // running in it; NULL: it is free
    cached_prefix *last;   // what the last job left; NULL: not kept, or forgotten since (`gone`)
} slot;

typedef struct slots_desc {
    size_t n_parallel;          // jobs at once
    prefix_cache_desc prefixes; // with the model and its session_desc
} slots_desc;

typedef struct slots {
    slots_desc desc;
    slot *list; // [n]
    size_t n, n_busy;
    prefix_cache prefixes;
} slots;

tern_status slots_open(slots *s, const slots_desc *desc, tern_error *err);
void slots_close(slots *s);
// Whether to wait: no slot is free, or a longer prefix is being read from disk (this starts it) or
// computed by another job.
bool slots_should_wait(slots *s, job *j);
// Gives the job a slot whose session has the longest available prefix. A slot must be free.
tern_status slots_take(slots *s, job *j, slot **out, tern_error *err);
// The job's answer is over. keeps: its session goes to the prefix cache.
void slots_release(slots *s, slot *at, bool keeps);

// To save and restore the text of a slot; `at` is its number. If another owner's job left the text,
// the slot counts as empty.
typedef enum slots_state {
    SLOTS_READY,
    SLOTS_BUSY,   // a job runs in it
    SLOTS_COMING, // being read from disk: ask again
} slots_state;
// A session with what the last job left; NULL: nothing.
slots_state slots_copy(slots *s, size_t at, size_t owner, tern_session **out, tern_error *err);
void slots_put(slots *s, size_t at, size_t owner, tern_session *session); // as if a job had left it
size_t slots_erase(slots *s, size_t at, size_t owner); // returns its number of tokens

// To be called now and then.
void slots_tick(slots *s);
// Frees some memory; false if there is nothing to free.
bool slots_give_back(slots *s);

#endif
