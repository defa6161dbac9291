// Training by preferences: a model learns which of two answers people like better.
//
// The loss of a step is one of the log-probabilities of whole answers. A device computes as many of
// them as fit in a run. So a step passes over its answers twice, as with the vectors of pairs
// (contrast.c): forwards alone, for the losses of their tokens; then, when the host has the slope
// of the loss by each answer, forwards and backwards, with that slope as the weight of its tokens.
//
// The reference is the model that the run begins with; of an adapter, its base. What it thinks of
// all answers is computed once, before the first step, and kept in OUT/reference.bin.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file/blob.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "tern_tools.h"
#include "train/data/data.h"
#include "train/pairs.h"
#include "train/trainer.h"

struct tern_preferring {
    tern_pairs *pairs, *held_out; // held_out: NULL if there are none
    size_t n_valid;               // of those, that are measured
    double *reference[2];         // [2 n] log-probabilities of both
    const int32_t *ids;           // of the answers below
    const tern_pair_text **texts; // [2 batch_pairs]: of a step
    double *logs, *refs, *slopes; // [2 batch_pairs]
    int32_t *n_scored;            // [2 batch_pairs]
    uint8_t *labels;              // [batch_pairs]
    float *losses, *weights;      // [micro_tokens]
    double margin, accuracy;      // of the last step
};

// ---- Opening -----------------------------------------------------------------------------------

tern_status tern_preferring_open(tern_trainer *t, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    if (d->pairs || d->assistant_only || d->packing)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: preferences go neither with pairs nor with packing, and only "
                         "answers are learnt anyway");
    if (!d->init)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: preferences need a model to begin with, which is their reference");
    if (d->loss == TERN_LOSS_AUTO) t->desc.loss = TERN_LOSS_DPO;
    t->preferring = tern_alloc(TERN_MEM_GRAPH, sizeof *t->preferring);
    if (!t->preferring) return tern_fail_memory(err, sizeof *t->preferring);
    return d->lora_rank ? TERN_OK : tern_trainer_read_init(t, err);
}

static tern_status read_file(const tern_trainer *t, const char *path, const tern_template *template,
                             tern_pairs **out, tern_error *err) {
    const tern_preferences_source source = {.path = path,
                                            .tokenizer = t->tokenizer,
                                            .template = template,
                                            .length = t->desc.seq_len,
                                            .labelled = t->desc.loss == TERN_LOSS_KTO};
    return tern_pairs_open_preferences(out, &source, err);
}

tern_status tern_preferring_read(tern_trainer *t, tern_error *err) {
    tern_preferring *p = t->preferring;
    const tern_train_desc *d = &t->desc;
    const tern_file *file = t->base ? tern_lora_file(t->base) : t->tokenizer_file;
    tern_template *template;
    TERN_TRY(tern_tokenizer_open(&t->tokenizer, file, err));
    if (tern_tokenizer_n_vocab(t->tokenizer) > t->config.n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: its tokenizer has more tokens than its table",
                         d->init);
    t->end_id = -1; // the tokenizer stays as it is
    if (!t->base) TERN_TRY(tern_trainer_take_template(t, file, err));
    TERN_TRY(tern_template_for_model(&template, file, t->tokenizer, NULL, err));
    tern_status status = read_file(t, d->preferences, template, &p->pairs, err);
    if (status == TERN_OK && d->held_out_pairs)
        status = read_file(t, d->held_out_pairs, template, &p->held_out, err);
    tern_template_free(template);
    TERN_TRY(status);
    if (p->pairs->n < (size_t)d->batch_pairs)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: %zu preferences are fewer than the %d of a "
                         "step",
                         d->preferences, p->pairs->n, d->batch_pairs);
    size_t valid = (size_t)d->valid_pairs, n = p->held_out ? p->held_out->n : 0;
    p->n_valid = n < valid ? n : valid;
    return TERN_OK;
}

tern_status tern_preferring_ready(tern_trainer *t, tern_error *err) {
    tern_preferring *p = t->preferring;
    size_t n = 2 * (size_t)t->desc.batch_pairs, rows = (size_t)t->desc.micro_tokens;
    size_t n_all = 2 * p->pairs->n, n_held_out = 2 * p->n_valid + 1;
    p->reference[0] = tern_alloc_array(TERN_MEM_MISC, n_all, sizeof(double));
    p->reference[1] = tern_alloc_array(TERN_MEM_MISC, n_held_out, sizeof(double));
    p->texts = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->texts);
    p->logs = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->logs);
    p->refs = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->refs);
    p->slopes = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->slopes);
    p->n_scored = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->n_scored);
    p->labels = tern_alloc_array(TERN_MEM_MISC, n, sizeof *p->labels);
    p->losses = tern_alloc_array(TERN_MEM_MISC, rows, sizeof *p->losses);
    p->weights = tern_alloc_array(TERN_MEM_MISC, rows, sizeof *p->weights);
    bool ok = p->reference[0] && p->reference[1] && p->texts && p->logs && p->refs && p->slopes &&
              p->n_scored && p->labels && p->losses && p->weights;
    return ok ? TERN_OK : tern_fail_memory(err, n_all * sizeof(double));
}

void tern_preferring_close(tern_preferring *p) {
    if (!p) return;
    tern_pairs_close(p->pairs);
    tern_pairs_close(p->held_out);
    tern_free(p->reference[0]);
    tern_free(p->reference[1]);
    tern_free(p->texts);
    tern_free(p->logs);
    tern_free(p->refs);
    tern_free(p->slopes);
    tern_free(p->n_scored);
    tern_free(p->labels);
    tern_free(p->losses);
    tern_free(p->weights);
    tern_free(p);
}

// ---- Answers in runs ---------------------------------------------------------------------------

// Row i predicts token i + 1, so that an answer's last token needs no row.
static int32_t rows_of(const tern_pair_text *x) { return x->n - 1; }
static int32_t scored_of(const tern_pair_text *x) { return x->n - x->n_prompt; }
// Whether an answer is not in the loss, though it may be measured.
static bool is_flat(const tern_preferring *p, size_t i, bool back) {
    return back && p->slopes[i] == 0;
}

static void fill_rows(tern_trainer *t, const tern_pair_text *x, int32_t row, float weight) {
    const tern_preferring *p = t->preferring;
    const int32_t *ids = p->ids + x->first;
    for (int32_t i = 0; i < rows_of(x); i++) {
        t->ids[row + i] = ids[i];
        t->targets[row + i] = i + 1 >= x->n_prompt ? ids[i + 1] : -1;
        t->starts[row + i] = row;
        p->weights[row + i] = weight;
    }
}

// Puts answers, beginning with *at, into the rows of a run, as many as fit; returns the number of
// rows. most: of the slopes, which become weights of at most 1; 0: forwards.
static int32_t fill_run(tern_trainer *t, size_t n_texts, double most, size_t *at) {
    const tern_preferring *p = t->preferring;
    int32_t row = 0;
    for (; *at < n_texts; ++*at) {
        const tern_pair_text *x = p->texts[*at];
        if (is_flat(p, *at, most > 0)) continue;
        if (row + rows_of(x) > t->desc.micro_tokens) break;
        // The loss of a token is less where its log-probability is more.
        fill_rows(t, x, row, most > 0 ? (float)(-p->slopes[*at] / most) : 1);
        row += rows_of(x);
    }
    return row;
}

static tern_train_batch batch_of(const tern_trainer *t, int32_t n_tokens, double scale) {
    return (tern_train_batch){.n_tokens = n_tokens,
                              .ids = t->ids,
                              .targets = t->targets,
                              .starts = t->starts,
                              .weights = t->preferring->weights,
                              .loss_scale = (float)scale};
}

// The log-probabilities of the answers in p->texts.
static tern_status measure(tern_trainer *t, size_t n_texts, double *logs, tern_error *err) {
    tern_preferring *p = t->preferring;
    const tern_slot *losses = tern_trainer_slot(t, "losses");
    for (size_t at = 0, first = 0; at < n_texts; first = at) {
        uint64_t n = 0;
        tern_train_batch b = batch_of(t, fill_run(t, n_texts, 0, &at), 1);
        for (size_t i = first; i < at; i++) n += (uint64_t)scored_of(p->texts[i]);
        TERN_TRY(tern_trainer_run(t, &t->score, &b, err));
        TERN_TRY(t->backend->read(losses->array, 0, n, p->losses, err));
        const float *loss = p->losses;
        for (size_t i = first; i < at; i++) {
            logs[i] = 0;
            for (int32_t k = 0; k < scored_of(p->texts[i]); k++) logs[i] -= (double)*loss++;
        }
    }
    return TERN_OK;
}

static tern_status add_gradients(tern_trainer *t, size_t n_texts, tern_error *err) {
    const tern_preferring *p = t->preferring;
    double most = 0;
    for (size_t i = 0; i < n_texts; i++) most = fmax(most, fabs(p->slopes[i]));
    if (!(most > 1e-30 && most < 1e30)) return TERN_OK; // a loss that is not finite is found later
    for (size_t at = 0; at < n_texts;) {
        int32_t n = fill_run(t, n_texts, most, &at);
        tern_train_batch b = batch_of(t, n, most);
        if (n > 0) TERN_TRY(tern_trainer_run(t, &t->train, &b, err));
    }
    return TERN_OK;
}

// ---- The reference -----------------------------------------------------------------------------

static tern_status refer(tern_trainer *t, const tern_pairs *pairs, size_t n, double *logs,
                         tern_error *err) {
    tern_preferring *p = t->preferring;
    size_t each = (size_t)t->desc.batch_pairs;
    p->ids = pairs->ids.ids;
    for (size_t at = 0; at < n; at += each) {
        size_t count = 2 * (n - at < each ? n - at : each);
        for (size_t i = 0; i < count; i++) p->texts[i] = &pairs->texts[2 * at + i];
        TERN_TRY(measure(t, count, logs + 2 * at, err));
    }
    return TERN_OK;
}

// A file: what it is of, the log-probabilities of both sets, a CRC-32 of all that.
#define REFERENCE "reference.bin"
typedef struct kept_head {
    char magic[8];
    uint32_t init, pairs, held_out, zero;
    uint64_t n[2]; // numbers
} kept_head;

static kept_head head_of(const tern_trainer *t) {
    const tern_preferring *p = t->preferring;
    return (kept_head){.magic = "ternref",
                       .init = t->base ? tern_lora_base_sum(t->base) : t->init_sum,
                       .pairs = p->pairs->checksum,
                       .held_out = p->held_out ? p->held_out->checksum : 0,
                       .n = {2 * p->pairs->n, 2 * p->n_valid}};
}

// A file of something else, or a damaged one, is as none.
static bool read_kept(tern_trainer *t, const char *path) {
    const kept_head head = head_of(t);
    uint64_t sizes[2] = {head.n[0] * sizeof(double), head.n[1] * sizeof(double)};
    uint64_t n = sizeof head + sizes[0] + sizes[1];
    double *const *reference = t->preferring->reference;
    tern_blob_file *file;
    tern_blob all;
    tern_hold hold = {0};
    uint32_t sum;
    if (tern_blob_open(&file, path, true, &all, NULL) != TERN_OK || !file) return false;
    bool ok = all.n == n + sizeof sum && tern_blob_hold(&all, &hold, NULL) == TERN_OK;
    const char *bytes = hold.data;
    if (ok) memcpy(&sum, bytes + n, sizeof sum);
    ok = ok && sum == tern_crc32(0, bytes, (size_t)n) && memcmp(bytes, &head, sizeof head) == 0;
    if (ok) memcpy(reference[0], bytes + sizeof head, (size_t)sizes[0]);
    if (ok) memcpy(reference[1], bytes + sizeof head + sizes[0], (size_t)sizes[1]);
    tern_blob_release(&hold);
    tern_blob_close(file);
    return ok;
}

static tern_status keep(const tern_trainer *t, const char *path, tern_error *err) {
    const tern_preferring *p = t->preferring;
    const kept_head head = head_of(t);
    tern_strbuf out = {0};
    tern_strbuf_append(&out, (const char *)&head, sizeof head);
    for (int i = 0; i < 2; i++)
        tern_strbuf_append(&out, (const char *)p->reference[i], (size_t)head.n[i] * sizeof(double));
    uint32_t sum = out.failed ? 0 : tern_crc32(0, out.ptr, out.len);
    tern_strbuf_append(&out, (const char *)&sum, sizeof sum);
    tern_status status =
        out.failed ? tern_fail_memory(err, out.len) : tern_file_write(path, out.ptr, out.len, err);
    tern_strbuf_free(&out);
    return status;
}

tern_status tern_preferring_refer(tern_trainer *t, tern_error *err) {
    tern_preferring *p = t->preferring;
    if (t->desc.loss == TERN_LOSS_ORPO) return TERN_OK;
    char *path = tern_path_join(t->desc.out, REFERENCE);
    if (!path) return tern_fail_memory(err, strlen(t->desc.out));
    tern_status status = TERN_OK;
    if (!read_kept(t, path)) {
        status = refer(t, p->pairs, p->pairs->n, p->reference[0], err);
        if (status == TERN_OK && p->held_out)
            status = refer(t, p->held_out, p->n_valid, p->reference[1], err);
        if (status == TERN_OK) status = keep(t, path, err);
    }
    tern_free(path);
    return status;
}

// ---- A step ------------------------------------------------------------------------------------

static void take_pair(tern_preferring *p, const tern_pairs *pairs, const double *reference,
                      size_t pair, size_t i) {
    for (size_t k = 0; k < 2; k++) {
        p->texts[2 * i + k] = &pairs->texts[2 * pair + k];
        p->refs[2 * i + k] = reference[2 * pair + k];
        p->n_scored[2 * i + k] = scored_of(p->texts[2 * i + k]);
    }
    p->labels[i] = pairs->labels ? pairs->labels[pair] : 1;
}

// The loss of n pairs that were taken, and its slopes.
static tern_status judge(tern_trainer *t, const tern_pairs *pairs, size_t n,
                         tern_preference_batch *b, tern_error *err) {
    tern_preferring *p = t->preferring;
    const tern_preference_loss loss = {t->desc.loss, t->desc.beta, t->desc.label_smoothing};
    p->ids = pairs->ids.ids;
    TERN_TRY(measure(t, 2 * n, p->logs, err));
    *b = (tern_preference_batch){.n = n,
                                 .logs = p->logs,
                                 .reference = p->refs,
                                 .n_scored = p->n_scored,
                                 .labels = pairs->labels ? p->labels : NULL,
                                 .slopes = p->slopes};
    tern_preference_loss_run(&loss, b);
    return TERN_OK;
}

tern_status tern_preferring_step(tern_trainer *t, tern_error *err) {
    tern_preferring *p = t->preferring;
    tern_slot *sum = tern_trainer_slot(t, "loss");
    size_t n = (size_t)t->desc.batch_pairs;
    uint64_t n_pairs = p->pairs->n, key = tern_mix64(t->desc.seed);
    tern_preference_batch b;
    float loss;
    for (size_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)t->step * n + i, pair = at % n_pairs;
        if (!t->desc.in_order) pair = tern_permute(pair, n_pairs, key + at / n_pairs);
        take_pair(p, p->pairs, p->reference[0], (size_t)pair, i);
    }
    TERN_TRY(judge(t, p->pairs, n, &b, err));
    p->margin = b.margin;
    p->accuracy = b.accuracy;
    TERN_TRY(t->backend->read(sum->array, 0, 1, &loss, err));
    loss += (float)b.loss;
    TERN_TRY(t->backend->write(sum->array, 0, 1, &loss, err));
    return add_gradients(t, 2 * n, err);
}

// ---- Measuring ---------------------------------------------------------------------------------

bool tern_preferring_validates(const tern_trainer *t) { return t->preferring->n_valid > 0; }

void tern_preferring_last(const tern_trainer *t, double *margin, double *accuracy) {
    *margin = t->preferring->margin;
    *accuracy = t->preferring->accuracy;
}

tern_status tern_preferring_validate(tern_trainer *t, double *loss, double *margin,
                                     double *accuracy, tern_error *err) {
    tern_preferring *p = t->preferring;
    size_t each = (size_t)t->desc.batch_pairs, all = p->n_valid;
    *loss = *margin = *accuracy = 0;
    for (size_t at = 0; at < all; at += each) {
        size_t n = all - at < each ? all - at : each;
        tern_preference_batch b;
        for (size_t i = 0; i < n; i++) take_pair(p, p->held_out, p->reference[1], at + i, i);
        TERN_TRY(judge(t, p->held_out, n, &b, err));
        double share = (double)n / (double)all;
        *loss += share * b.loss;
        *margin += share * b.margin;
        *accuracy += share * b.accuracy;
    }
    if (isfinite(*loss)) return TERN_OK;
    return tern_fail(err, TERN_ERR_DEVICE,
                     "train: the loss of the held-out preferences is not a number after step %lld",
                     (long long)t->step);
}

// ---- What is told ------------------------------------------------------------------------------

void tern_preferring_info(const tern_trainer *t, tern_train_info *info) {
    const tern_preferring *p = t->preferring;
    info->n_pairs = p->pairs->n;
    info->n_valid_pairs = p->n_valid;
    info->batch_pairs = t->desc.batch_pairs;
    info->n_cut_texts = p->pairs->n_cut;
    info->n_tokens = p->pairs->ids.n;
    info->n_epochs = (double)t->desc.n_steps * t->desc.batch_pairs / (double)p->pairs->n;
}

void tern_preferring_describe(const tern_trainer *t, tern_strbuf *out) {
    static const char *const names[] = {"auto", "dpo", "orpo", "kto"};
    const tern_preferring *p = t->preferring;
    const tern_train_desc *d = &t->desc;
    const tern_pairs *held_out = p->held_out;
    tern_strbuf_printf(out,
                       ",\"loss\":\"%s\",\"beta\":%.9g,\"label_smoothing\":%.9g,"
                       "\"batch_pairs\":%d,\"valid_pairs\":%d",
                       names[d->loss], (double)d->beta, (double)d->label_smoothing, d->batch_pairs,
                       d->valid_pairs);
    tern_strbuf_printf(out, ",\"preferences\":\"%zu pairs, %08x\"", p->pairs->n,
                       p->pairs->checksum);
    tern_strbuf_printf(out, ",\"held_out_pairs\":\"%zu pairs, %08x\"", held_out ? held_out->n : 0,
                       held_out ? held_out->checksum : 0);
}
