// The user's environment variables for GPUs. The library reads none of them.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && *value && strcmp(value, "0") != 0;
}

// NULL if there is no place for the cache: then nothing is cached. As the XDG base directory
// specification demands, a relative path is ignored.
static const char *state_folder(void) {
    static text folder;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool has_cache = cache && cache[0] == '/';
    if (folder.n > 0 || (!has_cache && (!home || home[0] != '/'))) return folder.ptr;
    text_puts(&folder, has_cache ? cache : home);
    text_puts(&folder, has_cache ? "/tern" : "/.cache/tern");
    return folder.ptr;
}

const tern_webgpu_desc *cli_webgpu(void) {
    static tern_webgpu_desc desc;
    const char *group = getenv("TERN_WEBGPU_GROUP");
    long n = group && *group ? strtol(group, NULL, 10) : 0;
    desc = (tern_webgpu_desc){.library = getenv("TERN_WEBGPU_LIB"),
                              .state_folder = state_folder(),
                              .checks = is_set("TERN_WEBGPU_CHECK"),
                              .no_matrix = is_set("TERN_WEBGPU_NO_MATRIX")};
    if (group && *group) desc.group = n > 0 && n <= INT32_MAX ? (int32_t)n : -1;
    return &desc;
}
