// Weights in a rotated basis: what files say of it (core/hadamard.c), and a new one for a float
// model (core/new_rotation.c).
#ifndef TERN_MODELS_ROTATION_H
#define TERN_MODELS_ROTATION_H

#include "models/models.h"

// Whether a file declares them; a graph that computes with
// them; their signs, which are weights of graphs but not tensors: the caller frees them with
// tern_free.
bool tern_arch_is_rotated(const tern_file *file);
tern_status tern_arch_rotate(tern_graph *g, const tern_file *file, const tern_arch *arch,
                             const tern_config *c, tern_error *err);
bool tern_tensor_is_sign(const char *name);
tern_status tern_arch_signs(const tern_file *file, int64_t width, float **out, tern_error *err);
// Writes what a rotated file says of it.
tern_status tern_arch_copy_rotation(const tern_file *file, tern_gguf_writer *w);
// A new one, of a float model: matrices of layers that only products read, all inputs in blocks of
// one size, signs by a seed. A graph without such a matrix has no names.
typedef struct tern_new_rotation {
    int64_t block;
    const tern_graph *g;
    tern_vid *matrices;
    size_t n_matrices;
    int32_t *widths;
    size_t n_widths;
    float *signs; // of all widths, one after the other
    size_t n_signs;
} tern_new_rotation;
tern_status tern_arch_new_rotation(tern_new_rotation *out, const tern_graph *g,
                                   const tern_arch *arch, uint64_t seed, tern_error *err);
void tern_new_rotation_free(tern_new_rotation *r); // a zeroed one is allowed
// The signs of a matrix's columns; NULL: it is not rotated.
const float *tern_new_rotation_signs(const tern_new_rotation *r, const char *name);
tern_status tern_new_rotation_put(const tern_new_rotation *r, tern_gguf_writer *w);

#endif
