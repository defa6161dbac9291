// Texts to embed, or to rank by how well they answer a query. They are computed away, in pieces
// between the steps of running answers and other clients' pieces, so that a thousand texts do not
// stall other clients.
#ifndef TERN_SERVE_TEXTS_H
#define TERN_SERVE_TEXTS_H

#include "apps/serve/request/generation_request.h"
#include "apps/serve/request/away.h"
#include "tern_embed.h"

typedef struct texts {
    request *req;
    served *model;
    // The parameters, owned by this.
    tern_embed_text *list; // [n]
    size_t n, capacity;
    bool ranks; // else vectors
    char *query;
    size_t n_query;
    tern_embed_text *queries; // [n_queries] one for each text, instead; NULL: the same for all
    size_t n_queries, queries_capacity;
    char *prompt;   // the name of a prompt of the model; NULL: its default
    int32_t n_dims; // 0: all
    bool cuts;      // truncate texts that are too long; else they are an error
    // The results.
    size_t width;   // numbers for each text
    float *numbers; // [n, width]
    int64_t *n_tokens;
    bool *was_cut;
    size_t too_long, n_too_long; // the first such text's position, from 1, and its tokens
    tern_error err;
    double began;
    // Writes the answer; the rest is for it. req->generation has the model's name.
    void (*reply)(request *req, const struct texts *t);
    const char *param; // the field of the texts, for errors
    bool as_base64, as_tei, with_documents;
    size_t n_best;
} texts;

// NULL: no memory, and e says so.
texts *texts_new(request *req, const char *param, void (*reply)(request *req, const texts *t),
                 api_error *e);
void texts_free(texts *t); // NULL is allowed
bool texts_add_text(texts *t, tern_str text, api_error *e);
// Adds a string or an array of ids; anything else is an error.
void texts_add_json(texts *t, const fields *f, const tern_json *item);
// Adds a string, an array of ids, or an array of either.
void texts_add_list(texts *t, const fields *f, const tern_json *value);
// Submits the texts, or answers with the error, if there is one. Takes ownership of them.
void texts_begin(request *req, texts *t, api_error *e);
size_t texts_count_tokens(const texts *t);

#endif
