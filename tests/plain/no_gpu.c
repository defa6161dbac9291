// In place of gpu_fixture.c, which plays a device by POSIX's means: tests of a GPU are skipped.
#include "tests/library/webgpu/gpu_fixture.h"

#define REASON "there is no GPU in these tests"

const tern_webgpu_desc *gpu_webgpu(const gpu_play *play) {
    static const tern_webgpu_desc desc = {.library = "no-such-library"};
    (void)play;
    return &desc;
}

bool gpu_is_absent(const char *message) {
    (void)message;
    test_skip(REASON);
    return true;
}

tern_model *gpu_open_play(const char *path, int n_batch, const gpu_play *play) {
    (void)path, (void)n_batch, (void)play;
    test_skip(REASON);
    return NULL;
}
tern_model *gpu_open(const char *path, int n_batch) { return gpu_open_play(path, n_batch, NULL); }
