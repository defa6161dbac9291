// Libraries loaded on demand. The stubs are tested by the commands that use them.
#if defined(__linux__)
#include <string.h>
#include "base/os/lazy.h"
#include "base/os/os_library.h"
#include "base/os/os_thread.h"
#include "tests/support/harness.h"

static const char *const there[] = {"libm.so.6", "libc.so.6", NULL};
static const char *const names[] = {"ldexp", "strtol"};
static void *at[2];
static tern_lazy mathematics = {there, names, at, 2, "mathematics", 0};

static void load_it(void *ctx) {
    atomic_int *n_ok = ctx;
    if (tern_lazy_load(&mathematics, NULL) == TERN_OK && at[0] && at[1]) atomic_fetch_add(n_ok, 1);
}

// Seen to fail: if the state is set before the table is filled, under the thread sanitizer.
TEST(lazy_libraries_are_loaded_once_by_whoever_is_first) {
    if (!tern_can_load_libraries()) {
        test_skip("this program is linked statically");
        return;
    }
    tern_thread threads[4];
    atomic_int n_ok = 0;
    int n = 0;
    while (n < 4 && tern_thread_start(&threads[n], load_it, &n_ok)) n++;
    for (int i = 0; i < n; i++) tern_thread_join(&threads[i]);
    CHECK(n > 0 && n_ok == n);
    double (*call)(double, int);
    memcpy(&call, &at[0], sizeof call);
    CHECK(call(3, 2) == 12);
}

TEST(lazy_libraries_that_are_not_there_are_named) {
    static const char *const nowhere[] = {"libm.so.6", "libno-such.so.7", NULL};
    static const char *const strange[] = {"cos", "tern_no_such_function"};
    tern_error err = {0};
    tern_lazy l = {nowhere, names, at, 1, "libno-such", 0};
    CHECK(tern_lazy_load(&l, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "this needs libno-such: libno-such.so.7: cannot open") ||
          strstr(err.message, "linked statically"));
    l = (tern_lazy){there, strange, at, 2, "mathematics", 0};
    CHECK(tern_lazy_load(&l, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "tern_no_such_function") || strstr(err.message, "linked statically"));
}
#endif
