#include "apps/serve/engine/adapters.h"

#include <string.h>
#include "base/status.h"

tern_str name_of_path(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    if (n - from > 5 && !memcmp(path + n - 5, ".gguf", 5)) n -= 5;
    return (tern_str){path + from, n - from};
}

tern_status adapters_open(adapters *a, const tern_lora *list, size_t n, const char *model,
                          tern_error *err) {
    *a = (adapters){.list = list};
    if (n > TERN_LORAS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%zu adapters: at most %d", n, TERN_LORAS_MAX);
    for (; a->n < n; a->n++) {
        const tern_lora *lora = &list[a->n];
        const tern_str name = name_of_path(lora->path);
        const size_t other = adapters_find(a, name);
        if (other != SIZE_MAX || tern_str_is(name, model))
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s and %s would both be called '%.*s'",
                             other != SIZE_MAX ? list[other].path : "the model", lora->path,
                             (int)name.len, name.ptr);
        a->names[a->n] = name;
        a->scales[a->n] = lora->off ? 0 : lora->scale != 0 ? lora->scale : 1;
    }
    return TERN_OK;
}

size_t adapters_find(const adapters *a, tern_str name) {
    for (size_t i = 0; i < a->n; i++)
        if (tern_str_eq(a->names[i], name)) return i;
    return SIZE_MAX;
}

void adapters_alone(const adapters *a, size_t which, float *scales) {
    const float given = a->list[which].scale;
    memset(scales, 0, a->n * sizeof *scales);
    scales[which] = given != 0 ? given : 1;
}
