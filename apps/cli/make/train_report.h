// What a training says on the terminal.
#ifndef TERN_CLI_TRAIN_REPORT_H
#define TERN_CLI_TRAIN_REPORT_H

#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include "tern_train.h"

typedef struct train_reporter {
    const tern_train_desc *desc;
    const volatile sig_atomic_t *interrupted; // stops the run
    struct timespec begun, shown;             // the first step; the progress line
    bool is_terminal, told_time, told_cache;
} train_reporter;

// The callbacks of a desc, whose user is the reporter.
void train_header(void *user, const tern_train_info *info);
bool train_step(void *user, const tern_train_event *event);
bool train_event(void *user, const tern_train_event *event);
void train_clear_line(const train_reporter *r);
// What tern_train_find_rate found.
int train_rates(const tern_train_desc *d);

#endif
