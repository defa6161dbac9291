// What a run needs and what it will do, found before any of its memory is taken: the device plans
// its programs as for the run itself, so that the bytes are those that it will take.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_memory.h"
#include "base/os/os_time.h"
#include "train/trainer.h"

// Enough to know the share of scored tokens, and read in seconds.
#define SHARE_TOKENS ((int64_t)1 << 24)

// ---- Memory ------------------------------------------------------------------------------------

// Runs of n_rows tokens in sequences of n_span, of the trainer's graph or another one like it.
typedef struct sizes {
    int32_t n_rows, n_span;
    const tern_graph *train;
} sizes;

// What all programs take.
static tern_status plan_programs(const tern_trainer *t, const sizes *of, uint64_t *bytes,
                                 uint64_t *logits, tern_error *err) {
    const tern_graph *graphs[] = {of->train, &t->update.graph, &t->score.graph};
    uint64_t shared = 0;
    *bytes = *logits = 0;
    for (int i = 0; i < 3; i++) {
        tern_program *p;
        TERN_TRY(t->backend->compile(t->device, graphs[i], NULL, of->n_rows, of->n_span, &p, err));
        tern_program_bytes b = t->backend->program_bytes(p);
        t->backend->program_free(p);
        *bytes += b.own;
        if (b.shared > shared) shared = b.shared;
        if (b.logits > *logits) *logits = b.logits;
    }
    *bytes += shared;
    return TERN_OK;
}

static tern_status add_arrays(tern_trainer *t, uint64_t *largest, tern_error *err) {
    tern_train_memory *m = &t->memory;
    *largest = 0;
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        const uint64_t n = s->n_rows * s->n_cols;
        uint64_t bytes;
        if (s->codes_bytes) {
            m->weights += s->codes_bytes;
            continue;
        }
        TERN_TRY(t->backend->array_bytes(t->device, s->is_bf16 ? (n + 1) / 2 : n, &bytes, err));
        *(s->is_weight                         ? &m->weights
          : tern_name_begins(s->name, "grad.") ? &m->gradients
                                               : &m->optimizer) += bytes;
        if (s->is_decoded) m->decoded += bytes;
        uint64_t copied = tern_alloc_resident(n * sizeof(float));
        if (s->is_kept && copied > *largest) *largest = copied;
    }
    return TERN_OK;
}

// The process, a step's rows, and an array that a checkpoint copies.
static void add_host(tern_trainer *t, uint64_t largest) {
    tern_train_memory *m = &t->memory;
    uint64_t all = m->weights + m->gradients + m->optimizer + m->activations;
    bool on_host = t->backend == &tern_train_cpu;
    m->process = tern_process_memory_now();
    uint64_t rows = 3 * sizeof *t->ids * (uint64_t)t->desc.batch_tokens;
    m->host = m->process + rows + largest + (on_host ? all : 0);
    m->device = on_host ? 0 : all;
    m->host_available = tern_memory_available();
}

tern_status tern_plan_memory(tern_trainer *t, tern_error *err) {
    uint64_t largest;
    t->memory = (tern_train_memory){0};
    TERN_TRY(add_arrays(t, &largest, err));
    const sizes of = {t->desc.micro_tokens, t->desc.seq_len, &t->train.graph};
    TERN_TRY(plan_programs(t, &of, &t->memory.activations, &t->memory.logits, err));
    if (t->contrastive) t->memory.activations += tern_contrastive_bytes(t);
    add_host(t, largest);
    return TERN_OK;
}

// ---- What does not fit -------------------------------------------------------------------------

// Bytes of the host that a run with other sizes would add to the process; 0: unknown. Activations
// on a GPU are none of them.
static uint64_t needs(const tern_trainer *t, const sizes *of) {
    const tern_train_memory *m = &t->memory;
    uint64_t bytes, logits;
    if (m->device) return m->host - m->process;
    if (plan_programs(t, of, &bytes, &logits, NULL) != TERN_OK) return 0;
    return m->host - m->process - m->activations + bytes;
}

// The most tokens at once that fit and that a step can be cut into; 0: none.
static int32_t fitting_tokens(const tern_trainer *t, int32_t seq_len) {
    const tern_train_desc *d = &t->desc;
    int32_t per_rank = d->batch_tokens / tern_train_ranks(d);
    for (int32_t n = d->micro_tokens / seq_len; n >= 1; n = n > 64 ? n / 2 : n - 1) {
        if (per_rank % (n * seq_len) != 0) continue;
        uint64_t bytes = needs(t, &(sizes){n * seq_len, seq_len, &t->train.graph});
        if (bytes && bytes <= t->memory.host_available) return n * seq_len;
    }
    return 0;
}

// Whether it would if activations were computed again.
static bool fits_checkpointed(const tern_trainer *t) {
    const tern_train_desc *d = &t->desc;
    tern_graph g = {0};
    uint64_t bytes = 0;
    if (d->gradient_checkpointing || t->memory.device) return false;
    if (tern_graph_copy(&g, &t->train.graph, NULL) == TERN_OK &&
        tern_graph_recompute(&g, t->n_forward, NULL) == TERN_OK)
        bytes = needs(t, &(sizes){d->micro_tokens, d->seq_len, &g});
    tern_graph_free(&g);
    return bytes && bytes <= t->memory.host_available;
}

// What to change, the least first.
static void advise(const tern_trainer *t, char *out, size_t size) {
    const tern_train_desc *d = &t->desc;
    int32_t tokens = tern_trainer_has_pairs(t) ? 0 : fitting_tokens(t, d->seq_len),
            seq_len = d->seq_len / 2;
    if (tokens) {
        snprintf(out, size, "micro_tokens of %d would fit", tokens);
        return;
    }
    if (fits_checkpointed(t)) {
        snprintf(out, size, "gradient_checkpointing would fit");
        return;
    }
    for (; !tern_trainer_has_pairs(t) && seq_len >= 64 && !tokens; seq_len /= 2)
        tokens = fitting_tokens(t, seq_len);
    uint64_t bytes = t->memory.host - t->memory.process - t->memory.optimizer / 4 * 3;
    if (!d->optimizer && !t->memory.device && bytes <= t->memory.host_available)
        snprintf(out, size, "optimizer adamw8bit would fit");
    else if (tokens)
        snprintf(out, size, "seq_len of %d with micro_tokens of %d would fit", seq_len * 2, tokens);
    else if (t->base)
        snprintf(out, size, "it needs a smaller base, or a machine with more");
    else if (d->init)
        snprintf(out, size, "an adapter (lora_rank) needs no gradients and moments of the weights");
    else
        snprintf(out, size, "it needs a smaller shape (preset, n_layers, n_embd)");
}

tern_status tern_plan_check(tern_trainer *t, tern_error *err) {
    const tern_train_memory *m = &t->memory;
    uint64_t added = m->host - m->process;
    char advice[128];
    if (m->host_available == 0 || added <= m->host_available) return TERN_OK;
    advise(t, advice, sizeof advice);
    return tern_fail(err, TERN_ERR_MEMORY,
                     "train: the run needs %.1f GB of memory and %.1f GB are free (weights %.1f, "
                     "gradients %.1f, optimizer %.1f, activations %.1f with logits %.1f): %s",
                     (double)added * 1e-9, (double)m->host_available * 1e-9,
                     (double)m->weights * 1e-9, (double)m->gradients * 1e-9,
                     (double)m->optimizer * 1e-9, (double)m->activations * 1e-9,
                     (double)m->logits * 1e-9, advice);
}

// ---- What is scored ----------------------------------------------------------------------------

// The share of scored tokens in a set's first sequences.
static tern_status find_share(tern_trainer *t, tern_token_set *set, int64_t n_tokens, double *share,
                              tern_error *err) {
    uint64_t n = tern_token_set_n_sequences(set), most = (uint64_t)(n_tokens / t->desc.seq_len);
    int64_t n_scored = 0, n_text = 0;
    if (n > most) n = most;
    for (uint64_t i = 0; i < n; i++) {
        TERN_TRY(tern_trainer_fill(t, set, (uint64_t[]){0, i}, 0, &n_scored, err));
        for (int32_t k = 1; k <= t->desc.seq_len; k++)
            n_text += !(t->marks[k] & TERN_TOKEN_PADDING);
    }
    *share = n_text ? (double)n_scored / (double)n_text : 0;
    return TERN_OK;
}

// A run that scores nothing would write the weights that it began with.
tern_status tern_plan_shares(tern_trainer *t, tern_error *err) {
    t->share = t->valid_share = 1;
    bool valid_has_spans = t->valid && tern_token_set_has_spans(t->valid);
    if (!t->assistant && !t->data_has_spans && !valid_has_spans) return TERN_OK;
    TERN_TRY(find_share(t, t->data, SHARE_TOKENS, &t->share, err));
    if (t->valid) TERN_TRY(find_share(t, t->valid, t->desc.valid_tokens, &t->valid_share, err));
    if (t->share > 0) return TERN_OK;
    if (!t->assistant)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: nothing to learn: all of its messages have \"weight\": 0 or "
                         "\"train\": false",
                         t->desc.data);
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "%s: nothing to learn: an assistant says none of its tokens, as the chat "
                     "template marks them (is it made of chats, and with this template?)",
                     t->desc.data);
}

// ---- What is told ------------------------------------------------------------------------------

// Whether the optimizer's graph has a step of it.
static bool is_trained(const tern_trainer *t, const tern_slot *s) {
    return s->is_weight && tern_graph_find(&t->update.graph, s->name) >= 0;
}

tern_train_info tern_plan_info(const tern_trainer *t) {
    tern_train_info i = {.device = t->backend->describe(t->device),
                         .seq_len = t->desc.seq_len,
                         .batch_tokens = t->desc.batch_tokens,
                         .n_layers = t->desc.n_layers,
                         .n_embd = t->desc.n_embd,
                         .n_tokens = t->data ? tern_token_set_n_tokens(t->data) : 0,
                         .n_valid_tokens = t->valid ? tern_token_set_n_tokens(t->valid) : 0,
                         .share = t->share,
                         .valid_share = t->valid_share,
                         .step = t->step,
                         .n_steps = t->desc.n_steps,
                         .n_damaged = t->n_damaged,
                         .memory = t->memory,
                         .n_new_tokens = t->grown.n,
                         .first_new_token = t->grown.first,
                         .seconds = NAN};
    for (size_t s = 0; s < t->n_slots; s++) {
        int64_t n = (int64_t)(t->slots[s].n_rows * t->slots[s].n_cols);
        i.n_params += is_trained(t, &t->slots[s]) ? n : 0;
        i.n_all_params += t->slots[s].is_weight ? n : 0;
        const bool is_rounded = t->slots[s].is_ternary || t->slots[s].type != TERN_DTYPE_F32;
        i.n_ternary += is_rounded && is_trained(t, &t->slots[s]) ? n : 0;
    }
    if (t->contrastive) {
        tern_contrastive_info(t, &i);
        return i;
    }
    if (t->preferring) {
        tern_preferring_info(t, &i);
        return i;
    }
    tern_teacher_cache_sizes(t, &i.cache_bytes, &i.cache_share);
    uint64_t per_epoch = tern_token_set_n_sequences(t->data);
    tern_token_set_layout layout = tern_token_set_get_layout(t->data);
    i.n_windows = per_epoch;
    i.n_padding = layout.n_padding;
    i.n_truncated = layout.n_truncated;
    i.n_epochs =
        (double)(t->desc.n_steps * (t->desc.batch_tokens / t->desc.seq_len)) / (double)per_epoch;
    return i;
}

// ---- Time --------------------------------------------------------------------------------------

// A figure that people wait for.
#define MEASURED_SECONDS 4.0

static tern_status run_tokens(tern_trainer *t, int32_t n_tokens, double *seconds, tern_error *err) {
    float loss;
    double begun = tern_seconds();
    tern_train_batch b = {.n_tokens = n_tokens,
                          .ids = t->ids,
                          .targets = t->targets,
                          .starts = t->starts,
                          .loss_scale = 1e-3f};
    TERN_TRY(t->backend->run(t->train.program, &b, err));
    TERN_TRY(t->backend->read(tern_trainer_slot(t, "loss")->array, 0, 1, &loss, err));
    *seconds = tern_seconds() - begun;
    return TERN_OK;
}

static tern_status run_update(tern_trainer *t, double *seconds, tern_error *err) {
    float norm;
    double begun = tern_seconds();
    tern_train_batch b = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .step = 1};
    TERN_TRY(t->backend->run(t->update.program, &b, err));
    TERN_TRY(t->backend->read(tern_trainer_slot(t, "grad_norm2")->array, 0, 1, &norm, err));
    *seconds = tern_seconds() - begun;
    return TERN_OK;
}

static tern_status fill_run(tern_trainer *t, tern_error *err) {
    uint64_t n_sequences = tern_token_set_n_sequences(t->data);
    int64_t n_scored = 0;
    for (int32_t row = 0; row < t->desc.micro_tokens; row += t->desc.seq_len) {
        uint64_t at[2] = {0, (uint64_t)(row / t->desc.seq_len) % n_sequences};
        TERN_TRY(tern_trainer_fill(t, t->data, at, row, &n_scored, err));
    }
    return TERN_OK;
}

// The seconds of a run of micro_tokens: the line through a run of few tokens, whose weights are
// read all the same, and one of as many as there is time for.
static tern_status measure_run(tern_trainer *t, int32_t *n_measured, double *out, tern_error *err) {
    int32_t all = t->desc.micro_tokens, few = all < 32 ? all : 32, many = few;
    double short_run, long_run;
    TERN_TRY(run_tokens(t, few, &short_run, err)); // touches the memory
    TERN_TRY(run_tokens(t, few, &short_run, err));
    double most = few * MEASURED_SECONDS / short_run;
    many = most >= all ? all : most > few ? (int32_t)most : few;
    if (many > few) TERN_TRY(run_tokens(t, many, &long_run, err)); // touches more of it
    TERN_TRY(run_tokens(t, many, &long_run, err));
    double each = many > few ? fmax(0, long_run - short_run) / (many - few) : long_run / many;
    *out = long_run + each * (all - many);
    *n_measured = many;
    return TERN_OK;
}

static tern_status measure(tern_trainer *t, tern_train_info *info, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    double run, update;
    TERN_TRY(tern_trainer_init_weights(t, err));
    TERN_TRY(fill_run(t, err));
    TERN_TRY(measure_run(t, &info->measured_tokens, &run, err));
    TERN_TRY(run_update(t, &update, err)); // touches the moments
    TERN_TRY(run_update(t, &update, err));
    double n_runs = (double)(d->batch_tokens / d->micro_tokens / tern_train_ranks(d));
    info->seconds = (n_runs * run + update) * (double)d->n_steps;
    return TERN_OK;
}

static tern_status plan(tern_trainer *t, tern_error *err) {
    tern_error reason = {0};
    TERN_TRY(tern_plan_shares(t, err));
    TERN_TRY(tern_train_check_length(&t->desc, err));
    tern_status status = tern_teacher_cache_plan(t, &reason);
    tern_train_info info = tern_plan_info(t);
    if (status == TERN_OK) status = tern_trainer_take(t, &reason);
    if (status == TERN_OK && !tern_trainer_has_pairs(t)) status = measure(t, &info, &reason);
    if (t->desc.on_begin) t->desc.on_begin(t->desc.user, &info);
    return status == TERN_OK ? TERN_OK : tern_fail(err, status, "%s", reason.message);
}

tern_status tern_train_plan(const tern_train_desc *desc, tern_error *err) {
    tern_clear(err);
    tern_trainer *t = NULL;
    TERN_NEED(desc);
    if (!desc->pairs && !desc->preferences) TERN_NEED(desc->data);
    TERN_TRY(tern_train_check(desc, err));
    tern_status status = tern_trainer_lay_out(&t, desc, err);
    if (status == TERN_OK) status = plan(t, err);
    tern_trainer_close(t);
    return status;
}
