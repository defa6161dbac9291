// The pace of a group's steps: how many prompt rows go into a step beside answers, and when.
//
// The time of a step is estimated from the last ones. Without prompts: a mean. With prompts a step
// takes longer, by some time for each row, and on a GPU by a further time however few the rows are:
// prompts take other kernels than answers, so the weights are read again, and a session that joins
// the answers makes the device wait for the host. Both come from a least-squares line through the
// last steps' (rows, seconds), in which each step counts a tenth less than the one after it.
//
// While prompts are read, no step shows the time without them, and answers grow longer: so an
// occasional step goes without prompts, and a long prompt does not keep the share it had at its
// beginning.
//
// If many sessions are answering, prompts that arrive one by one would pay the fixed cost again and
// again. So they wait until several can be read together; a wait of less than a tenth of a second
// goes unnoticed.
#ifndef TERN_SESSION_PACE_H
#define TERN_SESSION_PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tern_pace {
    double step_seconds; // of a step without prompts; 0: not known
    int32_t n_since;     // steps with prompts since the last one without
    struct {
        double n, rows, seconds, rows_rows, rows_seconds;
    } sums; // over steps with prompts, the later ones counting more; seconds: beyond step_seconds
    double waits_since; // the first of the prompts that wait for others; 0: none does
} tern_pace;

// Records the time of a step with answers, which had n_rows of prompts among its rows.
void tern_pace_note(tern_pace *p, int32_t n_rows, double seconds);
// The time that prompts add to a step: for each row, and regardless of rows. 0: unknown.
double tern_pace_row_seconds(const tern_pace *p);
double tern_pace_prompt_seconds(const tern_pace *p);
// Whether the next step should have no prompts, to measure the time of such a step.
bool tern_pace_rests(const tern_pace *p);
// How many rows of prompts the next step may have, at most `most`; 0: unknown.
int32_t tern_pace_rows(const tern_pace *p, int32_t most);
// Whether n_prompts with n_rows in all should wait for more prompts, while n_answers are generated.
bool tern_pace_waits(tern_pace *p, int32_t n_prompts, int64_t n_rows, int32_t n_answers,
                     int32_t n_piece, double now);

#endif
