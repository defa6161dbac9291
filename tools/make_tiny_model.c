// usage: make_tiny_model OUT.gguf [SHAPE] [SEED]
// Writes a model with random weights: it runs like a real one, and its text means nothing. Shapes:
//   tiny          a small BitNet, whose text can be printed
//   2b            BitNet b1.58 2B-4T (1.2 GB), for measuring speed and memory
//   mid           a quarter of that, for tests of memory that take seconds
//   bonsai-1.7b   PrismML's Bonsai 1.7B: Qwen3 in Q2_0, embeddings and head too (0.48 GB); with
//                 -q1_0 and -pq2_0 in those types
//   bonsai-2-2b   PrismML's Bonsai 2 2B: Qwen3.5 in PQ2_0 (0.51 GB), said to be rotated
//   qwen3-0.6b ...
//                 the models of tests/support/real_shapes.c in BF16; with -q8_0 and -q4_0 in those
//                 types
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/support/real_shapes.h"
#include "tests/support/tiny_model.h"

// NAME or NAME-TYPE of tests/support/real_shapes.c. False: there is no such shape.
static bool find_real(const char *name, const real_shape **shape, tern_dtype *type) {
    const char *end = strrchr(name, '-');
    *type = TERN_DTYPE_BF16;
    *shape = real_shape_find(name, strlen(name));
    if (*shape || !end || !tern_dtype_from_name(end + 1, type)) return *shape != NULL;
    *shape = real_shape_find(name, (size_t)(end - name));
    return *shape != NULL;
}

static int say(tern_status status, const tern_error *err) {
    if (status != TERN_OK) fprintf(stderr, "make_tiny_model: %s\n", err->message);
    return status != TERN_OK;
}

int main(int argc, char **argv) {
    tern_error err = {0};
    tiny_model_desc tiny = {.n_layers = 4, .n_embd = 256, .n_ff = 768, .readable = true};
    tiny_model_desc mid = {.n_layers = 12,
                           .n_embd = 1536,
                           .n_ff = 4096,
                           .n_heads = 12,
                           .n_kv_heads = 3,
                           .n_context = 2048,
                           .n_vocab = 64128};
    tiny_model_desc large = {.n_layers = 30,
                             .n_embd = 2560,
                             .n_ff = 6912,
                             .n_heads = 20,
                             .n_kv_heads = 5,
                             .n_context = 4096,
                             .n_vocab = 128256};
    tiny_model_desc bonsai = {.arch = "qwen3",
                              .type = TERN_DTYPE_Q2_0,
                              .n_layers = 28,
                              .n_embd = 2048,
                              .n_ff = 6144,
                              .n_heads = 16,
                              .n_kv_heads = 8,
                              .n_context = 32768,
                              .n_vocab = 151936};
    tiny_model_desc bonsai2 = {.arch = "qwen35",
                               .type = TERN_DTYPE_PQ2_0,
                               .n_layers = 24,
                               .n_embd = 2048,
                               .n_ff = 6144,
                               .n_heads = 8,
                               .n_kv_heads = 2,
                               .n_context = 262144,
                               .n_vocab = 248320,
                               .rotation = 512};
    tiny_model_desc llama = {.arch = "llama",
                             .n_layers = 16,
                             .n_embd = 2048,
                             .n_ff = 8192,
                             .n_heads = 32,
                             .n_kv_heads = 8,
                             .n_context = 8192,
                             .n_vocab = 128256};
    tiny_model_desc qwen = {.arch = "qwen3",
                            .n_layers = 28,
                            .n_embd = 1024,
                            .n_ff = 3072,
                            .n_heads = 16,
                            .n_kv_heads = 8,
                            .head_dim = 128,
                            .n_context = 8192,
                            .n_vocab = 151936};
    tiny_model_desc gemma = {.arch = "gemma3",
                             .n_layers = 26,
                             .n_embd = 1152,
                             .n_ff = 6912,
                             .n_heads = 4,
                             .n_kv_heads = 1,
                             .head_dim = 256,
                             .n_context = 8192,
                             .n_vocab = 262144};
    const struct {
        const char *name;
        const tiny_model_desc *desc;
        tern_dtype type, head_type; // F32: the desc's
    } shapes[] = {
        {"tiny", &tiny, TERN_DTYPE_F32, TERN_DTYPE_F16},
        {"mid", &mid, TERN_DTYPE_F32, TERN_DTYPE_F16},
        {"2b", &large, TERN_DTYPE_F32, TERN_DTYPE_F16},
        {"llama-1b", &llama, TERN_DTYPE_BF16, TERN_DTYPE_BF16},
        {"qwen-0.6b", &qwen, TERN_DTYPE_BF16, TERN_DTYPE_BF16},
        {"gemma-1b", &gemma, TERN_DTYPE_BF16, TERN_DTYPE_BF16},
        {"bonsai-1.7b", &bonsai, TERN_DTYPE_Q2_0, TERN_DTYPE_Q2_0},
        {"bonsai-1.7b-pq2_0", &bonsai, TERN_DTYPE_PQ2_0, TERN_DTYPE_PQ2_0},
        {"bonsai-1.7b-q1_0", &bonsai, TERN_DTYPE_Q1_0, TERN_DTYPE_Q1_0},
        {"bonsai-2-2b", &bonsai2, TERN_DTYPE_PQ2_0, TERN_DTYPE_PQ2_0},
    };
    enum { N_SHAPES = sizeof shapes / sizeof *shapes };
    const char *shape = argc > 2 ? argv[2] : "tiny";
    unsigned seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
    const real_shape *real;
    tern_dtype type;
    if (argc > 2 && find_real(shape, &real, &type))
        return say(real_shape_write(argv[1], real, type, 1, seed, &err), &err);
    size_t which = 0;
    while (which < N_SHAPES && strcmp(shape, shapes[which].name) != 0) which++;
    if (argc < 2 || which == N_SHAPES) {
        fprintf(stderr, "usage: make_tiny_model OUT.gguf [SHAPE] [SEED]; shapes:");
        for (size_t i = 0; i < N_SHAPES; i++) fprintf(stderr, " %s", shapes[i].name);
        for (real = real_shapes; real->name; real++) fprintf(stderr, " %s[-TYPE]", real->name);
        fprintf(stderr, "\n");
        return 2;
    }
    tiny_model_desc d = *shapes[which].desc;
    if (shapes[which].type != TERN_DTYPE_F32) d.type = shapes[which].type;
    d.head_type = shapes[which].head_type;
    d.seed = seed;
    return say(tiny_model_write(argv[1], &d, &err), &err);
}
