// A model's settings for embeddings: the vectors' size, how long a text may be, and the texts put
// in front of queries and documents, which sentence-transformers calls prompts.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"
#include "tern_image.h"

// One after the other, each ended by a 0 byte. A text with a 0 byte inside would look like two.
static tern_status keep_text(tern_model *m, tern_str text, tern_error *err) {
    if (text.len && memchr(text.ptr, 0, text.len))
        return tern_fail(err, TERN_ERR_FORMAT, "a prompt or a label with a 0 byte in it");
    tern_strbuf_append(&m->prompts, text.ptr, text.len);
    tern_strbuf_append(&m->prompts, "", 1);
    return TERN_OK;
}

static tern_status list_prompts(tern_model *m, const tern_prompts *p, tern_error *err) {
    tern_embedding_info *e = &m->embedding;
    for (size_t i = 0; i < p->n; i++) {
        TERN_TRY(keep_text(m, p->names[i], err));
        TERN_TRY(keep_text(m, p->texts[i], err));
    }
    if (p->n == 0) return TERN_OK;
    tern_embedding_prompt *list = tern_alloc_array(TERN_MEM_GRAPH, p->n, sizeof *list);
    e->prompts = list;
    if (!list || m->prompts.failed) return tern_fail_memory(err, m->prompts.len);
    e->n_prompts = p->n;
    const char *at = tern_strbuf_text(&m->prompts);
    for (size_t i = 0; i < p->n; i++) {
        list[i].name = at;
        list[i].text = at + strlen(at) + 1;
        at = list[i].text + strlen(list[i].text) + 1;
        if (p->first.ptr && tern_str_is(p->first, list[i].name)) e->default_prompt = list[i].name;
    }
    return TERN_OK;
}

static tern_status check_pooling_module(const tern_model *m, tern_error *err) {
    if (tern_json_bool(tern_json_path(&m->file->pooling, "include_prompt"), true)) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "1_Pooling/config.json: a mean without the prompt's tokens (include_prompt "
                     "is false) is not supported");
}

// The names in the file, one after the other; those without a name are numbered.
static tern_status read_labels(tern_model *m, tern_error *err) {
    size_t n = (size_t)m->config.n_labels;
    tern_str *labels = tern_alloc_array(TERN_MEM_GRAPH, n + 1, sizeof *labels);
    m->labels = tern_alloc_array(TERN_MEM_GRAPH, n + 1, sizeof *m->labels);
    bool there = labels && m->labels;
    tern_status status = there ? TERN_OK : tern_fail_memory(err, n * sizeof *labels);
    if (there) tern_images_labels(m->file, labels, n);
    for (size_t i = 0; i < n && status == TERN_OK; i++) {
        char number[32];
        int n_number = snprintf(number, sizeof number, "label %zu", i);
        m->labels[i] = m->prompts.len;
        status =
            keep_text(m, labels[i].len ? labels[i] : (tern_str){number, (size_t)n_number}, err);
    }
    if (status == TERN_OK && m->prompts.failed) status = tern_fail_memory(err, m->prompts.len);
    tern_free(labels);
    return status;
}

const char *tern_model_label(const tern_model *m, int32_t label_id) {
    if (!m || !m->labels || label_id < 0 || label_id >= m->config.n_labels) return NULL;
    return m->prompts.ptr + m->labels[label_id];
}

tern_status tern_model_read_embedding(tern_model *m, tern_error *err) {
    const tern_config *c = &m->config;
    tern_embedding_info *e = &m->embedding;
    if (c->pooling == TERN_POOLING_NONE) return TERN_OK;
    TERN_TRY(check_pooling_module(m, err));
    if (c->n_image) return read_labels(m, err); // a model of images, not of texts
    tern_vid v = tern_graph_find(&m->graphs[0].built, c->n_labels ? "scores" : "embedding");
    int64_t most = c->n_context < m->n_batch ? c->n_context : m->n_batch;
    tern_prompts p;
    TERN_TRY(tern_prompts_read(m->file, &p, err));
    int64_t said = p.max_length;
    int32_t width = (int32_t)m->graphs[0].built.values[v].cols;
    e->n_dims = c->n_labels ? 0 : width;
    e->n_labels = c->n_labels ? width : 0;
    e->max_length = (int32_t)(said > 0 && said < most ? said : most);
    e->pooling = c->pooling;
    e->any_length = c->any_length;
    return list_prompts(m, &p, err);
}

void tern_model_free_embedding(tern_model *m) {
    tern_free((void *)(uintptr_t)m->embedding.prompts); // const for callers
    tern_strbuf_free(&m->prompts);
    tern_free(m->labels);
}

void tern_embedding_get_info(const tern_model *m, tern_embedding_info *info) {
    if (!info) return;
    *info = m ? m->embedding : (tern_embedding_info){0};
}
