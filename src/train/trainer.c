// Setting up a trainer: data, graphs, arrays on the device.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/strbuf.h"
#include "base/dtype/ternary.h"
#include "train/data/data.h"
#include "train/trainer.h"

// ---- Data --------------------------------------------------------------------------------------

static tern_status read_init(tern_trainer *t, tern_error *err) {
    TERN_TRY(tern_file_open(&t->tokenizer_file, t->desc.init, err));
    TERN_TRY(tern_file_need_weights(t->tokenizer_file, err));
    TERN_TRY(tern_arch_read(t->tokenizer_file, &t->arch, &t->config, err));
    tern_config_order_as_gguf(t->arch, &t->config);
    TERN_TRY(tern_config_check_gguf(t->arch, &t->config, err));
    t->factors = t->config;
    if (t->tokenizer_file->kind == TERN_FILE_HF && !tern_config_fold(t->arch, &t->config))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the head of this %s is its table, and a checkpoint, which is a GGUF, has "
                         "different factors in both: train an adapter (lora_rank) for it",
                         t->arch->name);
    if (!t->config.n_labels) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "a reranker makes neither vectors nor answers");
}

tern_status tern_trainer_read_init(tern_trainer *t, tern_error *err) {
    tern_status status = read_init(t, err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, t->desc.init);
}

tern_status tern_trainer_take_template(tern_trainer *t, const tern_file *file, tern_error *err) {
    tern_str chat = tern_json_str(tern_json_path(&file->tokenizer_config, "chat_template"));
    if (file->chat_template.ptr) chat = file->chat_template;
    if (!chat.ptr) return TERN_OK;
    t->chat_template = tern_strndup(TERN_MEM_MISC, chat.ptr, chat.len);
    return t->chat_template ? TERN_OK : tern_fail_memory(err, chat.len);
}

static tern_status open_tokenizer(tern_trainer *t, tern_error *err) {
    TERN_TRY(tern_data_open_tokenizer(&t->tokenizer_file, t->desc.data, err));
    if (!t->tokenizer_file)
        return tern_fail(
            err, TERN_ERR_ARGUMENT,
            "%s: has neither tokenizer.json nor "
            "tokenizer.gguf, which a model to train takes along: build the shards again",
            t->desc.data);
    TERN_TRY(tern_tokenizer_open(&t->tokenizer, t->tokenizer_file, err));
    return tern_trainer_take_template(t, t->tokenizer_file, err);
}

// A base has a tokenizer, which stays as it is but for new tokens; its vocabulary may be padded.
static tern_status open_base_tokenizer(tern_trainer *t, const tern_shard_info *info,
                                       tern_error *err) {
    const tern_file *file = t->base ? tern_lora_file(t->base) : t->tokenizer_file;
    TERN_TRY(tern_tokenizer_open(&t->tokenizer, file, err));
    TERN_TRY(tern_trainer_take_template(t, file, err));
    t->has_own_bos = true;
    if (info->tokenizer_hash != tern_tokenizer_hash(t->tokenizer))
        TERN_TRY(tern_grown_open(t, err));
    bool other = info->tokenizer_hash && info->tokenizer_hash != tern_tokenizer_hash(t->tokenizer);
    if (other || info->n_vocab != (uint32_t)tern_tokenizer_n_vocab(t->tokenizer) ||
        info->n_vocab > (uint64_t)t->config.n_vocab)
        return tern_fail(
            err, TERN_ERR_ARGUMENT,
            "%s: was not made with the tokenizer of %s: build the shards with that one", info->path,
            t->desc.init);
    // The token that the base puts before a text is in the shards, unless it is the end token.
    t->begins_by_marks = !(tern_tokenizer_adds_bos(t->tokenizer) &&
                           tern_tokenizer_bos(t->tokenizer) == info->end_id);
    return TERN_OK;
}

static tern_status open_own_tokenizer(tern_trainer *t, const tern_shard_info *info,
                                      tern_error *err) {
    TERN_TRY(open_tokenizer(t, err));
    // The token that ended the previous text begins the next, unless the tokenizer has a different
    // one: then the shards have it, too.
    int32_t bos = tern_tokenizer_adds_bos(t->tokenizer) ? tern_tokenizer_bos(t->tokenizer) : -1;
    t->has_own_bos = bos >= 0 && bos != info->end_id;
    t->config.n_vocab = info->n_vocab;
    t->config.bos_id = t->has_own_bos ? bos : info->end_id;
    t->config.eos_id = info->end_id;
    t->begins_by_marks = t->has_own_bos || info->end_id < 0;
    int32_t n_vocab = tern_tokenizer_n_vocab(t->tokenizer);
    if (info->tokenizer_hash && info->tokenizer_hash != tern_tokenizer_hash(t->tokenizer))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: was made with another tokenizer than the one next to it", info->path);
    if ((uint32_t)n_vocab != info->n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: a vocabulary of %u, the tokenizer has %d",
                         info->path, (unsigned)info->n_vocab, (int)n_vocab);
    return TERN_OK;
}

static tern_status open_data(tern_trainer *t, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    if (t->contrastive) return tern_contrastive_read(t, err);
    if (t->preferring) return tern_preferring_read(t, err);
    tern_token_set_desc set = {.seq_len = (uint32_t)d->seq_len,
                               .seed = d->seed,
                               .in_order = d->in_order,
                               .packing = d->packing};
    TERN_TRY(tern_token_set_open_folder(&t->data, d->data, "train", &set, err));
    if (!t->data)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there are no shards train-* in it", d->data);
    set.in_order = true;
    TERN_TRY(tern_token_set_open_folder(&t->valid, d->data, "valid", &set, err));
    const tern_shard_info *info = tern_shard_get_info(tern_token_set_shard(t->data, 0));
    t->end_id = info->end_id;
    t->data_has_spans = tern_token_set_has_spans(t->data);
    TERN_TRY(d->init ? open_base_tokenizer(t, info, err) : open_own_tokenizer(t, info, err));
    TERN_TRY(tern_token_set_pack(t->data, !t->begins_by_marks, err));
    if (t->valid) TERN_TRY(tern_token_set_pack(t->valid, !t->begins_by_marks, err));
    if (tern_token_set_n_sequences(t->data) == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: fewer than %d tokens", d->data, d->seq_len);
    return TERN_OK;
}

// ---- Arrays ------------------------------------------------------------------------------------

tern_slot *tern_trainer_slot(tern_trainer *t, const char *name) {
    for (size_t i = 0; i < t->n_slots; i++)
        if (strcmp(t->slots[i].name, name) == 0) return &t->slots[i];
    return NULL;
}

// Sums that the next step that is logged reports.
static bool is_sum(const tern_value *v) {
    return strcmp(v->name, "loss") == 0 || strcmp(v->name, "kl") == 0 ||
           strcmp(v->name, "agreement") == 0;
}

static tern_status add_slot(tern_trainer *t, const tern_value *v, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_GRAPH, &t->slots, &t->slots_capacity, t->n_slots, 1) != 0)
        return tern_fail_memory(err, sizeof *t->slots);
    tern_slot *s = &t->slots[t->n_slots];
    *s = (tern_slot){.name = v->name,
                     .n_rows = (uint64_t)v->rows,
                     .n_cols = (uint64_t)v->cols,
                     .n_parts = v->parts > 1 ? (uint64_t)v->parts : 1,
                     .is_weight = v->kind == TERN_VALUE_WEIGHT,
                     .is_matrix = v->is_matrix || v->is_table,
                     .codes_bytes = v->codes_bytes};
    s->is_kept = s->is_weight ? !tern_value_is_teacher(v) && !tern_tensor_is_sign(v->name) &&
                                    (!t->base || tern_lora_is_trained(v))
                              : strncmp(v->name, "m.", 2) == 0 || strncmp(v->name, "v.", 2) == 0 ||
                                    is_sum(v);
    const bool is_frozen = tern_value_is_teacher(v) || (t->base && tern_lora_is_base(v));
    s->is_decoded = is_frozen && s->is_matrix && !s->codes_bytes;
    t->n_slots++;
    return TERN_OK;
}

static bool has_array(const tern_value *v) {
    bool state = v->kind == TERN_VALUE_STATE && v->state == TERN_STATE_ARRAY;
    return v->kind == TERN_VALUE_WEIGHT || state;
}

static tern_status add_slots(tern_trainer *t, const tern_graph *g, tern_error *err) {
    for (size_t v = 0; v < g->n_values; v++)
        if (has_array(&g->values[v]) && !tern_trainer_slot(t, g->values[v].name))
            TERN_TRY(add_slot(t, &g->values[v], err));
    return TERN_OK;
}

static tern_status bind_arrays(tern_trainer *t, tern_train_program *p, tern_error *err) {
    const tern_graph *g = &p->graph;
    p->arrays = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *p->arrays);
    if (!p->arrays) return tern_fail_memory(err, g->n_values * sizeof *p->arrays);
    for (size_t v = 0; v < g->n_values; v++)
        if (has_array(&g->values[v])) p->arrays[v] = tern_trainer_slot(t, g->values[v].name)->array;
    return TERN_OK;
}

static tern_status compile(tern_trainer *t, tern_train_program *p, tern_error *err) {
    return t->backend->compile(t->device, &p->graph, p->arrays, t->desc.micro_tokens,
                               t->desc.seq_len, &p->program, err);
}

static tern_status differentiate(tern_trainer *t, tern_graph *g, tern_error *err) {
    bool *frozen = NULL;
    tern_status status = TERN_OK;
    t->n_forward = g->n_nodes;
    if (t->base || t->teacher || t->desc.freeze) {
        frozen = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *frozen);
        if (!frozen) return tern_fail_memory(err, g->n_values);
        status = tern_parts_frozen(t, g, frozen, err);
    }
    if (status == TERN_OK) status = tern_graph_differentiate(g, frozen, err);
    tern_free(frozen);
    if (status == TERN_OK && t->desc.gradient_checkpointing)
        status = tern_graph_recompute(g, t->n_forward, err);
    return status;
}

// From a model's graph to the loss of what is trained on.
static tern_status end_in_loss(tern_trainer *t, tern_graph *g, tern_error *err) {
    if (t->teacher) return tern_teacher_join(t, g, err);
    if (t->contrastive) return tern_graph_train_vectors(g, tern_contrastive_n_vectors(t), err);
    int64_t n_rows = ((int64_t)t->desc.micro_tokens + 3) / 4 * 4; // a GPU reads four at once
    if (t->preferring) return tern_graph_train_rows(g, n_rows, err);
    return tern_graph_train(g, err);
}

// A slot of each master weight that the graphs read by ops that decode it becomes bfloat16. Frozen
// weights stay as they are, and so do the few numbers of norms.
static void choose_bf16(tern_trainer *t) {
    tern_graph *graphs[] = {&t->train.graph, &t->score.graph};
    for (size_t i = 0; t->desc.bf16_masters && i < t->n_slots; i++) {
        tern_slot *s = &t->slots[i];
        const tern_graph *g = &t->train.graph;
        s->is_bf16 = s->is_weight && s->is_kept && s->is_matrix && s->n_rows > 1 &&
                     tern_graph_find(&t->update.graph, s->name) >= 0 &&
                     tern_graph_decodes(g, tern_graph_find(g, s->name));
        for (int k = 0; s->is_bf16 && k < 2; k++) {
            const tern_vid v = tern_graph_find(graphs[k], s->name);
            if (v >= 0) graphs[k]->values[v].is_coded = true;
        }
    }
}

static tern_status build_model(const tern_trainer *t, tern_graph *g, tern_error *err) {
    TERN_TRY(tern_arch_build_main(g, t->arch, &t->config, err));
    return t->desc.init ? tern_arch_rotate(g, t->tokenizer_file, t->arch, &t->config, err)
                        : TERN_OK;
}

static tern_status build_graphs(tern_trainer *t, tern_error *err) {
    tern_graph *g = &t->train.graph;
    tern_graph_init(g);
    tern_graph_init(&t->update.graph);
    TERN_TRY(t->base ? tern_lora_build(t, g, err) : build_model(t, g, err));
    TERN_TRY(tern_qat_round(t, g, err));
    TERN_TRY(end_in_loss(t, g, err));
    TERN_TRY(tern_graph_copy(&t->score.graph, g, err));
    TERN_TRY(differentiate(t, g, err));
    const tern_update_kind kind = (tern_update_kind)t->desc.optimizer;
    TERN_TRY(tern_graph_optimizer(g, kind, &t->update.graph, err));
    tern_parts_set_rates(t, &t->update.graph);
    TERN_TRY(add_slots(t, g, err));
    TERN_TRY(add_slots(t, &t->update.graph, err));
    TERN_TRY(add_slots(t, &t->score.graph, err));
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        const bool trits = n->op == TERN_OP_TERNARIZE, rounds = n->op == TERN_OP_FAKE_QUANTIZE;
        if ((!trits && !rounds) || tern_value_is_teacher(&g->values[n->in[0]])) continue;
        tern_slot *s = tern_trainer_slot(t, g->values[n->in[0]].name);
        s->is_ternary = trits;
        if (rounds) s->type = (tern_dtype)n->dtype;
    }
    const tern_graph *u = &t->update.graph;
    for (size_t i = 0; i < u->n_nodes; i++)
        for (int k = 2; u->nodes[i].op == TERN_OP_ADAMW8 && k < 4; k++)
            tern_trainer_slot(t, u->values[u->nodes[i].in[k]].name)->is_packed = true;
    choose_bf16(t);
    return TERN_OK;
}

static tern_status make_array(tern_trainer *t, tern_slot *s, tern_error *err) {
    if (s->codes_bytes) return TERN_OK;
    if (s->is_bf16)
        return t->backend->array_new_bf16(t->device, s->n_rows, s->n_cols, &s->array, err);
    return t->backend->array_new(t->device, s->n_rows * s->n_cols, &s->array, err);
}

static tern_status make_programs(tern_trainer *t, tern_error *err) {
    tern_train_program *programs[] = {&t->train, &t->update, &t->score};
    for (size_t i = 0; i < t->n_slots; i++) TERN_TRY(make_array(t, &t->slots[i], err));
    TERN_TRY(tern_trainer_load_factors(t, err));
    if (t->base) TERN_TRY(tern_lora_load_base(t, err));
    if (t->teacher) TERN_TRY(tern_teacher_load(t, err));
    for (int i = 0; i < 3; i++) TERN_TRY(bind_arrays(t, programs[i], err));
    for (int i = 0; i < 3; i++) TERN_TRY(compile(t, programs[i], err));
    return TERN_OK;
}

bool tern_trainer_has_host(const tern_trainer *t) {
    for (size_t i = 0; t->backend->host && i < t->n_slots; i++) // those of codes are nowhere
        if (t->backend->host(t->slots[i].array)) return true;
    return false;
}

tern_status tern_trainer_run(tern_trainer *t, const tern_train_program *p, tern_train_batch *b,
                             tern_error *err) {
    bool alone = tern_train_ranks(&t->desc) == 1;
    b->can_stop = p != &t->update && alone && tern_trainer_has_host(t);
    return t->backend->run(p->program, b, err);
}

// ---- Opening -----------------------------------------------------------------------------------

static void close_program(tern_trainer *t, tern_train_program *p) {
    t->backend->program_free(p->program);
    tern_free(p->arrays);
    tern_graph_free(&p->graph);
}

void tern_trainer_close(tern_trainer *t) {
    if (!t) return;
    if (t->device) {
        close_program(t, &t->score);
        close_program(t, &t->update);
        close_program(t, &t->train);
        for (size_t i = 0; i < t->n_slots; i++) t->backend->array_free(t->slots[i].array);
        t->backend->close(t->device);
    }
    tern_free(t->slots);
    tern_token_set_close(t->data);
    tern_token_set_close(t->valid);
    tern_tokenizer_free(t->tokenizer);
    tern_grown_close(&t->grown);
    tern_lora_close(t->base);
    tern_contrastive_close(t->contrastive);
    tern_preferring_close(t->preferring);
    tern_samples_close(t->samples);
    tern_teacher_close(t->teacher);
    tern_qat_close(t);
    tern_assistant_close(t->assistant);
    if (t->tokenizer_file) tern_file_close(t->tokenizer_file);
    if (t->qat_start) tern_file_close(t->qat_start);
    tern_free(t->chat_template);
    tern_free(t->ids);
    tern_free(t->targets);
    tern_free(t->starts);
    tern_free(t->marks);
    tern_free(t->sequence);
    tern_free(t);
}

static tern_status open_device(tern_trainer *t, tern_error *err) {
    const char *name = t->desc.device ? t->desc.device : "cpu";
    if (strcmp(name, "cpu") == 0)
        t->backend = &tern_train_cpu;
    else if (strcmp(name, "webgpu") == 0)
        t->backend = &tern_train_webgpu;
    else
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: device \"%s\": expected cpu or webgpu",
                         name);
    if (t->desc.optimizer && t->backend != &tern_train_cpu)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "train: on a GPU the optimizer is adamw: muon and adamw8bit are computed "
                         "by the CPU alone");
    if (t->desc.bf16_masters && !t->backend->array_new_bf16)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "train: on a GPU master weights are floats: bf16_masters is computed by "
                         "the CPU alone");
    if (t->desc.dora && t->backend != &tern_train_cpu)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "train: on a GPU adapters have no magnitudes (dora): train this one on "
                         "the CPU");
    return t->backend->open(&t->device,
                            &(tern_trainer_desc){.n_threads = t->desc.n_threads,
                                                 .cpu_features = t->desc.cpu_features,
                                                 .bf16 = t->desc.bf16,
                                                 .webgpu = t->desc.webgpu},
                            err);
}

static tern_status make_rows(tern_trainer *t, tern_error *err) {
    int ranks = tern_train_ranks(&t->desc);
    size_t n = (size_t)(t->desc.batch_tokens / ranks), seq = (size_t)t->desc.seq_len + 1;
    t->ids = tern_alloc_array(TERN_MEM_MISC, n, sizeof *t->ids);
    t->targets = tern_alloc_array(TERN_MEM_MISC, n, sizeof *t->targets);
    t->starts = tern_alloc_array(TERN_MEM_MISC, n, sizeof *t->starts);
    t->sequence = tern_alloc_array(TERN_MEM_MISC, seq, sizeof *t->sequence);
    t->marks = tern_alloc_array(TERN_MEM_MISC, seq, sizeof *t->marks);
    bool ok = t->ids && t->targets && t->starts && t->sequence && t->marks;
    return ok ? TERN_OK : tern_fail_memory(err, n * sizeof *t->ids);
}

static void choose_arch(tern_trainer *t) {
    t->arch = tern_arch_fresh(t->config.bitlinear);
    tern_config_order_as_gguf(t->arch, &t->config);
}

static tern_status open_speech(tern_trainer *t, tern_error *err) {
    if (t->base)
        return tern_assistant_open(&t->assistant, tern_lora_file(t->base), t->tokenizer, err);
    return tern_assistant_open(&t->assistant, t->tokenizer_file, t->tokenizer, err);
}

bool tern_trainer_masks(const tern_trainer *t) {
    return t->begins_by_marks || t->assistant || t->data_has_spans || t->desc.packing;
}

tern_status tern_trainer_lay_out(tern_trainer **out, const tern_train_desc *desc, tern_error *err) {
    *out = NULL;
    tern_status status;
    tern_trainer *t = tern_alloc(TERN_MEM_GRAPH, sizeof *t);
    if (!t) return tern_fail_memory(err, sizeof *t);
    *t = (tern_trainer){
        .desc = *desc, .wished_steps = desc->n_steps, .wished_warmup = desc->n_warmup};
    if (desc->preferences)
        TERN_TRY_GOTO(tern_preferring_open(t, err));
    else if (desc->pairs)
        TERN_TRY_GOTO(tern_contrastive_open(t, err));
    else if (desc->init && !desc->lora_rank)
        TERN_TRY_GOTO(tern_trainer_read_init(t, err));
    if (desc->lora_rank) TERN_TRY_GOTO(tern_lora_open(t, err));
    TERN_TRY_GOTO(tern_train_settle(&t->desc, &t->config, err));
    if (!t->arch) choose_arch(t);
    TERN_TRY_GOTO(tern_qat_open(t, err));
    if (desc->sample_prompts) TERN_TRY_GOTO(tern_samples_open(t, err));
    TERN_TRY_GOTO(open_data(t, err));
    if (desc->assistant_only) TERN_TRY_GOTO(open_speech(t, err));
    TERN_TRY_GOTO(open_device(t, err));
    if (desc->teacher || desc->teacher_cache) TERN_TRY_GOTO(tern_teacher_open(t, err));
    TERN_TRY_GOTO(build_graphs(t, err));
    TERN_TRY_GOTO(make_rows(t, err));
    TERN_TRY_GOTO(tern_plan_memory(t, err));
    *out = t;
    return TERN_OK;
fail:
    tern_trainer_close(t);
    return status;
}

tern_status tern_trainer_take(tern_trainer *t, tern_error *err) {
    TERN_TRY(tern_plan_check(t, err));
    TERN_TRY(make_programs(t, err));
    if (t->preferring) return tern_preferring_ready(t, err);
    return t->contrastive ? tern_contrastive_ready(t, err) : TERN_OK;
}

tern_status tern_trainer_open(tern_trainer **out, const tern_train_desc *desc, tern_error *err) {
    TERN_TRY(tern_trainer_lay_out(out, desc, err));
    tern_status status = TERN_OK;
    if ((*out)->teacher) status = tern_teacher_cache_fill(*out, err);
    if (status == TERN_OK) status = tern_trainer_take(*out, err);
    if (status == TERN_OK) return TERN_OK;
    tern_trainer_close(*out);
    *out = NULL;
    return status;
}
