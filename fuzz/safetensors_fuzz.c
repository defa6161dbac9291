// Fuzzing of the safetensors reader and of the code that turns its tensors into packed ternary
// weights.
#include <stdlib.h>
#include <string.h>
#include "formats/file_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static const char config[] =
    "{\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\"}}";

static void require(bool ok) {
    if (!ok) abort();
}

static tern_status read_all(tern_file *f, const uint8_t *bytes, size_t n, tern_error *err) {
    TERN_TRY(tern_json_parse(&f->config, config, strlen(config), err));
    TERN_TRY(tern_safetensors_parse(f, 0, bytes, n, err));
    TERN_TRY(tern_file_index_tensors(f, err));
    return tern_hf_resolve_ternary(f, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_file *f;
    tern_error err;
    if (tern_file_new(&f, "fuzz", &err) != TERN_OK) return 0;
    if (read_all(f, bytes, n, &err) == TERN_OK) {
        uint64_t total = 0;
        for (size_t i = 0; i < f->n_tensors; i++) {
            const tern_tensor *t = &f->tensors[i];
            // A tensor of a type that is only listed may have no bytes.
            volatile uint8_t last = t->bytes ? ((const uint8_t *)t->data)[t->bytes - 1] : 0;
            (void)last;
            total += t->bytes;
            require(tern_file_tensor(f, t->name) == t);
        }
        require(total == f->tensor_bytes && total < n);
    }
    tern_file_close(f);
    return 0;
}
