// One run of a task over a file: what the parts that score, generate and read items share.
#ifndef TERN_TASKS_EVAL_EVAL_RUN_H
#define TERN_TASKS_EVAL_EVAL_RUN_H

#include "base/lines.h"
#include "session/session.h"
#include "tasks/eval/eval.h"
#include "tasks/eval/file/eval_file.h"

typedef struct tern_eval_shot { // an answered example
    tern_strbuf question, answer;
} tern_eval_shot;

typedef struct tern_eval_generator tern_eval_generator;

typedef struct tern_eval_job {
    tern_session *session;
    const tern_eval_desc *desc;
    const tern_eval_task *task;
    tern_eval_task own;               // the task of a task file
    tern_eval_file file;              // and what it says
    const char *between, *after_shot; // question and answer; an example and what follows
    bool is_own;                      // items are read by `file`
    int n_shots;
    tern_lines lines;
    double done;              // 0 to 1, for on_progress
    tern_eval_shot *shots;    // [n_shots]
    tern_strbuf examples;     // the same as one text
    tern_strbuf examples_of;  // the description that the examples are of
    tern_strbuf system, user; // messages
    tern_strbuf text;
    bool has_examples;
    tern_eval_item item, example;
    tern_eval_store store;
    tern_ids context, whole;   // tokens
    tern_target_score *scores; // [n_room]
    size_t n_room;
    tern_eval_mean means[TERN_EVAL_METRICS_MAX];
    tern_status first_fault; // of the first faulty item
    tern_eval_result *out;
    tern_eval_generator *generator; // of a task that generates
} tern_eval_job;

// What precedes an answer to r->item, in *out: with a chat template the rendered conversation.
tern_status tern_eval_run_front(tern_eval_job *r, int answer, tern_strbuf *out, tern_error *err);
tern_status tern_eval_run_encode(const tern_eval_job *r, tern_str text, bool begin, tern_ids *out,
                                 tern_error *err);
void tern_eval_put_metric(tern_eval_record *record, const char *name, double value);
// Adds a judged item to the results, and, unless it was there already, to the results file.
tern_status tern_eval_run_count(tern_eval_job *r, const tern_eval_record *record, bool was_known,
                                tern_error *err);
// An item that cannot be scored is counted and left out; any other failure ends the run.
tern_status tern_eval_run_leave_out(tern_eval_job *r, tern_status status, const tern_error *why,
                                    tern_error *err);

// eval_choice.c: the log-probabilities of r->item's answers, and its metrics by these.
tern_status tern_eval_choice_score(tern_eval_job *r, tern_eval_scores *scores, tern_error *err);
void tern_eval_choice_judge(const tern_eval_job *r, tern_eval_record *record);

// eval_generate.c: answers r->item, beside others; it is counted when it is done and those before
// it are. known: its answer, or NULL. finish waits for all. close after any of these.
tern_status tern_eval_generate(tern_eval_job *r, const tern_eval_record *record, const char *known,
                               tern_error *err);
tern_status tern_eval_generate_finish(tern_eval_job *r, tern_error *err);
void tern_eval_generate_close(tern_eval_job *r);

#endif
