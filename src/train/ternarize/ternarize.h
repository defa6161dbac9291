// Private to tern_ternarize: what its stages share.
//
//   ternarize.c           the stages, and which of them are done
//   ternarize_identity.c  what a folder was begun with
//   ternarize_answers.c   the model's own words
//   ternarize_start.c     the model measured, and rounded for the first time
//   ternarize_report.c    what the ternary model costs, beside others
//   ternarize_lost.c      where it lost that
//   ternarize_tasks.c     how often each of them answers rightly
#ifndef TERN_TRAIN_TERNARIZE_H
#define TERN_TRAIN_TERNARIZE_H

#include "tasks/tasks.h"
#include "train/trainer.h"

typedef struct tern_ternarizing {
    const tern_ternarize_desc *desc;
    tern_train_desc heal;    // for tern_train
    tern_train_desc settled; // the same with all defaults filled in
    tern_type type;
    bool is_gptq;         // how it is rounded first
    uint64_t start_bytes; // of memory for it, beside the model; 0: little
    tern_strbuf identity; // JSON
    char *work;
    // In `work`. importance: what the start is rounded by, imatrix unless weights are rotated.
    char *answers, *answered, *data, *manifest, *imatrix, *rotated, *importance, *start, *run,
        *best, *healed, *exported, *markdown, *json, *plot, *other, *results;
    const char *floats; // what is rounded and trained: the model, or `rotated`
    tern_error *err;
} tern_ternarizing;

// A model on the device of the run.
tern_status tern_ternarize_open(const tern_ternarizing *j, const char *path, tern_model **out);
// To a type, its errors weighted by its importance matrix unless it has that type already.
tern_status tern_ternarize_convert(const tern_ternarizing *j, const char *in, const char *out,
                                   tern_type type);

// Appends to j->identity what the model's file is, and after it all else.
tern_status tern_ternarize_identify(tern_ternarizing *j, const tern_file *model,
                                    const tern_tokenizer *tokenizer);
// Writes it to work/ternarize.json, or compares it with that of an earlier call.
tern_status tern_ternarize_check_identity(const tern_ternarizing *j);

tern_status tern_ternarize_answers(tern_ternarizing *j);
tern_status tern_ternarize_measure(tern_ternarizing *j);
// Writes `rotated` if it is wanted and not there.
tern_status tern_ternarize_rotate(const tern_ternarizing *j);
tern_status tern_ternarize_start(tern_ternarizing *j);
// Memory of a start by products, by the model's graph.
uint64_t tern_ternarize_start_bytes(const tern_trainer *t, const tern_graph *g);
tern_status tern_ternarize_report(tern_ternarizing *j);
// Whether what the report is asked for is there, before any work.
tern_status tern_ternarize_check_report(const tern_ternarizing *j);
// Whether there is a report of what is asked for.
bool tern_ternarize_is_reported(const tern_ternarizing *j);

// ---- Parts of the report -----------------------------------------------------------------------

// How much of the divergence stands where; of documents, those that are furthest.
enum { TERN_LOST_GROUPS = 4, TERN_LOST_DOCUMENTS = 5 };
typedef struct tern_lost_part {
    double kl;               // sum
    size_t n, n_same, first; // first: in ids, a document's
} tern_lost_part;
typedef struct tern_lost {
    tern_lost_part groups[TERN_LOST_GROUPS]; // by the float model's certainty, falling
    tern_lost_part documents[TERN_LOST_DOCUMENTS];
    size_t n_documents, n_scored;
} tern_lost;
// By d->tokens. The documents are those with the greatest KL a token, falling.
void tern_lost_find(const tern_eval_documents *d, tern_lost *out);
tern_status tern_lost_put(const tern_lost *lost, const tern_eval_documents *d,
                          const tern_model *model, tern_strbuf *markdown, tern_strbuf *json,
                          tern_error *err);

// A file's scores of all tasks, into work/results/KEY.jsonl.
tern_status tern_ternarize_ask(const tern_ternarizing *j, tern_session *session, const char *key);
tern_status tern_ternarize_find_tasks(const tern_ternarizing *j);
// What those of the keys answered, [0] the model and [1] the ternary file; names: of the columns.
typedef struct tern_answered {
    const char *const *keys, *const *names;
    size_t n;
} tern_answered;
tern_status tern_ternarize_put_tasks(const tern_ternarizing *j, const tern_answered *of,
                                     tern_strbuf *markdown, tern_strbuf *json);

#endif
