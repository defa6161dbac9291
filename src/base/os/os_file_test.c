#include "base/os/os_file.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "tests/support/harness.h"

static bool path_is(char *got, const char *expected) {
    bool same = got && !strcmp(got, expected);
    tern_free(got);
    return same;
}

TEST(paths_are_split_and_joined) {
    CHECK(path_is(tern_path_join("a", "b"), "a/b") && path_is(tern_path_join("a/", "b"), "a/b"));
    CHECK(path_is(tern_path_join("", "b"), "b") && path_is(tern_path_join("/", "b"), "/b"));
    CHECK(path_is(tern_path_folder("a/b"), "a") && path_is(tern_path_folder("/b"), "/"));
    CHECK(path_is(tern_path_folder("b"), ".") && path_is(tern_path_folder("a//b"), "a"));
    CHECK(!strcmp(tern_path_name("a/b"), "b") && !strcmp(tern_path_name("b"), "b"));
}

static void touch(const char *folder, const char *name) {
    char *path = tern_path_join(folder, name);
    FILE *f = fopen(path, "w");
    if (f) fclose(f);
    tern_free(path);
}

// Seen to fail with glob() in its place: "[12]*" then matches other files.
TEST(folders_are_listed_without_wildcards) {
    const char *folder = test_tmp("odd [12]* ?");
    tern_error err = {0};
    tern_names names = {0};
    REQUIRE_OK(tern_folder_make(folder, &err), err);
    REQUIRE_OK(tern_folder_make(folder, &err), err);
    touch(folder, "step-2.gguf");
    touch(folder, "step-1.gguf");
    touch(folder, "step-*.gguf");
    touch(folder, "xstep-1.gguf");
    touch(folder, "step-1.gguf.x");
    REQUIRE_OK(tern_folder_list(&names, folder, "step-", ".gguf", &err), err);
    REQUIRE(names.n == 3);
    CHECK(!strcmp(names.list[0], "step-*.gguf") && !strcmp(names.list[1], "step-1.gguf"));
    tern_names_free(&names);
    REQUIRE_OK(tern_folder_list(&names, folder, "", "", &err), err);
    CHECK(names.n == 5);
    tern_names_free(&names);
    tern_mem_fail_at(1); // other names take no memory, however many there are
    CHECK(tern_folder_list(&names, folder, "none", "", &err) == TERN_OK && names.n == 0);
    // Seen to fail if the names before the failed allocation are kept.
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK && n < 100; n++) {
        tern_mem_fail_at(n);
        status = tern_folder_list(&names, folder, "", "", &err);
        CHECK(status == TERN_OK || (status == TERN_ERR_MEMORY && names.n == 0 && !names.list));
    }
    tern_mem_fail_at(0);
    CHECK(status == TERN_OK && names.n == 5);
    tern_names_free(&names);
    CHECK(tern_folder_list(&names, test_tmp("no such folder"), "", "", &err) == TERN_ERR_IO);
    touch(test_tmp("."), "a file");
    CHECK(tern_folder_make(test_tmp("a file"), &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, "Not a directory"), "%s", err.message);
}

// Seen to fail without the call of flock.
TEST(locks_hold_back_others_and_end_with_their_process) {
    const char *folder = test_tmp("locked");
    tern_error err = {0};
    tern_lock mine = {0}, other = {0};
    REQUIRE_OK(tern_folder_make(folder, &err), err);
    REQUIRE_OK(tern_lock_folder(&mine, folder, &err), err);
    CHECK(tern_lock_folder(&other, folder, &err) == TERN_ERR_IO && !other.folder.is_open);
    CHECK_MSG(strstr(err.message, "another process is writing"), "%s", err.message);
    tern_unlock(&mine);
    int ready[2];
    char byte;
    REQUIRE(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (tern_lock_folder(&mine, folder, NULL) == TERN_OK) (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    REQUIRE(child > 0 && read(ready[0], &byte, 1) == 1);
    CHECK(tern_lock_folder(&other, folder, &err) == TERN_ERR_IO);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    REQUIRE_OK(tern_lock_folder(&other, folder, &err), err);
    tern_unlock(&other);
    close(ready[0]);
    close(ready[1]);
}

TEST(only_regular_files_are_opened) {
    const char *pipe_path = test_tmp("a pipe");
    tern_error err = {0};
    uint64_t n;
    int fd, other;
    REQUIRE(mkfifo(pipe_path, 0600) == 0);
    alarm(20); // in case a pipe blocks
    CHECK(tern_file_open_regular(&fd, pipe_path, &n, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, "not a regular file"), "%s", err.message);
    CHECK(tern_file_open_regular(&fd, "/dev/null", &n, &err) == TERN_ERR_IO);
    CHECK(tern_file_open_log(&fd, pipe_path, 0, false, &err) == TERN_ERR_IO);
    alarm(0);
    const char *path = test_tmp("a log");
    REQUIRE_OK(tern_file_open_log(&fd, path, 0, false, &err), err);
    CHECK(write(fd, "one\ntwo", 7) == 7);
    CHECK(tern_file_open_log(&other, path, 0, false, &err) == TERN_ERR_IO);
    close(fd);
    REQUIRE_OK(tern_file_open_log(&fd, path, 4, false, &err), err);
    CHECK(write(fd, "three\n", 6) == 6);
    close(fd);
    REQUIRE_OK(tern_file_open_regular(&fd, path, &n, &err), err);
    CHECK(n == 10);
    close(fd);
}

// Seen to fail when a long message loses its end, with the reason in it.
TEST(long_names_leave_room_for_the_reason) {
    tern_error err = {0};
    size_t n = 3000;
    char *name = malloc(n + 1);
    REQUIRE(name);
    for (size_t i = 0; i < n; i++) name[i] = "\xC3\xA4"[i % 2];
    name[n] = 0;
    tern_fail(&err, TERN_ERR_IO, "%s: cannot be read", name);
    size_t length = strlen(err.message);
    CHECK(length > 480 && !strcmp(err.message + length - 14, "cannot be read"));
    const char *dots = strstr(err.message, " ... ");
    REQUIRE(dots);
    CHECK((dots - err.message) % 2 == 0 && (unsigned char)dots[5] == 0xC3);
    tern_fail_prefix(&err, TERN_ERR_IO, name);
    CHECK(strstr(err.message, "cannot be read"));
    free(name);
}
