#include "session/generate/pace.h"

// How much longer prompts may make a step: by 70%, so that an occasional slower one stays below
// twice; and up to 20 ms in all is not noticed by a reader.
#define STEP_STRETCH 1.7
#define STEP_SECONDS 0.020
#define LEAST_ROWS   1  // of prompts in a step: they finish, however slow the machine is
#define REST_EVERY   16 // steps with prompts

#define FORGETS 0.9 // weight of a step after each later one

// Prompts wait for others while there is fewer than one per ANSWERS_EACH answers, until their fixed
// cost is a sixteenth of the time, and no longer than a tenth of a second.
#define ANSWERS_EACH 8
#define COSTS_EACH   16
#define LONGEST_WAIT 0.1
#define COST_MATTERS 0.25 // of a step; less is not worth a wait

void tern_pace_note(tern_pace *p, int32_t n_rows, double seconds) {
    double *mean = &p->step_seconds, rows = n_rows;
    double newest = p->n_since ? 0.5 : 0.25; // the last one may be long ago
    if (n_rows == 0) *mean = *mean > 0 ? (1 - newest) * *mean + newest * seconds : seconds;
    p->n_since = n_rows == 0 ? 0 : p->n_since + 1;
    if (n_rows == 0 || *mean <= 0) return;
    // A step with prompts that was quicker than those without says only that the clock is coarse.
    double more = seconds - *mean, least = 0.01 * *mean;
    if (more < least) more = least;
    p->sums.n = FORGETS * p->sums.n + 1;
    p->sums.rows = FORGETS * p->sums.rows + rows;
    p->sums.seconds = FORGETS * p->sums.seconds + more;
    p->sums.rows_rows = FORGETS * p->sums.rows_rows + rows * rows;
    p->sums.rows_seconds = FORGETS * p->sums.rows_seconds + rows * more;
}

// The line's slope, if the steps' numbers of rows differ enough (a deviation of a tenth of the
// mean), else their whole extra time per row. Never below a hundredth of that: noise may turn a
// line downwards.
double tern_pace_row_seconds(const tern_pace *p) {
    if (p->sums.n <= 0) return 0;
    double all = p->sums.seconds / p->sums.rows;
    double spread = p->sums.n * p->sums.rows_rows - p->sums.rows * p->sums.rows;
    if (spread < 0.01 * p->sums.rows * p->sums.rows) return all;
    double slope = (p->sums.n * p->sums.rows_seconds - p->sums.rows * p->sums.seconds) / spread;
    return slope > all ? all : slope < 0.01 * all ? 0.01 * all : slope;
}

double tern_pace_prompt_seconds(const tern_pace *p) {
    if (p->sums.n <= 0) return 0;
    double rest = p->sums.seconds - tern_pace_row_seconds(p) * p->sums.rows;
    return rest > 0 ? rest / p->sums.n : 0;
}

bool tern_pace_rests(const tern_pace *p) {
    return p->step_seconds <= 0 || p->n_since >= REST_EVERY;
}

int32_t tern_pace_rows(const tern_pace *p, int32_t most) {
    if (p->sums.n <= 0) return 0;
    double longest = STEP_STRETCH * p->step_seconds;
    if (longest < STEP_SECONDS) longest = STEP_SECONDS;
    double left = longest - p->step_seconds - tern_pace_prompt_seconds(p);
    double rows = left / tern_pace_row_seconds(p);
    return rows >= most ? most : rows > LEAST_ROWS ? (int32_t)rows : LEAST_ROWS;
}

bool tern_pace_waits(tern_pace *p, int32_t n_prompts, int64_t n_rows, int32_t n_answers,
                     int32_t n_piece, double now) {
    double costs = tern_pace_prompt_seconds(p), longest = COSTS_EACH * costs;
    if (longest > LONGEST_WAIT) longest = LONGEST_WAIT;
    bool waits = n_prompts > 0 && n_rows < n_piece && n_prompts * ANSWERS_EACH < n_answers &&
                 costs > COST_MATTERS * p->step_seconds;
    if (waits && p->waits_since <= 0) p->waits_since = now;
    waits = waits && now < p->waits_since + longest;
    if (!waits) p->waits_since = 0;
    return waits;
}
