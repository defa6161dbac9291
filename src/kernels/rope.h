// Rotary embeddings: the frequencies that every backend uses.
#ifndef TERN_KERNELS_ROPE_H
#define TERN_KERNELS_ROPE_H

#include "graph/graph.h"

typedef struct tern_rope {
    tern_rope_attrs attrs;
    float *inv_freq; // [n_rot / 2]: base^(-2i/n), changed as the scalings for long contexts say
    float *long_inv_freq; // scaling LONG: those of longer texts; else NULL
    float magnitude;      // factor of cosine and sine: 1, except for YaRN; see also attrs.growth
} tern_rope;

// The different ropes of a graph: usually one, that all layers share.
typedef struct tern_rope_list {
    tern_rope *items;
    size_t n;
} tern_rope_list;

// Index of the rope that a ROPE or ROPE_STORE node asks for, added if it is new. factors,
// long_factors [n_rot / 2] (or NULL): what the node's last inputs hold.
tern_status tern_rope_list_find(tern_rope_list *list, const tern_node *n, const float *factors,
                                const float *long_factors, int *index, tern_error *err);
// Cosine and sine, with their factors, of each pair at a place: cos[i * stride] and sin[i *
// stride] for i < n_rot / 2. is_long: of a text longer than attrs.n_context_orig.
// place: see tern_rope_axes.
void tern_rope_angles(const tern_rope *r, const int32_t place[3], bool is_long, float *cos_to,
                      float *sin_to, size_t stride);
// The inputs of the node that are its factors: 0 of all texts or of shorter ones, 1 of longer ones;
// or -1.
tern_vid tern_rope_factors_input(const tern_node *n, int which);
void tern_rope_list_free(tern_rope_list *list);

#endif
