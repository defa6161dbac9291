// Fuzzing of adapters for a small Llama: a GGUF file is part 0, PEFT's two files are 1 and 2.
#include <stdlib.h>
#include <unistd.h>
#include "fuzz/support.h"
#include "models/models.h"
#include "tests/support/tiny_model.h"

static tern_file *base;
static const tern_arch *arch;
static tern_config config;
static const char *const names[] = {"adapter.gguf", "adapter_config.json",
                                    "adapter_model.safetensors"};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const tiny_model_desc desc = {
        .arch = "llama", .n_layers = 1, .n_embd = 32, .n_ff = 32, .n_heads = 2, .n_kv_heads = 1};
    tern_error err;
    const char *path = fuzz_path("base.gguf");
    (void)argc, (void)argv;
    fuzz_require(tiny_model_write(path, &desc, &err) == TERN_OK &&
                 tern_file_open(&base, path, &err) == TERN_OK &&
                 tern_arch_read(base, &arch, &config, &err) == TERN_OK);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    return fuzz_mutate_parts(bytes, n, room, seed);
}

static void read_adapter(const char *path) {
    tern_adapters set = {0};
    tern_error err = {0};
    const tern_lora lora = {.path = path};
    tern_status status = tern_adapters_add(&set, &lora, base, arch, &config, &err);
    if (status == TERN_OK) status = tern_adapters_find_factors(&set, base, arch, &config, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    for (size_t i = 0; status == TERN_OK && i < set.n; i++) {
        const tern_adapter *p = &set.list[i];
        float *row = calloc((size_t)p->n_in, sizeof *row);
        fuzz_require(row && tern_adapters_find(&set, p->weight) && p->rank <= p->room);
        tern_adapter_merge_row(p, p->n_out - 1, row);
        free(row);
    }
    tern_adapters_free(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    fuzz_write_parts(bytes, n, names, 3);
    if (access(fuzz_path(names[0]), F_OK) == 0) read_adapter(fuzz_path(names[0]));
    if (access(fuzz_path(names[2]), F_OK) == 0) read_adapter(fuzz_path(names[2]));
    return 0;
}
