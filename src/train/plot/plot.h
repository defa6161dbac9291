// Private to training: a run's log for other programs.
#ifndef TERN_TRAIN_PLOT_H
#define TERN_TRAIN_PLOT_H

#include "base/json/json.h"
#include "base/lines.h"
#include "base/status.h"
#include "base/strbuf.h"

// The next line of a log that is JSON, which the caller frees. A log may grow while it is read:
// other lines are passed over.
tern_status tern_log_next(tern_lines *l, tern_json_doc *doc, bool *more, tern_error *err);

// Appends the lines of logs as CSV: the log, the step, then a column for each number that any line
// has, in order of appearance.
tern_status tern_plot_table(const char *const *logs, size_t n_logs, tern_strbuf *out,
                            tern_error *err);

// A file of TensorBoard's events, which grows while others read it: "tfevents" in its name. Records
// are those of TFRecord, each an Event of tensorflow/core/util/event.proto.
typedef struct tern_tfevents tern_tfevents;
// A new file in the folder; what earlier ones there have of step_first and later is void.
tern_status tern_tfevents_open(tern_tfevents **out, const char *folder, int64_t step_first,
                               tern_error *err);
void tern_tfevents_close(tern_tfevents *e); // NULL is allowed
// A number or a text of a step, kept until it is written: flush.
void tern_tfevents_number(tern_tfevents *e, const char *tag, double value);
void tern_tfevents_text(tern_tfevents *e, const char *tag, const char *text);
tern_status tern_tfevents_flush(tern_tfevents *e, int64_t step, tern_error *err);

#endif
