// How prompts are let into steps, on a clock that the test sets.
#include <math.h>
#include <stdlib.h>
#include "session/generate/pace.h"
#include "tests/support/harness.h"

enum { MOST = 512 };

// Steps of `step` seconds, and steps with prompts of 1 to 3 times 64 tokens, which take `fixed`
// seconds more, and `row` for each token.
static tern_pace after_steps(double step, double fixed, double row) {
    tern_pace p = {0};
    for (int i = 0; i < 60; i++) {
        int n = i % 3 ? 0 : 64 * (1 + i / 3 % 3);
        tern_pace_note(&p, n, step + (n ? fixed + n * row : 0));
    }
    return p;
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b) + 1e-9; }

TEST(pace_tells_what_rows_cost_from_what_prompts_cost) {
    tern_pace p = after_steps(5e-3, 4e-3, 2e-5);
    CHECK_MSG(is_near(tern_pace_row_seconds(&p), 2e-5) &&
                  is_near(tern_pace_prompt_seconds(&p), 4e-3),
              "%g a row, %g besides", tern_pace_row_seconds(&p), tern_pace_prompt_seconds(&p));
    p = after_steps(36e-3, 0, 2.5e-3); // a processor
    CHECK(is_near(tern_pace_row_seconds(&p), 2.5e-3) && tern_pace_prompt_seconds(&p) < 1e-6);
    p = (tern_pace){0}; // always the same number of rows: the two costs cannot be separated
    for (int i = 0; i < 20; i++) tern_pace_note(&p, i % 2 ? 64 : 0, i % 2 ? 9e-3 : 5e-3);
    CHECK(is_near(tern_pace_row_seconds(&p), 4e-3 / 64) && tern_pace_prompt_seconds(&p) == 0);
    p = (tern_pace){0}; // more rows take less: noise
    for (int i = 0; i < 20; i++)
        tern_pace_note(&p, i % 2 ? 32 + 2 * i : 0, i % 2 ? 0.1 - 1e-3 * i : 5e-3);
    CHECK(tern_pace_row_seconds(&p) > 0 && tern_pace_prompt_seconds(&p) >= 0);
}

TEST(pace_keeps_steps_short) {
    tern_pace p = {0};
    CHECK(tern_pace_rows(&p, MOST) == 0);
    tern_pace_note(&p, 64, 1); // before the step time is known
    CHECK(tern_pace_rows(&p, MOST) == 0);
    p = after_steps(36e-3, 0, 2.5e-3); // 0.7 * 36 ms
    CHECK_MSG(tern_pace_rows(&p, MOST) == 10, "%d rows", tern_pace_rows(&p, MOST));
    p = after_steps(5e-3, 4e-3, 1e-4); // 20 ms in all
    CHECK_MSG(abs(tern_pace_rows(&p, MOST) - 110) <= 1, "%d rows", tern_pace_rows(&p, MOST));
    p = after_steps(5e-3, 4e-3, 1e-6);
    CHECK(tern_pace_rows(&p, MOST) == MOST);
    p = after_steps(1, 0, 10); // however slow
    CHECK(tern_pace_rows(&p, MOST) == 1);
}

// If steps become longer while a prompt is read, this is measured, and the prompt's share follows.
TEST(pace_follows_answers_that_grow) {
    tern_pace p = {0};
    int n_rests = 0, n_rows = 8, n_before = 0;
    CHECK(tern_pace_rests(&p)); // the time of a step must be measured first
    tern_pace_note(&p, 0, 20e-3);
    for (int i = 0; i < 400; i++) {
        double step = 20e-3 * (1 + i / 200.0); // up to three times as long
        bool rests = tern_pace_rests(&p);
        n_rests += rests;
        tern_pace_note(&p, rests ? 0 : n_rows, step + (rests ? 0 : n_rows * 2.5e-3));
        n_rows = tern_pace_rows(&p, MOST);
        if (i == 8) n_before = n_rows;
    }
    CHECK_MSG(n_rests == 400 / 17, "%d steps without prompts", n_rests);
    CHECK_MSG(n_before >= 5 && n_before <= 6 && n_rows >= 14 && n_rows <= 18, "%d, then %d rows",
              n_before, n_rows);
}

TEST(pace_lets_prompts_wait_for_each_other) {
    tern_pace p = after_steps(5e-3, 4e-3, 2e-5);
    CHECK(!tern_pace_waits(&p, 0, 0, 64, MOST, 1.0));
    CHECK(!tern_pace_waits(&p, 1, 64, 8, MOST, 1.0));    // one per eight answers
    CHECK(!tern_pace_waits(&p, 1, MOST, 64, MOST, 1.0)); // a full piece
    CHECK(tern_pace_waits(&p, 1, 64, 64, MOST, 1.0));
    CHECK(tern_pace_waits(&p, 7, 448, 64, MOST, 1.05));
    CHECK(!tern_pace_waits(&p, 8, 512 - 64, 64, MOST, 1.06));
    CHECK(tern_pace_waits(&p, 1, 64, 64, MOST, 2.0)); // waits anew from here
    CHECK(tern_pace_waits(&p, 1, 64, 64, MOST, 2.06));
    CHECK(!tern_pace_waits(&p, 1, 64, 64, MOST, 2.065)); // 16 times 4 ms
    p = after_steps(5e-3, 40e-3, 2e-5);
    CHECK(tern_pace_waits(&p, 1, 64, 64, MOST, 3.0) && tern_pace_waits(&p, 1, 64, 64, MOST, 3.09));
    CHECK(!tern_pace_waits(&p, 1, 64, 64, MOST, 3.11)); // never longer
    p = after_steps(5e-3, 1e-3, 2e-5);                  // the fixed cost is small
    CHECK(!tern_pace_waits(&p, 1, 64, 64, MOST, 1.0));
}
