// Runs the tests that it is linked with one after the other, in one process: for systems without
// fork(), where harness.c does not go. The names of tests that failed are the output. Arguments
// choose those whose names contain one of them, and leave out those that contain one after a '!'.
#include <stdarg.h>
#include <string.h>
#include "base/os/os_file.h"
#include "tests/support/harness.h"

static test_case *first;
static void (*after_each)(void);
static char why_skipped[200];
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

void test_after_each(void (*fn)(void)) { after_each = fn; }
void test_skip(const char *why) { snprintf(why_skipped, sizeof why_skipped, "%s", why); }
const char *test_skip_reason(void) { return why_skipped; }

const char *test_tmp(const char *name) {
    static char paths[8][512];
    static int i;
    i = (i + 1) % 8;
    snprintf(paths[i], sizeof paths[i], "test-files/%s", name);
    return paths[i];
}

const char *test_memory_tmp(const char *name) { return test_tmp(name); }

static bool is_wanted(const char *name, char **parts, int n_parts) {
    bool wanted = true, is_named = false;
    for (int i = 0; i < n_parts; i++) {
        const bool is_out = parts[i][0] == '!', is_in = strstr(name, parts[i] + is_out) != NULL;
        if (is_out && is_in) return false;
        if (is_out) continue;
        wanted = is_named ? wanted || is_in : is_in;
        is_named = true;
    }
    return wanted;
}

int main(int argc, char **argv) {
    int n_passed = 0, n_failed = 0, n_skipped = 0;
    if (tern_folder_make("test-files", NULL) != TERN_OK) {
        printf("test-files cannot be made here\n");
        return 1;
    }
    for (test_case *t = first; t; t = t->next) {
        if (!is_wanted(t->name, argv + 1, argc - 1)) continue;
        n_checks = n_bad = 0;
        why_skipped[0] = 0;
        t->run();
        if (after_each) after_each();
        const bool failed = n_bad || (!n_checks && !why_skipped[0]);
        if (failed) printf("failed: %s\n", t->name);
        fflush(stdout);
        if (failed)
            n_failed++;
        else if (why_skipped[0])
            n_skipped++;
        else
            n_passed++;
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed != 0 || n_passed == 0;
}
