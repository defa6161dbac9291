// Models of the families that tests make: a config.json of a few small layers, and a folder with
// every tensor that its graph reads.
#ifndef TERN_TESTS_FAMILIES_FIXTURE_H
#define TERN_TESTS_FAMILIES_FIXTURE_H

#include "formats/formats.h"
#include "models/models.h"
#include "tests/support/harness.h"

#define N_VOCAB 40

typedef struct made_tensor {
    char name[128];
    uint64_t shape[3];
    int n_dims;
} made_tensor;

bool family_write_tensors(const char *folder, const char *config, const made_tensor *list, int n);
// A folder with this config.json and every tensor that its graph reads, and one more.
bool family_make_folder(const char *folder, const char *config, int64_t n_embd, const char *prefix,
                        const char *extra);

typedef struct opened {
    tern_file *file;
    const tern_arch *arch;
    tern_config c;
} opened;

bool family_open_config(opened *o, const char *path, tern_error *err);
// And its tensors are all there.
bool family_open_model(opened *o, const char *path);
void family_convert(const char *in, const char *out);

// What a config means.
typedef struct spelling {
    const char *json, *prefix, *extra;
    const char *arch;
    const char *layers; // F, W, C, D; f: without RoPE
    int32_t window;
    double base, window_base, factor, query_scalar;
    int64_t n_heads, head_dim, n_rot;
    tern_pooling pooling;
} spelling;
void family_check_facts(const char *what, const opened *o, const spelling *s);

// ---- Configs -----------------------------------------------------------------------------------

#define QWEN3                                                                                      \
    "\"model_type\": \"qwen3\", \"hidden_size\": 16, \"intermediate_size\": 24, "                  \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"tie_word_embeddings\": true"
#define QWEN35_SIZES                                                                               \
    "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 4, "                   \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, "                    \
    "\"linear_conv_kernel_dim\": 4, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 6, "  \
    "\"linear_key_head_dim\": 3, \"linear_value_head_dim\": 5"
#define QWEN35                                                                                     \
    "{\"model_type\": \"qwen3_5_text\", " QWEN35_SIZES                                             \
    ", \"full_attention_interval\": 2, \"partial_rotary_factor\": 0.5}"
#define LFM2                                                                                       \
    "\"model_type\": \"lfm2\", \"hidden_size\": 16, \"intermediate_size\": 24, "                   \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"conv_L_cache\": 3"
#define LFM2_CFC "{" LFM2 ", \"full_attn_idxs\": [1]}"
// Older ones have not intermediate_size.
#define LFM2_FIRST                                                                                 \
    "\"model_type\": \"lfm2\", \"hidden_size\": 16, \"block_ff_dim\": 36, "                        \
    "\"block_auto_adjust_ff_dim\": true, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "   \
    "\"num_key_value_heads\": 2, \"conv_L_cache\": 3"
// Three layers that make keys and values, three that read them.
#define GEMMA4                                                                                     \
    "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 6, "                   \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, "                    \
    "\"sliding_window\": 6, \"num_kv_shared_layers\": 3, \"use_double_wide_mlp\": true, "          \
    "\"hidden_size_per_layer_input\": 4, \"final_logit_softcapping\": 30, "                        \
    "\"per_layer_config\": {\"2\": {\"head_dim\": 16}, \"5\": {\"head_dim\": 16}}, "               \
    "\"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"full_attention\", "         \
    "\"sliding_attention\", \"sliding_attention\", \"full_attention\"], "                          \
    "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 2000}, "                           \
    "\"sliding_attention\": {\"rope_theta\": 300}}"
#define GEMMA                                                                                      \
    "\"hidden_size\": 16, \"intermediate_size\": 24, \"num_hidden_layers\": 7, "                   \
    "\"sliding_window\": 6"
#define FEW_HEADS                                                                                  \
    ", \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "                                   \
    "\"head_dim\": 8"
#define SMALL(type)                                                                                \
    "\"model_type\": \"" type "\", \"hidden_size\": 16, \"intermediate_size\": 24, "               \
    "\"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"tie_word_embeddings\": true"
#define NESTED(type, inside) "{\"model_type\": \"" type "\", \"text_config\": {" inside "}}"

#endif
