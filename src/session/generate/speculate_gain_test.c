// Past gains decide whether drafting happens: tested on a clock that the test sets, since the real
// one depends on the machine's other work.
#include "session/session.h"
#include "tests/support/harness.h"

static int32_t four_ones(void *user, const int32_t *ids, size_t n_ids, int32_t *draft,
                         int32_t n_max) {
    (void)user, (void)ids, (void)n_ids;
    for (int32_t i = 0; i < n_max; i++) draft[i] = 1;
    return n_max;
}

// Steps on which a run of k tokens takes 1 + cost (k - 1), and `right` tokens of each draft are
// accepted; the session assumes `token_cost` instead, unless it is 0. Returns how many of the last
// hundred had a draft; *tokens is their mean length.
static int drafts_at(double cost, float token_cost, int32_t right, double *tokens) {
    tern_speculator sp = {.params = {.draft = four_ones, .max_length = 4, .token_cost = token_cost},
                          .n_vocab = 10};
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
    n = drafts_at(0.3, 0, 2, &tokens); // guesses that are always wrong stop
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
    int n = drafts_at(1.2, 0.1f, 4, &tokens); // whatever the clock says, even at the first step
    CHECK_MSG(n == 100 && tokens > 3.9, "%d drafts of %g tokens", n, tokens);
    n = drafts_at(0.01, 2, 4, &tokens);
    CHECK_MSG(n < 20, "%d drafts of %g tokens", n, tokens);
}

// ---- Drafts of the device ----------------------------------------------------------------------

// Requests of four runs, on a clock where a run of n tokens takes seconds[log2 n], the first ones
// `cold` times as long, and each drafted token is right with the given chance. Returns the tokens
// of a run in the last of them; 0: they kept changing.
static int32_t settles_at(const double *seconds, double cold, double chance) {
    tern_speculator sp = {.params.max_length = 7};
    tern_device_drafts *d = &sp.device;
    double carry[TERN_DRAFTING_MAX] = {0};
    int32_t last = 0, n_last = 0;
    d->n_arms = TERN_DEVICE_ARMS;
    tern_device_drafts_begin(d);
    for (int i = 0; i < 2000; i++) {
        int32_t n_each = tern_device_drafts_choose(&sp);
        int arm = n_each == 8 ? 3 : n_each / 2;
        tern_drafting q = {.n_each = n_each, .n_runs = n_each > 1 ? 4 : 1};
        for (int run = 0; run < q.n_runs; run++) { // an exact share, the rest carried over
            int right = 0;
            while (right + 1 < n_each && (carry[right] += chance) >= 1) carry[right++] -= 1;
            q.counts[n_each - 1][right]++;
        }
        tern_device_drafts_ran(&sp, &q, seconds[arm] * q.n_runs * (i < 4 ? cold : 1));
        if (i >= 1000) n_last += n_each == last;
        if (i == 999) last = n_each;
    }
    return n_last > 900 ? last : 0;
}

TEST(speculation_on_a_device_takes_the_best_number) {
    const double flat[] = {1, 1.05, 1.1, 1.2}, steep[] = {1, 1.3, 1.9, 3.5};
    CHECK(settles_at(flat, 1, 0.7) == 8);
    CHECK(settles_at(flat, 3, 0.7) == 8); // a device that was asleep at first
    CHECK(settles_at(steep, 1, 0.9) == 4);
    CHECK(settles_at(steep, 1, 0.5) == 2);
    CHECK(settles_at(steep, 1, 0.1) == 1);
    CHECK(settles_at(flat, 1, 0) == 1);
}
