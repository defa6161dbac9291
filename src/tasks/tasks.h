// Jobs on whole models: conversion, inspection, measuring the machine. Their public functions are
// in tern_tools.h; this header has what they share.
#ifndef TERN_TASKS_TASKS_H
#define TERN_TASKS_TASKS_H

#include "base/dtype/dtype.h"
#include "base/status.h"
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

#endif
