// Jobs on whole models: conversion, inspection, measuring the machine. Their public functions are
// in tern_tools.h; this header has what they share.
#ifndef TERN_TASKS_TASKS_H
#define TERN_TASKS_TASKS_H

#include "base/dtype/dtype.h"
#include "base/status.h"
#include "models/models.h"
#include "tern_tools.h"

// The type of most matrices; false for AUTO.
bool tern_type_to_dtype(tern_type type, tern_dtype *out);
bool tern_type_is_mixture(tern_type type); // or a form; not the type of a single tensor
bool tern_type_is_mlx(tern_type type);
// general.file_type; -1 for AUTO. For an element type: that of a file with most weights in this
// type.
int tern_type_file_type(tern_type type);
int tern_dtype_file_type(tern_dtype type);

// What both models say at a token of a document.
typedef struct tern_eval_token {
    float kl, certainty; // certainty: the reference's p of its likeliest token
    bool is_scored, same_top;
} tern_eval_token;

// Documents of tokens, each read alone, as training reads them, in windows of this size.
typedef struct tern_eval_documents {
    const int32_t *ids;
    const size_t *ends; // [n] where each ends in ids
    size_t n;
    int window;              // at least 2
    tern_eval_token *tokens; // NULL, or [ids], zeroed: where the two part
    tern_progress_fn on_progress;
    void *user;
} tern_eval_documents;
// tern_eval_compare for these; every token but the first of a document counts. Both sessions read
// the ids: they must mean the same to both.
tern_status tern_eval_compare_documents(tern_session *session, tern_session *reference,
                                        const tern_eval_documents *documents,
                                        tern_eval_comparison *out, tern_error *err);

// ---- What goes into matrices (imatrix/products.c) ----------------------------------------------

typedef struct tern_products tern_products;
typedef struct tern_products_desc {
    const int32_t *ids; // read in windows of this size, each by itself
    size_t n_ids;
    int window;
    uint64_t max_bytes; // of sums that are kept, but at least one input's
    int n_threads;
    tern_progress_fn on_progress;
    void *user;
} tern_products_desc;
tern_status tern_products_open(tern_products **out, tern_model *m, const tern_products_desc *desc,
                               tern_error *err);
// X^T X of what goes into a matrix (its GGUF name), [columns, columns]; NULL: it is not known, as
// that of experts. Runs the text unless it is kept. Valid until the next call.
tern_status tern_products_of(tern_products *p, const char *matrix, const float **sums,
                             tern_error *err);
void tern_products_close(tern_products *p); // NULL is allowed
// How large the sums are that are kept at once, by a decoder's graph.
uint64_t tern_products_most_bytes(const tern_arch *arch, const tern_graph *g, uint64_t max_bytes);

// ---- Rounding of the caller's (convert/convert_rows.c) -----------------------------------------

// Rounds a matrix in place to numbers of the type, rows as the output has them; false in
// *is_rounded leaves it to the conversion's own rule.
typedef tern_status (*tern_round_fn)(void *user, const char *name, tern_dtype type, float *rows,
                                     const size_t shape[2], bool *is_rounded, tern_error *err);
typedef struct tern_rounding {
    tern_round_fn round; // of matrices that force_ternary rounds
    void *user;
} tern_rounding;
tern_status tern_convert_rounded(const char *in, const char *out, const tern_convert_desc *desc,
                                 const tern_rounding *rounding, tern_error *err);
// The same with its matrices in a rotated basis, of a float model that has none, as GGUF: signs are
// drawn by the seed (docs/formats.md).
tern_status tern_convert_rotated(const char *in, const char *out, const tern_convert_desc *desc,
                                 uint64_t seed, tern_error *err);

#endif
