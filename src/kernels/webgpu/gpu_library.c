// Finding a WebGPU library at run time: TERN_WEBGPU_LIB, beside the program, the system's places;
// and telling of which generation it is.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "kernels/webgpu/gpu.h"

#ifdef __APPLE__
#define SUFFIX ".dylib"
#else
#define SUFFIX ".so"
#endif

// From the most wanted on: the newer Dawn has matrix units for prompts.
static const char *const beside[] = {"", "/webgpu-newer", "/webgpu"};
static const char *const names[] = {"libwebgpu_dawn" SUFFIX, "libwebgpu_wrapper" SUFFIX};
#define N_BESIDE (sizeof beside / sizeof *beside)
#define N_NAMES  (sizeof names / sizeof *names)

// Beside the program, and in the folders beside it where `make webgpu-newer` and `make
// webgpu-native` put one.
static void *open_beside_program(void) {
    char program[512], path[700];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return NULL;
    program[n] = 0;
    char *slash = strrchr(program, '/');
    if (!slash) return NULL;
    *slash = 0;
    for (size_t i = 0; i < N_BESIDE * N_NAMES; i++) {
        snprintf(path, sizeof path, "%s%s/%s", program, beside[i / N_NAMES], names[i % N_NAMES]);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}

static const wgpu_generation generations[] = {
    {"2025", "wgpuGetInstanceCapabilities", {0x3, 0xA, 0x11, 0x50037}, false},
    {"2026", "wgpuGetInstanceFeatures", {0x9, 0xB, 0x12, 0x50034}, true},
};

static tern_status find_functions(wgpu_api *api, tern_error *err) {
    // ISO C has no conversion from void * to a function; POSIX promises that this one works.
#define FIND(result, name, arguments)                                                              \
    *(void **)&api->name = dlsym(api->library, "wgpu" #name);                                      \
    if (!api->name)                                                                                \
        return tern_fail(err, TERN_ERR_DEVICE, "%s has no function wgpu" #name, api->path);
    WGPU_FUNCTIONS(FIND)
#undef FIND
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        if (dlsym(api->library, generations[i].known_by)) api->generation = &generations[i];
    if (!api->generation)
        return tern_fail(err, TERN_ERR_DEVICE,
                         "%s is of a generation that is not known here (Dawn of 2025, as in npm's "
                         "bun-webgpu, or of 2026, as in npm's webgpu)",
                         api->path);
    return TERN_OK;
}

static void remember_path(wgpu_api *api) {
    Dl_info info;
    void *symbol = dlsym(api->library, "wgpuCreateInstance");
    bool known = symbol && dladdr(symbol, &info) && info.dli_fname;
    if (known) snprintf(api->path, sizeof api->path, "%s", info.dli_fname);
}

tern_status gpu_library_open(wgpu_api *api, tern_error *err) {
    *api = (wgpu_api){.path = "the WebGPU library"};
    const char *path = getenv("TERN_WEBGPU_LIB");
    if (path && *path) {
        api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!api->library) return tern_fail(err, TERN_ERR_DEVICE, "TERN_WEBGPU_LIB: %s", dlerror());
        snprintf(api->path, sizeof api->path, "%s", path);
    }
    if (!api->library) api->library = open_beside_program();
    for (size_t i = 0; !api->library && i < N_NAMES; i++)
        api->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!api->library)
        return tern_fail(err, TERN_ERR_DEVICE,
                         "no WebGPU library was found; `make webgpu-native` fetches one, or "
                         "TERN_WEBGPU_LIB names it");
    remember_path(api);
    return find_functions(api, err);
}

// The library stays loaded: its threads may still run code of it.
void gpu_library_close(wgpu_api *api) {
    *api = (wgpu_api){0};
}
