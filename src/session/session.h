// Private to the session folder.
#ifndef TERN_SESSION_SESSION_H
#define TERN_SESSION_SESSION_H

#include "runtime/runtime.h"

typedef struct tern_candidate {
    float logit;
    int32_t id;
} tern_candidate;

// Turns scores into a choice. Everything it needs is allocated when it is prepared.
typedef struct tern_sampler {
    tern_sampling params; // resolved: no negative fields
    uint64_t rng[4];
    tern_candidate *candidates;
    size_t capacity;
    int32_t n_vocab;
    bool has_penalties;
} tern_sampler;

// Defaults for negative fields; allocates for n_vocab candidates.
tern_status tern_sampler_prepare(tern_sampler *s, const tern_sampling *params,
                                 const tern_model_info *info, tern_error *err);
void tern_sampler_free(tern_sampler *s);
// How many of the greatest logits are enough for the next choice after `recent`; 0: all are needed.
int32_t tern_sampler_need(const tern_sampler *s);
// Chooses among n candidates. recent: the last tokens, newest last.
int32_t tern_sampler_choose(tern_sampler *s, size_t n_candidates, const int32_t *recent,
                            size_t n_recent);

struct tern_session {
    tern_model *model;
    tern_seat *instance;
    tern_session_desc desc;
    int32_t n_context;
    int32_t *tokens; // [n_context] the timeline; its keys and values are in the instance
    size_t n_tokens;
    int32_t *generated; // [n_generated_max] kept apart: a shift may drop them from the timeline
    size_t n_generated, generated_capacity;
    tern_sampler sampler;
    float *logits;    // [n_vocab] of the last token, when all are needed
    int32_t *top_ids; // [TERN_TOP_K_MAX]
    float *top_logits;
    tern_strbuf text, held; // decoded; held back since it may be the beginning of a stop string
};

// More candidates than this are taken from the whole row of logits.
#define TERN_TOP_K_MAX 512

#endif
