// Which learning rate suits a model and its data: a short run whose rate rises from step to step,
// until the loss does (Smith 2015, arXiv:1506.01186).
//
// Too small a rate leaves the loss as it is; then it falls, the faster the greater the rate; then
// steps leap over what they should reach, and it rises. Where it fell fastest is a good peak for a
// schedule; where it was least is too much already, since the steps to come are made there, too.
#include <math.h>
#include "train/trainer.h"

#define RATE_FROM  1e-7
#define RATE_TO    1.0
#define SMOOTHING  0.9 // of the loss over steps: of the last ten
#define RISES      1.1 // times the first loss: it will not fall again
#define N_SETTLING 8   // steps after which the smoothed loss is more than single ones

// The mean loss of the step that was made last; of all ranks.
static tern_status take_loss(tern_trainer *t, int64_t n_scored, double *out, tern_error *err) {
    tern_train_sums found;
    TERN_TRY(tern_trainer_read_sums(t, &found, err));
    TERN_TRY(tern_trainer_write_sums(t, &(tern_train_sums){0}, err));
    TERN_TRY(tern_trainer_join_sums(t, &found, err));
    *out = n_scored > 0 ? tern_trainer_loss(t, &found) / (double)n_scored : NAN;
    return TERN_OK;
}

static tern_status try_rates(tern_trainer *t, tern_train_rates *r, tern_error *err) {
    double mean = 0, weight = 0;
    TERN_TRY(tern_plan_shares(t, err));
    TERN_TRY(tern_trainer_init_weights(t, err));
    for (int i = 0; i < TERN_TRAIN_RATES; i++) {
        tern_train_rate_loss *p = &r->tried[i];
        int64_t before = t->scored_in_loss;
        p->rate = RATE_FROM * pow(RATE_TO / RATE_FROM, (double)i / (TERN_TRAIN_RATES - 1));
        TERN_TRY(tern_trainer_step(t, (float)p->rate, t->desc.weight_decay, err));
        TERN_TRY(take_loss(t, t->scored_in_loss - before, &p->loss, err));
        if (!isfinite(p->loss)) return TERN_OK; // the rate before was the last one
        mean = SMOOTHING * mean + (1 - SMOOTHING) * p->loss;
        weight = SMOOTHING * weight + (1 - SMOOTHING);
        p->smoothed = mean / weight;
        r->n = (size_t)i + 1;
        if (i >= N_SETTLING && p->smoothed > RISES * r->tried[0].smoothed) return TERN_OK;
    }
    return TERN_OK;
}

// The smaller of the rate of the steepest fall and a tenth of the rate of the least loss.
static void suggest(tern_train_rates *r) {
    size_t least = 0, steepest = 0;
    double most = 0;
    r->rate = NAN;
    for (size_t i = 0; i < r->n; i++)
        if (r->tried[i].smoothed < r->tried[least].smoothed) least = i;
    for (size_t i = N_SETTLING; i + 1 < r->n && i < least; i++) {
        double fall = r->tried[i - 1].smoothed - r->tried[i + 1].smoothed;
        if (fall > most) steepest = i, most = fall;
    }
    if (most > 0) r->rate = fmin(r->tried[steepest].rate, r->tried[least].rate / 10);
}

tern_status tern_train_find_rate(const tern_train_desc *desc, tern_train_rates *out,
                                 tern_error *err) {
    tern_clear(err);
    tern_trainer *t = NULL;
    TERN_NEED(desc);
    TERN_NEED(out);
    *out = (tern_train_rates){.rate = NAN};
    if (desc->preferences)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "train: a rate is found for text or pairs: preferences change little of "
                         "their loss in a hundred steps");
    if (!desc->pairs) TERN_NEED(desc->data);
    TERN_TRY(tern_train_check(desc, err));
    tern_status status = tern_trainer_open(&t, desc, err);
    if (status == TERN_OK) status = try_rates(t, out, err);
    if (status == TERN_OK) suggest(out);
    tern_trainer_close(t);
    return status;
}
