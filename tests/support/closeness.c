#include "closeness.h"
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

size_t close_greatest(const float *row, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static double rms(const float *row, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)row[i] * (double)row[i];
    return sqrt(sum / (double)n);
}

// Infinite if either is not a number, so that every comparison with it fails.
static double distance(const float *got, const float *want, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        sum += d * d;
    }
    double length = rms(want, n);
    double result = sqrt(sum / (double)n) / length;
    return isfinite(result) && length > 0 ? result : INFINITY;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare_choices(const float *got, const float *want, size_t n_rows, size_t n_vocab,
                            closeness *out) {
    for (size_t t = 0; t < n_rows; t++, got += n_vocab, want += n_vocab) {
        size_t ours = close_greatest(got, n_vocab), theirs = close_greatest(want, n_vocab);
        if (ours == theirs) continue;
        double gap = ((double)want[theirs] - (double)want[ours]) / rms(want, n_vocab);
        out->n_choices++;
        out->tie = fmax(out->tie, gap);
    }
}

static void judge(size_t n_rows, const close_bounds *b, closeness *c) {
    double median = b->median > 0 ? b->median : b->exact, p90 = b->p90 > 0 ? b->p90 : b->exact,
           most = b->most > 0 ? b->most : b->exact;
    const struct {
        const char *name;
        double found, bound;
    } all[] = {
        {"distance before the first flip", c->exact, b->exact},
        {"median distance of rows", c->median, median},
        {"90th percentile of distances", c->p90, p90},
        {"greatest distance of a row", c->most, most},
        {"number of other choices", (double)c->n_choices, (double)b->n_choices},
        {"gap of another choice", c->tie, b->tie},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all && !c->why[0]; i++)
        if (!(all[i].found <= all[i].bound))
            snprintf(c->why, sizeof c->why,
                     "%s: %g, not at most %g (%zu rows, the first flip in row %zu)", all[i].name,
                     all[i].found, all[i].bound, n_rows, c->first_flip);
}

bool close_logits(const float *got, const float *want, size_t n_rows, size_t n_vocab,
                  const close_bounds *bounds, closeness *out) {
    *out = (closeness){.first_flip = n_rows};
    double *rows = n_rows && n_vocab ? malloc(n_rows * sizeof *rows) : NULL;
    if (!rows) {
        snprintf(out->why, sizeof out->why, "there are no logits");
        return false;
    }
    for (size_t t = 0; t < n_rows; t++) {
        rows[t] = distance(got + t * n_vocab, want + t * n_vocab, n_vocab);
        if (t < bounds->n_exact) out->exact = fmax(out->exact, rows[t]);
        if (rows[t] > 1e-5 && t < out->first_flip) out->first_flip = t;
    }
    qsort(rows, n_rows, sizeof *rows, ascending);
    out->median = rows[n_rows / 2];
    out->p90 = rows[n_rows * 9 / 10];
    out->most = rows[n_rows - 1];
    free(rows);
    compare_choices(got, want, n_rows, n_vocab, out);
    judge(n_rows, bounds, out);
    return !out->why[0];
}

size_t close_n_certain(const float *want, size_t n_rows, size_t n_vocab, double tie) {
    for (size_t t = 0; t < n_rows; t++, want += n_vocab) {
        size_t best = close_greatest(want, n_vocab);
        double limit = (double)want[best] - tie * rms(want, n_vocab);
        for (size_t i = 0; i < n_vocab; i++)
            if (i != best && (double)want[i] > limit) return t;
    }
    return n_rows;
}

blob read_blob(const char *path) {
    blob b;
    b.bytes = test_read(path, &b.n);
    return b;
}
