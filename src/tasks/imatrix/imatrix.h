// Importance matrices: how large the inputs of each matrix are, column by column, over some text.
// Collected by imatrix.c, read and written by imatrix_file.c.
#ifndef TERN_TASKS_IMATRIX_IMATRIX_H
#define TERN_TASKS_IMATRIX_IMATRIX_H

#include "formats/formats.h"
#include "models/models.h"

// ---- What a file says --------------------------------------------------------------------------

typedef struct tern_importance {
    char *name;   // of the matrix, as GGUF has it
    size_t n;     // columns, times experts
    float *means; // [n] of squares; 0 where nothing is known
} tern_importance;

typedef struct tern_importances { // zero-initialise
    tern_importance *list;
    size_t n, capacity;
    char *dataset; // the text's name; NULL: not given
    int64_t n_chunks;
} tern_importances;

// A file of llama.cpp, GGUF or its older form. Nothing in it is trusted.
tern_status tern_importances_read(tern_importances *out, const char *path, tern_error *err);
// The older form alone, from memory; `path` is for messages.
tern_status tern_importances_parse(tern_importances *out, const char *path, const uint8_t *bytes,
                                   uint64_t n, tern_error *err);
const tern_importance *tern_importances_find(const tern_importances *s, const char *name);
void tern_importances_free(tern_importances *s);

// ---- Which inputs ------------------------------------------------------------------------------

// The value that a matrix multiplies, before it is rounded for the product, and the matrix; NULL:
// it is none of a layer. n: LINEAR or EXPERTS.
tern_vid tern_imatrix_input(const tern_graph *g, const tern_node *n);
const tern_value *tern_imatrix_weight(const tern_arch *arch, const tern_graph *g,
                                      const tern_node *n);

// ---- What is collected -------------------------------------------------------------------------

typedef struct tern_collected { // of one matrix
    const char *name;
    int64_t n_cols, n_parts; // parts: experts, or 1
    const double *sums;      // [n_parts * n_cols] of squares
    const double *counts;    // [n_parts] rows
} tern_collected;

typedef struct tern_collection {
    const tern_collected *list;
    size_t n;
    const char *dataset;          // or NULL
    int64_t n_chunks, chunk_size; // of the text; chunk_size tokens each
} tern_collection;
tern_status tern_collected_write(const tern_collection *c, const char *path, tern_error *err);

#endif
