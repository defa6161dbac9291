#include "tests/support/oracle_folders.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "tests/support/harness.h"

static bool splits_texts(const char *folder) {
    char path[700];
    size_t n;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    char *text = test_read(path, &n);
    bool splits = !text || !strstr(text, "\"ByteLevel\"") || strstr(text, "\"Split\"") ||
                  strstr(text, "\"use_regex\": true");
    free(text);
    return splits;
}

const char *oracle_for_gguf(const char *folder, const char *copy) {
    static const char *const names[] = {"config.json", "model.safetensors", "golden.safetensors"};
    if (splits_texts(folder)) return folder;
    mkdir(copy, 0777);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[700];
        size_t n;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        char *bytes = test_read(path, &n);
        snprintf(path, sizeof path, "%s/%s", copy, names[i]);
        FILE *f = fopen(path, "wb");
        CHECK_MSG(bytes && f && fwrite(bytes, 1, n, f) == n, "%s: not copied", path);
        if (f) fclose(f);
        free(bytes);
    }
    return copy;
}
