// Evaluation by multiple choice, in four parts:
//
//   eval_tasks.c   a table: how each task's JSON becomes contexts and continuations (an item)
//   eval_items.c   the table's templates are filled in: a line of JSON becomes an item
//   eval_choice.c  an item and a session become log-probabilities, and these become metrics
//   eval_record.c  the file that keeps log-probabilities, so that a run can be resumed
//
// and eval_results.c reads these files again, for eval_versus.c, which compares models by them.
#ifndef TERN_TASKS_EVAL_EVAL_H
#define TERN_TASKS_EVAL_EVAL_H

#include "base/json/json.h"
#include "base/lines.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "tern_tools.h"

#define TERN_EVAL_ANSWERS_MAX 64

// A question with its answers. An answer is a pair: a scored continuation after an unscored
// context. Most tasks have one context and several continuations; WinoGrande has it the other way
// round ("partial scoring"); LAMBADA has one pair.
typedef struct tern_eval_item {
    tern_strbuf description; // comes before the examples; may be empty
    tern_strbuf contexts[TERN_EVAL_ANSWERS_MAX], continuations[TERN_EVAL_ANSWERS_MAX];
    int n_contexts, n_continuations; // equal, or one of them is 1
    int n, gold;                     // n: answers
    uint64_t right;                  // with TERN_EVAL_MASS: a bit for each right answer
} tern_eval_item;
const tern_strbuf *tern_eval_context(const tern_eval_item *item, int answer);
const tern_strbuf *tern_eval_continuation(const tern_eval_item *item, int answer);
void tern_eval_item_free(tern_eval_item *item);

enum {                        // what is computed of a task's scores
    TERN_EVAL_ACC = 1,        // the likeliest answer is the right one
    TERN_EVAL_NORM = 2,       // also with log-probabilities divided by the answer's length
    TERN_EVAL_PERPLEXITY = 4, // of the one continuation; acc: it is the greedy choice
    TERN_EVAL_MASS = 8,       // acc: the right answers' share of the probability of all
};

typedef enum tern_eval_gold {
    TERN_GOLD_FIRST,     // always the first answer
    TERN_GOLD_INDEX,     // the field counts from 0; true is 1
    TERN_GOLD_ONE_BASED, // it counts from 1
    TERN_GOLD_LABEL,     // it is one of the list `labels`
    TERN_GOLD_LETTER,    // it is "A" for the first, and so on, or counts from 0
    TERN_GOLD_MANY,      // it is a list: 1 for each right answer, 0 for each other
} tern_eval_gold;

#define TERN_EVAL_LAYOUTS   3
#define TERN_EVAL_TEMPLATES 5
// The same task is published with different fields: each form is a layout, recognized by its mark.
typedef struct tern_eval_layout {
    const char *mark; // a field that no earlier layout of the task has
    const char *description, *contexts[TERN_EVAL_TEMPLATES], *continuations[TERN_EVAL_TEMPLATES];
    tern_eval_gold rule;
    const char *gold, *labels;
    bool wikihow; // HellaSwag: remove the markup of its source
} tern_eval_layout;

typedef struct tern_eval_task { // a row of the table
    const char *name, *other_name;
    const char *files[4]; // usual names; of a folder: ends with a slash
    unsigned metrics;
    tern_eval_layout layouts[TERN_EVAL_LAYOUTS];
    const char *definition; // in place of layouts: the text of a task file
} tern_eval_task;
// By either name, ignoring case, '-' and '_'. NULL: there is none.
const tern_eval_task *tern_eval_task_find(const char *name);
// Reads one line's JSON. Messages do not name the file.
tern_status tern_eval_item_read(tern_eval_item *item, const tern_eval_task *task, tern_str line,
                                tern_error *err);

// The scores of one item.
typedef struct tern_eval_scores {
    double logprobs[TERN_EVAL_ANSWERS_MAX]; // of each continuation
    bool greedy[TERN_EVAL_ANSWERS_MAX];     // each of its tokens was the likeliest
    int n;
    bool cut; // the context's beginning was left out
} tern_eval_scores;

// The results file: a line of JSON that names the model, then one for each item.
typedef struct tern_eval_record {
    uint64_t item, hash;     // place in the task's file; of the item's line and of its examples
    tern_eval_scores scores; // n 0: the item has an answer
    char *answer;            // generated; of a record that was read: the store's
    tern_eval_metric metrics[TERN_EVAL_METRICS_MAX]; // the item's own; not read back
    int n_metrics;
} tern_eval_record;

typedef struct tern_eval_store {
    FILE *file;
    const char *path, *task, *items_name; // the caller's
    tern_eval_record *records;            // of that task and file of items, by rising item
    size_t n, capacity, next;
    tern_strbuf line;
} tern_eval_store;
// Opens or creates; header is the model's line and must match the file's. An incomplete last line
// is removed.
tern_status tern_eval_store_open(tern_eval_store *s, const char *path, const char *header,
                                 const char *task, const char *items_name, tern_error *err);
// The file's record of an item, or NULL. Ask for items in rising order. Fails if the file has one
// for another text under this number. n_answers 0: a generated answer.
tern_status tern_eval_store_find(tern_eval_store *s, uint64_t item, uint64_t hash, int n_answers,
                                 const tern_eval_record **out, tern_error *err);
tern_status tern_eval_store_add(tern_eval_store *s, const tern_eval_record *record,
                                tern_error *err);
void tern_eval_store_close(tern_eval_store *s); // a zeroed one is allowed

// A results file, to compare models by: each item's metrics.
typedef struct tern_eval_outcome {
    uint32_t task;
    uint64_t file, item, hash; // file: a hash of its name
    size_t line;
    double values[TERN_EVAL_METRICS_MAX];
} tern_eval_outcome;

#define TERN_EVAL_TASKS_MAX 1024
typedef struct tern_eval_outcomes_task {
    char *name, *metrics[TERN_EVAL_METRICS_MAX];
    int n_metrics;
    size_t first, n; // of its outcomes
} tern_eval_outcomes_task;

typedef struct tern_eval_outcomes {
    const char *path; // the caller's
    tern_eval_outcomes_task *tasks;
    tern_eval_outcome *list; // by task, file and item
    size_t n_tasks, n, tasks_capacity, capacity;
} tern_eval_outcomes;
// Free it also after a failure.
tern_status tern_eval_outcomes_read(tern_eval_outcomes *o, const char *path, tern_error *err);
void tern_eval_outcomes_free(tern_eval_outcomes *o);

// The mean of items' values, and its standard error (NAN: of fewer than two), from a stream.
typedef struct tern_eval_mean {
    double sum, squares;
} tern_eval_mean;
void tern_eval_mean_add(tern_eval_mean *m, double x);
double tern_eval_mean_error(const tern_eval_mean *m, double n);

#endif
