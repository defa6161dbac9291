#include "harness.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static test_case *first_test;
static int n_failed_checks;
static const char *skipped_because;
static char tmp_folder[256];

void test_register(test_case *t) {
    test_case **at = &first_test; // kept sorted, so that the order does not depend on the linker
    while (*at && strcmp((*at)->name, t->name) < 0) at = &(*at)->next;
    t->next = *at;
    *at = t;
}

void test_check(bool ok, const char *file, int line, const char *format, ...) {
    if (ok) return;
    if (n_failed_checks++ > 20) return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "  %s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void test_skip(const char *why) { skipped_because = why; }

const char *test_data(const char *relative_path) {
    static char paths[8][1024];
    static int turn;
    const char *root = getenv("TERN_TEST_DATA");
    struct stat st;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root ? root : "", relative_path);
    if (root && *root && stat(path, &st) == 0) return path;
    skipped_because = relative_path;
    return NULL;
}

const char *test_tmp(const char *name) {
    static char paths[8][512];
    static int turn;
    if (!tmp_folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(tmp_folder, sizeof tmp_folder, "%s/tern-test-XXXXXX", base ? base : "/tmp");
        if (!mkdtemp(tmp_folder)) {
            perror(tmp_folder);
            exit(1);
        }
    }
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", tmp_folder, name);
    return path;
}

static void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char inner[1024];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        remove_tree(inner);
    }
    if (dir) closedir(dir);
    remove(path);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// usage: tern_tests [-v] [PART_OF_A_NAME ...]
int main(int argc, char **argv) {
    int n_passed = 0, n_failed = 0, n_skipped = 0, verbose = 0;
    for (test_case *t = first_test; t; t = t->next) {
        bool wanted = true, any_filter = false;
        for (int i = 1; i < argc; i++) {
            if (!strcmp(argv[i], "-v")) {
                verbose = 1;
                continue;
            }
            if (!any_filter) wanted = false;
            any_filter = true;
            if (strstr(t->name, argv[i])) wanted = true;
        }
        if (!wanted) continue;
        n_failed_checks = 0;
        skipped_because = NULL;
        double start = now();
        t->run();
        double seconds = now() - start;
        const char *verdict = n_failed_checks ? "FAILED" : skipped_because ? "skipped" : "ok";
        if (n_failed_checks) n_failed++;
        else if (skipped_because) n_skipped++;
        else n_passed++;
        if (verbose || n_failed_checks || seconds > 5)
            printf("%-8s %s (%.2f s)%s%s\n", verdict, t->name, seconds,
                   skipped_because ? " no " : "", skipped_because ? skipped_because : "");
        fflush(stdout);
    }
    if (tmp_folder[0]) remove_tree(tmp_folder);
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed != 0 || n_passed == 0;
}
