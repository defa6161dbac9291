// An answer: a state machine that is stepped by tern_generate, alone, or by a group, with others.
//
//     begin ─ plan ─ (a batch is computed) ─ take ─ plan ... until it is over ─ end
//
// plan chooses the session's part of the next batch: a piece of the tokens that its timeline still
// lacks (the prompt, or the rest after a full context), or the last token with its draft. take
// continues with the scores. A batch may have any number of sessions; one that failed is planned
// again.
//
// In a group, a slow grammar delays only its own answer: its work is given to the group's helper
// (g->constraint is away), and the session is not planned meanwhile. take may stop in the middle
// for that; settle then continues it.
#ifndef TERN_SESSION_GENERATION_H
#define TERN_SESSION_GENERATION_H

#include "session/session.h"

struct tern_generation {
    tern_spare spare;
    tern_session *s;
    // The request.
    int32_t max_tokens;
    bool ignore_end;
    size_t n_stops, stops_capacity;
    char *stops; // texts, concatenated, each terminated
    tern_logit_bias *biases;
    size_t biases_capacity;
    tern_refit refit;
    tern_text_fn on_text;
    tern_end_fn on_end;
    tern_progress_fn on_progress;
    tern_logits_fn on_logits;
    float *changed; // [n_vocab] a row of scores as on_logits leaves it
    size_t changed_capacity;
    void *user;
    // Where it is.
    size_t n_left, gap; // tokens that the timeline lacks: they lie `gap` after its end
    size_t n_fed;       // lacking tokens computed so far
    bool is_prompt;     // they are the prompt's, and the first choice follows
    size_t fork_at;     // a position of the prompt to snapshot; 0: only its end
    int32_t id;         // chosen, not in the timeline yet
    int32_t chosen;     // the token after id, not said yet because its grammar takes long; -1: none
    size_t n_since_step; // tokens said since the last step
    bool is_settled;     // nothing more can be said before the next step
    bool is_late;        // the next step is not planned, as its mask takes long
    size_t n_ahead;      // tokens after the last one that are already computed
    const int32_t *ahead;
    size_t n_before;                      // tokens of the timeline when the last batch was planned
    tern_work work;                       // planned last
    int32_t step_ids[TERN_DRAFT_MAX + 1]; // the work's tokens: the last ones and a draft
    size_t
        n_more; // tokens after g->id that are already said and are computed with it: step_ids[1..]
    tern_constraint constraint;
    bool is_bound; // by the grammar, when the last batch was planned
    int32_t n_top; // scores that the sampler needed for that batch; 0: all
    bool is_over, in_flight;
    tern_error failure; // the error that ended it, or OK
    tern_drafting drafting;
    tern_sampler sampler;
    tern_excluded excluded;
    tern_decoder decoder;
    int32_t *said; // [n_said] kept apart: a shift may drop them from the timeline
    size_t n_said, said_capacity;
    tern_strbuf text, held; // decoded; held back: may begin a stop string
    tern_stop_reason reason;
    double began, prompt_done;
    tern_generate_stats stats;
};

typedef struct tern_generation_desc {
    const int32_t *ids;
    size_t n_ids;
    const tern_generate_params *params; // or NULL
    const tern_refit *refit;            // or NULL
    int32_t n_reserve; // tokens of the answer for which memory is taken at once; -1: all
    bool appends;      // set by begin: the ids follow the timeline's
} tern_generation_desc;

// From here on the session is running, until end.
tern_status tern_generation_begin(tern_generation **out, tern_session *s,
                                  const tern_generation_desc *desc, tern_error *err);
// The most rows of scores that one of its batches needs, and how many of these need all logits.
void tern_generation_rows(const tern_generation *g, size_t *n_rows, size_t *n_logits);
bool tern_generation_feeds(const tern_generation *g); // the next batch takes a piece of any length
// Plans the next batch: g->work, and which scores it wants for g->work.n_outputs rows: top_k (0:
// all of them), few_ahead and drafting. n_most: tokens of a piece; alone: the batch has no other
// session. If it sets g->is_late, there is no plan yet.
tern_status tern_generation_plan(tern_generation *g, int32_t n_most, bool alone, tern_wants *wants,
                                 tern_error *err);
// Which tokens may be among the greatest of each of these rows, as in tern_wants.allowed, to
// rows [g->work.n_outputs]; false: any may, and all are NULL.
bool tern_generation_allowed(const tern_generation *g, const uint64_t **rows);
// Finds the tokens that the grammar forces, which are said without asking the model; *later: see
// tern_constraint_find_forced.
tern_status tern_generation_find_forced(tern_generation *g, bool *later, tern_error *err);
// The first of these; -1: the model is asked.
int32_t tern_generation_forced(const tern_generation *g);
// g->work is computed. seconds: the time of the batch, 0: it says nothing about the session.
tern_status tern_generation_take(tern_generation *g, const tern_scores *scores, double seconds,
                                 tern_error *err);
// Nothing more is said.
void tern_generation_stop(tern_generation *g, tern_stop_reason reason);
// Continues a take that stopped in the middle, as far as possible now.
tern_status tern_generation_settle(tern_generation *g, tern_error *err);
// Passes on text that was held back, and releases the session. g is no longer valid.
tern_status tern_generation_end(tern_generation *g, tern_status status, tern_generate_stats *stats,
                                tern_error *err);

#endif
