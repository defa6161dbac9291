// Whether a draft is made is decided by what drafts gained: on a clock that the test sets, since on
// the real one it depends on what else the machine does.
#include "session/session.h"
#include "tests/harness.h"

static int32_t four_ones(void *user, const int32_t *ids, size_t n_ids, int32_t *draft,
                         int32_t n_max) {
    (void)user, (void)ids, (void)n_ids;
    for (int32_t i = 0; i < n_max; i++) draft[i] = 1;
    return n_max;
}

// Steps on which a run of k tokens takes 1 + cost (k - 1), and `right` tokens of each draft are
// accepted; the session believes in `token_cost` instead, unless it is 0. Returns how many of the
// last hundred had a draft; *tokens is their drafts' mean length.
static int drafts_at(double cost, float token_cost, int32_t right, double *tokens) {
    tern_speculator sp = {
        .params = {.draft = four_ones, .max_length = 4, .token_cost = token_cost}, .n_vocab = 10};
    int32_t ids[1] = {1};
    tern_error err;
    int n = 0;
    *tokens = 0;
    for (int i = 0; i < TERN_TRIALS; i++) sp.trials[i].patience = 8;
    for (int step = 0; step < 1000; step++) {
        if (tern_speculator_draft(&sp, ids, 1, 4, &err) != TERN_OK) return -1;
        int32_t length = sp.draft.n, accepted = right < length ? right : length;
        tern_speculator_ran(&sp, 1 + length, 1 + cost * length);
        tern_speculator_judge(&sp, accepted, accepted == length, 0);
        if (step < 900 || length == 0) continue;
        n++;
        *tokens += length;
    }
    *tokens /= n ? n : 1;
    return n;
}

TEST(speculation_goes_on_where_it_pays) {
    double tokens;
    int n = drafts_at(0.3, 0, 4, &tokens);
    CHECK_MSG(n > 90 && tokens > 3.5, "%d drafts of %g tokens", n, tokens);
    n = drafts_at(0.3, 0, 2, &tokens); // what is never right is not asked for
    CHECK_MSG(n > 90 && tokens > 1.5 && tokens < 2.5, "%d drafts of %g tokens", n, tokens);
}

TEST(speculation_gives_up_where_it_does_not_pay) {
    double tokens;
    int n = drafts_at(0.3, 0, 0, &tokens); // nothing is right
    CHECK_MSG(n < 5, "%d drafts of %g tokens", n, tokens);
    // All is right, but runs cost more than tokens: it tries again every eighth time.
    n = drafts_at(1.2, 0, 4, &tokens);
    CHECK_MSG(n < 20, "%d drafts of %g tokens", n, tokens);
}

TEST(speculation_believes_a_cost_that_it_is_given) {
    double tokens;
    int n = drafts_at(1.2, 0.1f, 4, &tokens); // whatever the clock says, also at the first step
    CHECK_MSG(n == 100 && tokens > 3.9, "%d drafts of %g tokens", n, tokens);
    n = drafts_at(0.01, 2, 4, &tokens);
    CHECK_MSG(n < 20, "%d drafts of %g tokens", n, tokens);
}
