#include <string.h>
#include "base/alloc.h"
#include "tern_memory.h"
#include "tests/support/harness.h"

#ifdef TERN_SQLITE

// Allocations of the library fail, from one of them on, the first ones each: an error, nothing
// lost, nothing left. (SQLite's own memory is not the library's.)
TEST(store_gives_back_all_memory_when_it_fails) {
    tern_error err = {0};
    size_t before = tern_mem_get_stats().total_now;
    bool done = false;
    for (uint64_t at = 1; !done && at < 100000; at += 1 + at / 20) {
        char lines[] = "{\"text\": \"One. Two bob@example.com.\", \"source\": \"a\"}\n\"tea time\"";
        tern_memory_store *s = NULL;
        tern_memory_hits *hits = NULL;
        const tern_memory_filter filter = {"source", "a", TERN_MEMORY_EQUAL};
        const tern_memory_query q = {
            .text = "two", .n_bytes = 3, .filters = &filter, .n_filters = 1};
        const tern_memory_add_params params = {.replace = true};
        tern_mem_fail_at(at);
        tern_status status = tern_memory_open(&s, test_tmp("fails.memory"), NULL, &err);
        if (status == TERN_OK)
            status = tern_memory_import(s, lines, strlen(lines), &params, NULL, &err);
        if (status == TERN_OK) status = tern_memory_recall(s, &q, &hits, &err);
        tern_mem_fail_at(0);
        done = status == TERN_OK;
        CHECK_MSG(done || status == TERN_ERR_MEMORY || status == TERN_ERR_ARGUMENT,
                  "allocation %d: %s", (int)at, err.message);
        tern_memory_hits_free(hits);
        tern_memory_close(s);
        CHECK_MSG(tern_mem_get_stats().total_now == before, "allocation %d leaks", (int)at);
    }
    CHECK(done);
}

#endif
