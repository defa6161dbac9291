#include "tests/support/blobs.h"

#include <stdlib.h>
#include "base/alloc.h"
#include "tests/support/harness.h"

static tern_hold *holds; // not of the library's heap, which tests count
static size_t n_holds;
static bool unmapped, keeps_memory;

const void *test_bytes(const tern_blob *b) {
    tern_hold h;
    tern_error err = {0};
    bool is_full = (n_holds & (n_holds - 1)) == 0; // 0, 1, 2, 4, 8 …
    tern_hold *grown = is_full ? realloc(holds, (2 * n_holds + 1) * sizeof *holds) : holds;
    if (grown) holds = grown;
    if (!grown || tern_blob_hold(b, &h, &err) != TERN_OK) {
        CHECK_MSG(false, "%s", err.message);
        return NULL;
    }
    holds[n_holds++] = h;
    return h.data;
}

void test_let_go(void) {
    while (n_holds > 0) tern_blob_release(&holds[--n_holds]);
}

bool test_map_never(bool never) {
    bool before = unmapped;
    unmapped = never;
    tern_blob_map_never(never);
    return before;
}

void test_keeps_memory(void) { keeps_memory = true; }

// What is left in the library's heap is found in the test that left it, not at the end of the
// process, where nothing says which one it was.
static void check_memory(void) {
    static size_t before;
    size_t now = tern_mem_get_stats().total_now;
    if (now > before && !keeps_memory) CHECK_MSG(false, "%zu bytes are left", now - before);
    before = now;
    keeps_memory = false;
}

static void after_each(void) {
    test_let_go();
    if (tern_blob_n_held() > 0) // once: a leak would fail every later test, too
        CHECK_MSG(false, "%d blobs are held and not released", (int)tern_blob_n_held());
    while (tern_blob_n_held() > 0) tern_blob_release(&(tern_hold){.data = ""});
    check_memory();
}

__attribute__((constructor)) static void begin(void) {
    const char *value = getenv("TERN_TEST_UNMAPPED");
    test_map_never(value && *value && *value != '0');
    test_after_each(after_each);
}
