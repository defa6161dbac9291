// A test is a function that registers itself: TEST(gguf_rejects_truncated_header) { ... }
//
// CHECK goes on after a failure and REQUIRE leaves the test. A test that reaches no CHECK at all,
// and was not skipped, has failed. Tests that need files outside the repository ask DATA(path) and
// return when it is missing (counted as skipped).
#ifndef TERN_TESTS_HARNESS_H
#define TERN_TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;

void test_register(test_case *t);
// fn is called after each test, and its checks are the test's.
void test_after_each(void (*fn)(void));
void test_check(bool ok, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Counts the running test as skipped, for a reason that the summary names (copied; of several calls
// the last).
void test_skip(const char *why);
const char *test_skip_reason(void); // empty: not skipped
// Whether TERN_TEST_LONG asks for the cases that take minutes.
bool test_is_long(void);
#define TEST_LONG_REASON "TERN_TEST_LONG is not set: takes minutes"
// Path of an optional data file below TERN_TEST_DATA (environment); NULL if it is missing: the test
// is then counted as skipped and must return. Valid until the eighth call after it.
const char *test_data(const char *relative_path);
// The whole file, terminated, to be freed; NULL, and n = 0, if it cannot be read.
char *test_read(const char *path, size_t *n);
// Makes a file of these bytes, or the test fails; returns its path.
const char *test_write(const char *path, const char *bytes, size_t n);
bool test_folder(const char *path); // makes it; false: it is there, or cannot be made
// A folder for files that a test writes; removed at the end.
const char *test_tmp(const char *name);
// The same in memory, where the system has such a folder, for many small files: those that are
// synced wait for a disk.
const char *test_memory_tmp(const char *name);

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    __attribute__((constructor)) static void test_register_##name(void) {                          \
        static test_case t = {#name, test_##name, NULL};                                           \
        test_register(&t);                                                                         \
    }                                                                                              \
    static void test_##name(void)

#define CHECK(condition)          test_check((condition), __FILE__, __LINE__, "%s", #condition)
#define CHECK_MSG(condition, ...) test_check((condition), __FILE__, __LINE__, __VA_ARGS__)
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        bool require_ok_ = (condition);                                                            \
        test_check(require_ok_, __FILE__, __LINE__, "%s", #condition);                             \
        if (!require_ok_) return;                                                                  \
    } while (0)
#define REQUIRE_OK(call, err)                                                                      \
    do {                                                                                           \
        bool require_ok_ = (call) == TERN_OK;                                                      \
        test_check(require_ok_, __FILE__, __LINE__, "%s: %s", #call, (err).message);               \
        if (!require_ok_) return;                                                                  \
    } while (0)

#endif
