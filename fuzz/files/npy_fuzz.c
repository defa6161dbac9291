// Fuzzing of the reader of NPY: an accepted array has the elements that its shape says, and is
// written as a file that means the same.
#include <string.h>
#include "formats/formats.h"
#include "fuzz/support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_array a = {0}, again = {0};
    tern_error err;
    if (tern_npy_parse(&a, "fuzz", bytes, n, &err) != TERN_OK) return 0;
    size_t n_elements = 1;
    for (int32_t i = 0; i < a.n_dims; i++) n_elements *= (size_t)a.dims[i];
    const char *path = fuzz_path("array.npy");
    if (tern_array_write(&a, path, &err) == TERN_OK &&
        tern_array_read(&again, path, &err) == TERN_OK) {
        fuzz_require(a.type == again.type && a.n_dims == again.n_dims);
        fuzz_require(memcmp(a.dims, again.dims, sizeof a.dims) == 0);
        fuzz_require(n_elements == 0 || memcmp(a.data, again.data, 4 * n_elements) == 0);
    }
    tern_array_free(&a);
    tern_array_free(&again);
    return 0;
}
