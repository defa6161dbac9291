// Private to the session folder.
#ifndef TERN_SESSION_SESSION_H
#define TERN_SESSION_SESSION_H

#include "base/os/os_thread.h"
#include "runtime/runtime.h"

typedef struct tern_candidate {
    float logit;
    int32_t id;
} tern_candidate;

// Where repetitions end for DRY: tokens that contain a breaker, and tokens that begin one which
// further tokens complete.
typedef struct tern_breakers {
    uint64_t *whole; // [n_vocab bits]
    size_t whole_capacity;
    struct tern_breaker_head {
        int32_t id;
        uint32_t tail, n_tail; // what must follow, in tails
    } * heads;                 // [n_heads] by id
    size_t n_heads, heads_capacity;
    int32_t *tails;
    size_t n_tails, tails_capacity;
} tern_breakers;

// Tokens that may not be chosen, whatever their scores: exclude.c. Its arrays stay for the next
// answer.
typedef struct tern_excluded {
    uint64_t *allowed, *stops; // [n_vocab bits]; NULL capacity: see has_...
    size_t allowed_capacity, stops_capacity;
    bool has_allowed, has_stops;
    int32_t *ends; // [n_ends] not before min_tokens
    size_t n_ends, ends_capacity;
    int32_t min_tokens;
    int32_t *words; // bad ones: for each its length and its tokens
    size_t n_word_tokens, words_capacity, n_words;
} tern_excluded;
tern_status tern_excluded_begin(tern_excluded *x, const tern_model *m,
                                const tern_generate_params *p, tern_error *err);
void tern_excluded_free(tern_excluded *x);
bool tern_excluded_is_stop(const tern_excluded *x, int32_t id);
// Removes excluded tokens from the candidates, after an answer of n_said tokens; returns how many
// are left, in the same order.
size_t tern_excluded_apply(const tern_excluded *x, tern_candidate *c, size_t n,
                           const int32_t *recent, size_t n_recent, size_t n_said);
// How many tokens it may remove at a time; SIZE_MAX: most of them.
size_t tern_excluded_most(const tern_excluded *x);

// Turns scores into a choice.
typedef struct tern_sampler {
    tern_sampling params; // resolved: no negative fields but dry_penalty_last_n
    uint64_t rng[4];
    int32_t n_vocab;
    bool has_penalties, has_dry;
    bool is_plain;                 // only the samplers that most answers have, in their order
    int32_t need;                  // tern_sampler_need
    double mu;                     // of mirostat
    const tern_logit_bias *biases; // the caller's
    size_t n_biases;
    size_t n_excluded; // tokens that may be taken out of the candidates
    int32_t *counts;   // [n_vocab] zeros between choices, for penalties and DRY
    int32_t *repeats;  // [n_context] for DRY
    size_t counts_capacity, repeats_capacity;
    tern_breakers breakers;
} tern_sampler;

// Defaults for negative fields.
tern_status tern_sampler_prepare(tern_sampler *s, const tern_sampling *params,
                                 const tern_model_info *info, tern_error *err);
// To be called once biases and exclusions are set: allocates memory for texts of up to n_context
// tokens, and finds the breakers in the vocabulary. m NULL: without DRY.
tern_status tern_sampler_reserve(tern_sampler *s, const tern_model *m,
                                 const tern_generate_params *params, int32_t n_context,
                                 tern_error *err);
void tern_sampler_free(tern_sampler *s);
// How many of the greatest logits suffice for a choice; 0: all are needed.
int32_t tern_sampler_need(const tern_sampler *s);
// Chooses among n candidates, which it reorders. recent: the last tokens, newest last.
int32_t tern_sampler_choose(tern_sampler *s, tern_candidate *candidates, size_t n_candidates,
                            const int32_t *recent, size_t n_recent);

// The candidates that the samplers leave (sample_filter.c), each with a probability proportional to
// exp(scale * logit).
typedef struct tern_candidates_left {
    tern_candidate *c;
    size_t n, n_sorted; // the first n_sorted are the greatest, falling
    double scale;
} tern_candidates_left;
tern_candidates_left tern_sampler_filter(tern_sampler *s, tern_candidate *c, size_t n,
                                         const int32_t *recent, size_t n_recent);
int32_t tern_sampler_draw(tern_sampler *s, tern_candidates_left *left);

double tern_sampler_uniform(tern_sampler *s); // [0, 1)
void tern_sampler_penalize(tern_sampler *s, tern_candidate *c, size_t n, const int32_t *recent,
                           size_t n_recent);
// DRY (dry.c).
tern_status tern_breakers_open(tern_breakers *b, const tern_model *m,
                               const tern_generate_params *params, tern_error *err);
void tern_breakers_free(tern_breakers *b);
void tern_sampler_dry(tern_sampler *s, tern_candidate *c, size_t n, const int32_t *recent,
                      size_t n_recent);

static inline bool tern_candidate_above(tern_candidate a, tern_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}
// Brings the greatest of a heap of n to its end: after m calls the last m elements are the m
// greatest, the greatest last.
void tern_candidates_heap(tern_candidate *c, size_t n);
tern_candidate tern_candidates_pop(tern_candidate *heap, size_t n);

// ---- Scores of a batch (scratch.c) --------------------------------------------------------------

// Memory for the scores of a batch's rows: a spare, since it is large and an idle session needs
// none.
typedef struct tern_scratch {
    tern_spare spare;
    size_t n_rows, n_logits; // rows that there is room for
    float *logits;           // [n_logits, n_vocab], where all are needed
    int32_t *top_ids;        // [n_rows, TERN_TOP_K_MAX]
    float *top_logits;
    const uint64_t **allowed;   // [n_rows]
    tern_candidate *candidates; // [n_vocab]
} tern_scratch;
// n_logits of the rows may need all scores.
tern_status tern_scratch_take(tern_model *m, size_t n_rows, size_t n_logits, tern_scratch **out,
                              tern_error *err);
tern_status tern_scratch_grow(tern_scratch *s, const tern_model *m, size_t n_rows, size_t n_logits,
                              tern_error *err);
void tern_scratch_give(tern_model *m, tern_scratch *s); // NULL is allowed

// The scores of one session's rows within a batch.
typedef struct tern_scores {
    const float *logits;    // [rows, n_vocab], or NULL
    const int32_t *top_ids; // [rows, top_k]
    const float *top_logits;
    int32_t top_k;
    tern_candidate *candidates;
} tern_scores;

// ---- Whole texts (reader.c) ---------------------------------------------------------------------

// Zero-initialise, set the first part, settle; append a text's tokens to ids and add it, and so on;
// finish, close.
typedef struct tern_reader {
    tern_model *m;
    size_t n_texts;
    const char *output; // of the graph, a row of `width` numbers for each text
    size_t width;
    int32_t n_outputs; // of each text: 1 where the output is of rows that are wanted
    int32_t works_max; // maximum texts in a step; 0: any number
    const char *input; // of the graph, a row of input_width numbers for each token; NULL: none
    int64_t input_width;
    void (*take)(void *user, size_t text, const float *row); // in the order of the texts
    void *user;
    // Set by settle.
    int32_t n_step;
    tern_kv_type kv_type;
    tern_progress_fn on_progress;
    void *progress_user;
    tern_ids ids;     // of the step's texts, concatenated
    tern_work *works; // [capacity] the step has the first n, with n_tokens
    size_t n, capacity, n_tokens, n_done;
    tern_lease **leases; // [n_leases] each runs a text of a step
    size_t n_leases, leases_capacity;
    float *rows;
    size_t rows_capacity;
    bool is_running; // a step was begun and is not done
    tern_computation now;
    float *input_rows; // [n_input] of the step's tokens
    size_t n_input, input_capacity;
} tern_reader;
// usual: the maximum length unless p sets one, 0: that of a step.
tern_status tern_reader_settle(tern_reader *r, const tern_embed_params *p, int32_t usual,
                               int32_t *max_length, tern_error *err);
// Makes room for n more numbers at the end of input_rows; they belong to the text that is added
// next.
tern_status tern_reader_input(tern_reader *r, size_t n, tern_error *err);
// The last n_ids tokens of r->ids are a text. May compute those before it.
tern_status tern_reader_add(tern_reader *r, size_t n_ids, tern_error *err);
// The same without waiting: is_full tells whether the earlier texts must be computed first; put
// adds the text to them; begin starts a step with all texts added so far, and poll continues it
// until *done.
bool tern_reader_is_full(const tern_reader *r, size_t n_ids);
tern_status tern_reader_put(tern_reader *r, size_t n_ids, tern_error *err);
tern_status tern_reader_begin(tern_reader *r, tern_error *err);
tern_status tern_reader_poll(tern_reader *r, bool *done, tern_error *err);
tern_status tern_reader_finish(tern_reader *r, tern_error *err);
void tern_reader_close(tern_reader *r);

// ---- Speculation: speculate.c decides, drafters.c guesses ---------------------------------------

#define TERN_DRAFT_LEVELS 32

// One guessed token. Guesses of different quality (after a longer match, say) have different
// levels, each with its own record.
typedef struct tern_guess {
    int32_t token; // -1: none
    tern_drafter by;
    int level;
    float stated;   // the drafter's own estimate, before any record
    int32_t source; // index of the odds of a chain of version 1; else -1
} tern_guess;

typedef struct tern_draft {
    int32_t tokens[TERN_DRAFT_MAX];
    tern_guess guesses[TERN_DRAFT_MAX]; // where each token comes from
    int32_t n;
} tern_draft;

// A draft that grows token by token, and the sources that its drafters copy from.
typedef struct tern_trail {
    const int32_t *ids; // the text
    size_t n_ids;
    const tern_draft *draft; // after it
    const tern_chain *chain; // the last one; if the text took the guess,
    size_t n_chain;          // it has n_chain of its tokens
    size_t found, n_match;   // lookup: the token after the match; 0: none
} tern_trail;

typedef struct tern_bucket { // of the online drafter
    uint32_t key;            // hash of the tokens before; 0: empty
    int32_t next;
    int32_t weight;
} tern_bucket;

// How often the examined guesses were right; older ones count less.
typedef struct tern_draft_record {
    float offered, accepted;
} tern_draft_record;

// Drafts that did not seem to pay: how many are skipped before another trial.
typedef struct tern_draft_trial {
    unsigned n_skipped, patience;
} tern_draft_trial;
// Chains, lookup and online buckets contribute tokens to one draft.
enum { TERN_TRIAL_MIXED, TERN_TRIAL_MODEL, TERN_TRIAL_CALLER, TERN_TRIALS };

// Drafts that the device makes and judges (device_drafts.c).
#define TERN_DEVICE_ARMS 4 // lengths of a run to choose from
typedef struct tern_device_arm {
    double seconds, runs; // older ones count less
} tern_device_arm;
typedef struct tern_device_drafts {
    tern_draft_table table;
    tern_device_arm arms[TERN_DEVICE_ARMS];
    int n_arms; // to choose from; 0: the device does not draft
    int now, retried;
    int n_idle;              // requests still to be skipped before timing
    int n_trial_runs;        // still to be timed before the next choice
    int n_settled, patience; // requests since another one was timed, and until one is
    tern_draft_record chances[TERN_DRAFTING_MAX]; // by place
} tern_device_drafts;

typedef struct tern_speculator {
    tern_speculation params;
    tern_draft_limits limits; // of the generation
    int32_t n_vocab;
    tern_draft_record records[TERN_DRAFTER_COUNT][TERN_DRAFT_LEVELS];
    tern_draft_record *odds; // [buckets of a table of version 1, TERN_CHAINS_MATCH_MAX] or NULL
    tern_draft_trial trials[TERN_TRIALS];
    tern_session *model;                    // of the draft model
    tern_bucket *buckets;                   // of the online drafter
    size_t n_seen;                          // tokens of the timeline that it has learnt from
    double run_seconds[TERN_DRAFT_MAX + 2]; // by number of tokens, a moving mean; 0: unknown
    double model_seconds;                   // the same, of a token of the draft model
    unsigned since_plain;                   // steps since one without a draft
    tern_draft draft;                       // of the current step
    tern_guess first[TERN_DRAFTER_COUNT];   // the first guess of each, drafted or not
    int n_first;
    tern_device_drafts device;
    tern_draft_stats stats; // of the generation
} tern_speculator;

bool tern_speculation_is_on(const tern_speculation *p);
tern_status tern_speculator_open(tern_speculator **out, const tern_session *s, tern_error *err);
void tern_speculator_close(tern_speculator *sp);
// A generation begins. NULL: there is no speculation, but the limits are checked all the same.
tern_status tern_speculator_begin(tern_speculator *sp, const tern_draft_limits *limits,
                                  tern_error *err);
// The timeline has been cut to n_tokens.
void tern_speculator_cut(tern_speculator *sp, size_t n_tokens);
// Drafts up to n_max tokens after ids, into sp->draft; empty if a draft would not pay.
tern_status tern_speculator_draft(tern_speculator *sp, const int32_t *ids, size_t n_ids,
                                  int32_t n_max, tern_error *err);
// Reports how long a run of n_tokens (the last token and the draft) took; 0: unknown.
void tern_speculator_ran(tern_speculator *sp, int32_t n_tokens, double seconds);
// Reports how much of the draft was accepted; then came `next` instead, unless the text ended.
void tern_speculator_judge(tern_speculator *sp, int32_t n_accepted, bool ended, int32_t next);
double tern_speculator_speedup(const tern_speculator *sp, size_t n_generated, double seconds);

tern_status tern_device_drafts_open(tern_speculator *sp, const tern_session *s, tern_error *err);
void tern_device_drafts_begin(tern_device_drafts *d); // n_arms is set; nothing is measured yet
// Tokens of the next runs, 1: a single step; 0: the device does not draft.
int32_t tern_device_drafts_choose(tern_speculator *sp);
void tern_device_drafts_ran(tern_speculator *sp, const tern_drafting *q, double seconds);

// The next token after the trail, from one of the drafters that go token by token.
tern_guess tern_drafter_guess(tern_speculator *sp, tern_drafter drafter, tern_trail *t);
// A whole draft, from the draft model or the caller.
tern_status tern_drafter_propose(tern_speculator *sp, tern_drafter drafter, const int32_t *ids,
                                 size_t n_ids, int32_t n_max, tern_draft *out, tern_error *err);
tern_status tern_drafters_open(tern_speculator *sp, const tern_session *s, tern_error *err);
// Appends tokens to the timeline of a session that serves as a drafter and takes the likeliest next
// ones.
tern_status tern_session_greedy(tern_session *s, const int32_t *ids, size_t n_ids, int32_t *next,
                                int32_t n_next, tern_error *err);

// Gives the ids that replace a timeline which is full in the middle of an answer: fewer than the
// context holds. The answer so far is said[0..n_said).
typedef struct tern_refit {
    tern_status (*make_room)(void *user, const int32_t *said, size_t n_said, tern_ids *out,
                             tern_error *err);
    void *user;
} tern_refit;
// tern_generate_ids, using refit when the context is full; NULL: as the session's desc says.
tern_status tern_generate_refit(tern_session *s, const int32_t *ids, size_t n_ids,
                                const tern_generate_params *params, const tern_refit *refit,
                                tern_generate_stats *stats, tern_error *err);

// ---- Conversations (chat.c) ---------------------------------------------------------------------

// The tokens of a rendered conversation, with the model's BOS where the template leaves it out;
// `tern data build` learns the same.
tern_status tern_chat_encode(const tern_tokenizer *t, tern_str text, tern_ids *out,
                             tern_error *err);

// ---- A thread beside (helper.c) -----------------------------------------------------------------

typedef struct tern_helper_task {
    struct tern_helper_task *next;
    void (*run)(
        struct tern_helper_task *t); // on the helper's thread; stops where either is requested:
    const tern_cancel *watched;      // the giver's
    tern_cancel cancel;
    enum {
        TERN_TASK_NONE,
        TERN_TASK_WAITS,
        TERN_TASK_RUNS,
        TERN_TASK_DONE
    } state; // under its lock
} tern_helper_task;

typedef struct tern_helper {
    tern_mutex lock;
    tern_condition changed;
    tern_thread thread;
    tern_helper_task *first, **end;
    bool has_thread, is_closing;
} tern_helper;

void tern_helper_open(tern_helper *h);
void tern_helper_close(tern_helper *h); // no task may be pending
// False: the system has no threads.
bool tern_helper_give(tern_helper *h, tern_helper_task *t);
bool tern_helper_is_done(tern_helper *h, const tern_helper_task *t);
// Ends a task that was given, and waits until it has ended.
void tern_helper_take_back(tern_helper *h, tern_helper_task *t);

// ---- Grammars (constraint.c) --------------------------------------------------------------------

#define TERN_CONSTRAINT_ROWS (TERN_DRAFT_MAX + 1)

// Where an answer stands in its grammar.
typedef struct tern_constraint_at {
    tern_gplace place;
    bool is_done; // nothing can follow
    // For optional calls: anything may come up to a call's opening mark, which does not count
    // within reasoning; n_open and n_think: how many bytes of the marks have come.
    bool is_waiting, in_thought;
    size_t n_open, n_think;
    // For families without a call marker. may_begin: the answer could still be a call. trial: the
    // grammar state if it is; once the whole name of a tool has come, the grammar binds. in_text:
    // inside a JSON string, after n_texts complete ones; n_head strings come before the arguments.
    bool may_begin, after_call, in_text, escaped;
    uint32_t n_texts, n_head;
    tern_gplace trial;
} tern_constraint_at;

// The calls that may take long.
typedef enum tern_constraint_call {
    TERN_CONSTRAINT_MASK,   // the tokens that may come
    TERN_CONSTRAINT_TAKE,   // where a token leads
    TERN_CONSTRAINT_FORCED, // the tokens that must come
} tern_constraint_call;

// An answer's state in its grammar, with the tokens that may come there and after each token of a
// draft.
typedef struct tern_constraint {
    bool is_beside;            // other answers, in a group: its work is limited (constraint.c)
    uint64_t work_left;        // of the limit
    tern_helper *helper;       // does long work; NULL: the caller's thread does all
    const tern_cancel *cancel; // of the answer
    uint64_t quick;            // work that is tried without the helper
    tern_grammar *grammar;     // NULL: anything may come
    tern_constraint_at at;
    size_t n_words;
    uint64_t *bits; // [rows, n_words]
    size_t bits_capacity;
    size_t n_allowed[TERN_CONSTRAINT_ROWS];
    bool can_end[TERN_CONSTRAINT_ROWS];
    tern_ids forced; // tokens that must come, from n_taken on
    size_t n_taken;
    bool knows_mask, knows_forced; // row 0 and `forced` are valid for this state
    tern_strbuf text;
    // The helper's current or last task.
    tern_helper_task task;
    bool is_given; // to it
    tern_constraint_call call;
    int32_t id;
    tern_constraint_at after; // of TAKE
    tern_status status;
    tern_error err;
} tern_constraint;

tern_status tern_constraint_begin(tern_constraint *c, tern_model *m, tern_grammar *grammar,
                                  tern_error *err);
// The grammar may be closed; what was allocated stays for the next answer.
void tern_constraint_end(tern_constraint *c);
void tern_constraint_free(tern_constraint *c);
// Whether not every token may come.
static inline bool tern_constraint_binds(const tern_constraint *c) {
    return c->grammar && !c->at.is_waiting;
}
// With a helper, these three do quick work at once and hand over the rest: then *later is true, and
// the caller repeats the call, with the same arguments, when the constraint is no longer away.
bool tern_constraint_is_away(const tern_constraint *c);
// Finds the mask of the current state, row 0.
tern_status tern_constraint_mask(tern_constraint *c, bool *later, tern_error *err);
// Appends a token that may come.
tern_status tern_constraint_take(tern_constraint *c, int32_t id, bool *later, tern_error *err);
// Finds the tokens that must come. Only the current state decides them, not the way to it.
tern_status tern_constraint_find_forced(tern_constraint *c, bool *later, tern_error *err);
// The first of these; -1: there is a choice.
int32_t tern_constraint_forced(const tern_constraint *c);
// Finds the masks after each token of a draft, which is cut at a token that the grammar rejects or
// that takes long.
tern_status tern_constraint_masks(tern_constraint *c, const int32_t *draft, size_t *n_draft,
                                  tern_error *err);

// ---- Sessions (session.c) -----------------------------------------------------------------------

typedef struct tern_generation tern_generation; // generate/generation.h

struct tern_session {
    tern_model *model;
    tern_cancel cancel; // of its current call
    // Nested calls on it, plus a generation in a group; holders: objects that keep it (agents).
    // While there are any, closing it waits.
    size_t n_calls, n_holders;
    bool is_closed;
    tern_lease *lease; // its tokens are the timeline
    tern_session_desc desc;
    int32_t n_context;
    size_t n_tokens;          // of the timeline
    tern_generation *running; // NULL: nothing is generated
    tern_group *group;        // it runs in
    int32_t *generated;       // [n_generated] by the last generation
    size_t n_generated, generated_capacity;
    tern_token_logprob *token_logprobs;              // [n_generated, n_each_logprobs]
    size_t token_logprobs_capacity, n_each_logprobs; // 0: not wanted
    float *scores; // [n_scores, n_vocab], for tern_session_logprobs
    size_t n_scores;
    tern_speculator *speculator; // NULL: none
    tern_profile *profile;       // sorted, as last requested; NULL: never
};

// A call that works on a session: until it leaves, tern_session_cancel stops it, and closing the
// session waits.
typedef struct tern_session_call {
    tern_session *session;
    tern_cancel_scope scope;
} tern_session_call;
void tern_session_enter(tern_session_call *call, tern_session *s);
void tern_session_leave(const tern_session_call *call);
// The same without a scope, for a session that later calls will work on.
void tern_session_begin(tern_session *s);
void tern_session_end(tern_session *s);
void tern_session_hold(tern_session *s);
void tern_session_let_go(tern_session *s); // NULL is allowed

// Keeps the common prefix of the timeline and ids; the last n_again tokens of ids are not counted.
size_t tern_session_keep_common(tern_session *s, const int32_t *ids, size_t n_ids, size_t n_again);
// How much of the timeline, which was cut to its common prefix with another text, need not be
// computed again: not all states can go back to any position.
tern_status tern_session_count_reused(tern_session *s, size_t *n_reused, tern_error *err);
tern_status tern_session_check_ids(const tern_session *s, const int32_t *ids, size_t n,
                                   tern_error *err);
// Fails while the session generates. A generation that was cancelled in a group ends here, if it
// can.
tern_status tern_session_check_idle(tern_session *s, tern_error *err);
// Removes the session from its group. False: it is in a callback, and leaves after that.
bool tern_group_leave(tern_session *s);
// Ends its generation in the group, at once or when the step that computes it is done.
void tern_group_stop(tern_session *s);

// The index of the greatest of n logits. *log_sum: ln of the sum of all exponentials, each shifted
// by that logit so that none overflows: ln softmax(logits)[i] is
// logits[i] - logits[greatest] - *log_sum.
size_t tern_logits_greatest(const float *logits, size_t n, double *log_sum);
// Fails: NaN and infinity come from the weights, and no choice among them means anything.
tern_status tern_session_fail_scores(const tern_session *s, tern_error *err);

// More candidates than this are read from the whole row of logits.
#define TERN_TOP_K_MAX 512

#endif
