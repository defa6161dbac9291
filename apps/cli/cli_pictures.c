#include "cli_pictures.h"

#include <stdlib.h>
#include <string.h>
#include "cli.h"

static bool read_one(tern_picture *out, const char *path, const tern_picture_desc *desc) {
    tern_error err = {0};
    text bytes = {0};
    bool is_input = strcmp(path, "-") == 0;
    if (is_input && !text_read(&bytes, path)) return false;
    const char *read = bytes.ptr ? bytes.ptr : "";
    tern_status status = is_input ? tern_picture_read(out, read, bytes.n, desc, &err)
                                  : tern_picture_open(out, path, desc, &err);
    free(bytes.ptr);
    if (status == TERN_OK) return true;
    fail("%s%s", is_input ? "standard input: " : "", err.message);
    return false;
}

bool read_pictures(tern_picture *out, const char **paths, int n, bool as_stored) {
    const tern_picture_desc desc = {.as_stored = as_stored};
    for (int i = 0; i < n; i++)
        if (!read_one(&out[i], paths[i], &desc)) return false;
    return true;
}

void free_pictures(tern_picture *pictures, int n) {
    for (int i = 0; i < n; i++) tern_picture_free(&pictures[i]);
}
