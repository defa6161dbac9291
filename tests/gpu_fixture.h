// Opening a model on a GPU in a test: on any adapter, without a GPU on SwiftShader, which comes
// with Debian's chromium package. Where there is neither, or no library, the test is skipped.
#ifndef TERN_TESTS_GPU_FIXTURE_H
#define TERN_TESTS_GPU_FIXTURE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "harness.h"
#include "tern.h"

static inline void gpu_environment(void) {
    static const char swiftshader[] = "/usr/lib/chromium/vk_swiftshader_icd.json";
    setenv("TERN_WEBGPU_CHECK", "1", 1); // a wrong call is an error, not luck
    if (!getenv("VK_DRIVER_FILES") && access(swiftshader, R_OK) == 0)
        setenv("VK_DRIVER_FILES", swiftshader, 1);
}

// Whether a failure means that there is nothing to test with; then the test counts as skipped, for
// a reason without the file's name, so that all such tests have the same.
static inline bool gpu_is_absent(const char *message) {
    const char *why = strstr(message, "no WebGPU library");
    if (!why) why = strstr(message, "WebGPU found no GPU");
    if (why) test_skip(why);
    return why != NULL;
}

// NULL: skipped, or failed.
static inline tern_model *gpu_open(const char *path, int n_batch) {
    tern_error err = {0};
    tern_model *m = NULL;
    gpu_environment();
    const tern_model_desc desc = {.device = "webgpu", .n_batch = n_batch};
    if (tern_model_open(&m, path, &desc, &err) != TERN_OK && !gpu_is_absent(err.message))
        test_check(false, __FILE__, __LINE__, "%s", err.message);
    return m;
}

#endif
