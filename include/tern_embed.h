// tern: embeddings. A model whose files define a pooling turns each text into one vector; texts
// with the same meaning have a similarity near 1. A reranker reads a query and a document together
// (docs/embeddings.md).
//
//     tern_embed_text texts[] = {{0}, {0}};
//     tern_embedding_info info = {0};
//     tern_model *model = NULL;
//     tern_error err = {0};
//     float vectors[2 * 1024];
//     texts[0].text = "how do magnets work", texts[0].n_bytes = 19;
//     texts[1].text = "why iron sticks to steel", texts[1].n_bytes = 24;
//     tern_embedding_get_info(model, &info);
//     if (info.n_dims <= 1024 && tern_embed(model, texts, 2, NULL, vectors, &err) == TERN_OK)
//         (void)tern_similarity(vectors, vectors + info.n_dims, (size_t)info.n_dims);
//
// The rules at the top of tern.h hold here, too.
#ifndef TERN_EMBED_H
#define TERN_EMBED_H

#include "tern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Vectors -----------------------------------------------------------------------------------

typedef struct tern_embedding_prompt {
    const char *name, *text; // "query", "Represent this sentence: "
} tern_embedding_prompt;

typedef struct tern_embedding_info {
    int32_t n_dims;     // of a vector; 0: the model does not embed
    int32_t max_length; // of a text in tokens, including those that the tokenizer adds
    tern_pooling pooling;
    bool any_length;  // vectors are not normalized to length 1, as the model's files say
    int32_t n_labels; // of a classifier of pairs, which gives scores and no vectors; else 0
    const tern_embedding_prompt *prompts; // from the model's files; live as long as the model
    size_t n_prompts;
    const char *default_prompt; // name of the one used if none is requested, or NULL
} tern_embedding_info;
TERN_API void tern_embedding_get_info(const tern_model *model, tern_embedding_info *info);

typedef struct tern_embed_text {
    const char *text; // plain text: names of special tokens in it are not recognised
    size_t n_bytes;
    const int32_t *ids; // not NULL: all of its tokens; text and prompt are then not used
    size_t n_ids;
} tern_embed_text;

typedef struct tern_embed_params {
    const char *prompt;   // name of one of the model's prompts, NULL: its default, "": none
    const char *prefix;   // not NULL: a text used in place of the model's prompts
    int32_t max_length;   // of a text in tokens, the rest is cut off; 0: the model's
    int32_t n_dims;       // leading dimensions to keep, normalized again; 0: all
    int32_t n_step;       // tokens per step, which short texts share; 0: 2048
    tern_kv_type kv_type; // keys and values; AUTO: by the longest text
    int64_t *n_tokens;    // [n_texts] gets each text's number of tokens, or NULL
    bool *was_cut;        // [n_texts] gets whether the text was cut to max_length, or NULL
    tern_progress_fn on_progress;
    void *user;
} tern_embed_params;
// out: [n_texts, n_dims]. Texts of any lengths are computed together, without padding; a vector has
// the same bits as when computed alone. Any number of threads may call this on one model. Memory:
// the states of one step's tokens.
TERN_API tern_status tern_embed(tern_model *model, const tern_embed_text *texts, size_t n_texts,
                                const tern_embed_params *params, float *out, tern_error *err);
// The same without waiting for a GPU, a step of some thousand tokens at a time: poll until *done,
// when *vectors has them all, or a failure; then close (allowed at any time), which frees the
// vectors. The texts and the params' arrays and strings must stay valid until then. One thread at a
// time.
typedef struct tern_embedding tern_embedding;
TERN_API tern_status tern_embed_begin(tern_embedding **out, tern_model *model,
                                      const tern_embed_text *texts, size_t n_texts,
                                      const tern_embed_params *params, tern_error *err);
TERN_API tern_status tern_embed_poll(tern_embedding *embedding, bool *done, const float **vectors,
                                     tern_error *err);
TERN_API void tern_embed_close(tern_embedding *embedding); // NULL is allowed
// The cosine similarity of two vectors, -1 to 1; 0 if one of them is 0.
TERN_API double tern_similarity(const float *a, const float *b, size_t n);

// ---- Rerankers ---------------------------------------------------------------------------------

typedef struct tern_rerank_params {
    const char *query;       // what the documents are to answer
    size_t n_bytes;          // of the query
    const char *instruction; // for a decoder: what counts as an answer; NULL: as in web search
    int32_t max_length;      // as in tern_embed_params, of the query and a document together
    int32_t n_step;
    tern_kv_type kv_type;
    int64_t *n_tokens; // [n_documents] gets the tokens of each, with the query, or NULL
    tern_progress_fn on_progress;
    void *user;
} tern_rerank_params;
// How well documents answer a query, by a model that reads both together: scores[i] of document i.
// An encoder with a classifier (BERT, XLM-R) gives the raw score of its first label, a decoder the
// probability of "yes" in Qwen3-Reranker's template. Documents are texts, not ids, and are cut to
// fit.
TERN_API tern_status tern_rerank(tern_model *model, const tern_embed_text *documents,
                                 size_t n_documents, const tern_rerank_params *params,
                                 float *scores, tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
