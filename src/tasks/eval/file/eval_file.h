// Tasks of one's own: a small JSON file with the fields of lm-evaluation-harness's YAML.
//
//   eval_file.c         reads the file: every template is parsed, every expression compiled
//   eval_file_item.c    a line of data and the task's templates become an item
//   eval_file_answer.c  an answer goes through filters and is compared with the right one
//
// Task files and data are untrusted. A file has TERN_EVAL_FILE_MAX bytes at most, templates run
// with the budgets of chat templates, and an expression searches at most TERN_EVAL_SEARCH_MAX bytes
// with limited steps.
#ifndef TERN_TASKS_EVAL_FILE_EVAL_FILE_H
#define TERN_TASKS_EVAL_FILE_EVAL_FILE_H

#include "base/json/json.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "input/input.h"

#define TERN_EVAL_FILE_MAX   ((size_t)256 << 10)
#define TERN_EVAL_SEARCH_MAX ((size_t)32 << 10)
#define TERN_EVAL_LIST_MAX   8 // filters, their steps, stop strings, expressions to ignore
#define TERN_EVAL_TOKENS_MAX 256

typedef enum tern_eval_step_kind {
    TERN_STEP_REGEX,
    TERN_STEP_LOWERCASE,
    TERN_STEP_UPPERCASE,
    TERN_STEP_REMOVE_WHITESPACE, // at the beginning
} tern_eval_step_kind;

typedef struct tern_eval_step {
    tern_eval_step_kind kind;
    void *code;    // a compiled expression
    int select;    // which match, from the end if negative
    char *instead; // what the answer becomes if there is none
} tern_eval_step;

typedef struct tern_eval_filter {
    char name[48];
    tern_eval_step steps[TERN_EVAL_LIST_MAX];
    int n_steps;
} tern_eval_filter;

// How an answer is compared with the right one.
typedef struct tern_eval_match {
    void *ignored[TERN_EVAL_LIST_MAX]; // what these match is removed from both
    int n_ignored;
    bool ignore_case, ignore_punctuation, ignore_numbers;
} tern_eval_match;

// A template, or the name of a field, as the data has it.
typedef struct tern_eval_text {
    char *source; // NULL: not given
    tern_template *template;
} tern_eval_text;

typedef struct tern_eval_file {
    const char *path; // for messages; the caller's
    tern_strbuf bytes;
    tern_json_doc doc; // of these bytes
    char name[128];
    bool generates;   // output_type: generate_until
    unsigned metrics; // TERN_EVAL_ACC, TERN_EVAL_NORM
    tern_eval_text description, question, target, choices;
    const tern_json *choice_list; // doc_to_choice is a list of texts
    char *target_delimiter, *shots_delimiter;
    int n_shots;
    char *stops[TERN_EVAL_LIST_MAX];
    int n_stops, max_tokens;
    float temperature;
    tern_eval_filter filters[TERN_EVAL_LIST_MAX];
    int n_filters;
    tern_eval_match match;
} tern_eval_file;
// Reads a task file, or with text given a built-in one. Free it also after a failure. Messages are
// "path:line: field: reason".
tern_status tern_eval_file_open(tern_eval_file *f, const char *path, const char *text,
                                tern_error *err);
void tern_eval_file_close(tern_eval_file *f);

struct tern_eval_item;
// The item of a line; the right answer of a task that generates is continuation 0.
tern_status tern_eval_file_item(const tern_eval_file *f, tern_str line, struct tern_eval_item *item,
                                tern_error *err);

tern_status tern_eval_regex_compile(void **code, tern_str pattern, tern_error *err);
void tern_eval_regex_free(void *code);
// Puts the answer through a filter.
tern_status tern_eval_filter_apply(const tern_eval_filter *filter, tern_str answer,
                                   tern_strbuf *out, tern_error *err);
// Whether a filtered answer is the right one.
tern_status tern_eval_answer_matches(const tern_eval_match *m, tern_str answer, tern_str right,
                                     bool *same, tern_error *err);

#endif
