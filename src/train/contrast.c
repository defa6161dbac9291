// Training an embedding model on pairs of texts.
//
// The loss of a step is one of all its vectors at once, while a device computes as many texts as
// fit in a run. So a step passes over its texts twice: forwards alone, for the vectors; then, when
// the host has computed the loss' gradient by each vector, forwards and backwards (gradient
// caching, arXiv:2101.06983). This costs a third more than one pass, and the number of wrong
// answers does not depend on the memory.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "train/data/data.h"
#include "train/pairs.h"
#include "train/trainer.h"

#define SIZES_MAX TERN_CONTRAST_SIZES_MAX

struct tern_contrastive {
    tern_pairs *pairs, *held_out; // held_out: NULL if there are none
    tern_contrast *loss;
    int32_t sizes[SIZES_MAX];
    size_t n_sizes, n_texts;      // n_texts: maximum of a step and of the held-out pairs
    size_t n_valid;               // held-out pairs that are measured
    const tern_pair_text **texts; // of a step: queries, positives, negatives
    const int32_t *ids;           // the ids that they index
    uint64_t *keys;
    float *vectors, *gradient; // [n_texts][n_embd]
    int32_t *ranks;            // [n_valid]
};

// ---- The model ---------------------------------------------------------------------------------

tern_status tern_contrastive_open(tern_trainer *t, tern_error *err) {
    if (t->desc.lora_rank || t->desc.assistant_only)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "train: pairs train whole models on whole "
                         "texts: neither adapters nor only what assistants say");
    if (!t->desc.init && !t->desc.data)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: pairs need a model to begin with, or a folder with a tokenizer");
    t->contrastive = tern_alloc(TERN_MEM_GRAPH, sizeof *t->contrastive);
    if (!t->contrastive) return tern_fail_memory(err, sizeof *t->contrastive);
    if (!t->desc.init) return TERN_OK;
    return tern_trainer_read_init(t, err);
}

static void settle_pooling(tern_trainer *t) {
    tern_config *c = &t->config;
    if (t->desc.pooling) c->pooling = t->desc.pooling;
    if (c->pooling == TERN_POOLING_NONE) c->pooling = TERN_POOLING_MEAN;
    c->any_length = false; // cosines are learnt
    t->desc.pooling = c->pooling;
}

// ---- The pairs ---------------------------------------------------------------------------------

static tern_status settle_sizes(tern_trainer *t, tern_error *err) {
    tern_contrastive *c = t->contrastive;
    const tern_train_desc *d = &t->desc;
    if (d->n_sizes >= SIZES_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: %zu sizes of vectors, at most %d",
                         d->n_sizes, SIZES_MAX - 1);
    for (size_t i = 0; i < d->n_sizes; i++) {
        if (d->sizes[i] < 1 || d->sizes[i] >= t->config.n_embd)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "train: vectors cut to %d numbers: expected 1 to %lld", d->sizes[i],
                             (long long)t->config.n_embd - 1);
        c->sizes[c->n_sizes++] = d->sizes[i];
    }
    c->sizes[c->n_sizes++] = (int32_t)t->config.n_embd;
    return TERN_OK;
}

static tern_status open_texts(tern_trainer *t, tern_error *err) {
    tern_contrastive *c = t->contrastive;
    const tern_train_desc *d = &t->desc;
    TERN_TRY(tern_pairs_open(&c->pairs, d->pairs, t->tokenizer, d->seq_len, err));
    if (d->held_out_pairs)
        TERN_TRY(tern_pairs_open(&c->held_out, d->held_out_pairs, t->tokenizer, d->seq_len, err));
    if (c->pairs->n < (size_t)d->batch_pairs)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %zu pairs are fewer than the %d of a step",
                         d->pairs, c->pairs->n, d->batch_pairs);
    size_t valid = (size_t)d->valid_pairs, most = (size_t)(2 + c->pairs->n_negatives_most);
    c->n_valid = !c->held_out ? 0 : c->held_out->n < valid ? c->held_out->n : valid;
    c->n_texts = (size_t)d->batch_pairs * most;
    if (c->n_texts < 2 * c->n_valid) c->n_texts = 2 * c->n_valid;
    return TERN_OK;
}

tern_status tern_contrastive_read(tern_trainer *t, tern_error *err) {
    if (!t->tokenizer_file) {
        TERN_TRY(tern_data_open_tokenizer(&t->tokenizer_file, t->desc.data, err));
        if (!t->tokenizer_file)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s: has neither tokenizer.json nor tokenizer.gguf", t->desc.data);
    }
    TERN_TRY(tern_tokenizer_open(&t->tokenizer, t->tokenizer_file, err));
    int64_t n_vocab = tern_tokenizer_n_vocab(t->tokenizer);
    if (!t->desc.init) {
        t->config.n_vocab = n_vocab;
        t->config.bos_id = tern_tokenizer_bos(t->tokenizer);
    }
    if (n_vocab > t->config.n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: its tokenizer has %lld tokens, its table %lld",
                         t->desc.init, (long long)n_vocab, (long long)t->config.n_vocab);
    t->end_id = -1; // the tokenizer stays as it is
    settle_pooling(t);
    TERN_TRY(settle_sizes(t, err));
    return open_texts(t, err);
}

int64_t tern_contrastive_n_vectors(const tern_trainer *t) {
    return (int64_t)t->contrastive->n_texts;
}

tern_status tern_contrastive_ready(tern_trainer *t, tern_error *err) {
    tern_contrastive *c = t->contrastive;
    size_t n = c->n_texts, n_embd = (size_t)t->config.n_embd, batch = (size_t)t->desc.batch_pairs;
    size_t pairs = batch > c->n_valid ? batch : c->n_valid;
    c->texts = tern_alloc_array(TERN_MEM_MISC, n, sizeof *c->texts);
    c->keys = tern_alloc_array(TERN_MEM_MISC, n, sizeof *c->keys);
    c->vectors = tern_alloc_array(TERN_MEM_ACTIVATIONS, n * n_embd, sizeof *c->vectors);
    c->gradient = tern_alloc_array(TERN_MEM_ACTIVATIONS, n * n_embd, sizeof *c->gradient);
    c->ranks = tern_alloc_array(TERN_MEM_MISC, c->n_valid + 1, sizeof *c->ranks);
    if (!c->texts || !c->keys || !c->vectors || !c->gradient || !c->ranks)
        return tern_fail_memory(err, n * n_embd * sizeof *c->vectors);
    return tern_contrast_open(&c->loss,
                              &(tern_contrast_desc){.n_threads = t->desc.n_threads,
                                                    .cpu_features = t->desc.cpu_features,
                                                    .n_pairs = (int32_t)pairs,
                                                    .n_texts = (int32_t)n,
                                                    .n_cols = (int32_t)n_embd,
                                                    .temperature = t->desc.temperature,
                                                    .sizes = c->sizes,
                                                    .n_sizes = c->n_sizes},
                              err);
}

// Vectors and their gradients, each also of length 1, and the scores of all pairs.
uint64_t tern_contrastive_bytes(const tern_trainer *t) {
    const tern_contrastive *c = t->contrastive;
    uint64_t n = c->n_texts, batch = (uint64_t)t->desc.batch_pairs;
    uint64_t pairs = batch > c->n_valid ? batch : c->n_valid;
    return (4 * n * (uint64_t)t->config.n_embd + pairs * (n - pairs)) * sizeof(float);
}

void tern_contrastive_close(tern_contrastive *c) {
    if (!c) return;
    tern_pairs_close(c->pairs);
    tern_pairs_close(c->held_out);
    tern_contrast_close(c->loss);
    tern_free(c->texts);
    tern_free(c->keys);
    tern_free(c->vectors);
    tern_free(c->gradient);
    tern_free(c->ranks);
    tern_free(c);
}

// ---- Texts to vectors --------------------------------------------------------------------------

// Puts texts, beginning with *at, into the rows of a run, as many as fit; returns the number of
// rows.
static int32_t fill_run(tern_trainer *t, size_t n_texts, size_t *at) {
    const tern_contrastive *c = t->contrastive;
    int32_t row = 0;
    for (; *at < n_texts && row + c->texts[*at]->n <= t->desc.micro_tokens; ++*at) {
        const tern_pair_text *text = c->texts[*at];
        memcpy(t->ids + row, c->ids + text->first, (size_t)text->n * sizeof *t->ids);
        for (int32_t i = 0; i < text->n; i++) {
            t->targets[row + i] = (int32_t)*at;
            t->starts[row + i] = row;
        }
        row += text->n;
    }
    return row;
}

static tern_status run_texts(tern_trainer *t, const tern_train_program *p, size_t n_texts,
                             float loss_scale, tern_error *err) {
    for (size_t at = 0; at < n_texts;) {
        tern_train_batch b = {.n_tokens = fill_run(t, n_texts, &at),
                              .ids = t->ids,
                              .targets = t->targets,
                              .starts = t->starts,
                              .loss_scale = loss_scale};
        TERN_TRY(tern_trainer_run(t, p, &b, err));
    }
    return TERN_OK;
}

static tern_status make_vectors(tern_trainer *t, size_t n_texts, tern_error *err) {
    tern_contrastive *c = t->contrastive;
    for (size_t i = 0; i < n_texts; i++) c->keys[i] = c->texts[i]->key;
    TERN_TRY(run_texts(t, &t->score, n_texts, 1, err));
    return t->backend->read(tern_trainer_slot(t, "vectors")->array, 0,
                            n_texts * (uint64_t)t->config.n_embd, c->vectors, err);
}

// ---- A step ------------------------------------------------------------------------------------

// Chooses the texts of a step, by its number. Returns how many.
static size_t choose_texts(tern_trainer *t, int64_t step) {
    tern_contrastive *c = t->contrastive;
    const tern_pairs *p = c->pairs;
    size_t batch = (size_t)t->desc.batch_pairs, n = 2 * batch;
    uint64_t n_pairs = p->n, key = tern_mix64(t->desc.seed);
    c->ids = p->ids.ids;
    for (size_t i = 0; i < batch; i++) {
        uint64_t at = (uint64_t)step * batch + i, pair = at % n_pairs;
        if (!t->desc.in_order) pair = tern_permute(pair, n_pairs, key + at / n_pairs);
        c->texts[i] = &p->texts[p->firsts[pair]];
        c->texts[batch + i] = c->texts[i] + 1;
        for (size_t k = p->firsts[pair] + 2; k < p->firsts[pair + 1]; k++)
            c->texts[n++] = &p->texts[k];
    }
    return n;
}

// Scales the largest gradient to about 1: the device scales gradients by the run's loss_scale, and
// keeps some of them as halves.
static float scale_gradient(float *gradient, size_t n) {
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(gradient[i]));
    if (!(most > 1e-30f && most < 1e30f)) return 1; // a loss that is not finite is found later
    float scale = exp2f(ceilf(log2f(most)));
    for (size_t i = 0; i < n; i++) gradient[i] /= scale;
    return scale;
}

tern_status tern_contrastive_step(tern_trainer *t, tern_error *err) {
    tern_contrastive *c = t->contrastive;
    tern_slot *sum = tern_trainer_slot(t, "loss");
    size_t n = choose_texts(t, t->step), n_numbers = n * (size_t)t->config.n_embd;
    float loss;
    TERN_TRY(make_vectors(t, n, err));
    tern_contrast_batch b = {.n_pairs = t->desc.batch_pairs,
                             .n_texts = (int32_t)n,
                             .vectors = c->vectors,
                             .keys = c->keys,
                             .gradient = c->gradient};
    tern_contrast_run(c->loss, &b);
    TERN_TRY(t->backend->read(sum->array, 0, 1, &loss, err));
    loss += (float)b.loss;
    TERN_TRY(t->backend->write(sum->array, 0, 1, &loss, err));
    float scale = scale_gradient(c->gradient, n_numbers);
    TERN_TRY(t->backend->write(tern_trainer_slot(t, "vectors.grad")->array, 0, n_numbers,
                               c->gradient, err));
    return run_texts(t, &t->train, n, scale, err);
}

// ---- Measuring ---------------------------------------------------------------------------------

bool tern_contrastive_validates(const tern_trainer *t) { return t->contrastive->n_valid > 0; }

tern_status tern_contrastive_validate(tern_trainer *t, double *loss, double *recall_1,
                                      double *recall_10, tern_error *err) {
    tern_contrastive *c = t->contrastive;
    const tern_pairs *p = c->held_out;
    size_t n = c->n_valid;
    int64_t first = 0, near = 0;
    c->ids = p->ids.ids;
    for (size_t i = 0; i < n; i++) {
        c->texts[i] = &p->texts[p->firsts[i]];
        c->texts[n + i] = c->texts[i] + 1;
    }
    TERN_TRY(make_vectors(t, 2 * n, err));
    tern_contrast_batch b = {.n_pairs = (int32_t)n,
                             .n_texts = (int32_t)(2 * n),
                             .vectors = c->vectors,
                             .keys = c->keys,
                             .ranks = c->ranks};
    tern_contrast_run(c->loss, &b);
    for (size_t i = 0; i < n; i++) {
        first += c->ranks[i] == 0;
        near += c->ranks[i] < 10;
    }
    *loss = b.loss;
    *recall_1 = (double)first / (double)n;
    *recall_10 = (double)near / (double)n;
    if (isfinite(b.loss)) return TERN_OK;
    return tern_fail(err, TERN_ERR_DEVICE,
                     "train: the loss of the held-out pairs is not a number after step %lld",
                     (long long)t->step);
}

// ---- What is told ------------------------------------------------------------------------------

void tern_contrastive_info(const tern_trainer *t, tern_train_info *info) {
    const tern_contrastive *c = t->contrastive;
    info->n_pairs = c->pairs->n;
    info->n_valid_pairs = c->n_valid;
    info->batch_pairs = t->desc.batch_pairs;
    info->n_cut_texts = c->pairs->n_cut;
    info->n_tokens = c->pairs->ids.n;
    info->n_epochs = (double)t->desc.n_steps * t->desc.batch_pairs / (double)c->pairs->n;
}

static void put_pairs(tern_strbuf *out, const char *key, const tern_pairs *p) {
    tern_strbuf_printf(out, ",\"%s\":\"%zu pairs, %08x\"", key, p ? p->n : 0, p ? p->checksum : 0);
}

void tern_contrastive_describe(const tern_trainer *t, tern_strbuf *out) {
    const tern_contrastive *c = t->contrastive;
    tern_strbuf_printf(out, ",\"batch_pairs\":%d,\"valid_pairs\":%d,\"pooling\":%d,\"sizes\":\"",
                       t->desc.batch_pairs, t->desc.valid_pairs, (int)t->config.pooling);
    for (size_t i = 0; i < c->n_sizes; i++)
        tern_strbuf_printf(out, "%s%d", i ? "," : "", c->sizes[i]);
    tern_strbuf_printf(out, "\",\"temperature\":%.9g", (double)t->desc.temperature);
    put_pairs(out, "pairs", c->pairs);
    put_pairs(out, "held_out_pairs", c->held_out);
}
