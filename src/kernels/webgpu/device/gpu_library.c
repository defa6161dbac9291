// Finding a WebGPU library at run time (the named one, next to the program, the system's places)
// and recognizing its generation.
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_library.h"
#include "base/strbuf.h"
#include "kernels/webgpu/device/gpu.h"

// Most wanted first: the newer Dawn has matrix units for prompts.
static const char *const subfolders[] = {"", "/webgpu-newer", "/webgpu", "/../lib/tern", "/../lib"};
static const char *const names[] = {
    TERN_LIBRARY_PREFIX "webgpu_dawn" TERN_LIBRARY_SUFFIX,
    TERN_LIBRARY_PREFIX "webgpu_wrapper" TERN_LIBRARY_SUFFIX,
};
#define N_SUBFOLDERS (sizeof subfolders / sizeof *subfolders)
#define N_NAMES      (sizeof names / sizeof *names)

// Next to the program, in the neighbouring folders where `make webgpu-newer` and `make
// webgpu-native` put one, and where an installed program has its libraries.
static tern_status open_beside_program(void **library, tern_error *err) {
    char *folder;
    TERN_TRY(tern_program_folder(&folder, err));
    tern_status status = TERN_OK;
    for (size_t i = 0; status == TERN_OK && !*library && i < N_SUBFOLDERS * N_NAMES; i++) {
        tern_strbuf path = {0};
        tern_strbuf_printf(&path, "%s%s/%s", folder, subfolders[i / N_NAMES], names[i % N_NAMES]);
        if (path.failed)
            status = tern_fail_memory(err, strlen(folder));
        else if (folder[0])
            tern_library_open(library, path.ptr, NULL);
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

// Stores the path of the file that contains one of the library's functions.
static tern_status remember_path(wgpu_api *api, finder f, tern_error *err) {
    void *function = f.symbol(f.user, "wgpuCreateInstance");
    api->path = function ? tern_library_of(function) : NULL;
    if (!api->path) api->path = tern_strdup(TERN_MEM_GRAPH, "the WebGPU library");
    return api->path ? TERN_OK : tern_fail_memory(err, 64);
}

tern_status gpu_library_load(const tern_webgpu_desc *desc, void **library, tern_error *err) {
    *library = NULL;
    if (!tern_can_load_libraries())
        return tern_fail(err, TERN_ERR_DEVICE,
                         "this program is linked statically, and so it can load no WebGPU library");
    if (desc->library && desc->library[0]) {
        tern_error why = {0};
        if (tern_library_open(library, desc->library, &why) == TERN_OK) return TERN_OK;
        return tern_fail(err, TERN_ERR_DEVICE, "the WebGPU library: %s", why.message);
    }
    TERN_TRY(open_beside_program(library, err));
    for (size_t i = 0; !*library && i < N_NAMES; i++) tern_library_open(library, names[i], NULL);
    return *library ? TERN_OK
                    : tern_fail(err, TERN_ERR_DEVICE,
                                "no WebGPU library was found (`make webgpu-native` fetches one; "
                                "TERN_WEBGPU_LIB names one)");
}

tern_status gpu_library_open(wgpu_api *api, const tern_webgpu_desc *desc, tern_error *err) {
    *api = (wgpu_api){0};
    finder f = {desc->symbol, desc->symbol_user};
    if (!f.symbol) {
        f.symbol = tern_library_symbol;
        TERN_TRY(gpu_library_load(desc, &f.user, err));
    }
    TERN_TRY(remember_path(api, f, err));
    return find_functions(api, f, err);
}

void gpu_library_close(wgpu_api *api) {
    tern_free(api->path);
    *api = (wgpu_api){0};
}
