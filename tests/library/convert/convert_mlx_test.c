// Conversion to folders of MLX's form.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "tests/support/blobs.h"
#include "formats/formats.h"
#include "tests/support/harness.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

static const tiny_model_desc llama = {.arch = "llama",
                                      .type = TERN_DTYPE_BF16,
                                      .head_type = TERN_DTYPE_BF16,
                                      .n_embd = 128,
                                      .n_ff = 320,
                                      .separate_head = true,
                                      .seed = 85};

static float read_16(const uint8_t *at, tern_dtype type, uint64_t i) {
    uint16_t bits;
    memcpy(&bits, at + 2 * i, 2);
    return type == TERN_DTYPE_BF16 ? tern_bf16_to_f32(bits) : tern_f16_to_f32(bits);
}

// x.weight, x.scales and x.biases as another program finds them, without what config.json says:
// [rows, cols] as scale * code + bias. NULL: they are not there.
static float *unpack(const tern_file *raw, const char *stem, int bits, uint64_t group,
                     uint64_t rows, uint64_t cols) {
    static const char *const ends[] = {"weight", "scales", "biases"};
    const tern_tensor *t[3];
    char name[160];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", stem, ends[i]);
        t[i] = tern_file_tensor(raw, name);
        CHECK_MSG(t[i] && t[i]->ne[1] == rows, "%s", name);
        if (!t[i] || t[i]->ne[1] != rows) return NULL;
    }
    CHECK(t[0]->type == TERN_DTYPE_U32 && t[0]->ne[0] == cols * (uint64_t)bits / 32);
    CHECK(t[1]->ne[0] == cols / group && t[2]->ne[0] == cols / group && t[1]->type == t[2]->type);
    float *x = malloc(rows * cols * sizeof *x);
    const uint8_t *words = test_bytes(&t[0]->data), *scales = test_bytes(&t[1]->data),
                  *biases = test_bytes(&t[2]->data);
    for (uint64_t i = 0; i < rows * cols; i++) {
        uint32_t word;
        uint64_t bit = i % cols * (uint64_t)bits, g = i / cols * (cols / group) + i % cols / group;
        memcpy(&word, words + 4 * (i / cols * t[0]->ne[0] + bit / 32), 4);
        x[i] = read_16(scales, t[1]->type, g) * (float)(word >> bit % 32 & ((1u << bits) - 1)) +
               read_16(biases, t[2]->type, g);
    }
    return x;
}

static double error_of(const float *x, const float *want, size_t n) {
    double miss = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        miss += ((double)x[i] - (double)want[i]) * ((double)x[i] - (double)want[i]);
        power += (double)want[i] * (double)want[i];
    }
    return sqrt(miss / power);
}

// Every packed matrix is near the original, and is what tern's own reader makes of the folder; in
// the end it has no config.json any more.
static void check_folder(const char *folder, const tern_file *floats, int bits, uint64_t group,
                         double bound) {
    tern_file *read, *raw;
    tern_error err = {0};
    char path[512], stem[128];
    size_t n_packed = 0, n_wrong = 0;
    REQUIRE_OK(tern_file_open(&read, folder, &err), err);
    CHECK_MSG(read->packing && strncmp(read->packing, "MLX", 3) == 0, "%s", read->packing);
    snprintf(path, sizeof path, "%s/config.json", folder);
    REQUIRE(remove(path) == 0);
    REQUIRE_OK(tern_file_open(&raw, folder, &err), err);
    for (size_t i = 0; i < floats->n_tensors; i++) {
        const tern_tensor *t = &floats->tensors[i], *mine = tern_file_tensor(read, t->name);
        size_t n = (size_t)(t->ne[0] * t->ne[1]);
        REQUIRE(mine != NULL);
        if (t->n_dims < 2 || t->ne[0] % group) {
            CHECK_MSG(mine->type == t->type, "%s", t->name);
            continue;
        }
        n_packed++;
        snprintf(stem, sizeof stem, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
        float *want = malloc(n * 4), *got = malloc(n * 4);
        float *other = unpack(raw, stem, bits, group, t->ne[1], t->ne[0]);
        CHECK(tern_tensor_decode(t, want, &err) == TERN_OK);
        CHECK(tern_tensor_decode(mine, got, &err) == TERN_OK);
        CHECK_MSG(error_of(got, want, n) <= bound, "%s: %g", t->name, error_of(got, want, n));
        for (size_t k = 0; other && k < n; k++)
            if (fabsf(other[k] - got[k]) > 1e-6f * fabsf(got[k]) + 1e-9f) n_wrong++;
        free(want);
        free(got);
        free(other);
    }
    CHECK_MSG(n_packed > 10 && n_wrong == 0, "%zu packed, %zu wrong", n_packed, n_wrong);
    tern_file_close(raw);
    tern_file_close(read);
}

// From a GGUF and from a folder. Seen to fail: with offsets a twentieth too large, with biases
// before scales, with the groups of another size said in config.json.
TEST(convert_writes_folders_of_mlx) {
    static const struct {
        tern_type type;
        int group, bits;
        double bound;
    } cases[] = {{TERN_TYPE_MLX_Q4, 0, 4, 0.095},
                 {TERN_TYPE_MLX_Q4, 32, 4, 0.085},
                 {TERN_TYPE_MLX_Q4, 128, 4, 0.11},
                 {TERN_TYPE_MLX_Q8, 0, 8, 0.006},
                 {TERN_TYPE_MLX_Q8, 32, 8, 0.006}};
    tern_error err = {0};
    const char *from = test_tmp("mlx.gguf"), *plain = test_tmp("mlx_floats");
    REQUIRE_OK(tiny_model_write(from, &llama, &err), err);
    REQUIRE_OK(tern_convert(from, plain, NULL, &err), err);
    tern_file *floats;
    REQUIRE_OK(tern_file_open(&floats, plain, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_convert_desc to = {.type = cases[i].type, .group_size = cases[i].group};
        const char *out = test_tmp("mlx_out");
        REQUIRE_OK(tern_convert(i % 2 ? plain : from, out, &to, &err), err);
        check_folder(out, floats, cases[i].bits, cases[i].group ? (uint64_t)cases[i].group : 64,
                     cases[i].bound);
    }
    tern_file_close(floats);
}

// Seen to fail: it was said to be no ternary weights, and the reason was not.
TEST(convert_of_mlx_says_why_it_is_not_ternary) {
    const char *from = test_tmp("mlx_four.gguf"), *mlx = test_tmp("mlx_four");
    const char *out = test_tmp("mlx_four_out.gguf");
    tern_convert_desc to = {.type = TERN_TYPE_MLX_Q4, .group_size = 32};
    tern_error err = {0};
    REQUIRE_OK(tiny_model_write(from, &llama, &err), err);
    REQUIRE_OK(tern_convert(from, mlx, &to, &err), err);
    const tern_type types[] = {TERN_TYPE_I2_S, TERN_TYPE_TQ2_0};
    for (int i = 0; i < 2; i++) {
        CHECK(tern_convert(mlx, out, &(tern_convert_desc){.type = types[i]}, &err) != TERN_OK);
        CHECK_MSG(strstr(err.message, "a scale for each group of 32 weights"), "%s", err.message);
    }
}

// It runs, and a second rounding adds little.
TEST(convert_to_mlx_runs) {
    static const int32_t ids[] = {1, 70, 100, 33, 259, 5};
    enum { N = sizeof ids / sizeof *ids };
    static float want[N * TINY_N_VOCAB], got[N * TINY_N_VOCAB], again[N * TINY_N_VOCAB];
    const char *from = test_tmp("mlx_run.gguf"), *out = test_tmp("mlx_run");
    const char *twice = test_tmp("mlx_twice");
    const char *const paths[] = {from, out, twice};
    float *const logits[] = {want, got, again};
    tern_convert_desc to = {.type = TERN_TYPE_MLX_Q8};
    tern_error err = {0};
    REQUIRE_OK(tiny_model_write(from, &llama, &err), err);
    REQUIRE_OK(tern_convert(from, out, &to, &err), err);
    REQUIRE_OK(tern_convert(out, twice, &to, &err), err);
    for (int i = 0; i < 3; i++) {
        tern_model *model;
        tern_session *session;
        tern_model_desc precise = {.precise = true};
        REQUIRE_OK(tern_model_open(&model, paths[i], &precise, &err), err);
        REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
        REQUIRE_OK(tern_session_logits(session, ids, N, logits[i], &err), err);
        tern_session_close(session);
        tern_model_close(model);
    }
    CHECK_MSG(error_of(got, want, N * TINY_N_VOCAB) < 0.03, "%g",
              error_of(got, want, N * TINY_N_VOCAB));
    CHECK_MSG(error_of(again, got, N * TINY_N_VOCAB) < 1e-2, "%g",
              error_of(again, got, N * TINY_N_VOCAB));
}

TEST(convert_to_mlx_refuses_what_it_cannot_be) {
    const char *from = test_tmp("mlx_no.gguf"), *bitnet = test_tmp("mlx_bitnet.gguf");
    const char *out = test_tmp("mlx_no"), *gguf = test_tmp("mlx_no_out.gguf");
    tern_error err = {0};
    REQUIRE_OK(tiny_model_write(from, &llama, &err), err);
    REQUIRE_OK(tiny_model_write(bitnet, &(tiny_model_desc){.seed = 86}, &err), err);
    const struct {
        const char *from, *to, *says;
        tern_convert_desc desc;
    } cases[] = {
        {from, gguf, "GGUF has no type MLX-Q4", {.type = TERN_TYPE_MLX_Q4}},
        {from, out, "expected 32, 64", {.type = TERN_TYPE_MLX_Q8, .group_size = 48}},
        {from, out, "a group size is of mlx-q4", {.type = TERN_TYPE_F16, .group_size = 64}},
        {bitnet, out, "a BitNet rounds activations", {.type = TERN_TYPE_MLX_Q4}},
        {"tests/oracles/qwen3moe/model.gguf",
         out,
         "mixtures of experts",
         {.type = TERN_TYPE_MLX_Q4}},
        {from, out, "no type for embedding and head", {.head_type = TERN_TYPE_MLX_Q4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(tern_convert(cases[i].from, cases[i].to, &cases[i].desc, &err) != TERN_OK);
        CHECK_MSG(strstr(err.message, cases[i].says), "%s", err.message);
    }
}

TEST(convert_to_mlx_survives_failing_allocations) {
    const char *from = test_tmp("mlx_oom.gguf"), *out = test_tmp("mlx_oom");
    tern_error err = {0};
    tern_convert_desc to = {.type = TERN_TYPE_MLX_Q4, .n_threads = 1};
    tiny_model_desc d = {.arch = "llama", .type = TERN_DTYPE_BF16, .n_layers = 1, .seed = 87};
    REQUIRE_OK(tiny_model_write(from, &d, &err), err);
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; n < 2000 && status != TERN_OK; n += 11) {
        tern_mem_fail_at(n);
        status = tern_convert(from, out, &to, &err);
        tern_mem_fail_at(0);
        CHECK_MSG(status == TERN_OK || status == TERN_ERR_MEMORY, "%llu: %s", (unsigned long long)n,
                  err.message);
        CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK(status == TERN_OK);
}
