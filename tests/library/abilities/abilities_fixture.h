// The families: a row each, and the tests of abilities do with each all that is done with a Llama.
#ifndef TERN_TESTS_ABILITIES_FIXTURE_H
#define TERN_TESTS_ABILITIES_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OWN "tests/oracles/" // tests run in the repository's root

typedef struct family {
    const char *name, *folder;
    int32_t window;  // of most layers, 0: none
    bool has_fixed;  // states that do not grow
    bool embeds;     // no next tokens
    int32_t n_short; // longer texts have other factors of RoPE, 0: they have not
} family;

static const family families[] = {
    {"llama", OWN "llama", 0, false, false, 0},
    {"qwen3", OWN "qwen3", 0, false, false, 0},
    {"qwen35", OWN "qwen35", 0, true, false, 0},
    {"qwen35 grouped", OWN "qwen35_grouped", 0, true, false, 0},
    {"lfm2", OWN "lfm2", 0, true, false, 0},
    {"gemma3", OWN "gemma3", 8, false, false, 0},
    {"gemma3 linear", OWN "gemma3_linear", 8, false, false, 0},
    {"qwen2", OWN "qwen2", 0, false, false, 0},
    {"llama scaled", OWN "llama_scaled", 0, false, false, 0},
    {"ministral3", OWN "ministral3", 0, false, false, 0},
    {"smollm3", OWN "smollm3", 0, false, false, 0},
    {"granite", OWN "granite", 0, false, false, 0},
    {"minicpm", OWN "minicpm", 0, false, false, 0},
    {"exaone4", OWN "exaone4", 8, false, false, 0},
    {"hunyuan", OWN "hunyuan", 0, false, false, 0},
    {"ernie4_5", OWN "ernie4_5", 0, false, false, 0},
    {"cohere2", OWN "cohere2", 8, false, false, 0},
    {"olmo2", OWN "olmo2", 0, false, false, 0},
    {"phi3", OWN "phi3", 0, false, false, 76},
    {"qwen3 moe", OWN "qwen3moe", 0, false, false, 0},
    {"lfm2 moe", OWN "lfm2moe", 0, true, false, 0},
    {"granite hybrid", OWN "granitehybrid", 0, true, false, 0},
    {"falcon-h1", OWN "falcon_h1", 0, true, false, 0},
    {"gemma4", OWN "gemma4", 8, false, false, 0},
    {"embeddinggemma", OWN "embeddinggemma", 16, false, true, 0},
};
#define N_FAMILIES (sizeof families / sizeof *families)

static void fill_ids(int32_t *ids, size_t n, int32_t n_vocab, unsigned seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = 3 + (int32_t)((seed >> 8) % (unsigned)(n_vocab - 3));
    }
}

#endif
