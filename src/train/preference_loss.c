// Losses of preferences, from the log-probabilities of whole answers. With w the better answer, l
// the worse, n the number of its tokens, p the model's probability and r the reference's:
//
//   DPO   -(1 - e) log s(h) - e log s(-h),  h = beta (log p_w/r_w - log p_l/r_l)
//         (arXiv:2305.18290; e: label smoothing, arXiv:2310.12036's authors call it conservative)
//   ORPO  -log p_w / n_w - beta log s(log odds_w - log odds_l),  odds = q / (1 - q), q = p^(1/n)
//         (arXiv:2403.07691)
//   KTO   1 - s(beta (log p/r - z)) of a good answer, 1 - s(beta (z - log p/r)) of a bad one;
//         z: the mean of log p/r over answers to other prompts, at least 0, which has no gradient
//         (arXiv:2402.01306)
//
// The loss of a step is the mean over its pairs.
#include <math.h>
#include "train/trainer.h"

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double log_sigmoid(double x) { return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x)); }

// What a pair adds: its loss and slopes; how much better the right answer is, and whether it is.
typedef struct verdict {
    double loss, slopes[2], margin, right;
} verdict;

static verdict dpo(const tern_preference_loss *f, const double *logs, const double *reference) {
    double e = (double)f->smoothing, beta = (double)f->beta;
    double h = beta * ((logs[0] - reference[0]) - (logs[1] - reference[1]));
    double slope = beta * (e * sigmoid(h) - (1 - e) * sigmoid(-h));
    return (verdict){.loss = -(1 - e) * log_sigmoid(h) - e * log_sigmoid(-h),
                     .slopes = {slope, -slope},
                     .margin = h,
                     .right = h > 0};
}

static verdict orpo(const tern_preference_loss *f, const double *logs, const int32_t *n) {
    double beta = (double)f->beta, a[2], other[2]; // 1 - q
    for (int i = 0; i < 2; i++) {
        a[i] = logs[i] / n[i];
        other[i] = fmax(-expm1(a[i]), 1e-12);
    }
    double odds = a[0] - a[1] - (log(other[0]) - log(other[1]));
    double slope = -beta * sigmoid(-odds);
    return (verdict){.loss = -a[0] - beta * log_sigmoid(odds),
                     .slopes = {(slope / other[0] - 1) / n[0], -slope / other[1] / n[1]},
                     .margin = beta * (a[0] - a[1]),
                     .right = a[0] > a[1]};
}

static verdict kto(const tern_preference_loss *f, double log_ratio, double z, bool good) {
    double beta = (double)f->beta, side = good ? 1 : -1;
    double s = sigmoid(side * beta * (log_ratio - z));
    return (verdict){.loss = 1 - s,
                     .slopes = {-side * beta * s * (1 - s), 0},
                     .margin = beta * log_ratio,
                     .right = side * log_ratio > 0};
}

// How far the model has drifted from the reference.
static double drift_of(const tern_preference_batch *b) {
    double sum = 0;
    for (size_t i = 0; i < b->n; i++) sum += b->logs[2 * i + 1] - b->reference[2 * i + 1];
    return fmax(sum / (double)b->n, 0);
}

void tern_preference_loss_run(const tern_preference_loss *f, tern_preference_batch *b) {
    double z = f->kind == TERN_LOSS_KTO ? drift_of(b) : 0, margin[2] = {0}, count[2] = {0};
    b->loss = b->accuracy = 0;
    for (size_t i = 0; i < b->n; i++) {
        const double *logs = b->logs + 2 * i, *reference = b->reference + 2 * i;
        bool good = !b->labels || b->labels[i];
        verdict v = f->kind == TERN_LOSS_DPO    ? dpo(f, logs, reference)
                    : f->kind == TERN_LOSS_ORPO ? orpo(f, logs, b->n_scored + 2 * i)
                                                : kto(f, logs[0] - reference[0], z, good);
        b->loss += v.loss / (double)b->n;
        b->accuracy += v.right / (double)b->n;
        margin[good] += v.margin;
        count[good] += 1;
        for (int k = 0; k < 2; k++) b->slopes[2 * i + (size_t)k] = v.slopes[k] / (double)b->n;
    }
    // For labelled answers, the distance of the means of good ones and bad ones.
    for (int k = 0; k < 2; k++) margin[k] = count[k] > 0 ? margin[k] / count[k] : 0;
    b->margin = margin[1] - margin[0];
}
