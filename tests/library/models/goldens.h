// Numbers of references in golden files, and how far ours are from them.
#ifndef TERN_TESTS_GOLDENS_H
#define TERN_TESTS_GOLDENS_H

#include "formats/formats.h"
#include "tern_tools.h"

// NULL, and a failed check: the file has none of that name.
const tern_tensor *golden_tensor(const tern_file *file, const char *name);
size_t golden_count(const tern_tensor *t); // of its numbers
// The greatest difference over the greatest number of b.
double golden_distance(const float *a, const float *b, size_t n);
// An array of two dimensions has the tensor's numbers, up to bound.
void golden_check(const tern_array *a, const tern_tensor *want, double bound);
// The graph "encoder" makes the file's tensor `rows` of `in`; the model's own makes "logits" of
// these rows and of the tensor `ids`.
void golden_check_heard(tern_model *m, const tern_file *file, const tern_array *in,
                        const char *rows, const char *ids, double bound);

#endif
