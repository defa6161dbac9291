// The folders of TERN_TEST_DATA's oracle that transformers wrote with a text model's logits: one
// more family is one more name here.
#ifndef TERN_TESTS_ORACLE_FOLDERS_H
#define TERN_TESTS_ORACLE_FOLDERS_H

#include "tests/support/closeness.h"

#define ORACLES_OF_TRANSFORMERS                                                                    \
    "qwen3", "qwen3_5", "qwen3_5_tied_mtp", "lfm2", "gemma3", "gemma3_4b_rope", "olmo2", "qwen2",  \
        "llama3_rope", "llama", "smollm3", "granite", "ministral3", "exaone4", "hunyuan_dense",    \
        "phi3_longrope", "qwen3_moe", "lfm2_moe", "granite_hybrid", "falcon_h1", "gemma4",         \
        "gemma4_full", "ernie4_5", "cohere2"

// The folder as it can become GGUF: itself, or, if its vocabulary does not split texts, for which
// GGUF has no name, a copy without it in the new folder `copy`.
const char *oracle_for_gguf(const char *folder, const char *copy);

// What the reference computed of a folder's model, and a tensor of it, straight from the bytes: the
// library's own reader is tested with it. NULL: there is none.
blob oracle_golden(const char *folder);
const void *oracle_tensor(const blob *golden, const char *name, size_t *n_values);

// For the families of tests/oracles.
extern const close_bounds oracle_family_bounds;

#endif
