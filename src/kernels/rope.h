// Rotary embedding: the frequencies that every backend uses.
#ifndef TERN_KERNELS_ROPE_H
#define TERN_KERNELS_ROPE_H

#include "graph/graph.h"

// Frequencies of the n_rot / 2 pairs: base^(-2i/n), and how the scalings for long contexts change
// them; factors (or NULL) divide them where the scaling says so. Returns what cosine and sine are
// multiplied with: 1, but for YaRN.
float tern_rope_frequencies(const tern_rope_attrs *attrs, const float *factors, float *inv_freq);

#endif
