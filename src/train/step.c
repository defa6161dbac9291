// One step of training.
//
// Its sequences are computed in runs of micro_tokens, whose gradients add up; the ranks of a group
// sum theirs; the optimizer updates the weights. The sequences of a step depend on its number
// alone, so that a resumed run continues with the same ones.
//
// A document begins with the end token of the previous one in the text. So the token after it is
// learnt too, and the end token serves as the beginning of a text when the model runs.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "train/data/data.h"
#include "train/trainer.h"

// ---- Batches -----------------------------------------------------------------------------------

// at: the epoch, and the sequence's number in it.
tern_status tern_trainer_fill(tern_trainer *t, tern_token_set *set, uint64_t at[2], int32_t row,
                              int64_t *n_scored, tern_error *err) {
    TERN_TRY(tern_token_set_sequence(set, at[0], at[1], t->sequence, t->marks, err));
    int32_t in_run = row % t->desc.micro_tokens, start = in_run, *targets = t->targets + row;
    for (int32_t i = 0; i < t->desc.seq_len; i++) {
        bool marked = t->marks[i] & TERN_TOKEN_BEGINS,
             follows = !(t->marks[i + 1] & TERN_TOKEN_BEGINS);
        bool begins = t->begins_by_marks ? marked : t->sequence[i] == t->end_id;
        begins |= (t->marks[i] & TERN_TOKEN_PADDING) != 0; // each its own, the cheapest
        bool scored = !(t->marks[i + 1] & (TERN_TOKEN_UNSCORED | TERN_TOKEN_PADDING)) &&
                      (follows || !t->begins_by_marks);
        if (begins) start = in_run + i;
        t->ids[row + i] = t->sequence[i];
        targets[i] = scored ? t->sequence[i + 1] : -1;
        t->starts[row + i] = start;
    }
    if (t->assistant)
        tern_assistant_mask(t->assistant, t->sequence, t->marks, t->desc.seq_len, targets);
    for (int32_t i = 0; i < t->desc.seq_len; i++) *n_scored += targets[i] >= 0;
    tern_teacher_cache_note(t, set, at, row);
    return TERN_OK;
}

// This rank's sequences of a step.
static tern_status fill_step(tern_trainer *t, int64_t step, int64_t *n_scored, tern_error *err) {
    uint64_t per_step = (uint64_t)(t->desc.batch_tokens / t->desc.seq_len);
    uint64_t n = tern_token_set_n_sequences(t->data),
             n_ranks = (uint64_t)tern_train_ranks(&t->desc);
    for (uint64_t k = 0; k < per_step / n_ranks; k++) {
        uint64_t at = (uint64_t)step * per_step + k * n_ranks + (uint64_t)tern_train_rank(&t->desc);
        uint64_t of[2] = {at / n, at % n};
        TERN_TRY(tern_trainer_fill(t, t->data, of, (int32_t)k * t->desc.seq_len, n_scored, err));
    }
    return TERN_OK;
}

tern_train_batch tern_trainer_batch(const tern_trainer *t, int32_t first, int32_t n_tokens) {
    return (tern_train_batch){.n_tokens = n_tokens,
                              .ids = t->ids + first,
                              .targets = t->targets + first,
                              .starts = t->starts + first};
}

// ---- A step ------------------------------------------------------------------------------------

typedef struct group_sum {
    tern_trainer *t;
    bool failed; // in a callback
} group_sum;

// Called when a gradient is complete on this rank: its sum over the group begins while others are
// computed.
static void sum_array(void *user, tern_train_array *array) {
    group_sum *g = user;
    tern_trainer *t = g->t;
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        if (s->array != array || strncmp(s->name, "grad.", 5) != 0) continue;
        if (!t->desc.comm->sum_begin(t->desc.comm->self, t->backend->host(array),
                                     s->n_rows * s->n_cols))
            g->failed = true;
    }
}

// The same for a device whose arrays are not in the host's memory, after the run.
static tern_status sum_over_host(group_sum *g, const tern_slot *s, tern_error *err) {
    tern_trainer *t = g->t;
    uint64_t n = s->n_rows * s->n_cols;
    float *data = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *data);
    if (!data) return tern_fail_memory(err, n * sizeof *data);
    tern_status status = t->backend->read(s->array, 0, n, data, err);
    if (status == TERN_OK) {
        g->failed |= !t->desc.comm->sum_begin(t->desc.comm->self, data, n) ||
                     !t->desc.comm->sum_finish(t->desc.comm->self);
        status = t->backend->write(s->array, 0, n, data, err);
    }
    tern_free(data);
    return status;
}

// Replaces each rank's number by the sum over all.
tern_status tern_trainer_sum(tern_trainer *t, float *x, tern_error *err) {
    const tern_comm *c = t->desc.comm;
    if (tern_train_ranks(&t->desc) == 1) return TERN_OK;
    if (c->sum_begin(c->self, x, 1) && c->sum_finish(c->self)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "train: another process of the group was lost");
}

// ---- What is told ------------------------------------------------------------------------------

tern_train_event tern_trainer_event(const tern_trainer *t) {
    return (tern_train_event){.step = t->step,
                              .n_steps = t->desc.n_steps,
                              .n_tokens =
                                  tern_trainer_has_pairs(t) ? 0 : t->step * t->desc.batch_tokens,
                              .loss = NAN,
                              .valid_loss = NAN,
                              .best_valid_loss = NAN,
                              .rate = (double)tern_train_rate(&t->desc, t->step),
                              .grad_norm = NAN,
                              .tokens_per_second = NAN,
                              .pairs_per_second = NAN,
                              .recall_1 = NAN,
                              .recall_10 = NAN,
                              .reward_margin = NAN,
                              .reward_accuracy = NAN,
                              .cross_entropy = NAN,
                              .kl = NAN,
                              .top1_agreement = NAN,
                              .sign_flips = NAN,
                              .zero_changes = NAN,
                              .seconds_left = NAN};
}

// ---- What is added up --------------------------------------------------------------------------

enum { N_SUMS = 3 };
static const char *const sums[N_SUMS] = {"loss", "kl", "agreement"};
static int n_sums(const tern_trainer *t) { return t->teacher ? N_SUMS : 1; }

static void numbers_of(tern_train_sums *s, float *of[N_SUMS]) {
    of[0] = &s->loss;
    of[1] = &s->kl;
    of[2] = &s->agreement;
}

tern_status tern_trainer_read_sums(tern_trainer *t, tern_train_sums *out, tern_error *err) {
    float *of[N_SUMS];
    *out = (tern_train_sums){0};
    numbers_of(out, of);
    for (int i = 0; i < n_sums(t); i++)
        TERN_TRY(t->backend->read(tern_trainer_slot(t, sums[i])->array, 0, 1, of[i], err));
    return TERN_OK;
}

tern_status tern_trainer_write_sums(tern_trainer *t, const tern_train_sums *s, tern_error *err) {
    tern_train_sums copy = *s;
    float *of[N_SUMS];
    numbers_of(&copy, of);
    for (int i = 0; i < n_sums(t); i++)
        TERN_TRY(t->backend->write(tern_trainer_slot(t, sums[i])->array, 0, 1, of[i], err));
    return TERN_OK;
}

tern_status tern_trainer_join_sums(tern_trainer *t, tern_train_sums *s, tern_error *err) {
    float *of[N_SUMS];
    numbers_of(s, of);
    for (int i = 0; i < n_sums(t); i++) TERN_TRY(tern_trainer_sum(t, of[i], err));
    return TERN_OK;
}

double tern_trainer_loss(const tern_trainer *t, const tern_train_sums *s) {
    if (!t->teacher) return (double)s->loss;
    const double ratio = (double)t->desc.kd_ratio, temperature = (double)t->desc.temperature;
    return (1 - ratio) * (double)s->loss + ratio * temperature * temperature * (double)s->kl;
}

// ---- The gradients -----------------------------------------------------------------------------

// Tokens that the group scores in a step; floats count exactly up to 2^24.
static tern_status count_scored(tern_trainer *t, int64_t *n, tern_error *err) {
    float count = (float)*n;
    if (!tern_trainer_masks(t)) *n = t->desc.batch_tokens;
    if (!tern_trainer_masks(t) || tern_train_ranks(&t->desc) == 1) return TERN_OK;
    TERN_TRY(tern_trainer_sum(t, &count, err));
    *n = (int64_t)count;
    return TERN_OK;
}

// The gradients of a step of tokens.
static tern_status add_gradients(tern_trainer *t, int64_t *n_all, tern_error *err) {
    group_sum g = {.t = t};
    int32_t n_runs = t->desc.batch_tokens / t->desc.micro_tokens / tern_train_ranks(&t->desc);
    bool group = tern_train_ranks(&t->desc) > 1;
    int64_t n_scored = 0;
    TERN_TRY(fill_step(t, t->step, &n_scored, err));
    TERN_TRY(count_scored(t, &n_scored, err));
    for (int32_t run = 0; run < n_runs; run++) {
        tern_train_batch b =
            tern_trainer_batch(t, run * t->desc.micro_tokens, t->desc.micro_tokens);
        b.loss_scale = n_scored > 0 ? 1.0f / (float)n_scored : 0;
        b.unrounded = tern_qat_unrounded(&t->desc, t->step + 1);
        if (group && run == n_runs - 1 && tern_trainer_has_host(t)) {
            b.on_array = sum_array;
            b.user = &g;
        }
        TERN_TRY(tern_teacher_cache_feed(t, run * t->desc.micro_tokens, b.n_tokens, err));
        TERN_TRY(tern_trainer_run(t, &t->train, &b, err));
    }
    for (size_t i = 0; group && !tern_trainer_has_host(t) && i < t->n_slots; i++)
        if (strncmp(t->slots[i].name, "grad.", 5) == 0)
            TERN_TRY(sum_over_host(&g, &t->slots[i], err));
    if (group && tern_trainer_has_host(t) && !t->desc.comm->sum_finish(t->desc.comm->self))
        g.failed = true;
    if (g.failed)
        return tern_fail(err, TERN_ERR_IO, "train: another process of the group was lost");
    *n_all = n_scored;
    return TERN_OK;
}

tern_status tern_trainer_step(tern_trainer *t, float rate, float decay, tern_error *err) {
    int64_t step = t->step + 1, n_scored = 1; // with pairs, the loss is already a mean
    if (t->preferring)
        TERN_TRY(tern_preferring_step(t, err));
    else
        TERN_TRY(t->contrastive ? tern_contrastive_step(t, err) : add_gradients(t, &n_scored, err));
    tern_train_batch b = tern_trainer_batch(t, 0, 0);
    b.rate = rate;
    b.decay = decay;
    b.beta1 = 0.9f;
    b.beta2 = 0.95f;
    b.eps = 1e-8f;
    b.momentum = 0.95f;
    b.clip = t->desc.clip;
    b.step = step;
    b.seed = t->desc.seed;
    TERN_TRY(tern_trainer_run(t, &t->update, &b, err));
    t->step = step;
    t->steps_in_loss++;
    t->scored_in_loss += n_scored;
    return TERN_OK;
}
