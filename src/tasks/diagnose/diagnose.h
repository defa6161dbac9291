// Private to the diagnosis: what its files share.
//
//   diagnose.c          the report
//   diagnose_compare.c  two devices run the same batch: the first value that differs
//   diagnose_random.c   small models with random weights
//   diagnose_model.c    the user's model
#ifndef TERN_TASKS_DIAGNOSE_DIAGNOSE_H
#define TERN_TASKS_DIAGNOSE_DIAGNOSE_H

#include "runtime/runner.h"
#include "tern_tools.h"

// Facts and results of checks, as text or JSON. Each is reported at once: a driver may take the
// process down, and then the last line shows how far it got.
typedef struct tern_report {
    tern_text_fn on_text;
    void *user;
    bool cancelled;
    tern_strbuf text; // of one line
    bool json;
    size_t n_facts, n_checks, n_failed;
    double last; // when the previous check ended
    char device[200], first_failed[100];
} tern_report;
void tern_report_fact(void *report, const char *name, const char *value); // a tern_fact_fn
void tern_report_check(void *report, const char *name, bool ok, const char *detail);

typedef struct tern_difference {
    char name[64];   // the first value that differs by more than the tolerance; empty: none
    double error;    // of its worst row, relative to the row's length, or of all values
    size_t n_values; // values compared
    double logits;   // of the logits, or of an encoder's last rows
    bool is_whole;   // an encoder's
    bool same_top;   // whether the greatest logit of each row is the same
} tern_difference;
typedef struct tern_comparison {
    const tern_graph *g;
    tern_runner *wanted, *tested;
    double tolerance;
} tern_comparison;
// Runs the tokens on both, and compares all intermediate values. A relative distance (of lengths of
// rows) up to the tolerance is allowed; 0: the bits must be the same. The greatest logit may differ
// only if `wanted` has the two nearly as great.
tern_status tern_compare(const tern_comparison *c, const int32_t *ids, int32_t n_ids,
                         tern_difference *out, tern_error *err);
// Runs the tokens as in generation: only the rows at the end are compared, and for an encoder the
// text's vector.
tern_status tern_compare_run(const tern_comparison *c, const int32_t *ids, int32_t n_ids,
                             int32_t pos, tern_difference *out, tern_error *err);
// Whether the model reads each text as a whole, so that no text can be continued.
bool tern_compare_is_whole(const tern_graph *g);
void tern_report_difference(tern_report *r, const char *name, const tern_difference *d,
                            double tolerance);

// On the CPU bits must be the same; a GPU adds in another order, and rounding to int8 widens that.
#define TERN_GPU_TOLERANCE        0.02
#define TERN_GPU_TOLERANCE_FLOATS 1e-3 // nothing is rounded to int8; an adapter may have halves

tern_status tern_diagnose_random(tern_report *r, const tern_backend *backend, tern_device *tested,
                                 tern_error *err);
tern_status tern_diagnose_model(tern_report *r, const tern_diagnose_desc *desc, tern_error *err);

#endif
