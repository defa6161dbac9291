// Fuzzing of the safetensors reader and of the code that turns its tensors into packed ternary
// weights: of bytes in memory, and of a file that is read.
#include <string.h>
#include "formats/file_private.h"
#include "fuzz/support.h"

static const char config[] =
    "{\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\"}}";

static tern_status read_all(tern_file *f, const tern_blob *all, tern_error *err) {
    TERN_TRY(tern_json_parse(&f->config, config, strlen(config), err));
    TERN_TRY(tern_safetensors_parse(f, 0, all, err));
    TERN_TRY(tern_file_index_tensors(f, err));
    return tern_hf_resolve_ternary(f, err);
}

static void look_at(const tern_blob *all) {
    tern_file *f;
    if (tern_file_new(&f, "fuzz", NULL) != TERN_OK) return;
    if (read_all(f, all, NULL) == TERN_OK) {
        uint64_t total = 0;
        for (size_t i = 0; i < f->n_tensors; i++) {
            const tern_tensor *t = &f->tensors[i];
            // A tensor of a type that is only listed may have no bytes.
            uint8_t last;
            if (t->bytes) (void)tern_blob_read(&t->data, t->bytes - 1, 1, &last, NULL);
            total += t->bytes;
            fuzz_require(tern_file_tensor(f, t->name) == t);
        }
        fuzz_require(total == f->tensor_bytes && total < all->n);
    }
    tern_file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const tern_blob memory = tern_blob_of(bytes, n);
    tern_blob_file *file;
    tern_blob all;
    look_at(&memory);
    tern_blob_map_never(true);
    if (tern_blob_open(&file, fuzz_write("model.safetensors", bytes, n), false, &all, NULL) !=
        TERN_OK)
        return 0;
    look_at(&all);
    tern_blob_close(file);
    return 0;
}
