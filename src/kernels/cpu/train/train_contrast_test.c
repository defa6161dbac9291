// The loss of vectors of pairs against the same in double, written plainly: its value, its gradient
// by differences, ranks, and the same bits with any number of threads.
#include <math.h>
#include <string.h>
#include "kernels/train.h"
#include "tests/support/harness.h"

enum { PAIRS = 7, TEXTS = 17, COLS = 21 };

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

typedef struct play {
    float vectors[TEXTS * COLS];
    uint64_t keys[TEXTS];
} play;

// Texts 9 (positive of 2) and 12 (of 5) are the same, so are queries 0 and 6, and text 15 is the
// positive of 1.
static void make_play(play *p) {
    uint32_t seed = 11;
    for (int i = 0; i < TEXTS * COLS; i++)
        p->vectors[i] = 3 * ((float)next_random(&seed) * 0x1p-23f - 1);
    for (int i = 0; i < TEXTS; i++) p->keys[i] = (uint64_t)i * 77 + 1;
    p->keys[12] = p->keys[9];
    p->keys[6] = p->keys[0];
    p->keys[15] = p->keys[8];
}

static double cosine(const float *a, const float *b, int n) {
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static bool is_right_too(const play *p, int i, int j) {
    if (j >= PAIRS) return p->keys[PAIRS + i] == p->keys[PAIRS + j];
    return p->keys[i] == p->keys[j] || p->keys[PAIRS + i] == p->keys[PAIRS + j];
}

// The loss of one size, one way: to_text, or from a positive to the queries.
static double plain_way(const play *p, int size, bool to_text, float temperature, int32_t *ranks) {
    double sum = 0;
    for (int i = 0; i < PAIRS; i++) {
        const float *x = p->vectors + (to_text ? i : PAIRS + i) * COLS;
        double all = 0, own = 0, score[TEXTS];
        int n = to_text ? TEXTS - PAIRS : PAIRS;
        for (int j = 0; j < n; j++) {
            const float *y = p->vectors + (to_text ? PAIRS + j : j) * COLS;
            score[j] = cosine(x, y, size) / (double)temperature;
            bool counts = j == i || !is_right_too(p, i, j);
            if (counts)
                all += exp(score[j]);
            else
                score[j] = -1e30;
            if (j == i) own = score[j];
        }
        if (ranks) ranks[i] = 0;
        for (int j = 0; ranks && j < n; j++) ranks[i] += j != i && score[j] >= own;
        sum += log(all) - own;
    }
    return sum / PAIRS;
}

static double plain_loss(const play *p, const int32_t *sizes, int n_sizes, float temperature,
                         int32_t *ranks) {
    double sum = 0;
    for (int i = 0; i < n_sizes; i++)
        sum += plain_way(p, sizes[i], true, temperature, i + 1 == n_sizes ? ranks : NULL) +
               plain_way(p, sizes[i], false, temperature, NULL);
    return sum / (2 * n_sizes);
}

static const int32_t sizes[] = {8, 13, COLS};

static tern_contrast *open_contrast(int n_threads, const char *features) {
    const tern_contrast_desc d = {.n_threads = n_threads,
                                  .cpu_features = features,
                                  .n_pairs = PAIRS,
                                  .n_texts = TEXTS,
                                  .n_cols = COLS,
                                  .temperature = 0.3f,
                                  .sizes = sizes,
                                  .n_sizes = 3};
    tern_error err;
    tern_contrast *c;
    CHECK_MSG(tern_contrast_open(&c, &d, &err) == TERN_OK, "%s", err.message);
    return c;
}

// Seen to fail: the way back left out of the gradient, though not of the loss; the positive's part
// of it left out; a text that is right, too, kept in the sum; the last size alone; a length that is
// not divided by; scores of the second size with the first one's unit vectors.
TEST(contrast_loss_and_gradient_are_those_of_the_definition) {
    play p;
    make_play(&p);
    float gradient[TEXTS * COLS];
    int32_t ranks[PAIRS], want_ranks[PAIRS];
    tern_contrast *c = open_contrast(2, NULL);
    REQUIRE(c != NULL);
    tern_contrast_batch b = {.n_pairs = PAIRS,
                             .n_texts = TEXTS,
                             .vectors = p.vectors,
                             .keys = p.keys,
                             .gradient = gradient,
                             .ranks = ranks};
    tern_contrast_run(c, &b);
    tern_contrast_close(c);
    double want = plain_loss(&p, sizes, 3, 0.3f, want_ranks);
    CHECK_MSG(fabs(b.loss - want) < 1e-5, "%.9g for %.9g", b.loss, want);
    CHECK(memcmp(ranks, want_ranks, sizeof ranks) == 0);
    double error2 = 0, norm2 = 0;
    for (int i = 0; i < TEXTS * COLS; i++) {
        const float step = 1e-2f, old = p.vectors[i];
        double side[2];
        for (int s = 0; s < 2; s++) {
            p.vectors[i] = s ? old + step : old - step;
            side[s] = plain_loss(&p, sizes, 3, 0.3f, NULL);
        }
        p.vectors[i] = old;
        double slope = (side[1] - side[0]) / (2 * (double)step);
        error2 += (slope - (double)gradient[i]) * (slope - (double)gradient[i]);
        norm2 += slope * slope;
    }
    CHECK_MSG(norm2 > 0.01 && sqrt(error2 / norm2) < 2e-4, "off by %g of %g", sqrt(error2),
              sqrt(norm2));
}

TEST(contrast_bits_are_those_of_any_threads_and_instruction_set) {
    play p;
    make_play(&p);
    float first[TEXTS * COLS], gradient[TEXTS * COLS];
    static const struct {
        int n_threads;
        const char *features;
    } styles[] = {{1, NULL}, {2, NULL}, {3, NULL}, {7, NULL}, {2, "scalar"}};
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        tern_contrast *c = open_contrast(styles[i].n_threads, styles[i].features);
        REQUIRE(c != NULL);
        tern_contrast_batch b = {.n_pairs = PAIRS,
                                 .n_texts = TEXTS,
                                 .vectors = p.vectors,
                                 .keys = p.keys,
                                 .gradient = i ? gradient : first};
        tern_contrast_run(c, &b);
        tern_contrast_run(c, &b); // nothing is left of the run before
        tern_contrast_close(c);
        CHECK_MSG(i == 0 || memcmp(first, gradient, sizeof first) == 0, "style %zu", i);
    }
}

TEST(contrast_refuses_what_it_cannot_compute) {
    tern_error err;
    tern_contrast *c;
    tern_contrast_desc d = {
        .n_pairs = 3, .n_texts = 6, .n_cols = 4, .temperature = 0.05f, .n_threads = 1};
    d.n_texts = 5;
    CHECK(tern_contrast_open(&c, &d, &err) == TERN_ERR_ARGUMENT && !c);
    d.n_texts = 6;
    d.temperature = 0;
    CHECK(tern_contrast_open(&c, &d, &err) == TERN_ERR_ARGUMENT);
    d.temperature = 1;
    d.sizes = (const int32_t[]){2, 5};
    d.n_sizes = 2;
    CHECK(tern_contrast_open(&c, &d, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "a size of 5 of vectors of 4"), "%s", err.message);
}
