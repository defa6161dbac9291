// Private to the folder: data generation in parts.
//
//   seeds, templates --> datagen_prompt.c --> prompts --> datagen.c --> answers
//   answers --> datagen_quality.c --> measures --> datagen_judge.c --> records (datagen_record.c)
//
// An *item* is one prompt with its candidates; items are numbered from 0, and all randomness in an
// item follows from its number. Items are generated side by side and judged in their order, so that
// the records do not depend on how many run at once, or on where a run was interrupted.
#ifndef TERN_TASKS_DATAGEN_DATAGEN_H
#define TERN_TASKS_DATAGEN_DATAGEN_H

#include "base/json/json.h"
#include "base/sketch.h"
#include "base/strbuf.h"
#include "grammar/grammar.h"
#include "input/input.h"
#include "tern_tools.h"

// ---- Measures (datagen_quality.c) --------------------------------------------------------------

// The share of runs of four tokens that occurred before; 0 for fewer than five tokens.
tern_status tern_datagen_repetition(const int32_t *ids, size_t n_ids, double *out, tern_error *err);

// The sketch by which an answer is compared; object: its JSON, else an empty document.
struct datagen_job;
tern_status tern_datagen_sketch(struct datagen_job *j, const tern_json_doc *object, tern_str said,
                                tern_sketch *out, tern_error *err);

// ---- Items -------------------------------------------------------------------------------------

typedef struct datagen_candidate {
    struct datagen_job *job;
    struct datagen_item *item;
    tern_session *session; // while it runs
    uint64_t random_seed;
    tern_strbuf raw;             // as generated; with the names of control tokens if need be
    tern_strbuf said, reasoning; // taken apart
    size_t n_tokens;
    bool ended;
    double variety, novelty, confidence, score; // 0 to 1; confidence negative: not measured
    tern_json_doc object;                       // of an answer that is JSON; its text is `said`
    tern_sketch sketch;
    tern_datagen_reason reason;
} datagen_candidate;

typedef struct datagen_item {
    int64_t number;
    size_t seed; // its index
    tern_strbuf system, prompt;
    tern_strbuf *mentions; // [desc.n_mentions]
    tern_strbuf rendered;  // the prompt as text, up to where the answer begins
    int32_t *ids;          // and as tokens
    size_t n_ids;
    datagen_candidate *candidates; // [desc.n_candidates]
    int32_t n_running;
    bool no_room; // the prompt is too long for the context
    struct datagen_item *next;
} datagen_item;

typedef struct datagen_line { // of JSON lines
    const char *text;
    size_t n, number;
    bool is_text; // a string, and not an object
} datagen_line;

typedef struct datagen_job {
    const tern_datagen_desc *desc; // with the defaults filled in
    tern_model *model;
    tern_model_info info;
    tern_datagen_stats *stats;

    datagen_line *seeds;
    size_t n_seeds;
    tern_template *system, *prompt, **mentions; // [desc.n_mentions]

    tern_automaton **required, **forbidden; // of the expressions

    tern_grammar *grammar;
    bool with_special;
    tern_session *front; // its timeline is the first prompt; others share their common beginning
    tern_group *group;
    datagen_item *first, *last; // begun and not judged yet, in order
    int64_t next_item;
    int32_t n_pending, n_running; // items; candidates

    tern_sketcher sketcher;
    tern_sketch *accepted; // of the records, including those of earlier calls
    size_t n_accepted, accepted_capacity;
    int fd;                          // of the file; -1: none
    uint64_t settings, model_digest; // hashes of what the records depend on
    tern_status status;              // a failure in a callback
    tern_error *err;
} datagen_job;

// datagen_prompt.c
tern_status tern_datagen_prompts_open(datagen_job *j, tern_error *err);
void tern_datagen_prompts_close(datagen_job *j);
// Fills in the texts and the tokens. The item's number is set.
tern_status tern_datagen_item_prompt(datagen_job *j, datagen_item *item, tern_error *err);
void tern_datagen_put_seed(const datagen_job *j, size_t i, tern_strbuf *out); // as an object

// datagen_judge.c
tern_status tern_datagen_rules_open(datagen_job *j, tern_error *err);
void tern_datagen_rules_close(datagen_job *j);
// Measures one answer by itself: all but novelty and score.
tern_status tern_datagen_measure(datagen_job *j, datagen_candidate *c, tern_error *err);
// Remembers a record, for the novelty of later ones.
tern_status tern_datagen_keep(datagen_job *j, const tern_sketch *sketch, tern_error *err);
// Chooses among the item's candidates, and passes on the record of each.
tern_status tern_datagen_judge(datagen_job *j, datagen_item *item, tern_error *err);

// datagen_record.c
bool tern_datagen_is_json(const tern_datagen_desc *d);
void tern_datagen_write(const datagen_job *j, const datagen_item *item, const datagen_candidate *c,
                        tern_strbuf *out);
uint64_t tern_datagen_settings(const datagen_job *j);
// Takes over a record of an earlier call: for novelty, and for the number of the next item.
tern_status tern_datagen_read_record(datagen_job *j, const char *line, size_t n, tern_error *err);
// The file of desc.path, if there is one; open reads the records in it.
tern_status tern_datagen_file_open(datagen_job *j, tern_error *err);
tern_status tern_datagen_file_add(datagen_job *j, tern_strbuf *line, tern_error *err);
tern_status tern_datagen_file_close(datagen_job *j, tern_error *err); // fd -1: nothing to do

#endif
