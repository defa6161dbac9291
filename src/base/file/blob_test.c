// Mapped, read and borrowed bytes: the same bytes, or one clear error.
#include "base/file/blob.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file/out_set.h"
#include "tests/support/blobs.h"
#include "tests/support/harness.h"

static bool write_text(const char *path, const char *text) {
    return tern_file_write(path, text, strlen(text), NULL) == TERN_OK;
}

static void check_parts(const tern_blob *all, const char *how) {
    char text[8] = "";
    tern_error err = {0};
    tern_hold h;
    tern_blob middle = tern_blob_part(all, 2, 5), inner = tern_blob_part(&middle, 1, 3);
    CHECK_MSG(inner.n == 3 && inner.at == 3, "%s", how);
    CHECK(tern_blob_hold(&inner, &h, &err) == TERN_OK && !memcmp(h.data, "345", 3));
    tern_blob_release(&h);
    tern_blob_release(&h); // nothing is held any longer
    CHECK(tern_blob_read(&inner, 1, 2, text, &err) == TERN_OK && !memcmp(text, "45", 2));
    CHECK(tern_blob_read(&inner, 3, 0, text, &err) == TERN_OK);
    CHECK(tern_blob_read(&inner, 2, 2, text, &err) == TERN_ERR_FORMAT);
    CHECK(tern_blob_read(&inner, 4, 0, text, &err) == TERN_ERR_FORMAT);
    CHECK(tern_blob_read(&inner, 2, UINT64_MAX, text, &err) == TERN_ERR_FORMAT);
    CHECK(tern_blob_part(&inner, 2, UINT64_MAX).n == 1 && tern_blob_part(&inner, 9, 1).n == 0);
    tern_blob_drop(&inner); // loses nothing
    CHECK(tern_blob_read(&inner, 0, 3, text, &err) == TERN_OK && !memcmp(text, "345", 3));
}

// Seen to fail: with a part that does not add its whole's place, and with a range whose end
// overflows.
TEST(blob_parts_are_the_same_however_they_are_there) {
    const char *path = test_tmp("blob");
    const tern_blob memory = tern_blob_of("0123456789", 10);
    REQUIRE(write_text(path, "0123456789"));
    check_parts(&memory, "memory");
    for (int never = 0; never < 2; never++) {
        tern_error err = {0};
        tern_blob_file *file;
        tern_blob all;
        bool before = test_map_never(never);
        REQUIRE_OK(tern_blob_open(&file, path, false, &all, &err), err);
        CHECK(all.n == 10 && (all.memory == NULL) == never);
        check_parts(&all, never ? "read" : "mapped");
        tern_blob_close(file);
        CHECK(tern_blob_open(&file, test_tmp("none"), true, &all, &err) == TERN_OK && !file);
        CHECK(tern_blob_open(&file, test_tmp("none"), false, &all, &err) == TERN_ERR_IO);
        REQUIRE(write_text(test_tmp("empty"), ""));
        REQUIRE_OK(tern_blob_open(&file, test_tmp("empty"), false, &all, &err), err);
        tern_hold h;
        CHECK(all.n == 0 && tern_blob_hold(&all, &h, &err) == TERN_OK && h.data);
        tern_blob_release(&h);
        tern_blob_close(file);
        test_map_never(before);
    }
}

static void refuses(const tern_blob *b, const char *path, const char *says) {
    tern_error err = {0};
    tern_hold h;
    CHECK(tern_blob_hold(b, &h, &err) == TERN_ERR_IO && !h.data);
    CHECK_MSG(strstr(err.message, path) && strstr(err.message, says), "%s", err.message);
}

// Seen to fail: with a short read that counts as done, and without the comparison of stamps.
TEST(blob_of_a_file_that_changes_is_refused) {
    const char *path = test_tmp("changing");
    tern_error err = {0};
    tern_blob_file *file;
    tern_blob all;
    tern_hold h;
    bool before = test_map_never(true);
    REQUIRE(write_text(path, "0123456789"));
    REQUIRE_OK(tern_blob_open(&file, path, false, &all, &err), err);
    CHECK(truncate(path, 6) == 0);
    refuses(&all, path,
            "bytes 0 to 10 cannot be read: the file was cut to 6 bytes while it was in use");
    tern_blob_close(file);

    REQUIRE_OK(tern_blob_open(&file, path, false, &all, &err), err);
    FILE *f = fopen(path, "rb+");
    CHECK(f && fputs("x", f) >= 0 && fclose(f) == 0);
    // A second later: stamps are as coarse as the file system's clock.
    struct stat st;
    CHECK(stat(path, &st) == 0);
    const struct timespec later[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = st.st_mtime + 1}};
    CHECK(utimensat(AT_FDCWD, path, later, 0) == 0);
    tern_blob part = tern_blob_part(&all, 2, 3);
    refuses(&part, path, "bytes 2 to 5 cannot be used: the file was changed while it was in use");
    tern_blob_close(file);

    REQUIRE_OK(tern_blob_open(&file, path, false, &all, &err), err);
    REQUIRE(write_text(path, "another file of this name"));
    REQUIRE_OK(tern_blob_hold(&all, &h, &err), err); // the opened file is unchanged
    CHECK(!memcmp(h.data, "x12345", 6));
    tern_blob_release(&h);
    tern_blob_fail_read_at(1);
    refuses(&all, path, "cannot be read: ");
    tern_blob_fail_read_at(0);
    tern_mem_fail_at(1);
    CHECK(tern_blob_hold(&all, &h, &err) == TERN_ERR_MEMORY);
    tern_mem_fail_at(0);
    tern_blob_close(file);
    test_map_never(before);
}
