// Writes tiny seeded GGUF models: for tests that must not depend on data outside the repository,
// and for `make run` until a trained model is carried.
#ifndef TERN_TESTS_TINY_MODEL_H
#define TERN_TESTS_TINY_MODEL_H

#include "base/dtype/dtype.h"
#include "base/status.h"
#include "formats/formats.h"

typedef struct tiny_model_desc { // zero: the default in brackets
    const char *arch;     // ["bitnet-b1.58"], or "llama", "qwen3", "qwen35", "gemma3", "lfm2"
    const char *name;     // ["tiny seeded model"]
    tern_dtype type;      // of the matrices; F32 (0) is I2_S for bitnet, BF16: masters
    tern_dtype head_type; // of embedding and head [F32]; use F16 for the usual
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, n_context; // [2, 128, 384, 4, 2, 512]
    int head_dim;                                               // [n_embd / n_heads]
    int n_vocab; // rows of the table [300], at least that many
    bool separate_head;
    int rotation;  // > 0: says that the weights are rotated in blocks of so many columns
    bool readable; // the table favours letters, so that what is generated can be printed
    unsigned seed;
    uint64_t split_bytes;
} tiny_model_desc;

// The tokenizer has 300 tokens: 3 special ones, the 256 bytes, a few merges.
#define TINY_N_VOCAB 300

// Its vocabulary alone.
tern_status tiny_model_put_tokenizer(tern_gguf_writer *w);
tern_status tiny_model_write(const char *path, const tiny_model_desc *desc, tern_error *err);
// A LoRA adapter of such a model of the usual shape. Those of an even and an odd seed adapt
// different matrices, but for one.
tern_status tiny_adapter_write(const char *path, const char *arch, int rank, int seed,
                               tern_error *err);

#endif
