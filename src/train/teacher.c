// Knowledge distillation: a teacher, any decoder with the student's vocabulary, computes its logits
// beside the student's, in the same graph (graph/distill.c), and is not trained.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "train/trainer.h"

// ---- Vocabularies ------------------------------------------------------------------------------

// Ids mean the same if all texts of the vocabulary are the same. Logits beyond it are padding.
static tern_status compare(const tern_trainer *t, const tern_tokenizer *other, tern_error *err) {
    const int32_t n = tern_tokenizer_n_vocab(t->tokenizer), n_other = tern_tokenizer_n_vocab(other);
    for (int32_t id = 0; id < n && id < n_other; id++) {
        tern_str mine = tern_tokenizer_text(t->tokenizer, id);
        tern_str theirs = tern_tokenizer_text(other, id);
        if (tern_str_eq(mine, theirs)) continue;
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: token %d is \"%.*s\" and the student's is \"%.*s\": a teacher needs "
                         "the student's vocabulary",
                         t->desc.teacher, (int)id, (int)theirs.len, theirs.ptr, (int)mine.len,
                         mine.ptr);
    }
    if (n == n_other) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "%s: a vocabulary of %d tokens and the student's has %d: a teacher needs the "
                     "student's vocabulary",
                     t->desc.teacher, (int)n_other, (int)n);
}

static tern_status check_vocabulary(const tern_trainer *t, tern_error *err) {
    tern_tokenizer *other;
    TERN_TRY(tern_tokenizer_open(&other, t->teacher->file, err));
    tern_status status = compare(t, other, err);
    tern_tokenizer_free(other);
    return status;
}

// ---- Opening -----------------------------------------------------------------------------------

static tern_status build(tern_teacher *h, tern_error *err) {
    TERN_TRY(tern_file_need_weights(h->file, err));
    TERN_TRY(tern_arch_read(h->file, &h->arch, &h->config, err));
    tern_config_order_as_gguf(h->arch, &h->config);
    h->frozen = (tern_frozen){.file = h->file, .arch = h->arch, .config = &h->config};
    TERN_TRY(tern_arch_build(&h->graph, h->file, h->arch, &h->config, err));
    TERN_TRY(tern_arch_check(h->file, h->arch, &h->config, err));
    if (tern_graph_find(&h->graph, "logits") < 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "a %s predicts no tokens: it cannot teach any",
                         h->arch->name);
    const char *op = tern_graph_untrainable(&h->graph);
    if (op)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a %s cannot teach: training does not compute %s", h->arch->name, op);
    return TERN_OK;
}

static tern_status open_model(tern_trainer *t, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    tern_teacher *h = t->teacher;
    TERN_TRY(tern_file_open(&h->file, d->teacher, err));
    tern_status status = build(h, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, d->teacher);
    if (d->seq_len > h->config.n_context)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: sequences of %d tokens, but the teacher was made for %lld",
                         d->seq_len, (long long)h->config.n_context);
    return check_vocabulary(t, err);
}

tern_status tern_teacher_open(tern_trainer *t, tern_error *err) {
    if (tern_trainer_has_pairs(t))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: a teacher goes with text, not with pairs or preferences");
    tern_teacher *h = t->teacher = tern_alloc(TERN_MEM_GRAPH, sizeof *h);
    if (!h) return tern_fail_memory(err, sizeof *h);
    tern_graph_init(&h->graph);
    if (t->desc.teacher) TERN_TRY(open_model(t, err));
    if (t->desc.teacher_cache) return tern_teacher_cache_open(t, err);
    tern_status status = tern_frozen_lower(t, &h->frozen, &h->graph, err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, t->desc.teacher);
}

void tern_teacher_close(tern_teacher *h) {
    if (!h) return;
    tern_teacher_cache_close(h->cache);
    tern_graph_free(&h->graph);
    tern_frozen_free(&h->frozen);
    tern_file_close(h->file);
    tern_free(h);
}

// ---- In the trainer ----------------------------------------------------------------------------

tern_status tern_teacher_join(tern_trainer *t, tern_graph *g, tern_error *err) {
    const tern_distill_attrs how = {.ratio = t->desc.kd_ratio, .temperature = t->desc.temperature};
    if (t->teacher->cache) {
        const tern_top top = tern_teacher_cache_top(t);
        return tern_graph_train_on_top(g, &top, &how, err);
    }
    tern_status status = tern_graph_train_distilled(g, &t->teacher->graph, &how, err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, t->desc.teacher);
}

// Weights that only inference reads have no slot.
tern_status tern_teacher_load(tern_trainer *t, tern_error *err) {
    tern_teacher *h = t->teacher;
    tern_status status = TERN_OK;
    if (h->cache) return TERN_OK; // it was there before the student
    for (size_t v = 0; status == TERN_OK && v < h->graph.n_values; v++) {
        char name[TERN_NAME_BYTES + sizeof TERN_TEACHER];
        snprintf(name, sizeof name, TERN_TEACHER "%s", h->graph.values[v].name);
        tern_slot *slot = tern_trainer_slot(t, name);
        if (h->graph.values[v].kind == TERN_VALUE_WEIGHT && slot)
            status = tern_frozen_load(t, &h->frozen, &h->graph, (tern_vid)v, slot, err);
    }
    return status == TERN_OK ? status : tern_fail_prefix(err, status, t->desc.teacher);
}

void tern_teacher_describe(const tern_trainer *t, tern_strbuf *out) {
    const tern_teacher *h = t->teacher;
    tern_strbuf_puts(out, ",\"teacher\":\"");
    if (h->cache)
        tern_strbuf_puts(out, tern_teacher_cache_name(h->cache));
    else
        tern_strbuf_printf(out, "%s, %08x", h->arch->name, h->frozen.sum);
    tern_strbuf_printf(out, "\",\"kd_ratio\":%.9g,\"temperature\":%.9g", (double)t->desc.kd_ratio,
                       (double)t->desc.temperature);
}
