// Fuzzing of a whole model, as GGUF: opened, asked for tokens and a chat, reported on. Half of the
// inputs are read as where files cannot be mapped.
#include "base/file/blob.h"
#include "base/hash.h"
#include "fuzz/support.h"

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    return fuzz_mutate_gguf(bytes, n, room, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_blob_map_never(tern_crc32(0, bytes, n) & 1);
    fuzz_use_model(fuzz_write("model.gguf", bytes, n));
    return 0;
}
