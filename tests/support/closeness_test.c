// The comparison of logits refuses what it should. Each bound must do so alone: the others are
// opened wide, so that an unchecked bound would show.
#include "closeness.h"
#include <math.h>
#include <string.h>
#include "base/hash.h"
#include "harness.h"

enum { N_ROWS = 40, N_VOCAB = 64, N = N_ROWS * N_VOCAB };

static float want[N], got[N];

static float uniform(size_t i) { return (float)(tern_mix64(i) >> 40) * 0x1p-23f - 1; }

// Logits, and the same with a rounding error of about 2e-7 in each.
static void fill(void) {
    for (size_t i = 0; i < N; i++) {
        want[i] = 4 * uniform(i + 1);
        got[i] = want[i] * (1 + 4e-7f * uniform(i + N + 1));
    }
}

static const close_bounds sharp = {.n_exact = SIZE_MAX, .exact = 1e-6};
static const close_bounds flips = {.n_exact = 10,
                                   .exact = 1e-6,
                                   .median = 5e-3,
                                   .p90 = 1e-2,
                                   .most = 3e-2,
                                   .n_choices = 2,
                                   .tie = 0.02};

static bool is_close(const close_bounds *b) {
    closeness c;
    bool close = close_logits(got, want, N_ROWS, N_VOCAB, b, &c);
    CHECK(close == !c.why[0]);
    return close;
}

static void disturb(size_t row, float by) {
    for (size_t i = 0; i < N_VOCAB; i++)
        got[row * N_VOCAB + i] += by * 4 * uniform(3 * N + row * N_VOCAB + i);
}

TEST(closeness_accepts_rounding_and_flips) {
    fill();
    CHECK(is_close(&sharp) && is_close(&flips));
    for (size_t t = 10; t < N_ROWS; t++) disturb(t, 3e-3f);
    CHECK(!is_close(&sharp) && is_close(&flips));
}

TEST(closeness_refuses_unrelated_logits) {
    const close_bounds loose = {.n_exact = 0,
                                .exact = 1,
                                .median = 0.1,
                                .p90 = 0.1,
                                .most = 0.1,
                                .n_choices = N_ROWS,
                                .tie = 9};
    fill();
    for (size_t i = 0; i < N; i++) got[i] = 4 * uniform(i + 7 * N);
    CHECK(!is_close(&sharp) && !is_close(&flips) && !is_close(&loose));
    fill();
    memmove(got, got + N_VOCAB, (N - N_VOCAB) * sizeof *got); // one position too late
    CHECK(!is_close(&sharp) && !is_close(&flips) && !is_close(&loose));
    memset(got, 0, sizeof got);
    CHECK(!is_close(&sharp) && !is_close(&flips) && !is_close(&loose));
}

TEST(closeness_refuses_by_each_bound_alone) {
    close_bounds b = {
        .n_exact = 10, .exact = 9, .median = 9, .p90 = 9, .most = 9, .n_choices = N_ROWS, .tie = 9};
    fill();
    disturb(9, 1e-4f);
    b.exact = 1e-6;
    CHECK(!is_close(&b));
    b.n_exact = 9;
    CHECK(is_close(&b));
    for (size_t t = 0; t < N_ROWS; t += 5) disturb(t, 0.05f), disturb(t + 1, 1e-3f);
    b = (close_bounds){
        .n_exact = 0, .median = 1e-5, .p90 = 9, .most = 9, .n_choices = N_ROWS, .tie = 9};
    CHECK(is_close(&b));
    b.p90 = 1e-2; // eight of forty rows are 5e-2 apart
    CHECK(!is_close(&b));
    b.p90 = 9, b.most = 1e-2;
    CHECK(!is_close(&b));
    b.most = 9, b.median = 1e-8;
    CHECK(!is_close(&b));
}

// Two logits are swapped in one row: the two greatest, which are a known distance from each other.
TEST(closeness_refuses_other_choices) {
    close_bounds b = {
        .n_exact = 0, .exact = 9, .median = 9, .p90 = 9, .most = 9, .n_choices = 1, .tie = 0.2};
    fill();
    for (size_t t = 3; t < 5; t++) {
        float *w = want + t * N_VOCAB, *g = got + t * N_VOCAB;
        w[7] = g[8] = 9;
        w[8] = g[7] = 8.9f;
        if (t == 3) CHECK(is_close(&b));
    }
    CHECK(!is_close(&b)); // one too many
    b.n_choices = 2;
    CHECK(is_close(&b));
    b.tie = 0.01; // they are 0.1 apart, 0.03 of the row's RMS
    CHECK(!is_close(&b));
    CHECK(close_n_certain(want, N_ROWS, N_VOCAB, 0.2) <= 3);
    want[3 * N_VOCAB + 8] = want[4 * N_VOCAB + 8] = 0;
    CHECK(close_n_certain(want + 3 * N_VOCAB, 2, N_VOCAB, 0.2) == 2);
}

TEST(closeness_refuses_what_is_no_number_or_nothing) {
    closeness c;
    fill();
    CHECK(!close_logits(got, want, 0, N_VOCAB, &flips, &c) && c.why[0]);
    got[20 * N_VOCAB + 5] = NAN; // which is never the greatest
    CHECK(!is_close(&flips) && !is_close(&sharp));
    got[20 * N_VOCAB + 5] = -INFINITY;
    CHECK(!is_close(&flips) && !is_close(&sharp));
}
