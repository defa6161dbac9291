// Rotary embeddings: the frequencies that every backend uses.
#ifndef TERN_KERNELS_ROPE_H
#define TERN_KERNELS_ROPE_H

#include "graph/graph.h"

typedef struct tern_rope {
    tern_rope_attrs attrs;
    float *inv_freq;      // [n_rot / 2]: base^(-2i/n), changed by scaling for long contexts
    float *long_inv_freq; // scaling LONG: for longer texts; else NULL
    float magnitude;      // factor of cosine and sine: 1, except for YaRN; see also attrs.growth
} tern_rope;

// The different ropes of a graph: usually one, shared by all layers.
typedef struct tern_rope_list {
    tern_rope *items;
    size_t n;
} tern_rope_list;

// Index of the rope of a ROPE or ROPE_STORE node, added if new. factors, long_factors [n_rot / 2]
// (or NULL): the contents of the node's optional inputs.
tern_status tern_rope_list_find(tern_rope_list *list, const tern_node *n, const float *factors,
                                const float *long_factors, int *index, tern_error *err);
// Cosine and sine, with their factors, of each pair at a place: cos[i * stride] and sin[i * stride]
// for i < n_rot / 2. is_long: for a text longer than attrs.n_context_orig.
// place: see tern_rope_axes.
void tern_rope_angles(const tern_rope *r, const int32_t place[3], bool is_long, float *cos_to,
                      float *sin_to, size_t stride);
void tern_rope_list_free(tern_rope_list *list);

#endif
