// What a program is told about an open model: of its file, its family, and where it runs now.
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"

static float said(const tern_model *m, tern_sampling_field which, float otherwise) {
    float value = tern_sampling_read(m->file, which);
    return value >= 0 ? value : otherwise;
}

// The file's value, else the family's default; -1: neither.
static void fill_sampling(tern_model *m) {
    static const tern_sampling_defaults silent = {-1, -1, -1, -1, -1};
    const tern_sampling_defaults *d = m->arch && m->arch->sampling ? m->arch->sampling : &silent;
    tern_model_info *i = &m->info;
    i->temperature = said(m, TERN_SAMPLING_TEMPERATURE, d->temperature);
    i->top_k = (int32_t)said(m, TERN_SAMPLING_TOP_K, (float)d->top_k);
    i->top_p = said(m, TERN_SAMPLING_TOP_P, d->top_p);
    i->min_p = said(m, TERN_SAMPLING_MIN_P, d->min_p);
    i->repeat_penalty = said(m, TERN_SAMPLING_REPEAT_PENALTY, d->repeat_penalty);
}

static void fill_plan_info(tern_model *m) {
    tern_model_info *i = &m->info;
    i->n_vocab = (int32_t)m->config.n_vocab;
    i->n_layers = (int32_t)m->config.n_layers;
    i->n_embd = (int32_t)m->config.n_embd;
    i->n_context_train = (int32_t)m->config.n_context;
    i->n_batch = m->n_batch;
    tern_state_bytes states = tern_graph_state_bytes(&m->graphs[0].built);
    i->kv_bytes_per_token = states.position;
    i->sequence_bytes = states.sequence;
}

tern_status tern_model_fill_names(tern_model *m, tern_error *err) {
    tern_str name = {NULL, 0};
    tern_str arch = m->arch ? (tern_str){m->arch->name, strlen(m->arch->name)} : TERN_STR("none");
    if (m->file->kind == TERN_FILE_GGUF) {
        tern_file_meta_str(m->file, "general.name", &name);
        tern_file_meta_str(m->file, "general.architecture", &arch);
    } else
        name = tern_json_str(tern_json_path(&m->file->config, "_name_or_path"));
    m->name = tern_strndup(TERN_MEM_GRAPH, name.ptr ? name.ptr : "", name.ptr ? name.len : 0);
    m->architecture = tern_strndup(TERN_MEM_GRAPH, arch.ptr, arch.len);
    if (!m->name || !m->architecture) return tern_fail_memory(err, name.len + arch.len);
    m->info.path = m->path;
    m->info.name = m->name;
    m->info.architecture = m->architecture;
    return TERN_OK;
}

void tern_model_fill_info(tern_model *m) {
    tern_model_info *i = &m->info;
    i->ternary_layout = i->head = "none";
    i->file_bytes = m->file->tensor_bytes;
    if (m->now)
        fill_plan_info(m);
    else
        i->n_vocab = tern_tokenizer_n_vocab(m->tokenizer);
    i->bos_id = m->tokenizer ? tern_tokenizer_bos(m->tokenizer) : -1;
    i->eos_id = m->tokenizer ? tern_tokenizer_eos(m->tokenizer) : -1;
    i->template_guess = m->chat_template ? tern_template_guess(m->chat_template) : NULL;
    i->adds_bos = m->tokenizer && tern_tokenizer_adds_bos(m->tokenizer);
    fill_sampling(m);
}

void tern_model_get_info(const tern_model *model, tern_model_info *info) {
    tern_model *m = (tern_model *)(uintptr_t)model; // the lock is not part of its value
    if (!info) return;
    *info = (tern_model_info){0};
    if (!m) return;
    tern_mutex_lock(&m->lock);
    *info = m->info;
    const tern_placement *p = m->now;
    if (p) {
        info->device = p->text;
        if (p->head) info->head = p->head;
        if (p->ternary_layout) info->ternary_layout = p->ternary_layout;
        info->bytes_per_token = p->bytes_per_token;
        info->bytes_per_token_logits = p->bytes_per_token_logits;
        if (p->device) { // NULL while a lost one is being replaced
            info->n_threads = p->backend->n_threads(p->device);
            p->backend->memory(p->device, &info->device_memory);
        }
        for (const tern_placed_cache *c = p->caches; c; c = c->next)
            tern_cache_used(c->cache, &info->held_bytes, &info->swapped_bytes);
    }
    tern_mutex_unlock(&m->lock);
}
