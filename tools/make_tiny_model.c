// usage: make_tiny_model OUT.gguf [tiny|mid|2b] [SEED]
// Writes a BitNet with random weights: it runs like a real one, and its text means nothing. "2b"
// has the shape of BitNet b1.58 2B-4T (1.2 GB), for measuring speed and memory; "mid" is a quarter
// of that, for tests of memory that take seconds.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/tiny_model.h"

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
    const char *shape = argc > 2 ? argv[2] : "tiny";
    bool is_2b = strcmp(shape, "2b") == 0, is_mid = strcmp(shape, "mid") == 0;
    if (argc < 2 || (!is_2b && !is_mid && strcmp(shape, "tiny") != 0)) {
        fprintf(stderr, "usage: make_tiny_model OUT.gguf [tiny|mid|2b] [SEED]\n");
        return 2;
    }
    tiny_model_desc d = is_2b ? large : is_mid ? mid : tiny;
    d.head_type = TERN_DTYPE_F16;
    d.seed = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
    if (tiny_model_write(argv[1], &d, &err) == TERN_OK) return 0;
    fprintf(stderr, "make_tiny_model: %s\n", err.message);
    return 1;
}
