// Oracles of language models that see: a folder with golden.safetensors, in which a reference has
// input_ids with one token for each row of the images, image_grid_thw (or of videos), the patches
// (pixel_values), what the tower makes of them (vis.merged, and of layers in between vis.deep.N),
// logits and greedy_ids.
#ifndef TERN_TESTS_IMAGE_TOKENS_FIXTURE_H
#define TERN_TESTS_IMAGE_TOKENS_FIXTURE_H

#include <stdbool.h>
#include "tern.h"

// Whether the model at this path, which may be the folder, has these rows and logits as near as
// `bound` (of their size), and says these ids.
void image_check(const char *folder, const char *model, bool gpu, bool video, double bound);

// What is said after these ids: ten greedy tokens. n_reused (may be NULL): how many were not
// computed.
void image_say(tern_session *s, const int32_t *ids, size_t n, int32_t said[10], size_t *n_reused);

#endif
