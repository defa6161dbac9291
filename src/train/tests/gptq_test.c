// Rounding of matrices by the products of their inputs: errors, bits, and what goes into matrices.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/dtype.h"
#include "runtime/runtime.h"
#include "tasks/tasks.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"
#include "train/ternarize/gptq.h"

enum { ROWS = 24, COLS = 512, INPUTS = 2000 };

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 40) + 0.5) * 0x1p-24;
}

static float normal(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform(state);
    return (float)sum;
}

// Inputs whose neighbours are alike, some larger than others; one is always 0.
static float *make_products(size_t n_inputs) {
    float *h = calloc((size_t)COLS * COLS, sizeof *h), x[COLS];
    uint64_t state = 7;
    CHECK(h != NULL);
    for (size_t r = 0; h && r < n_inputs; r++) {
        float last = 0;
        for (int i = 0; i < COLS; i++) {
            last = 0.9f * last + normal(&state);
            x[i] = i == 33 ? 0 : last * (i % 7 == 0 ? 3.0f : 1.0f);
        }
        for (int i = 0; i < COLS; i++)
            for (int k = 0; k < COLS; k++) h[i * COLS + k] += x[i] * x[k];
    }
    return h;
}

static double error_of(const float *w, const float *q, const float *h) {
    double all = 0;
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < COLS; i++) {
            double sum = 0;
            for (int k = 0; k < COLS; k++)
                sum +=
                    ((double)w[r * COLS + k] - (double)q[r * COLS + k]) * (double)h[i * COLS + k];
            all += sum * ((double)w[r * COLS + i] - (double)q[r * COLS + i]);
        }
    return all;
}

static void round_by(tern_dtype type, float *rows, const float *products, int n_threads) {
    static const size_t shape[2] = {ROWS, COLS};
    tern_error err;
    tern_gptq *s;
    REQUIRE_OK(tern_gptq_open(&s, n_threads, &err), err);
    REQUIRE_OK(tern_gptq_round(s, type, rows, shape, products, &err), err);
    tern_gptq_close(s);
}

// Against rounding weighted by the diagonal alone, 0.20 to 0.22 of the error of products: without
// descent 0.24 to 0.33, without feedback 0.23 to 0.28. The numbers are the type's, and the same
// with any number of threads. Seen to fail: with errors that are not carried on, with pulls that
// are not updated, with a scale that is not rounded.
TEST(gptq_lowers_the_error_of_products) {
    static const tern_dtype types[] = {TERN_DTYPE_PQ2_0, TERN_DTYPE_Q2_0, TERN_DTYPE_TQ2_0,
                                       TERN_DTYPE_Q1_0};
    float w[ROWS * COLS], alone[ROWS * COLS], q[ROWS * COLS], again[ROWS * COLS], sizes[COLS];
    float *h = make_products(INPUTS);
    uint64_t state = 1;
    for (int i = 0; i < ROWS * COLS; i++) w[i] = 0.02f * normal(&state);
    for (int i = 0; i < COLS; i++) sizes[i] = h[i * COLS + i];
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int r = 0; r < ROWS; r++)
            tern_dtype_round(types[t], w + r * COLS, sizes, COLS, alone + r * COLS, NULL);
        memcpy(q, w, sizeof q);
        round_by(types[t], q, h, 1);
        memcpy(again, w, sizeof again);
        round_by(types[t], again, h, 3);
        CHECK(memcmp(q, again, sizeof q) == 0);
        tern_dtype_round(types[t], q, NULL, ROWS * COLS, again, NULL);
        CHECK_MSG(memcmp(q, again, sizeof q) == 0, "%s", tern_dtype_name(types[t]));
        const double ratio = error_of(w, q, h) / error_of(w, alone, h);
        CHECK_MSG(ratio > 0 && ratio < 0.22, "%s: %g of the error", tern_dtype_name(types[t]),
                  ratio);
    }
    free(h);
}

// Fewer inputs than columns, or none.
TEST(gptq_takes_any_products) {
    float w[ROWS * COLS], q[ROWS * COLS];
    uint64_t state = 1;
    for (int i = 0; i < ROWS * COLS; i++) w[i] = i / COLS == 3 ? 0 : 0.02f * normal(&state);
    for (size_t n = 0; n <= 40; n += 40) {
        float *h = make_products(n);
        memcpy(q, w, sizeof q);
        round_by(TERN_DTYPE_PQ2_0, q, h, 2);
        for (int i = 0; i < ROWS * COLS; i++)
            if (!isfinite(q[i]) || (i / COLS == 3 && q[i] != 0))
                CHECK_MSG(false, "%d: %g", i, q[i]);
        free(h);
    }
}

// ---- What goes into matrices -------------------------------------------------------------------

static void open_products(tern_products **out, tern_model *m, const int32_t *ids, uint64_t bytes) {
    tern_error err;
    const tern_products_desc d = {
        .ids = ids, .n_ids = 21, .window = 8, .max_bytes = bytes, .n_threads = 2};
    REQUIRE_OK(tern_products_open(out, m, &d, &err), err);
}

// With room for one input's products, for some or for all they are the same, and their diagonal is
// what tern_imatrix has; experts have none. Seen to fail: with rows of one window left out, with
// sums that are kept from the pass before.
TEST(gptq_products_are_those_of_the_text) {
    static const char *const models[] = {"tests/oracles/qwen3moe/model.gguf",
                                         "tests/oracles/falcon_h1", "tests/oracles/phi3"};
    static const uint64_t room[] = {1, 50000, (uint64_t)1 << 30};
    int32_t ids[21];
    for (int i = 0; i < 21; i++) ids[i] = (i * 7 + 3) % 40;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        tern_error err;
        tern_model *m;
        tern_file *f;
        const char *out = test_tmp("products.gguf");
        const tern_imatrix_desc d = {.window = 8, .ids = ids, .n_ids = 21};
        size_t n_seen = 0;
        REQUIRE_OK(tern_model_open(&m, models[k], &(tern_model_desc){.n_threads = 1}, &err), err);
        REQUIRE_OK(tern_imatrix(m, out, &d, NULL, &err), err);
        REQUIRE_OK(tern_file_open(&f, out, &err), err);
        tern_products *p[3];
        for (int i = 0; i < 3; i++) open_products(&p[i], m, ids, room[i]);
        for (size_t i = 0; i < f->n_tensors; i++) {
            const tern_tensor *sums = &f->tensors[i];
            const float *x[3];
            char name[128];
            const size_t length = strlen(sums->name), n = (size_t)sums->ne[0];
            if (!tern_name_ends(sums->name, ".in_sum2")) continue;
            snprintf(name, sizeof name, "%.*s", (int)(length - 8), sums->name);
            for (int r = 0; r < 3; r++) REQUIRE_OK(tern_products_of(p[r], name, &x[r], &err), err);
            CHECK_MSG((x[0] == NULL) == (strstr(name, "exps") != NULL), "%s", name);
            if (!x[0]) continue;
            n_seen++;
            CHECK_MSG(memcmp(x[0], x[1], n * n * sizeof(float)) == 0 &&
                          memcmp(x[0], x[2], n * n * sizeof(float)) == 0,
                      "%s differs by memory", name);
            const float *want = test_bytes(&sums->data);
            for (size_t c = 0; c < n; c++)
                if (fabsf(x[0][c * n + c] - want[c]) > 1e-4f * (want[c] + 1e-6f))
                    CHECK_MSG(false, "%s, %zu: %g, not %g", name, c, (double)x[0][c * n + c],
                              (double)want[c]);
        }
        CHECK_MSG(n_seen > 4, "%s: %zu", models[k], n_seen);
        for (int i = 0; i < 3; i++) tern_products_close(p[i]);
        tern_file_close(f);
        tern_model_close(m);
    }
}
