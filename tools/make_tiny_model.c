// usage: make_tiny_model OUT.gguf [SEED]   writes a small BitNet with random weights: it runs like a
// real one, and its text means nothing.
#include <stdio.h>
#include <stdlib.h>
#include "tests/tiny_model.h"

int main(int argc, char **argv) {
    tern_error err = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: make_tiny_model OUT.gguf [SEED]\n");
        return 2;
    }
    tiny_model_desc d = {.head_type = TERN_DTYPE_F16, .n_layers = 4, .n_embd = 256, .n_ff = 768,
                         .seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1};
    if (tiny_model_write(argv[1], &d, &err) == TERN_OK) return 0;
    fprintf(stderr, "make_tiny_model: %s\n", err.message);
    return 1;
}
