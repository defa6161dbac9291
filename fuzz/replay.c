// Runs a fuzz target over files and folders, without libFuzzer: each input once plainly, then with
// the first, second, third ... allocation failing until one run needs no more. Leaked memory is an
// error, and so is a crash.
//
//     NAME_replay FILE|FOLDER ...
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

#define FAILURES_MAX 2000 // allocations of one input that are made to fail
#define INPUT_MAX    ((size_t)64 << 20)

static int n_inputs, n_bad;

static void run_once(const char *path, const uint8_t *bytes, size_t n, unsigned fail_at) {
    size_t before = tern_mem_get_stats().total_now;
    tern_mem_fail_at(fail_at);
    LLVMFuzzerTestOneInput(bytes, n);
    tern_mem_fail_at(0);
    size_t after = tern_mem_get_stats().total_now;
    if (after == before) return;
    fprintf(stderr, "%s: %zu bytes are not given back (allocation %u fails)\n", path,
            after - before, fail_at);
    n_bad++;
}

static void replay_bytes(const char *path, const uint8_t *bytes, size_t n) {
    uint64_t first = tern_mem_get_stats().n_allocs;
    run_once(path, bytes, n, 0);
    uint64_t n_allocs = tern_mem_get_stats().n_allocs - first;
    for (unsigned i = 1; i <= n_allocs && i <= FAILURES_MAX; i++) run_once(path, bytes, n, i);
    n_inputs++;
}

static void replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    uint8_t *bytes = size >= 0 && (size_t)size <= INPUT_MAX ? malloc((size_t)size + !size) : NULL;
    if (bytes && fseek(file, 0, SEEK_SET) == 0 &&
        fread(bytes, 1, (size_t)size, file) == (size_t)size) {
        replay_bytes(path, bytes, (size_t)size);
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
        n_bad++;
    }
    free(bytes);
    if (file) fclose(file);
}

static void replay(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        replay_file(path);
        return;
    }
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        char inner[4096];
        if (e->d_name[0] == '.') continue;
        if (snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < (int)sizeof inner)
            replay(inner);
    }
    if (folder) closedir(folder);
}

int main(int argc, char **argv) {
    if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) replay(argv[i]);
    printf("%s: %d inputs, %d bad\n", argv[0], n_inputs, n_bad);
    return n_inputs == 0 || n_bad > 0;
}
