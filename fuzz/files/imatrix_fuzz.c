// Fuzzing of the readers of importance matrices: GGUF, which a file is, and the older form. What is
// accepted has names and means of squares, as many as it says.
#include <math.h>
#include <string.h>
#include "fuzz/support.h"
#include "tasks/imatrix/imatrix.h"

static void check(const tern_importances *s) {
    fuzz_require(s->n > 0);
    for (size_t i = 0; i < s->n; i++) {
        const tern_importance *m = &s->list[i];
        fuzz_require(m->name[0] != 0 && m->n > 0);
        fuzz_require(tern_importances_find(s, m->name) != NULL);
        for (size_t k = 0; k < m->n; k++) fuzz_require(isfinite(m->means[k]) && m->means[k] >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_importances s = {0};
    tern_error err;
    if (tern_importances_parse(&s, "fuzz", bytes, n, &err) == TERN_OK) check(&s);
    tern_importances_free(&s);
    const char *path = fuzz_write("fuzz.imatrix", bytes, n);
    if (tern_importances_read(&s, path, &err) == TERN_OK) check(&s);
    tern_importances_free(&s);
    return 0;
}
