// Files of the shapes of published models, with random weights: they take the memory and the time
// of the real ones, and their text means nothing. All that makes a shape is its family's config:
// the tensors are those that the family's own graph reads.
#ifndef TERN_TESTS_REAL_SHAPES_H
#define TERN_TESTS_REAL_SHAPES_H

#include "models/models.h"

typedef struct real_shape {
    const char *name, *arch;
    // A letter each, from the beginning again when they end: F, W, C, D, M; small: without RoPE
    const char *layers;
    tern_config config; // without the layers
} real_shape;

extern const real_shape real_shapes[]; // the last one has no name
const real_shape *real_shape_find(const char *name, size_t n_name);
const tern_arch *real_shape_arch(const real_shape *s);
tern_config real_shape_config(const real_shape *s); // with the layers

// narrow > 1, for tests: all widths are divided by it, and the table has the tokenizer's rows. The
// type of the matrices and tables: F32, F16, BF16, Q8_0 or Q4_0.
tern_status real_shape_write(const char *path, const real_shape *shape, tern_dtype type, int narrow,
                             unsigned seed, tern_error *err);

#endif
