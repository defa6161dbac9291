// Runs the tests that it is linked with one after the other, in one process: for systems without
// fork(), where harness.c does not go. The names of tests that failed are the output. An argument
// chooses those whose names begin with it.
#include <stdarg.h>
#include <string.h>
#include "base/os/os_file.h"
#include "tests/support/harness.h"

static test_case *first;
static const char *why_skipped;
static int n_checks, n_bad;

void test_register(test_case *t) {
    t->next = first;
    first = t;
}

void test_check(bool ok, const char *file, int line, const char *format, ...) {
    va_list arguments;
    n_checks++;
    if (ok) return;
    n_bad++;
    printf("%s:%d: ", file, line);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

void test_skip(const char *why) { why_skipped = why; }

const char *test_tmp(const char *name) {
    static char paths[8][512];
    static int i;
    i = (i + 1) % 8;
    snprintf(paths[i], sizeof paths[i], "test-files/%s", name);
    return paths[i];
}

int main(int argc, char **argv) {
    int n_passed = 0, n_failed = 0, n_skipped = 0;
    if (tern_folder_make("test-files", NULL) != TERN_OK) {
        printf("test-files cannot be made here\n");
        return 1;
    }
    for (test_case *t = first; t; t = t->next) {
        if (argc > 1 && strncmp(t->name, argv[1], strlen(argv[1])) != 0) continue;
        n_checks = n_bad = 0;
        why_skipped = NULL;
        t->run();
        if (n_bad || (!n_checks && !why_skipped)) printf("failed: %s\n", t->name);
        if (n_bad || (!n_checks && !why_skipped))
            n_failed++;
        else if (why_skipped)
            n_skipped++;
        else
            n_passed++;
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed != 0 || n_passed == 0;
}
