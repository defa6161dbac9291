// A job: one answer to one prompt, from the queue to its end. The loop's thread makes it and hands
// it to the scheduler; the engine's thread computes it and sends events back; the last event gives
// it back to the loop's thread, which frees it.
#ifndef TERN_SERVE_JOB_H
#define TERN_SERVE_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include "tern.h"

typedef struct job job;

typedef enum job_event_kind {
    JOB_TEXT, // more of the answer
    JOB_END,  // the rest of its tokens, if any; job->stats and job->error are set
} job_event_kind;

typedef struct job_event {
    struct job_event *next;
    job *job;
    job_event_kind kind;
    const char *text; // whole characters, no stop string
    size_t n_text;
    const int32_t *ids; // the tokens since the last event
    size_t n_tokens;
    const tern_token_logprob *logprobs; // [n_tokens, n_each], or NULL
    size_t n_each;
} job_event;

struct job {
    // The parameters. They do not change, and the job owns what they point to.
    const int32_t *ids;
    size_t n_ids;
    tern_sampling sampling;
    tern_generate_params params;
    struct shared_grammar *grammar;    // the one in params, held; NULL: none
    uint64_t client;                   // clients take turns
    size_t owner;                      // of its text: prefix_cache.h
    float lora_scales[TERN_LORAS_MAX]; // [n_loras] of the model's adapters
    size_t n_loras;
    uint64_t id; // assigned by the scheduler, from 1
    // Used by the loop's thread.
    void (*on_event)(void *user, const job_event *event);
    void *user; // NULL: its request has gone
    // Used by the engine's thread, until the last event is taken.
    struct scheduler *scheduler;
    struct job *next;
    struct slot *slot;
    bool has_fetched; // its prefix has been fetched from disk
    double looked;    // seconds: when it was first found there; 0: not yet
    size_t n_sent;    // tokens sent in events
    bool has_new_line;
    job_event end;
    double submitted, started, first, ended; // seconds; 0: not yet
    tern_generate_stats stats;
    tern_error error;
    // Used by both.
    atomic_bool cancelled;
};

// Copies everything that the arguments point to. NULL: no memory.
job *job_new(const int32_t *ids, size_t n_ids, const tern_generate_params *params);
void job_free(job *j); // NULL is allowed

#endif
