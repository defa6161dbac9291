// Opening a GPU in a test: any adapter, without a GPU SwiftShader, which comes with Debian's
// chromium package. Where there is neither, or no library, the test is skipped. And GPUs with
// faults, which are played: the library under test is given the functions of WebGPU by the fixture,
// which puts its own in the place of some.
#ifndef TERN_TESTS_GPU_FIXTURE_H
#define TERN_TESTS_GPU_FIXTURE_H

#include <stdlib.h>
#include <string.h>
#include "tests/support/harness.h"
#include "tern.h"

typedef struct gpu_play {
    bool least;  // no features, and no limits above those that WebGPU promises
    bool null;   // the library's device that checks all and computes nothing, with subgroups of 32
    bool matrix; // and `null`: it says that it has matrix units, too; only texts can be tried on it
    uint64_t binding_bytes; // not 0: of a binding at most
    // Not 0: a submission of more dispatches loses the device, or ends the process.
    uint32_t dispatches_max;
    bool kills;
    int lose_at; // not 0: every device is lost with its N-th run of a model
    bool holds;  // what the library tells later it tells only when gpu_play_answer was called
} gpu_play;

// What a GPU is opened with in tests. WebGPU's own checks are on: a wrong call is an error, not
// luck. play: NULL, or what the device plays from now on, until somebody asks for another play.
const tern_webgpu_desc *gpu_webgpu(const gpu_play *play);
// Of a play that holds answers back: waits until the first of those that are asked for is there,
// and lets it through in the next call of InstanceProcessEvents. False: nothing is asked for.
bool gpu_play_answer(void);
// Of any play: polls wait for pipelines that are compiled, and for no answer.
bool gpu_play_is_compiling(void);
// Of any play: instances and buffers that were made and not released.
int gpu_play_n_alive(void);
// Whether a failure means that there is nothing to test with; then the test counts as skipped, for
// a reason without the file's name, so that all such tests give the same reason.
bool gpu_is_absent(const char *message);
// The model on the GPU; NULL: skipped, or failed.
tern_model *gpu_open(const char *path, int n_batch);
tern_model *gpu_open_play(const char *path, int n_batch, const gpu_play *play);

#endif
