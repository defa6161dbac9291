// Private to tern_ternarize: what its stages share.
//
//   ternarize.c           the stages, and which of them are done
//   ternarize_identity.c  what a folder was begun with
//   ternarize_answers.c   the model's own words
//   ternarize_report.c    what the ternary model costs, beside others
#ifndef TERN_TRAIN_TERNARIZE_H
#define TERN_TRAIN_TERNARIZE_H

#include "train/trainer.h"

typedef struct tern_ternarizing {
    const tern_ternarize_desc *desc;
    tern_train_desc heal;    // for tern_train
    tern_train_desc settled; // the same with all defaults filled in
    tern_type type;
    tern_strbuf identity; // JSON
    char *work;
    // In `work`.
    char *answers, *answered, *data, *manifest, *imatrix, *start, *run, *best, *healed, *exported,
        *markdown, *json, *plot, *other;
    tern_error *err;
} tern_ternarizing;

// A model on the device of the run.
tern_status tern_ternarize_open(const tern_ternarizing *j, const char *path, tern_model **out);
// To a type, its errors weighted by the importance matrix unless it has that type already.
tern_status tern_ternarize_convert(const tern_ternarizing *j, const char *in, const char *out,
                                   tern_type type);

// Appends to j->identity what the model's file is, and after it all else.
tern_status tern_ternarize_identify(tern_ternarizing *j, const tern_file *model,
                                    const tern_tokenizer *tokenizer);
// Writes it to work/ternarize.json, or compares it with that of an earlier call.
tern_status tern_ternarize_check_identity(const tern_ternarizing *j);

tern_status tern_ternarize_answers(tern_ternarizing *j);
tern_status tern_ternarize_report(tern_ternarizing *j);

#endif
