// Finding a WebGPU library at run time (the named one, next to the program, the system's places)
// and telling its generation.
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/strbuf.h"
#include "kernels/webgpu/gpu.h"

#ifdef __APPLE__
#define SUFFIX ".dylib"
#else
#define SUFFIX ".so"
#endif

// Most wanted first: the newer Dawn has matrix units for prompts.
static const char *const subfolders[] = {"", "/webgpu-newer", "/webgpu"};
static const char *const names[] = {"libwebgpu_dawn" SUFFIX, "libwebgpu_wrapper" SUFFIX};
#define N_SUBFOLDERS (sizeof subfolders / sizeof *subfolders)
#define N_NAMES  (sizeof names / sizeof *names)

// Where the program is, without its name; empty: not known.
static tern_status program_folder(char **out, tern_error *err) {
    *out = NULL;
    for (size_t size = 256;; size *= 2) {
        char *path = tern_realloc(TERN_MEM_MISC, *out, size);
        if (!path) {
            tern_free(*out);
            return tern_fail_memory(err, size);
        }
        *out = path;
        ssize_t n = readlink("/proc/self/exe", path, size);
        if (n >= 0 && (size_t)n == size) continue; // perhaps truncated
        char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
        *(slash ? slash : path) = 0;
        return TERN_OK;
    }
}

// Next to the program, and in the neighbouring folders where `make webgpu-newer` and `make
// webgpu-native` put one.
static tern_status open_beside_program(void **library, tern_error *err) {
    char *folder;
    TERN_TRY(program_folder(&folder, err));
    tern_status status = TERN_OK;
    for (size_t i = 0; status == TERN_OK && !*library && i < N_SUBFOLDERS * N_NAMES; i++) {
        tern_strbuf path = {0};
        tern_strbuf_printf(&path, "%s%s/%s", folder, subfolders[i / N_NAMES], names[i % N_NAMES]);
        if (path.failed) status = tern_fail_memory(err, strlen(folder));
        else if (folder[0]) *library = dlopen(path.ptr, RTLD_NOW | RTLD_LOCAL);
        tern_strbuf_free(&path);
    }
    tern_free(folder);
    return status;
}

static const wgpu_generation generations[] = {
    {"2025", "wgpuGetInstanceCapabilities", {0x3, 0xA, 0x11, 0x50037}, false},
    {"2026", "wgpuGetInstanceFeatures", {0x9, 0xB, 0x12, 0x50034}, true},
};

typedef struct finder { // of functions by name
    void *(*symbol)(void *user, const char *name);
    void *user;
} finder;

static void *symbol_of_library(void *library, const char *name) {
    return dlsym(library, name);
}

static tern_status find_functions(wgpu_api *api, finder f, tern_error *err) {
    // ISO C has no conversion from void * to a function; POSIX promises that this one works.
#define FIND(result, name, arguments)                                                              \
    *(void **)&api->name = f.symbol(f.user, "wgpu" #name);                                         \
    if (!api->name)                                                                                \
        return tern_fail(err, TERN_ERR_DEVICE, "%s has no function wgpu" #name, api->path);
    WGPU_FUNCTIONS(FIND)
#undef FIND
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        if (f.symbol(f.user, generations[i].known_by)) api->generation = &generations[i];
    if (!api->generation)
        return tern_fail(err, TERN_ERR_DEVICE,
                         "%s is of a generation that is not known here (Dawn of 2025, as in npm's "
                         "bun-webgpu, or of 2026, as in npm's webgpu)",
                         api->path);
    return TERN_OK;
}

// The file that contains one of its functions.
static tern_status remember_path(wgpu_api *api, finder f, tern_error *err) {
    Dl_info info;
    void *function = f.symbol(f.user, "wgpuCreateInstance");
    bool known = function && dladdr(function, &info) && info.dli_fname;
    api->path = tern_strdup(TERN_MEM_GRAPH, known ? info.dli_fname : "the WebGPU library");
    return api->path ? TERN_OK : tern_fail_memory(err, 64);
}

tern_status gpu_library_load(const tern_webgpu_desc *desc, void **library, tern_error *err) {
    *library = NULL;
    if (desc->library && desc->library[0]) {
        *library = dlopen(desc->library, RTLD_NOW | RTLD_LOCAL);
        return *library ? TERN_OK
                        : tern_fail(err, TERN_ERR_DEVICE, "the WebGPU library: %s", dlerror());
    }
    TERN_TRY(open_beside_program(library, err));
    for (size_t i = 0; !*library && i < N_NAMES; i++)
        *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return *library ? TERN_OK
                    : tern_fail(err, TERN_ERR_DEVICE,
                                "no WebGPU library was found; `make webgpu-native` fetches one, or "
                                "name one (tern: TERN_WEBGPU_LIB)");
}

tern_status gpu_library_open(wgpu_api *api, const tern_webgpu_desc *desc, tern_error *err) {
    *api = (wgpu_api){0};
    finder f = {desc->symbol, desc->symbol_user};
    if (!f.symbol) {
        f.symbol = symbol_of_library;
        TERN_TRY(gpu_library_load(desc, &f.user, err));
    }
    TERN_TRY(remember_path(api, f, err));
    return find_functions(api, f, err);
}

void gpu_library_close(wgpu_api *api) {
    tern_free(api->path);
    *api = (wgpu_api){0};
}
