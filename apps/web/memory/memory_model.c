// The functions of tern.h that src/store calls, for the model that memory_model.h describes.
#include "memory_model.h"

#include <string.h>
#include "apps/web/web.h"

// Fills to[0..n_dims), or leaves it unchanged if the vector is not known yet.
WEB_IMPORT(memory, vector)
void js_vector(const char *prompt, uint32_t n_prompt, const char *text, uint32_t n_text, float *to,
               uint32_t n_dims);
// The number of the text's tokens, or a guess.
WEB_IMPORT(memory, count) uint32_t js_count(const char *text, uint32_t n);

void tern_model_get_info(const tern_model *m, tern_model_info *info) {
    *info = (tern_model_info){.name = m->name, .path = m->path};
}

// The page's model, which stays as long as the module.
void tern_model_hold(const tern_model *m);
void tern_model_hold(const tern_model *m) { (void)m; }
void tern_model_let_go(const tern_model *m);
void tern_model_let_go(const tern_model *m) { (void)m; }

void tern_embedding_get_info(const tern_model *m, tern_embedding_info *info) {
    *info = (tern_embedding_info){.n_dims = m->n_dims,
                                  .max_length = m->max_length,
                                  .prompts = m->prompts,
                                  .n_prompts = m->n_prompts};
}

tern_status tern_embed(tern_model *m, const tern_embed_text *texts, size_t n_texts,
                       const tern_embed_params *params, float *out, tern_error *err) {
    const char *prompt = params->prompt ? params->prompt : "";
    (void)err;
    for (size_t i = 0; i < n_texts; i++) {
        float *to = out + i * (size_t)m->n_dims;
        memset(to, 0, (size_t)m->n_dims * sizeof *to);
        js_vector(prompt, (uint32_t)strlen(prompt), texts[i].text, (uint32_t)texts[i].n_bytes, to,
                  (uint32_t)m->n_dims);
    }
    return TERN_OK;
}

tern_status tern_tokenize(const tern_model *m, const char *text, size_t n, unsigned flags,
                          tern_ids *out, tern_error *err) {
    (void)m, (void)flags, (void)err;
    out->n = js_count(text, (uint32_t)n);
    return TERN_OK;
}

// The page has no reranker.
tern_status tern_rerank(tern_model *m, const tern_embed_text *documents, size_t n_documents,
                        const tern_rerank_params *params, float *scores, tern_error *err) {
    (void)m, (void)documents, (void)n_documents, (void)params, (void)scores, (void)err;
    return TERN_ERR_UNSUPPORTED;
}
