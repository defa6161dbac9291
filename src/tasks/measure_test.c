// The report on kernels: a row for each family, number of tokens and level, none without a time.
#include <stdlib.h>
#include <string.h>
#include "base/strbuf.h"
#include "kernels/cpu/kernels.h"
#include "tern_tools.h"
#include "tests/support/harness.h"

static bool keep(void *user, const char *bytes, size_t n) {
    tern_strbuf_append(user, bytes, n);
    return true;
}

static bool stop(void *user, const char *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
    return false;
}

// Seen to fail: with a family that was not timed, and without the last level.
TEST(machine_report_has_each_kernel_at_each_level) {
    tern_strbuf text = {0};
    tern_error err;
    const char *names[8];
    const size_t n = tern_cpu_kernels_list(names);
    REQUIRE_OK(tern_machine_report(keep, &text, &err), err);
    size_t n_rows = 0, n_last = 0;
    for (const char *line = text.ptr; line && *line; line = strchr(line, '\n') + 1) {
        const char *level = strstr(line, "| ") == line ? strstr(line + 2, "| ") : NULL;
        if (!level || !(level = strstr(level + 2, "| ")) || strncmp(line, "| kernel", 8) == 0)
            continue;
        const size_t len = strcspn(level + 2, " ");
        CHECK_MSG(atof(level + 2 + len + 3) >= 1, "%.*s", (int)strcspn(line, "\n"), line); // ns
        n_rows++;
        n_last += len == strlen(names[n - 1]) && !strncmp(level + 2, names[n - 1], len);
    }
    CHECK_MSG(n_rows == TERN_CPU_SPEEDS * (n > 1 ? n - 1 : 1), "%zu rows", n_rows);
    CHECK(n_last == TERN_CPU_SPEEDS);
    CHECK(tern_machine_report(stop, NULL, &err) == TERN_ERR_CANCELLED);
    tern_strbuf_free(&text);
}
