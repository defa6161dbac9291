// Quantization-aware training (arXiv:1712.05877): the matrices of layers stay floats for the
// optimizer, and every step computes with what a file of another type would hold of them, so that
// the model learns to live with the rounding (graph/passes.c, base/dtype/dtype_round.c). Files get
// the rounded matrices: they are the model that was trained. The floats that go on being trained
// are in a checkpoint's second file.
//
// For trits, groups of a row with a scale of their own hold what models already know far better
// than BitNet's one scale for a matrix, and all of its matrices can begin from a trained model's.
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "base/alloc.h"
#include "train/trainer.h"

enum { GROUP_MAX = 256 };

// ---- Rounding on the host ----------------------------------------------------------------------

// All threads round stretches of whole blocks: what a validation does with a model's weights took
// longer on one than a GPU's training between two validations.
#define STRETCH ((size_t)1 << 12)
typedef struct rounding {
    tern_dtype type;
    float *x;
    size_t n;
    uint8_t *blocks; // or NULL
    atomic_size_t counter;
} rounding;

static void round_stretches(void *ctx, const tern_team *team) {
    rounding *r = ctx;
    const size_t each = tern_dtype_block_n(r->type), bytes = tern_dtype_block_bytes(r->type);
    (void)team;
    for (size_t at, end; tern_team_claim(&r->counter, r->n / each, STRETCH / each, &at, &end);)
        tern_dtype_round(r->type, r->x + at * each, NULL, (end - at) * each, r->x + at * each,
                         r->blocks ? r->blocks + at * bytes : NULL);
}

// n: of whole blocks. x is what they hold afterwards.
static void round_all(const tern_trainer *t, tern_dtype type, float *x, size_t n, void *blocks) {
    rounding r = {.type = type, .x = x, .n = n, .blocks = blocks};
    tern_team_run(t->qat_team, round_stretches, &r);
}

void tern_qat_close(tern_trainer *t) { tern_team_close(t->qat_team); }

tern_status tern_qat_open(tern_trainer *t, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    if (!d->qat && (d->qat_start || d->qat_warmup))
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: qat_start and qat_warmup go with qat");
    if (d->qat_warmup && (d->pairs || d->preferences))
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: qat_warmup is for steps of text");
    if (!d->qat) return TERN_OK;
    if (!tern_dtype_from_name(d->qat, &t->qat) || !tern_dtype_is_rounded_to(t->qat))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: qat '%.32s': expected ptq1_0, pq2_0, q2_0, tq1_0, tq2_0, q1_0, "
                         "q4_0 or q8_0",
                         d->qat);
    if (d->lora_rank)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: qat is for whole models: an adapter stays in floats");
    if (t->config.bitlinear)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: qat is for float models: a BitNet is trained ternary%s",
                         d->init ? "" : "; for qat take the recipe llama");
    TERN_TRY(tern_team_open(&t->qat_team, d->n_threads, err));
    if (!d->qat_start) return TERN_OK;
    if (!d->init || !tern_dtype_group_n(t->qat))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: qat_start is for a model (init) and types of trits or signs");
    return tern_file_open(&t->qat_start, d->qat_start, err);
}

// ---- Numbers to begin with ---------------------------------------------------------------------

// Sizes of the group's floats whose number is not 0: at least `least`, their mean the scale.
static void pull_to_scale(float *size, const float *number, size_t n, float scale, float least) {
    double sum = 0, lowest = INFINITY, count = 0;
    for (size_t i = 0; i < n; i++) {
        if (number[i] == 0) continue;
        if (size[i] < least) size[i] = least;
        sum += (double)size[i];
        lowest = fmin(lowest, (double)size[i]);
        count++;
    }
    const double mean = sum / count, most = (double)(scale - least) / (mean - lowest),
                 part = most < 1 ? most : 1;
    for (size_t i = 0; i < n; i++)
        if (number[i] != 0) size[i] = (float)((double)scale + part * ((double)size[i] - mean));
}

// Floats on the side of the bounds where the numbers are, 5% of the scale from them. Where the rule
// of rounding gives others all the same, the numbers themselves.
static void take_group(tern_dtype type, float *x, const float *number, size_t n) {
    float size[GROUP_MAX], rounded[GROUP_MAX], scale = 0;
    for (size_t i = 0; i < n; i++) scale = fmaxf(scale, fabsf(number[i]));
    const bool has_zeros = type != TERN_DTYPE_Q1_0;
    for (size_t i = 0; i < n; i++) {
        const bool is_same_side = x[i] * number[i] > 0;
        size[i] = number[i] == 0 ? fminf(fabsf(x[i]), 0.45f * scale)
                  : is_same_side ? fabsf(x[i])
                                 : 0;
    }
    if (scale > 0) pull_to_scale(size, number, n, scale, has_zeros ? 0.55f * scale : 0.05f * scale);
    for (size_t i = 0; i < n; i++) x[i] = copysignf(size[i], number[i] == 0 ? x[i] : number[i]);
    tern_dtype_round(type, x, NULL, n, rounded, NULL);
    for (size_t i = 0; i < n; i++)
        if (rounded[i] != number[i]) {
            memcpy(x, number, n * sizeof *x);
            return;
        }
}

typedef struct taking {
    tern_dtype type;
    float *x;
    const float *numbers;
    size_t n;
    atomic_size_t counter;
} taking;

static void take_stretches(void *ctx, const tern_team *team) {
    taking *r = ctx;
    const size_t each = tern_dtype_block_n(r->type);
    (void)team;
    for (size_t at, end; tern_team_claim(&r->counter, r->n / each, STRETCH / each, &at, &end);)
        for (; at < end; at++) take_group(r->type, r->x + at * each, r->numbers + at * each, each);
}

tern_status tern_qat_take_start(const tern_trainer *t, const tern_slot *s, float *data,
                                tern_error *err) {
    if (!t->qat_start || s->type == TERN_DTYPE_F32) return TERN_OK;
    const uint64_t n = s->n_rows * s->n_cols;
    const tern_tensor *from = tern_file_tensor(t->qat_start, s->name);
    if (!from || from->type != s->type || from->ne[0] != s->n_cols ||
        from->ne[1] * from->ne[2] * from->ne[3] != s->n_rows)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there is no %s of type %s and this shape",
                         t->desc.qat_start, s->name, tern_dtype_name(s->type));
    float *numbers = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *numbers);
    if (!numbers) return tern_fail_memory(err, n * sizeof *numbers);
    tern_status status = tern_tensor_decode(from, numbers, err);
    taking r = {.type = s->type, .x = data, .numbers = numbers, .n = (size_t)n};
    if (status == TERN_OK) tern_team_run(t->qat_team, take_stretches, &r);
    tern_free(numbers);
    return status;
}

// ---- Which matrices ----------------------------------------------------------------------------

// Which matrices: those that conversion gives such a type, with rows of whole blocks.
static bool is_rounded(const tern_trainer *t, const tern_value *v) {
    return tern_arch_is_layer_matrix(t->arch, v) &&
           (size_t)v->cols % tern_dtype_block_n(t->qat) == 0 && v->cols % TERN_QAT_GROUP == 0;
}

const tern_value *tern_qat_left(const tern_trainer *t, const tern_graph *g) {
    for (size_t v = 0; v < g->n_values; v++)
        if (tern_arch_is_layer_matrix(t->arch, &g->values[v]) && !is_rounded(t, &g->values[v]))
            return &g->values[v];
    return NULL;
}

static tern_status round_matrices(const tern_trainer *t, tern_graph *g, tern_dtype *types,
                                  tern_error *err) {
    const tern_value *matrix = NULL;
    size_t n = 0;
    for (size_t v = 0; v < g->n_values; v++) {
        const bool is = is_rounded(t, &g->values[v]);
        types[v] = is ? t->qat : TERN_DTYPE_F32;
        n += is;
        if (g->values[v].is_matrix && tern_tensor_block(g->values[v].name, NULL) >= 0)
            matrix = &g->values[v];
    }
    if (n) return tern_pass_fake_quantize(g, types, err);
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "train: qat: no matrix of this %s has rows of whole blocks of %zu weights "
                     "(%s: %lld)",
                     t->arch->name, tern_dtype_block_n(t->qat), matrix ? matrix->name : "none",
                     matrix ? (long long)matrix->cols : 0);
}

tern_status tern_qat_round(const tern_trainer *t, tern_graph *g, tern_error *err) {
    if (!t->desc.qat) return TERN_OK;
    tern_dtype *types = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *types);
    if (!types) return tern_fail_memory(err, g->n_values * sizeof *types);
    tern_status status = round_matrices(t, g, types, err);
    tern_free(types);
    return status;
}

tern_status tern_qat_encode(const tern_trainer *t, const tern_slot *s, float *masters, void **out,
                            uint64_t *bytes, tern_error *err) {
    const size_t n = (size_t)(s->n_rows * s->n_cols);
    *out = NULL;
    if (!tern_dtype_bytes(s->type, n, s->n_cols, bytes))
        return tern_fail(err, TERN_ERR_FORMAT, "%s: its rows are not whole blocks", s->name);
    *out = tern_alloc(TERN_MEM_WEIGHTS, (size_t)*bytes);
    if (!*out) return tern_fail_memory(err, (size_t)*bytes);
    round_all(t, s->type, masters, n, *out);
    return TERN_OK;
}

// ---- What training changed ---------------------------------------------------------------------

static void count_changes(const float *a, const float *b, uint64_t n, tern_qat_moved *out) {
    for (uint64_t i = 0; i < n; i++) {
        out->sign_flips += a[i] * b[i] < 0;
        out->zero_changes += (a[i] == 0) != (b[i] == 0);
    }
}

static tern_status changes_of(tern_trainer *t, const tern_slot *s, tern_qat_moved *out,
                              tern_error *err) {
    const uint64_t n = s->n_rows * s->n_cols;
    float *now = tern_alloc_array(TERN_MEM_WEIGHTS, 2 * n, sizeof *now);
    if (!now) return tern_fail_memory(err, 2 * n * sizeof *now);
    float *first = now + n;
    tern_status status = t->backend->read(s->array, 0, n, now, err);
    if (status == TERN_OK) status = tern_trainer_read_first(t, s, first, err);
    if (status == TERN_OK) {
        round_all(t, s->type, now, 2 * n, NULL);
        count_changes(now, first, n, out);
    }
    tern_free(now);
    return status;
}

tern_status tern_qat_changes(tern_trainer *t, tern_qat_moved *out, tern_error *err) {
    uint64_t n = 0;
    *out = (tern_qat_moved){NAN, NAN};
    if (!t->desc.qat || !t->desc.init || !tern_dtype_group_n(t->qat)) return TERN_OK;
    *out = (tern_qat_moved){0, 0};
    for (size_t i = 0; i < t->n_slots; i++) {
        if (t->slots[i].type == TERN_DTYPE_F32) continue;
        TERN_TRY(changes_of(t, &t->slots[i], out, err));
        n += t->slots[i].n_rows * t->slots[i].n_cols;
    }
    out->sign_flips /= (double)n;
    out->zero_changes /= (double)n;
    return TERN_OK;
}

float tern_qat_unrounded(const tern_train_desc *d, int64_t step) {
    return step < d->qat_warmup ? 1 - (float)step / (float)d->qat_warmup : 0;
}

void tern_qat_describe(const tern_trainer *t, tern_strbuf *out) {
    if (!t->desc.qat) return;
    tern_strbuf_printf(out, ",\"qat\":\"%s", tern_dtype_name(t->qat));
    if (t->desc.qat_warmup) tern_strbuf_printf(out, ", warmup %lld", (long long)t->desc.qat_warmup);
    tern_strbuf_putc(out, '"');
}
