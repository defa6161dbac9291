// The WebGPU backend against the CPU: the same text, nearly the same logits. Runs on any adapter;
// without a GPU on SwiftShader, which comes with Debian's chromium package. Where there is neither,
// or no library (make webgpu-native), the tests are skipped and say why.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "harness.h"
#include "tern.h"
#include "tiny_model.h"

#define SWIFTSHADER "/usr/lib/chromium/vk_swiftshader_icd.json"
#define N_TEXT      12

static const int32_t prompt[] = {5,  70, 100, 33, 259, 8,  120, 64, 260,
                                 90, 91, 92,  93, 94,  95, 96,  97};
#define N_PROMPT ((int)(sizeof prompt / sizeof *prompt))

// WebGPU's own checks are on in tests: a wrong call is an error, not luck.
static void set_environment(void) {
    setenv("TERN_WEBGPU_CHECK", "1", 1);
    if (!getenv("VK_DRIVER_FILES") && access(SWIFTSHADER, R_OK) == 0)
        setenv("VK_DRIVER_FILES", SWIFTSHADER, 1);
}

// The model on the GPU, or NULL when there is none (skipped) or it failed.
static tern_model *open_on_gpu(const char *path, int n_batch) {
    tern_error err = {0};
    tern_model *m = NULL;
    set_environment();
    tern_status status =
        tern_model_open(&m, path, &(tern_model_desc){.device = "webgpu", .n_batch = n_batch}, &err);
    if (status == TERN_OK) return m;
    if (strstr(err.message, "no WebGPU library") || strstr(err.message, "no GPU"))
        test_skip(err.message);
    else
        test_check(false, __FILE__, __LINE__, "%s", err.message);
    return NULL;
}

static double relative_l2(const float *a, const float *b, size_t n) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        error += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(error / norm);
}

typedef struct answers {
    float *logits; // [n_prompt, n_vocab]
    int32_t text[N_TEXT];
    size_t n_text;
} answers;

static bool ask(tern_model *m, tern_kv_type kv_type, const int32_t *ids, int n_ids, answers *out) {
    tern_error err = {0};
    tern_session *s = NULL;
    tern_model_info info;
    tern_model_get_info(m, &info);
    tern_session_desc sd = {.kv_type = kv_type, .n_context = 256};
    tern_sampling greedy = {0};
    tern_generate_params p = {.sampling = &greedy, .max_tokens = N_TEXT, .ignore_end = true};
    out->logits = calloc((size_t)n_ids * (size_t)info.n_vocab, sizeof(float));
    bool ok = tern_session_open(&s, m, &sd, &err) == TERN_OK &&
              tern_session_logits(s, ids, (size_t)n_ids, out->logits, &err) == TERN_OK &&
              tern_generate_ids(s, ids, (size_t)n_ids, &p, NULL, NULL, NULL, &err) == TERN_OK;
    test_check(ok, __FILE__, __LINE__, "%s: %s", info.device, err.message);
    if (ok) {
        const int32_t *text = tern_session_generated(s, &out->n_text);
        if (out->n_text > N_TEXT) out->n_text = N_TEXT;
        memcpy(out->text, text, out->n_text * sizeof *text);
    }
    tern_session_close(s);
    return ok;
}

// Prompts longer than 8 tokens take the matrix x matrix kernels, n_batch 4 the others.
static void check_prompt(const char *path, int n_batch, tern_kv_type kv_type, double tolerance,
                         const int32_t *ids, int n_ids) {
    tern_error err = {0};
    answers cpu = {0}, gpu = {0};
    tern_model *on_cpu = NULL, *on_gpu = open_on_gpu(path, n_batch);
    if (!on_gpu) return;
    REQUIRE_OK(tern_model_open(&on_cpu, path, &(tern_model_desc){.n_batch = n_batch}, &err), err);
    tern_model_info info;
    tern_model_get_info(on_cpu, &info);
    if (ask(on_cpu, kv_type, ids, n_ids, &cpu) && ask(on_gpu, kv_type, ids, n_ids, &gpu)) {
        double error = relative_l2(gpu.logits, cpu.logits, (size_t)n_ids * (size_t)info.n_vocab);
        CHECK_MSG(error < tolerance, "%s: logits differ by %g", path, error);
        CHECK_MSG(gpu.n_text == cpu.n_text &&
                      memcmp(gpu.text, cpu.text, gpu.n_text * sizeof *gpu.text) == 0,
                  "%s: another greedy text", path);
    }
    free(cpu.logits);
    free(gpu.logits);
    tern_model_close(on_cpu);
    tern_model_close(on_gpu);
}

static void check_model(const char *path, int n_batch, tern_kv_type kv_type, double tolerance) {
    check_prompt(path, n_batch, kv_type, tolerance, prompt, N_PROMPT);
}

static const tiny_model_desc models[] = {
    {.seed = 3, .head_type = TERN_DTYPE_F16},
    {.seed = 4, .n_layers = 1, .n_embd = 192, .n_ff = 320, .n_heads = 6, .n_kv_heads = 2},
    {.seed = 5, .arch = "llama", .type = TERN_DTYPE_F16, .separate_head = true, .n_layers = 1},
    {.seed = 6, .arch = "llama", .type = TERN_DTYPE_I2_S, .n_layers = 1},
};

TEST(webgpu_tiny_models_give_the_text_of_the_cpu) {
    tern_error err = {0};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *path = test_tmp("webgpu.gguf");
        REQUIRE_OK(tiny_model_write(path, &models[i], &err), err);
        check_model(path, 64, TERN_KV_F32, 2e-3);
    }
}

TEST(webgpu_batches_and_caches_of_other_kinds) {
    tern_error err = {0};
    const char *path = test_tmp("webgpu.gguf");
    REQUIRE_OK(tiny_model_write(path, &models[2], &err), err);
    check_model(path, 4, TERN_KV_F16, 2e-3);
}

// More tokens than a tile of the products has, more positions than one of attention, batches that
// begin in the middle of one, heads that share keys.
TEST(webgpu_long_prompts_in_several_batches) {
    static const tiny_model_desc wide[] = {
        {.seed = 8, .n_layers = 1, .n_embd = 192, .n_ff = 320, .n_heads = 6, .n_kv_heads = 2},
        {.seed = 9, .n_layers = 1, .n_embd = 256, .n_ff = 192, .n_heads = 2, .n_kv_heads = 1},
    };
    tern_error err = {0};
    int32_t ids[223];
    for (int i = 0; i < 223; i++) ids[i] = 3 + (i * 37 + i / 7) % 250;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const char *path = test_tmp("webgpu.gguf");
        REQUIRE_OK(tiny_model_write(path, &wide[i], &err), err);
        check_prompt(path, 140, i == 0 ? TERN_KV_F32 : TERN_KV_F16, 2e-3, ids, 223);
    }
}

TEST(webgpu_least_limits_and_small_bindings) {
    tern_error err = {0};
    const char *path = test_tmp("webgpu.gguf");
    REQUIRE_OK(tiny_model_write(path, &models[0], &err), err);
    setenv("TERN_WEBGPU_MINIMUM", "1", 1);
    setenv("TERN_WEBGPU_BINDING_BYTES", "8192", 1); // matrices and the table in parts
    check_model(path, 64, TERN_KV_F16, 2e-3);
    unsetenv("TERN_WEBGPU_MINIMUM");
    unsetenv("TERN_WEBGPU_BINDING_BYTES");
}

TEST(webgpu_trained_models_give_the_text_of_the_cpu) {
    static const char *const paths[] = {"oracle/bitnet_bf16_master", "oracle/llama",
                                        "models/stories260K/stories260K.F16.gguf"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *path = test_data(paths[i]);
        if (path) check_model(path, 64, TERN_KV_F32, 2e-3);
    }
}

TEST(webgpu_missing_library_is_said_and_auto_goes_to_the_cpu) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_model_info info;
    const char *path = test_tmp("webgpu.gguf");
    REQUIRE_OK(tiny_model_write(path, &models[0], &err), err);
    setenv("TERN_WEBGPU_LIB", "/nonexistent/libwebgpu.so", 1);
    CHECK(tern_model_open(&m, path, &(tern_model_desc){.device = "webgpu"}, &err) ==
          TERN_ERR_DEVICE);
    CHECK(strstr(err.message, "/nonexistent/libwebgpu.so") != NULL);
    tern_status status = tern_model_open(&m, path, &(tern_model_desc){.device = "auto"}, &err);
    unsetenv("TERN_WEBGPU_LIB");
    REQUIRE_OK(status, err);
    tern_model_get_info(m, &info);
    CHECK(strncmp(info.device, "cpu ", 4) == 0);
    CHECK(strstr(info.device, "no GPU") != NULL);
    tern_model_close(m);
}
