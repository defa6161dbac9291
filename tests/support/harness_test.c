// The harness itself.
#include <string.h>
#include "harness.h"

__attribute__((noinline)) static void skip_with_a_local_text(void) {
    char why[40];
    snprintf(why, sizeof why, "no %s", "reason");
    test_skip(why);
    memset(why, '#', sizeof why - 1);
    __asm__ volatile("" : : "r"(why) : "memory"); // the text is gone when the caller returns
}

// Seen to fail with a pointer kept instead of a copy.
TEST(harness_keeps_the_reason_of_a_skip) {
    skip_with_a_local_text();
    CHECK(strcmp(test_skip_reason(), "no reason") == 0);
    test_skip("");
}
