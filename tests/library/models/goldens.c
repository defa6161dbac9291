#include "tests/library/models/goldens.h"

#include <math.h>
#include "tests/support/blobs.h"
#include "tests/support/harness.h"

const tern_tensor *golden_tensor(const tern_file *file, const char *name) {
    const tern_tensor *t = tern_file_tensor(file, name);
    CHECK_MSG(t, "the golden file has no %s", name);
    return t;
}

size_t golden_count(const tern_tensor *t) {
    return (size_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
}

double golden_distance(const float *a, const float *b, size_t n) {
    double worst = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        most = fmax(most, fabs((double)b[i]));
    }
    return worst / most;
}

void golden_check(const tern_array *a, const tern_tensor *want, double bound) {
    size_t n = (size_t)(a->dims[0] * a->dims[1]);
    CHECK_MSG(n == golden_count(want), "%s has %zu numbers, not %zu", a->name, n,
              golden_count(want));
    if (n != golden_count(want)) return;
    double d = golden_distance(a->data, test_bytes(&want->data), n);
    CHECK_MSG(d <= bound, "%s is %g off", a->name, d);
}

void golden_check_heard(tern_model *m, const tern_file *file, const tern_array *in,
                        const char *rows_name, const char *ids_name, double bound) {
    tern_error err = {0};
    const tern_tensor *rows = golden_tensor(file, rows_name), *ids = golden_tensor(file, ids_name);
    tern_array out = {.name = "encoded"}, logits = {.name = "logits"};
    tern_compute_desc encoder = {
        .graph = "encoder", .inputs = in, .n_inputs = 1, .outputs = &out, .n_outputs = 1};
    CHECK_MSG(tern_compute(m, &encoder, &err) == TERN_OK, "%s", err.message);
    if (out.data) golden_check(&out, rows, bound);
    tern_array given[] = {{.name = "ids",
                           .type = TERN_ARRAY_I32,
                           .n_dims = 1,
                           .dims = {(int64_t)golden_count(ids)},
                           .data = (void *)(uintptr_t)test_bytes(&ids->data)},
                          {.name = "encoded",
                           .n_dims = 2,
                           .dims = {(int64_t)rows->ne[1], (int64_t)rows->ne[0]},
                           .data = (void *)(uintptr_t)test_bytes(&rows->data)}};
    tern_compute_desc decoder = {
        .inputs = given, .n_inputs = 2, .outputs = &logits, .n_outputs = 1};
    CHECK_MSG(tern_compute(m, &decoder, &err) == TERN_OK, "%s", err.message);
    if (logits.data) golden_check(&logits, golden_tensor(file, "logits"), bound);
    tern_array_free(&out);
    tern_array_free(&logits);
}
