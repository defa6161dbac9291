// Reading the GGUF files of others.
#include <stdio.h>
#include "formats/file_private.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"

static void check_opens(const char *path, size_t n_tensors_min) {
    tern_file *f;
    tern_error err = {0};
    REQUIRE_OK(tern_file_open(&f, path, &err), err);
    CHECK_MSG(f->n_tensors >= n_tensors_min, "%s: %zu tensors", path, f->n_tensors);
    tern_str arch;
    CHECK(tern_file_meta_str(f, "general.architecture", &arch) && arch.len > 0);
    for (size_t i = 0; i < f->n_tensors; i++) {
        CHECK(tern_file_tensor(f, f->tensors[i].name) == &f->tensors[i]);
        CHECK((uintptr_t)test_bytes(&f->tensors[i].data) % 32 == 0);
        tern_blob_drop(&f->tensors[i].data);
    }
    tern_file_close(f);
}

TEST(gguf_opens_real_models) {
    static const char *const types[] = {"Q4_K", "Q6_K", "Q8_0", "TQ1_0", "TQ2_0"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[64];
        snprintf(name, sizeof name, "models/bitllama2c/bit3M.%s.gguf", types[i]);
        const char *path = test_data(name);
        if (!path) return;
        check_opens(path, 90);
    }
    const char *f16 = test_data("models/stories260K/stories260K.F16.gguf");
    const char *bf16 = test_data("models/stories260K/stories260K.BF16.gguf");
    if (f16) check_opens(f16, 47);
    if (bf16) check_opens(bf16, 47);
}

TEST(gguf_opens_real_vocabularies) {
    static const char *const names[] = {"ggml-vocab-bert-bge", "ggml-vocab-gpt-2",
                                        "ggml-vocab-llama-spm", "vocab-llama3_1", "vocab-qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "tokenizers/gguf/%s.gguf", names[i]);
        const char *path = test_data(name);
        if (!path) return;
        check_opens(path, 0);
    }
}
