// The user's environment variables for GPUs. The library reads none of them.
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static bool is_set(const char *variable) {
    const char *value = getenv(variable);
    return value && *value && strcmp(value, "0") != 0;
}

// NULL if there is no place for the cache: then nothing is cached.
static const char *state_folder(void) {
    static char *folder;
    if (!folder) folder = user_file(USER_CACHE, "/tern");
    return folder;
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
