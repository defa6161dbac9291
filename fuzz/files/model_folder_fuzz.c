// Fuzzing of a whole model, as a Hugging Face folder: its files are the parts of the input.
#include <string.h>
#include "fuzz/support.h"

static const char *const names[] = {"config.json",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "generation_config.json",
                                    "chat_template.jinja",
                                    "model.safetensors",
                                    "model.safetensors.index.json",
                                    "part.safetensors"};

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    return fuzz_mutate_parts(bytes, n, room, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    fuzz_write_parts(bytes, n, names, sizeof names / sizeof *names);
    char folder[512];
    const char *path = fuzz_path("config.json");
    size_t n_folder = (size_t)(strrchr(path, '/') - path);
    memcpy(folder, path, n_folder);
    folder[n_folder] = 0;
    fuzz_use_model(folder);
    return 0;
}
