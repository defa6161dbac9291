// What a test asks of files and the environment, whatever runs it.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/os/os_file.h"
#include "harness.h"

bool test_is_long(void) {
    const char *value = getenv("TERN_TEST_LONG");
    return value && *value && strcmp(value, "0") != 0;
}

const char *test_data(const char *relative_path) {
    static char paths[8][1024];
    static int turn;
    const char *root = getenv("TERN_TEST_DATA");
    struct stat st;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root ? root : "", relative_path);
    if (root && *root && stat(path, &st) == 0) return path;
    if (!root || !*root)
        test_skip("TERN_TEST_DATA is not set (docs/correctness.md says what it is)");
    else {
        char why[200];
        snprintf(why, sizeof why, "TERN_TEST_DATA has no %s", relative_path);
        test_skip(why);
    }
    return NULL;
}

char *test_read(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *bytes = NULL;
    *n = 0;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        size_t size = (size_t)ftell(f);
        rewind(f);
        bytes = calloc(size + 1, 1);
        if (bytes) *n = fread(bytes, 1, size, f);
    }
    if (f) fclose(f);
    return bytes;
}

const char *test_write(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    const bool ok = f && fwrite(bytes, 1, n, f) == n;
    CHECK_MSG(f && fclose(f) == 0 && ok, "%s cannot be written", path);
    return path;
}

bool test_folder(const char *path) { return tern_folder_create(path, false); }
