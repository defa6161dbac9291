// Sizes, recipes and schedules.
//
// Recipes: "paper" is BitNet b1.58 (arXiv:2402.17764): Llama with BitLinears, SwiGLU; "bitnet" is
// 2B-4T (arXiv:2504.12285): squared ReLU and sub-norms; "llama" is the float twin of the first.
//
// The two-stage schedule is that of the training tips to arXiv:2402.17764: in the first half the
// rate falls linearly from its peak towards zero at the end of the run; in the second half it falls
// on a lower line, and weight decay is off, since ternary weights profit from a high rate early and
// are held back by decay late.
#include <math.h>
#include <string.h>
#include "train/trainer.h"

// Widths of the small presets are multiples of 256, so that they can be written as TQ1_0 and TQ2_0.
static const tern_train_preset presets[] = {
    {"tiny", 2, 128, 4, 384, 4e-3f, 2e-3f, 8192, 128},
    {"nano", 4, 256, 8, 768, 3e-3f, 1.5e-3f, 16384, 256},
    {"micro", 8, 512, 8, 1536, 2e-3f, 1e-3f, 32768, 512},
    {"small", 24, 1536, 16, 4096, 1.5e-3f, 1e-3f, 524288, 2048},
    {"medium", 26, 3200, 32, 8640, 1.2e-3f, 8e-4f, 524288, 2048},
};

const tern_train_preset *tern_train_preset_find(const char *name) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

#define DEFAULT(field, value) ((field) = (field) ? (field) : (value))

// Tokens of a run: a GPU needs many at once, a CPU's cache few.
static int32_t most_at_once(const tern_train_desc *d) {
    return d->device && strcmp(d->device, "webgpu") == 0 ? 32768 : 4096;
}
static int32_t at_once(const tern_train_desc *d) {
    int32_t most = most_at_once(d);
    int32_t mine = d->batch_tokens / tern_train_ranks(d);
    return mine < most ? mine : most;
}

static void settle_shape(tern_train_desc *d, const tern_train_preset *p) {
    DEFAULT(d->n_layers, p->n_layers);
    DEFAULT(d->n_embd, p->n_embd);
    DEFAULT(d->n_heads, p->n_heads);
    DEFAULT(d->n_kv_heads, d->n_heads);
    DEFAULT(d->n_ff, p->n_ff);
    DEFAULT(d->seq_len, p->seq_len);
    DEFAULT(d->batch_tokens, p->batch_tokens);
    DEFAULT(d->micro_tokens, at_once(d));
}

void tern_train_set_steps(tern_train_desc *d, int64_t n_steps, int64_t wished_warmup) {
    d->n_steps = n_steps ? n_steps : 1000;
    d->n_warmup = wished_warmup;
    if (d->n_warmup == 0) d->n_warmup = d->n_steps / 20 < 375 ? d->n_steps / 20 + 1 : 375;
}

static void settle_optimizer(tern_train_desc *d, const tern_train_preset *p) {
    tern_train_set_steps(d, d->n_steps, d->n_warmup);
    if (d->rate > 0 && d->rate_2 == 0) d->rate_2 = d->rate * p->rate_2 / p->rate;
    DEFAULT(d->rate, p->rate);
    DEFAULT(d->rate_2, p->rate_2);
    if (d->recipe == TERN_RECIPE_LLAMA && d->schedule == TERN_SCHEDULE_AUTO)
        d->schedule = TERN_SCHEDULE_COSINE;
    if (d->schedule == TERN_SCHEDULE_AUTO) d->schedule = TERN_SCHEDULE_TWO_STAGE;
    DEFAULT(d->weight_decay, 0.1f);
    if (d->weight_decay < 0) d->weight_decay = 0;
    DEFAULT(d->clip, 1);
    DEFAULT(d->log_every, 10);
    DEFAULT(d->valid_every, 250);
    DEFAULT(d->valid_tokens, 65536);
    DEFAULT(d->sample_every, d->valid_every);
    DEFAULT(d->sample_tokens, 64);
    DEFAULT(d->checkpoint_every, 500);
    DEFAULT(d->keep, 2);
}

// Refuses meaningless numbers, and products that overflow a counter.
static tern_status check_numbers(const tern_train_desc *d, tern_error *err) {
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"layers", d->n_layers},
                  {"embd", d->n_embd},
                  {"heads", d->n_heads},
                  {"kv-heads", d->n_kv_heads},
                  {"ff", d->n_ff},
                  {"context", d->n_context},
                  {"seq_len", d->seq_len},
                  {"batch_tokens", d->batch_tokens},
                  {"micro_tokens", d->micro_tokens},
                  {"n_steps", d->n_steps},
                  {"n_warmup", d->n_warmup},
                  {"qat_warmup", d->qat_warmup},
                  {"log_every", d->log_every},
                  {"valid_every", d->valid_every},
                  {"valid_tokens", d->valid_tokens},
                  {"checkpoint_every", d->checkpoint_every},
                  {"keep", d->keep},
                  {"sample_every", d->sample_every},
                  {"sample_tokens", d->sample_tokens},
                  {"early_stopping_patience", d->early_stopping_patience},
                  {"batch_pairs", d->batch_pairs},
                  {"valid_pairs", d->valid_pairs}};
    const float reals[] = {d->rate, d->rate_2, d->weight_decay, d->clip};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0)
            return tern_fail(err, TERN_ERR_ARGUMENT, "train: %s: %lld is less than none",
                             counts[i].name, (long long)counts[i].value);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!isfinite(reals[i]) || (i < 2 && reals[i] < 0))
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "train: a rate, weight decay or clip of %g cannot be trained with",
                             (double)reals[i]);
    if (!isfinite(d->beta) || d->beta < 0 || !(d->label_smoothing >= 0) ||
        !(d->label_smoothing < 0.5f))
        return tern_fail(
            err, TERN_ERR_ARGUMENT,
            "train: a beta of %g and label smoothing of %g: expected a number above 0, "
            "and one below 0.5",
            (double)d->beta, (double)d->label_smoothing);
    if (d->label_smoothing > 0 && d->loss > TERN_LOSS_DPO)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: label smoothing is of the loss dpo alone");
    if (d->pairs && d->sample_prompts)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: sample_prompts are for language models: an embedding model says "
                         "nothing");
    if (d->pairs && d->packing)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: packing is for documents, not for pairs");
    if ((unsigned)d->recipe > TERN_RECIPE_LLAMA || (unsigned)d->schedule > TERN_SCHEDULE_CONSTANT)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: there is no recipe %d or no schedule %d",
                         (int)d->recipe, (int)d->schedule);
    return TERN_OK;
}

tern_status tern_train_check_length(const tern_train_desc *d, tern_error *err) {
    int64_t n_tokens;
    if (!__builtin_mul_overflow(d->n_steps, (int64_t)d->batch_tokens, &n_tokens)) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "train: %lld steps of %d tokens are more than can be counted",
                     (long long)d->n_steps, d->batch_tokens);
}

// The teacher's distribution says more about each token than the text's one token does: the text
// itself is an option.
static tern_status settle_teacher(tern_train_desc *d, tern_error *err) {
    if (d->kd_ratio == 0) d->kd_ratio = 1;
    if (d->kd_ratio < 0) d->kd_ratio = 0;
    if (d->temperature == 0) d->temperature = 1;
    if (d->teacher_cache && d->temperature != 1)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: a temperature of %g: what teacher_cache keeps is of 1",
                         (double)d->temperature);
    if (d->teacher_cache && d->device && strcmp(d->device, "cpu") != 0)
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "train: teacher_cache is for the CPU: on a GPU the teacher runs beside its "
            "student");
    if (d->teacher_top_k < 0 || d->teacher_tail < 0 ||
        ((d->teacher_top_k || d->teacher_tail) && !d->teacher_cache))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: a teacher_top_k of %d and a teacher_tail of %d: expected counts, "
                         "with teacher_cache",
                         (int)d->teacher_top_k, (int)d->teacher_tail);
    if (d->kd_ratio <= 1 && d->temperature > 0 && isfinite(d->temperature)) return TERN_OK;
    return tern_fail(
        err, TERN_ERR_ARGUMENT,
        "train: a teacher with kd_ratio %g and temperature %g: expected at most 1, and "
        "a number above 0",
        (double)d->kd_ratio, (double)d->temperature);
}

static tern_status check_shape(const tern_train_desc *d, tern_error *err) {
    if (d->n_embd % d->n_heads != 0 || d->n_heads % d->n_kv_heads != 0 ||
        d->n_embd / d->n_heads % 2 != 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: %d dimensions, %d heads and %d key heads do not fit together",
                         d->n_embd, d->n_heads, d->n_kv_heads);
    if (d->n_layers > 1000 || d->n_embd > 65536 || d->n_ff > 1 << 20 || d->seq_len > 1 << 20)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: the model is too large");
    return TERN_OK;
}

static tern_status check_batch(const tern_train_desc *d, tern_error *err) {
    int ranks = tern_train_ranks(d);
    if (d->seq_len < 1 || d->micro_tokens < 1 || d->batch_tokens < 1)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: a batch needs tokens");
    if (d->micro_tokens % d->seq_len != 0 ||
        d->batch_tokens % ((int64_t)d->micro_tokens * ranks) != 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: a batch of %d tokens cannot be cut into runs of %d tokens of "
                         "sequences of %d over %d process%s",
                         d->batch_tokens, d->micro_tokens, d->seq_len, ranks,
                         ranks == 1 ? "" : "es");
    return tern_train_check_length(d, err);
}

// An adapter's: a tenth of the rates for whole models.
static const tern_train_preset adapter = {.name = "adapter", .rate = 2e-4f, .rate_2 = 1e-4f};

// A whole model's: what it has learnt is worth more than what a step could teach. The wider it is,
// the more a step of each weight moves its outputs. Master weights take more, since small steps
// round to none: with ten times as much a model of 3M lost a fifth in five steps.
static tern_train_preset tuned(const tern_train_desc *d, const tern_config *c) {
    float rate = fmaxf((c->bitlinear || d->qat ? 0.05f : 0.02f) / (float)c->n_embd, 1e-5f);
    return (tern_train_preset){.name = "tuned", .rate = rate, .rate_2 = rate / 2};
}

static tern_status settle_based(tern_train_desc *d, const tern_config *c, tern_error *err) {
    const tern_train_preset preset = d->lora_rank ? adapter : tuned(d, c);
    if (d->preset || d->recipe || d->n_layers || d->n_embd || d->n_heads || d->n_kv_heads ||
        d->n_ff || d->n_context || d->act || d->separate_head)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: preset, recipe and shape are those of the model that it begins "
                         "with (init)");
    d->n_layers = (int32_t)c->n_layers;
    d->n_embd = (int32_t)c->n_embd;
    int32_t context = (int32_t)c->n_context;
    DEFAULT(d->seq_len, context < 512 ? context : 512);
    if (d->seq_len < 1 || d->seq_len > context || d->seq_len > 1 << 20)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: sequences of %d tokens, but the base was made for %d", d->seq_len,
                         context);
    DEFAULT(d->batch_tokens, 8 * d->seq_len);
    if (d->micro_tokens == 0) {
        int32_t n = d->batch_tokens / d->seq_len, k = n;
        while (k > 1 && (k * d->seq_len > at_once(d) || n % (k * tern_train_ranks(d)) != 0)) k--;
        d->micro_tokens = k > 0 ? k * d->seq_len : d->seq_len;
    }
    if (d->schedule == TERN_SCHEDULE_AUTO) d->schedule = TERN_SCHEDULE_COSINE;
    if (d->weight_decay == 0) d->weight_decay = -1;
    settle_optimizer(d, &preset);
    return check_batch(d, err);
}

// ---- Pairs -------------------------------------------------------------------------------------

static const tern_train_preset fine_tuned = {.name = "pairs", .rate = 5e-4f, .rate_2 = 2.5e-4f};

#define BATCH_PAIRS_MAX 16384 // the scores are a square of this size

// A step of preferences has two answers of each pair; more rows would take memory for nothing.
static int32_t pairs_at_once(const tern_train_desc *d) {
    int64_t most = most_at_once(d), all = 2 * (int64_t)d->batch_pairs * d->seq_len;
    if (d->preferences && all < most) most = all;
    return most > d->seq_len ? (int32_t)most : d->seq_len;
}

// Texts have any length up to seq_len: a run has as many as fit.
static tern_status settle_pairs(tern_train_desc *d, tern_error *err) {
    DEFAULT(d->batch_pairs, 256);
    DEFAULT(d->valid_pairs, 1000);
    DEFAULT(d->temperature, 0.05f);
    DEFAULT(d->micro_tokens, pairs_at_once(d));
    d->batch_tokens = d->micro_tokens; // what the rows must hold
    if (tern_train_ranks(d) > 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "train: pairs are trained with by one process");
    if (d->batch_pairs < 2 || d->batch_pairs > BATCH_PAIRS_MAX || d->valid_pairs > BATCH_PAIRS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: %d pairs a step and %d held out: expected 2 to %d", d->batch_pairs,
                         d->valid_pairs, BATCH_PAIRS_MAX);
    if (d->seq_len < 1 || d->micro_tokens < d->seq_len)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: %d tokens computed at once are fewer than a text's %d",
                         d->micro_tokens, d->seq_len);
    if (!(d->temperature > 0) || !isfinite(d->temperature))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: a temperature of %g: expected a number above 0",
                         (double)d->temperature);
    int64_t n_pairs;
    if (__builtin_mul_overflow(d->n_steps, (int64_t)d->batch_pairs, &n_pairs))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: %lld steps of %d pairs are more than can be counted",
                         (long long)d->n_steps, d->batch_pairs);
    return TERN_OK;
}

// The shape of `init`, perhaps only its first layers.
static tern_status settle_fine_tuned(tern_train_desc *d, tern_config *c, tern_error *err) {
    if (d->preset || d->recipe || d->n_embd || d->n_heads || d->n_kv_heads || d->n_ff ||
        d->n_context || d->act || d->separate_head)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: a model trained with pairs has the recipe "
                         "and the shape of its first weights' model");
    if (d->n_layers > c->n_layers)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: %d layers of a model that has %lld",
                         d->n_layers, (long long)c->n_layers);
    DEFAULT(d->n_layers, (int32_t)c->n_layers);
    c->n_layers = d->n_layers;
    d->n_embd = (int32_t)c->n_embd;
    int32_t context = (int32_t)c->n_context;
    DEFAULT(d->seq_len, context < 256 ? context : 256);
    if (d->seq_len > context)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: texts of %d tokens, but the model was made for %d", d->seq_len,
                         context);
    if (d->schedule == TERN_SCHEDULE_AUTO) d->schedule = TERN_SCHEDULE_COSINE;
    settle_optimizer(d, &fine_tuned);
    return settle_pairs(d, err);
}

tern_status tern_train_check(const tern_train_desc *desc, tern_error *err) {
    TERN_NEED_ENUM(desc->recipe, TERN_RECIPE_LLAMA);
    TERN_NEED_ENUM(desc->schedule, TERN_SCHEDULE_CONSTANT);
    TERN_NEED_ENUM(desc->packing, TERN_PACKING_NONE);
    TERN_NEED_ENUM(desc->optimizer, TERN_OPTIMIZER_MUON);
    TERN_NEED_ENUM(desc->pooling, TERN_POOLING_FIRST);
    TERN_NEED_ENUM(desc->loss, TERN_LOSS_KTO);
    return TERN_OK;
}

// ---- Preferences -------------------------------------------------------------------------------

static const tern_train_preset preferring = {.name = "preferences", .rate = 1e-6f, .rate_2 = 5e-7f};
static const tern_train_preset preferring_adapter = {
    .name = "preferences", .rate = 1e-5f, .rate_2 = 5e-6f};

static tern_status settle_preferences(tern_train_desc *d, const tern_config *c, tern_error *err) {
    if (d->preset || d->recipe || d->n_layers || d->n_embd || d->n_heads || d->n_kv_heads ||
        d->n_ff || d->n_context || d->act || d->separate_head)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: preferences are learnt with the recipe and the shape of the model "
                         "that they begin with");
    d->n_layers = (int32_t)c->n_layers;
    d->n_embd = (int32_t)c->n_embd;
    int32_t context = (int32_t)c->n_context;
    DEFAULT(d->seq_len, context < 1024 ? context : 1024);
    if (d->seq_len > context)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: answers of %d tokens, but the model was made for %d", d->seq_len,
                         context);
    DEFAULT(d->batch_pairs, 16);
    DEFAULT(d->beta, 0.1f);
    if (d->schedule == TERN_SCHEDULE_AUTO) d->schedule = TERN_SCHEDULE_COSINE;
    if (d->weight_decay == 0) d->weight_decay = -1;
    settle_optimizer(d, d->lora_rank ? &preferring_adapter : &preferring);
    return settle_pairs(d, err);
}

tern_status tern_train_settle(tern_train_desc *d, tern_config *c, tern_error *err) {
    TERN_TRY(check_numbers(d, err));
    TERN_TRY(tern_parts_check(d, err));
    if (d->teacher || d->teacher_cache) TERN_TRY(settle_teacher(d, err));
    if (d->preferences) return settle_preferences(d, c, err);
    if (d->pairs && d->init) return settle_fine_tuned(d, c, err);
    if (d->init) return settle_based(d, c, err);
    const tern_train_preset *p = tern_train_preset_find(d->preset ? d->preset : "nano");
    if (!p)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: preset '%s': expected tiny, nano, micro, small or medium",
                         d->preset);
    settle_shape(d, p);
    settle_optimizer(d, p);
    TERN_TRY(check_shape(d, err));
    TERN_TRY(d->pairs ? settle_pairs(d, err) : check_batch(d, err));
    int32_t head_dim = d->n_embd / d->n_heads;
    *c = (tern_config){.n_layers = d->n_layers,
                       .n_embd = d->n_embd,
                       .n_ff = d->n_ff,
                       .n_heads = d->n_heads,
                       .n_kv_heads = d->n_kv_heads,
                       .head_dim = head_dim,
                       .n_context = d->n_context ? d->n_context : d->seq_len,
                       .rms_eps = 1e-5,
                       .final_rms_eps = 1e-5,
                       .act = d->recipe == TERN_RECIPE_BITNET ? TERN_ACTIVATION_RELU2
                                                              : TERN_ACTIVATION_SILU,
                       .tied_head = !d->separate_head,
                       .sub_norms = d->recipe == TERN_RECIPE_BITNET,
                       .bitlinear = d->recipe != TERN_RECIPE_LLAMA,
                       .bos_id = -1,
                       .eos_id = -1};
    if (d->act && !tern_act_from_name((tern_str){d->act, strlen(d->act)}, &c->act))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: activation '%s': expected silu, relu2, gelu or gelu_pytorch_tanh",
                         d->act);
    c->rope = (tern_rope_attrs){.n_rot = head_dim, .base = 10000, .n_context_orig = d->seq_len};
    return TERN_OK;
}

float tern_train_rate(const tern_train_desc *d, int64_t step) {
    double done = (double)(step - 1) / (double)d->n_steps, rate = d->rate;
    switch (d->schedule) {
    case TERN_SCHEDULE_COSINE: rate *= 0.1 + 0.9 * 0.5 * (1 + cos(3.14159265358979 * done)); break;
    case TERN_SCHEDULE_CONSTANT: break;
    default: rate = (done < 0.5 ? d->rate : d->rate_2) * (1 - done); break;
    }
    if (step <= d->n_warmup) rate *= (double)step / (double)d->n_warmup;
    return (float)rate;
}

float tern_train_decay(const tern_train_desc *d, int64_t step) {
    bool late = d->schedule == TERN_SCHEDULE_TWO_STAGE && (step - 1) * 2 >= d->n_steps;
    return late ? 0 : d->weight_decay;
}
