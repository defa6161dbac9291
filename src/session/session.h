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

// ---- Speculation: speculate.c decides, drafters.c guesses ---------------------------------------

// What a drafter says. Guesses of different worth (of a longer or a shorter match, say) are of
// different kinds, which are judged apart.
typedef struct tern_draft {
    int32_t tokens[TERN_DRAFT_MAX];
    int32_t n;
    int kind;
    int32_t source; // of a chain: number of its bucket and match, for tern_speculator.odds; else -1
} tern_draft;
#define TERN_DRAFT_KINDS 4

typedef struct tern_bucket { // of the online drafter
    uint32_t key;            // hash of the tokens before; 0: empty
    int32_t next;
    int32_t weight;
} tern_bucket;

// How often token j of a draft was accepted when those before it were; older drafts count less.
typedef struct tern_draft_record {
    double offered[TERN_DRAFT_MAX], accepted[TERN_DRAFT_MAX];
    unsigned n_skipped, patience; // drafts that did not seem to pay; how many before another trial
} tern_draft_record;

// How often a chain's first drafted token was right, for each bucket and length of the match.
typedef struct tern_draft_odds {
    float offered, accepted;
} tern_draft_odds;

typedef struct tern_speculator {
    tern_speculation params;
    int32_t n_vocab;
    tern_draft_odds *odds; // [buckets of the table, TERN_CHAINS_MATCH_MAX]
    tern_session *model;  // of the draft model
    tern_bucket *buckets; // of the online drafter
    size_t n_seen;        // tokens of the timeline that it has learnt from
    tern_draft_record records[TERN_DRAFTER_COUNT][TERN_DRAFT_KINDS];
    double run_seconds[TERN_DRAFT_MAX + 2]; // of so many tokens, a moving mean; 0: not known
    double model_seconds;                   // of a token of the draft model, the same
    unsigned since_plain;                   // steps since one without a draft
    tern_draft draft;                       // of the step that is being looked at
    tern_drafter drafter;
    tern_draft_stats stats; // of the generation
} tern_speculator;

bool tern_speculation_is_on(const tern_speculation *p);
tern_status tern_speculator_open(tern_speculator **out, const tern_session *s, tern_error *err);
void tern_speculator_close(tern_speculator *sp);
// The timeline was cut to n_tokens.
void tern_speculator_cut(tern_speculator *sp, size_t n_tokens);
// What to compute behind ids, up to n_max tokens: sp->draft, empty where it would not pay.
tern_status tern_speculator_draft(tern_speculator *sp, const int32_t *ids, size_t n_ids,
                                  int32_t n_max, tern_error *err);
// A run of n_tokens (the last token and the draft) took so long.
void tern_speculator_ran(tern_speculator *sp, int32_t n_tokens, double seconds);
// So many tokens of the draft were accepted; the next one was refused, unless the text ended.
void tern_speculator_judge(tern_speculator *sp, int32_t n_accepted, bool refused);
double tern_speculator_speedup(const tern_speculator *sp, size_t n_generated, double seconds);

// One drafter's guess; sp->params says that it is there.
tern_status tern_drafter_propose(tern_speculator *sp, tern_drafter drafter, const int32_t *ids,
                                 size_t n_ids, int32_t n_max, tern_draft *out, tern_error *err);
tern_status tern_drafters_open(tern_speculator *sp, const tern_session *s, tern_error *err);
// Appends tokens to the timeline of a session that is used as a drafter and takes the likeliest
// next ones.
tern_status tern_session_greedy(tern_session *s, const int32_t *ids, size_t n_ids, int32_t *next,
                                int32_t n_next, tern_error *err);

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
    size_t n_rows;    // tokens whose scores are kept: the last one, and those of a draft
    float *logits;    // [n_rows, n_vocab], when all are needed
    int32_t *top_ids; // [n_rows, TERN_TOP_K_MAX]
    float *top_logits;
    float *scores; // [n_scores, n_vocab], for tern_session_logprobs
    size_t n_scores;
    tern_speculator *speculator; // NULL: none
    tern_profile profile; // sorted, for who asked last
    tern_strbuf text, held; // decoded; held back since it may be the beginning of a stop string
};

// More candidates than this are taken from the whole row of logits.
#define TERN_TOP_K_MAX 512

#endif
