// Texts that are read and not gone on with: their vectors, or how well each answers a query. They
// are computed away, in pieces between the steps of running answers and other clients' pieces, so
// that a thousand texts stall nobody.
#ifndef TERN_SERVE_TEXTS_H
#define TERN_SERVE_TEXTS_H

#include "apps/serve/generation.h"
#include "apps/serve/away.h"

typedef struct texts {
    request *req;
    served *model;
    // What is asked for. All of it is its own.
    tern_embed_text *list; // [n]
    size_t n, capacity;
    bool ranks; // else vectors
    char *query;
    size_t n_query;
    char *prompt;   // the name of one of the model's; NULL: its default
    int32_t n_dims; // 0: all
    bool cuts;      // a text that is too long; else it is an error
    // What was found.
    size_t width;   // numbers of a text
    float *numbers; // [n, width]
    int64_t *n_tokens;
    bool *was_cut;
    size_t too_long, n_too_long; // of the first such text: its place from 1 on, and its tokens
    tern_error err;
    double began;
    // The answer, and what it needs besides. req->generation has the model's name.
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
// A text or tokens: a string, or an array of ids. Elsewise an error.
void texts_add_json(texts *t, const fields *f, const tern_json *item);
// A string, an array of ids, or an array of either.
void texts_add_list(texts *t, const fields *f, const tern_json *value);
// Hands them over; or answers with the error, if there is one. They are not the caller's any more.
void texts_begin(request *req, texts *t, api_error *e);
size_t texts_count_tokens(const texts *t);

#endif
