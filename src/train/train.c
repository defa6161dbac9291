// The training loop: steps, and between them validation, reports and checkpoints.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/os/os_time.h"
#include "base/os/os_file.h"
#include "train/trainer.h"

typedef struct loop {
    tern_trainer *t;
    tern_train_log *log;  // of rank 0, else NULL
    bool stopped;         // requested by the caller
    bool is_best;         // the weights, by the last validation, and they are to be kept
    tern_train_sums sums; // before what may be stopped within
    double begun;         // seconds, when the last log line was written
    int64_t step_begun;
    tern_error *err;
} loop;

static tern_status read_number(tern_trainer *t, const char *name, float *out, tern_error *err) {
    return t->backend->read(tern_trainer_slot(t, name)->array, 0, 1, out, err);
}

// Where nothing is stopped within, nothing has to be kept: reading would wait for the device.
static tern_status keep_sums(loop *l) {
    return tern_trainer_has_host(l->t) ? tern_trainer_read_sums(l->t, &l->sums, l->err) : TERN_OK;
}

static tern_status run_step(loop *l) {
    tern_trainer *t = l->t;
    int64_t step = t->step + 1;
    TERN_TRY(keep_sums(l));
    return tern_trainer_step(t, tern_train_rate(&t->desc, step), tern_train_decay(&t->desc, step),
                             l->err);
}

// ---- What is measured --------------------------------------------------------------------------

// The mean loss of n tokens with these sums.
static double mean_of(const tern_trainer *t, const tern_train_sums *sums, double n,
                      tern_train_event *e) {
    if (t->teacher && n > 0) {
        e->cross_entropy = (double)sums->loss / n;
        e->kl = (double)sums->kl / n;
        e->top1_agreement = (double)sums->agreement / n;
    }
    return n > 0 ? tern_trainer_loss(t, sums) / n : 0;
}

// Mean loss of the first valid_tokens of the held-out text, in order; the ranks share the work.
static tern_status validate(loop *l, tern_train_event *e) {
    tern_trainer *t = l->t;
    uint64_t n = tern_token_set_n_sequences(t->valid);
    int64_t n_scored = 0;
    uint64_t most = (uint64_t)(t->desc.valid_tokens / t->desc.seq_len);
    tern_train_sums before, found;
    if (n > most) n = most;
    TERN_TRY(tern_trainer_read_sums(t, &before, l->err));
    TERN_TRY(tern_trainer_write_sums(t, &(tern_train_sums){0}, l->err));
    for (uint64_t at = (uint64_t)tern_train_rank(&t->desc); at < n;) {
        int32_t row = 0;
        for (; row < t->desc.micro_tokens && at < n; at += (uint64_t)tern_train_ranks(&t->desc)) {
            uint64_t of[2] = {0, at};
            TERN_TRY(tern_trainer_fill(t, t->valid, of, row, &n_scored, l->err));
            row += t->desc.seq_len;
        }
        tern_train_batch b = tern_trainer_batch(t, 0, row);
        TERN_TRY(tern_teacher_cache_feed(t, 0, row, l->err));
        TERN_TRY(tern_trainer_run(t, &t->score, &b, l->err));
    }
    TERN_TRY(tern_trainer_read_sums(t, &found, l->err));
    TERN_TRY(tern_trainer_write_sums(t, &before, l->err));
    TERN_TRY(tern_trainer_join_sums(t, &found, l->err));
    float count = (float)n_scored;
    TERN_TRY(tern_trainer_sum(t, &count, l->err));
    if (count == 0) return TERN_OK;
    e->valid_loss = mean_of(t, &found, (double)count, e);
    if (isfinite(e->valid_loss)) return TERN_OK;
    return tern_fail(l->err, TERN_ERR_DEVICE,
                     "train: the loss of the held-out text is %s after step %lld",
                     isnan(e->valid_loss) ? "NaN" : "infinite", (long long)t->step);
}

// Shares of -1, 0 and +1, and where the master weights lie in units of their mean.
enum { N_BINS = 16 };
static void count_slot(const tern_slot *s, const float *w, double share[3], double bins[N_BINS]) {
    double sum = 0;
    uint64_t n = s->n_rows * s->n_cols;
    for (uint64_t i = 0; i < n; i++) sum += fabs((double)w[i]);
    float divisor = (float)(sum / (double)n) + 1e-6f;
    for (uint64_t i = 0; i < n; i++) {
        float x = w[i] / divisor, q = rintf(fmaxf(-1, fminf(1, x)));
        share[(int)q + 1] += 1;
        int bin = (int)floorf((x + 4) * 2);
        bins[bin < 0 ? 0 : bin >= N_BINS ? N_BINS - 1 : bin] += 1;
    }
}

static tern_status log_ternary(loop *l) {
    tern_trainer *t = l->t;
    double share[3] = {0}, bins[N_BINS] = {0}, n_all = 0;
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        if (!s->is_ternary) continue;
        uint64_t n = s->n_rows * s->n_cols;
        float *w = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *w);
        if (!w) return tern_fail_memory(l->err, n * sizeof *w);
        tern_status status = t->backend->read(s->array, 0, n, w, l->err);
        if (status == TERN_OK) count_slot(s, w, share, bins);
        tern_free(w);
        if (status != TERN_OK) return status;
        n_all += (double)n;
    }
    if (n_all == 0) return TERN_OK;
    static const char *const names[3] = {"minus", "zero", "plus"};
    for (int i = 0; i < 3; i++) tern_train_log_number(l->log, names[i], 5, share[i] / n_all);
    for (int i = 0; i < N_BINS; i++) bins[i] /= n_all;
    tern_train_log_numbers(l->log, "histogram", bins, N_BINS);
    return TERN_OK;
}

// ---- What is told ------------------------------------------------------------------------------

static void tell(loop *l, const tern_train_event *e) {
    const tern_train_desc *d = &l->t->desc;
    if (d->on_event && tern_train_rank(&l->t->desc) == 0 && !d->on_event(d->user, e))
        l->stopped = true;
}

// Tokens or pairs per second since the last line of the log, and the time left at that pace.
static void measure_speed(const loop *l, tern_train_event *e) {
    const tern_trainer *t = l->t;
    double steps_a_second = (double)(t->step - l->step_begun) / (tern_seconds() - l->begun);
    if (tern_trainer_has_pairs(t))
        e->pairs_per_second = steps_a_second * t->desc.batch_pairs;
    else
        e->tokens_per_second = steps_a_second * t->desc.batch_tokens;
    e->seconds_left = (double)(t->desc.n_steps - t->step) / steps_a_second;
}

// A loss that is NaN stays NaN: every later step would be wasted.
static tern_status fail_loss(const loop *l, double loss) {
    const tern_trainer *t = l->t;
    long long first = (long long)l->step_begun + 1, last = (long long)t->step;
    char steps[64];
    if (tern_trainer_has_host(t) || first == last)
        snprintf(steps, sizeof steps, "at step %lld", last);
    else
        snprintf(steps, sizeof steps, "in one of the steps %lld to %lld", first, last);
    return tern_fail(l->err, TERN_ERR_DEVICE,
                     "train: the loss became %s %s, with a rate of %g: "
                     "begin again with a lower one, or with an earlier checkpoint as init",
                     isnan(loss) ? "NaN" : "infinite", steps,
                     (double)tern_train_rate(&t->desc, t->step));
}

static void log_rewards(loop *l, const tern_train_event *e) {
    if (!l->t->preferring) return;
    tern_train_log_number(l->log, "reward_margin", 6, e->reward_margin);
    tern_train_log_number(l->log, "reward_accuracy", 6, e->reward_accuracy);
}

static void log_teaching(loop *l, const tern_train_event *e) {
    if (!l->t->teacher) return;
    tern_train_log_number(l->log, "cross_entropy", 9, e->cross_entropy);
    tern_train_log_number(l->log, "kl", 9, e->kl);
    tern_train_log_number(l->log, "top1_agreement", 6, e->top1_agreement);
}

static tern_status log_changes(loop *l, tern_train_event *e) {
    tern_qat_moved moved;
    TERN_TRY(tern_qat_changes(l->t, &moved, l->err));
    e->sign_flips = moved.sign_flips;
    e->zero_changes = moved.zero_changes;
    if (isnan(moved.sign_flips)) return TERN_OK;
    tern_train_log_number(l->log, "sign_flips", 6, e->sign_flips);
    tern_train_log_number(l->log, "zero_changes", 6, e->zero_changes);
    return TERN_OK;
}

static tern_status log_step(loop *l) {
    tern_trainer *t = l->t;
    tern_train_event e = tern_trainer_event(t);
    tern_train_sums found;
    float norm2;
    TERN_TRY(tern_trainer_read_sums(t, &found, l->err));
    TERN_TRY(tern_trainer_write_sums(t, &(tern_train_sums){0}, l->err));
    TERN_TRY(tern_trainer_join_sums(t, &found, l->err));
    TERN_TRY(read_number(t, "grad_norm2", &norm2, l->err));
    e.loss = mean_of(t, &found, (double)t->scored_in_loss, &e);
    e.grad_norm = sqrt((double)norm2);
    if (t->preferring) tern_preferring_last(t, &e.reward_margin, &e.reward_accuracy);
    measure_speed(l, &e);
    t->steps_in_loss = 0;
    t->scored_in_loss = 0;
    if (l->log) {
        tern_train_log_begin(l->log, t);
        tern_train_log_number(l->log, "loss", 9, e.loss);
        tern_train_log_number(l->log, "rate", 6, e.rate);
        tern_train_log_number(l->log, "grad_norm", 6, e.grad_norm);
        log_rewards(l, &e);
        log_teaching(l, &e);
        if (tern_trainer_has_pairs(t))
            tern_train_log_number(l->log, "pairs_per_second", 6, e.pairs_per_second);
        else
            tern_train_log_number(l->log, "tokens_per_second", 6, e.tokens_per_second);
        TERN_TRY(tern_train_log_end(l->log, l->err));
    }
    if (!isfinite(e.loss)) return fail_loss(l, e.loss);
    l->begun = tern_seconds();
    l->step_begun = t->step;
    tell(l, &e);
    return TERN_OK;
}

bool tern_train_best_take(tern_train_best *b, int64_t step, double loss) {
    bool is_best = isfinite(loss) && (!b->is_known || (float)loss < b->loss);
    b->n_since = is_best ? 0 : b->n_since + 1;
    if (!is_best) return false;
    b->is_known = true;
    b->loss = (float)loss;
    b->step = step;
    return true;
}

// Before the first step the weights are those that it began with.
static void take_best(loop *l, tern_train_event *e) {
    tern_trainer *t = l->t;
    bool is_best = tern_train_best_take(&t->best, t->step, e->valid_loss);
    e->best_valid_loss = t->best.is_known ? (double)t->best.loss : NAN;
    e->best_step = t->best.step;
    l->is_best = is_best && t->step > 0 && !t->desc.no_best && tern_train_rank(&t->desc) == 0;
}

static bool ends_early(const tern_trainer *t) {
    int32_t patience = t->desc.early_stopping_patience;
    return patience > 0 && t->best.is_known && t->best.n_since >= patience;
}

static void tell_end(loop *l) {
    tern_train_event e = tern_trainer_event(l->t);
    e.best_valid_loss = (double)l->t->best.loss;
    e.best_step = l->t->best.step;
    e.ends_early = true;
    tell(l, &e);
}

static tern_status log_valid(loop *l) {
    tern_trainer *t = l->t;
    tern_train_event e = tern_trainer_event(t);
    double begun = tern_seconds();
    if (t->preferring)
        TERN_TRY(tern_preferring_validate(t, &e.valid_loss, &e.reward_margin, &e.reward_accuracy,
                                          l->err));
    else
        TERN_TRY(t->contrastive ? tern_contrastive_validate(t, &e.valid_loss, &e.recall_1,
                                                            &e.recall_10, l->err)
                                : validate(l, &e));
    if (l->log) {
        tern_train_log_begin(l->log, t);
        tern_train_log_number(l->log, "valid_loss", 9, e.valid_loss);
        if (t->contrastive) tern_train_log_number(l->log, "recall_1", 6, e.recall_1);
        if (t->contrastive) tern_train_log_number(l->log, "recall_10", 6, e.recall_10);
        log_rewards(l, &e);
        log_teaching(l, &e);
        TERN_TRY(log_ternary(l));
        TERN_TRY(log_changes(l, &e));
        TERN_TRY(tern_train_log_end(l->log, l->err));
    }
    take_best(l, &e);
    e.ends_early = ends_early(t);
    tell(l, &e);
    l->begun += tern_seconds() - begun; // does not count as training time
    return TERN_OK;
}

static tern_status take_sample(void *user, const char *prompt, const char *text, tern_error *err) {
    loop *l = user;
    tern_train_event e = tern_trainer_event(l->t);
    tern_train_log_begin(l->log, l->t);
    tern_train_log_sample(l->log, prompt, text);
    TERN_TRY(tern_train_log_end(l->log, err));
    e.prompt = prompt;
    e.sample = text;
    tell(l, &e);
    return TERN_OK;
}

static tern_status log_samples(loop *l) {
    double begun = tern_seconds();
    if (tern_train_rank(&l->t->desc) == 0)
        TERN_TRY(tern_samples_make(l->t, take_sample, l, l->err));
    l->begun += tern_seconds() - begun; // does not count as training time
    return TERN_OK;
}

// A device runs behind the host: the loss is not read from it, and its time is unknown.
static tern_status tell_step(loop *l) {
    tern_trainer *t = l->t;
    const tern_train_desc *d = &t->desc;
    tern_train_event e = tern_trainer_event(t);
    if (tern_trainer_has_host(t)) {
        float loss;
        TERN_TRY(read_number(t, "loss", &loss, l->err));
        if (!isfinite(loss)) return log_step(l);
        measure_speed(l, &e);
    }
    if (d->on_step && tern_train_rank(&t->desc) == 0 && !d->on_step(d->user, &e)) l->stopped = true;
    if (tern_is_cancelled()) l->stopped = true;
    return TERN_OK;
}

static tern_status checkpoint(loop *l) {
    tern_trainer *t = l->t;
    char name[64];
    double begun = tern_seconds();
    if (tern_train_rank(&t->desc) == 0) TERN_TRY(tern_checkpoint_write(t, l->err));
    snprintf(name, sizeof name, "step-%08lld.gguf", (long long)t->step);
    tern_train_event e = tern_trainer_event(t);
    e.checkpoint = name;
    tell(l, &e);
    l->begun += tern_seconds() - begun;
    return TERN_OK;
}

// ---- The loop ----------------------------------------------------------------------------------

static bool validates(const tern_trainer *t) {
    if (t->preferring) return tern_preferring_validates(t);
    return t->contrastive ? tern_contrastive_validates(t) : t->valid && t->valid_share > 0;
}

// Resumes from the newest checkpoint, or begins; then opens the log and reports the plan to the
// caller.
static tern_status begin(loop *l) {
    tern_trainer *t = l->t;
    bool resumed = false;
    int64_t n_dropped = 0;
    TERN_TRY(tern_plan_shares(t, l->err));
    TERN_TRY(tern_trainer_init_weights(t, l->err));
    if (t->preferring) TERN_TRY(tern_preferring_refer(t, l->err));
    if (t->desc.resume) TERN_TRY(tern_checkpoint_resume(t, &resumed, l->err));
    if (t->desc.resume && !resumed) TERN_TRY(tern_train_log_check(t, l->err));
    TERN_TRY(tern_checkpoint_try(t, l->err));
    TERN_TRY(tern_train_check_length(&t->desc, l->err));
    if (t->desc.early_stopping_patience > 0 && !validates(t))
        return tern_fail(l->err, TERN_ERR_ARGUMENT,
                         "train: early_stopping_patience needs a loss of held-out text, and none "
                         "is held out or scored");
    if (t->step > t->desc.n_steps)
        return tern_fail(l->err, TERN_ERR_ARGUMENT,
                         "%s: the run is at step %lld already, beyond the %lld that were asked for",
                         t->desc.out, (long long)t->step, (long long)t->desc.n_steps);
    if (tern_train_rank(&t->desc) == 0)
        TERN_TRY(tern_train_log_open(&l->log, t, resumed, &n_dropped, l->err));
    if (tern_train_rank(&t->desc) == 0 && resumed) TERN_TRY(tern_checkpoint_check_best(t, l->err));
    tern_train_info info = tern_plan_info(t);
    info.n_dropped_lines = n_dropped;
    if (t->desc.on_begin && tern_train_rank(&t->desc) == 0) t->desc.on_begin(t->desc.user, &info);
    l->begun = tern_seconds();
    l->step_begun = t->step;
    return TERN_OK;
}

// The reports of this step that are still to be made.
static int32_t find_due(const tern_trainer *t, bool last) {
    const tern_train_desc *d = &t->desc;
    bool first = t->step == 0;
    int32_t due = 0;
    if (validates(t) && (first || last || t->step % d->valid_every == 0)) due |= TERN_DUE_VALID;
    if (t->samples && (first || last || t->step % d->sample_every == 0)) due |= TERN_DUE_SAMPLES;
    return due;
}

static tern_status report(loop *l) {
    tern_trainer *t = l->t;
    TERN_TRY(keep_sums(l));
    if (t->reports_due & TERN_DUE_VALID) TERN_TRY(log_valid(l));
    t->reports_due &= ~TERN_DUE_VALID;
    if (t->reports_due & TERN_DUE_SAMPLES) TERN_TRY(log_samples(l));
    t->reports_due = 0;
    return TERN_OK;
}

static tern_status write_best(loop *l) {
    bool is_best = l->is_best;
    l->is_best = false;
    return is_best ? tern_checkpoint_write_weights(l->t, "best.gguf", l->err) : TERN_OK;
}

// One step, and what is told of it.
static tern_status next_step(loop *l, bool *last) {
    tern_trainer *t = l->t;
    TERN_TRY(run_step(l));
    TERN_TRY(tell_step(l));
    *last = t->step == t->desc.n_steps;
    if (t->step % t->desc.log_every == 0 || *last) TERN_TRY(log_step(l));
    t->reports_due = find_due(t, *last);
    return report(l);
}

// After a request to stop, which may have come within a step: then the weights are still those of
// the step before, and what was added to the loss is taken back. Reports that were stopped are made
// when the run is resumed.
static tern_status stop(loop *l) {
    tern_trainer *t = l->t;
    if (tern_trainer_has_host(t)) TERN_TRY(tern_trainer_write_sums(t, &l->sums, l->err));
    if (t->step == 0)
        return tern_fail(l->err, TERN_ERR_CANCELLED,
                         "train: stopped before the end of the first step");
    TERN_TRY(checkpoint(l));
    TERN_TRY(write_best(l));
    return tern_fail(l->err, TERN_ERR_CANCELLED,
                     "train: stopped after step %lld of %lld; resume goes on from there",
                     (long long)t->step, (long long)t->desc.n_steps);
}

static tern_status run(loop *l) {
    tern_trainer *t = l->t;
    const tern_train_desc *d = &t->desc;
    TERN_TRY(begin(l));
    if (ends_early(t)) tell_end(l); // a run that had ended
    if (t->step == 0) t->reports_due = find_due(t, false);
    tern_status status = report(l);
    if (status == TERN_OK) status = write_best(l);
    while (status == TERN_OK && t->step < d->n_steps && !ends_early(t)) {
        bool last = false;
        status = next_step(l, &last);
        if (status != TERN_OK) break;
        float wish = l->stopped; // one rank's stop stops all
        TERN_TRY(tern_trainer_sum(l->t, &wish, l->err));
        last |= ends_early(t);
        if (wish > 0 && !last) {
            TERN_TRY(keep_sums(l));
            return stop(l);
        }
        if (t->step % d->checkpoint_every == 0 || last) TERN_TRY(checkpoint(l));
        status = write_best(l);
    }
    return status == TERN_ERR_CANCELLED ? stop(l) : status;
}

// A run that failed before its first line leaves nothing to lose.
static tern_status refuse_used(const char *folder, tern_error *err) {
    size_t n;
    int64_t newest, logged;
    TERN_TRY(tern_checkpoint_count(folder, &n, &newest, err));
    TERN_TRY(tern_train_log_steps(folder, &logged, err));
    if (n == 0 && logged == 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "%s holds a run already (step %lld, %zu checkpoint%s):"
                     " resume goes on with it, and with more steps makes it longer; a new run "
                     "needs another folder",
                     folder, (long long)(logged > newest ? logged : newest), n, n == 1 ? "" : "s");
}

// The folder is this run's alone until it ends; the other ranks of a group follow rank 0.
static tern_status take_folder(const tern_train_desc *desc, tern_lock *lock, tern_error *err) {
    if (desc->comm && desc->comm->rank != 0) return TERN_OK;
    TERN_TRY(tern_folder_make(desc->out, err));
    TERN_TRY(tern_lock_folder(lock, desc->out, err));
    return desc->resume ? TERN_OK : refuse_used(desc->out, err);
}

tern_status tern_train(const tern_train_desc *desc, tern_error *err) {
    tern_clear(err);
    loop l = {.err = err};
    tern_lock lock = {0};
    TERN_NEED(desc);
    if (!desc->pairs && !desc->preferences) TERN_NEED(desc->data);
    TERN_NEED(desc->out);
    TERN_TRY(tern_train_check(desc, err));
    tern_status status = take_folder(desc, &lock, err);
    if (status == TERN_OK) status = tern_trainer_open(&l.t, desc, err);
    if (status == TERN_OK) status = run(&l);
    tern_train_log_close(l.log);
    tern_trainer_close(l.t);
    tern_unlock(&lock);
    return status;
}
