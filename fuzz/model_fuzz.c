// Fuzzing of a whole model, as GGUF: opened, asked for tokens and a chat, reported on.
#include "fuzz/support.h"

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    return fuzz_mutate_gguf(bytes, n, room, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    fuzz_use_model(fuzz_write("model.gguf", bytes, n));
    return 0;
}
