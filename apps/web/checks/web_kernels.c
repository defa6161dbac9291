// The tests of the kernels (src/kernels/cpu/*/*_check.c and *_test.c), for a page: every variant
// against the scalar one. This file is their harness.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/os/os_time.h"
#include "tests/support/harness.h"
#include "apps/web/web.h"

WEB_EXPORT(web_kernels_next) int32_t web_kernels_next(void);

static test_case *first, *next;
static bool begun;
static const char *why_skipped;
static int n_checks, n_bad;
static char why[300]; // the first check that failed

void test_register(test_case *t) {
    t->next = first;
    first = t;
}

void test_check(bool ok, const char *file, int line, const char *format, ...) {
    n_checks++;
    if (ok || n_bad++ > 0) return;
    va_list arguments;
    const char *name = strrchr(file, '/');
    int n = snprintf(why, sizeof why, "%s:%d: ", name ? name + 1 : file, line);
    va_start(arguments, format);
    vsnprintf(why + n, sizeof why - (size_t)n, format, arguments);
    va_end(arguments);
}

void test_skip(const char *reason) { why_skipped = reason; }

bool test_is_long(void) { return false; }

// Runs the next test and leaves {"name", "ok", "detail", "seconds"}; returns 1. 0: none is left,
// and the next call begins again.
int32_t web_kernels_next(void) {
    if (!begun) next = first;
    begun = next != NULL;
    if (!next) return 0;
    const test_case *t = next;
    next = t->next;
    n_checks = n_bad = 0;
    why_skipped = NULL;
    why[0] = 0;
    double start = tern_seconds();
    t->run();
    bool ok = n_bad == 0 && (n_checks > 0 || why_skipped);
    tern_strbuf *b = web_result_begin();
    tern_strbuf_puts(b, "{\"name\":");
    tern_strbuf_json(b, t->name, strlen(t->name));
    const char *detail = why_skipped ? why_skipped : why;
    tern_strbuf_printf(b, ",\"ok\":%s,\"detail\":", ok ? "true" : "false");
    tern_strbuf_json(b, detail, strlen(detail));
    tern_strbuf_puts(b, ",\"seconds\":");
    tern_strbuf_json_number(b, tern_seconds() - start);
    tern_strbuf_puts(b, "}");
    int32_t failed = web_result_end();
    return failed ? failed : 1;
}
