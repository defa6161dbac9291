// Writing files: the old content stays until the new is whole, whatever fails, and if the process
// is killed.
#include "base/file/out_set.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/strbuf.h"
#include "tests/support/kill_at.h"

static void read_text(const char *path, char *out, size_t size) {
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(out, 1, size - 1, f) : 0;
    out[n] = 0;
    if (f) fclose(f);
}

static bool holds(const char *folder, const char *name, const char *expected) {
    char text[64];
    char *path = tern_path_join(folder, name);
    read_text(path, text, sizeof text);
    tern_free(path);
    return !strcmp(text, expected);
}

static const char *fresh_folder(const char *name) {
    const char *folder = test_tmp(name);
    tern_folder_make(folder, NULL);
    return folder;
}

TEST(out_file_replaces_as_a_whole_or_not_at_all) {
    const char *folder = fresh_folder("out file"), *path = test_tmp("out file/a");
    tern_error err = {0};
    tern_output *o;
    REQUIRE_OK(tern_file_write(path, "old", 3, &err), err);
    REQUIRE_OK(tern_output_open(&o, path, &err), err);
    REQUIRE_OK(tern_output_write(o, "new", 3, &err), err);
    CHECK(holds(folder, "a", "old") && count_left_overs(folder) == 1);
    tern_output_close(o); // not finished
    CHECK(holds(folder, "a", "old") && count_left_overs(folder) == 0);
    REQUIRE_OK(tern_file_write(path, "new", 3, &err), err);
    CHECK(holds(folder, "a", "new") && count_left_overs(folder) == 0);
    struct stat st;
    CHECK(chmod(path, 0600) == 0 && tern_file_write(path, "new", 3, &err) == TERN_OK);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(tern_file_write(test_tmp("out file/none/a"), "x", 1, &err) == TERN_ERR_IO);
    CHECK(tern_file_write(folder, "x", 1, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, "Is a directory"), "%s", err.message);
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[299] = 0;
    char *too_long = tern_path_join(folder, longest);
    CHECK(tern_file_write(too_long, "x", 1, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, strerror(ENAMETOOLONG)), "%s", err.message);
    tern_free(too_long);
    CHECK(tern_file_write(NULL, "x", 1, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_output_finish(NULL, &err) == TERN_ERR_ARGUMENT);
}

// A full disk, which any machine can simulate. Seen to fail if the file's own name is written to.
static void write_too_much(void *path) {
    static char bytes[1 << 20];
    struct rlimit limit = {1 << 16, 1 << 16};
    tern_error err = {0};
    signal(SIGXFSZ, SIG_IGN);
    bool ok = setrlimit(RLIMIT_FSIZE, &limit) == 0 &&
              tern_file_write(path, bytes, sizeof bytes, &err) == TERN_ERR_IO &&
              strstr(err.message, strerror(EFBIG));
    _exit(ok ? 0 : 1);
}

TEST(out_file_survives_a_full_disk) {
    const char *folder = fresh_folder("out full"), *path = test_tmp("out full/a");
    tern_error err = {0};
    int status;
    REQUIRE_OK(tern_file_write(path, "old", 3, &err), err);
    pid_t child = fork();
    if (child == 0) write_too_much((void *)path);
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(holds(folder, "a", "old") && count_left_overs(folder) == 0);
}

// Seen to fail without the check for irregular files: then the pipe is replaced.
TEST(out_file_writes_through_to_pipes_and_devices) {
    const char *path = test_tmp("out pipe"), *link = test_tmp("out link");
    const char *target = test_tmp("out target");
    tern_error err = {0};
    struct stat st;
    char got[8] = "";
    REQUIRE(mkfifo(path, 0600) == 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    REQUIRE_OK(tern_file_write(path, "through", 7, &err), err);
    CHECK(read(fd, got, 7) == 7 && !strcmp(got, "through"));
    close(fd);
    CHECK(stat(path, &st) == 0 && S_ISFIFO(st.st_mode));
    // A descriptor continues at its position, and a link stays a link. (A device by its own name is
    // not tried: a mistake would replace the machine's.)
    int pipes[2], full = open("/dev/full", O_WRONLY);
    char name[32];
    snprintf(name, sizeof name, "/dev/fd/%d", full);
    if (full >= 0) CHECK(tern_file_write(name, "x", 1, &err) == TERN_ERR_IO);
    CHECK_MSG(full < 0 || strstr(err.message, "No space left"), "%s", err.message);
    close(full);
    REQUIRE(pipe(pipes) == 0);
    snprintf(name, sizeof name, "/dev/fd/%d", pipes[1]);
    REQUIRE_OK(tern_file_write(name, "again", 5, &err), err);
    CHECK(read(pipes[0], got, 5) == 5 && !memcmp(got, "again", 5));
    close(pipes[0]);
    close(pipes[1]);
    REQUIRE_OK(tern_file_write(target, "old", 3, &err), err);
    REQUIRE(symlink(target, link) == 0);
    REQUIRE_OK(tern_file_write(link, "new", 3, &err), err);
    CHECK(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    read_text(target, got, sizeof got);
    CHECK(!strcmp(got, "new"));
}

TEST(out_left_overs_of_dead_writers_go_and_those_of_living_ones_stay) {
    const char *folder = fresh_folder("out left"), *outside = fresh_folder("out victim");
    tern_error err = {0};
    tern_output *living;
    REQUIRE_OK(tern_output_open(&living, test_tmp("out left/living"), &err), err);
    pid_t child = fork();
    if (child == 0) {
        tern_output *dead;
        if (tern_output_open(&dead, test_tmp("out left/dead"), &err) == TERN_OK) raise(SIGKILL);
        _exit(1);
    }
    REQUIRE(child > 0 && waitpid(child, NULL, 0) == child);
    CHECK(count_left_overs(folder) == 2);
    // The target of a link is not a left-over. Seen to fail without O_NOFOLLOW, and for the living
    // writer's without the lock.
    REQUIRE_OK(tern_file_write(test_tmp("out victim/kept"), "kept", 4, &err), err);
    REQUIRE(symlink(outside, test_tmp("out left/.tern-partial-link")) == 0);
    REQUIRE_OK(tern_file_write(test_tmp("out left/other"), "x", 1, &err), err);
    CHECK(count_left_overs(folder) == 2 && holds(outside, "kept", "kept"));
    REQUIRE_OK(tern_output_write(living, "whole", 5, &err), err);
    REQUIRE_OK(tern_output_finish(living, &err), err);
    tern_output_close(living);
    CHECK(holds(folder, "living", "whole"));
    if (geteuid() != 0) return; // only root can create another user's files
    const char *strange = test_tmp("out left/.tern-commit");
    char *planted = tern_path_join(strange, "living");
    REQUIRE(mkdir(strange, 0777) == 0);
    REQUIRE_OK(tern_file_write(planted, "planted", 7, &err), err);
    tern_free(planted);
    REQUIRE(chown(strange, 12345, 12345) == 0);
    CHECK(tern_file_write(test_tmp("out left/other"), "x", 1, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, ".tern-commit: is in the way"), "%s", err.message);
    CHECK(holds(folder, "living", "whole"));
}

// ---- Sets --------------------------------------------------------------------------------------

static const char *const members[] = {"a", "b", "last"};

static tern_status write_set(const char *folder, const char *text, bool with_extra,
                             tern_error *err) {
    tern_out_set set;
    tern_status status = tern_out_open(&set, folder, true, err);
    for (int i = 0; i < 3 && status == TERN_OK; i++)
        status = tern_out_put(&set, members[i], text, strlen(text), err);
    if (status == TERN_OK && with_extra)
        status = tern_out_put(&set, "extra", text, strlen(text), err);
    if (status == TERN_OK && !with_extra) status = tern_out_remove(&set, "extra", err);
    if (status == TERN_OK) status = tern_out_commit(&set, "last", err);
    tern_out_close(&set);
    return status;
}

static bool set_is(const char *folder, const char *text, bool with_extra) {
    bool ok = holds(folder, "extra", with_extra ? text : "");
    for (int i = 0; i < 3; i++) ok = ok && holds(folder, members[i], text);
    return ok;
}

TEST(out_set_changes_together) {
    const char *folder = test_tmp("out set");
    tern_error err = {0};
    tern_out_set set, second;
    REQUIRE_OK(write_set(folder, "old", true, &err), err);
    CHECK(set_is(folder, "old", true) && count_left_overs(folder) == 0);
    REQUIRE_OK(tern_out_open(&set, folder, true, &err), err);
    CHECK(tern_out_open(&second, folder, true, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, "another process is writing there"), "%s", err.message);
    REQUIRE_OK(tern_out_put(&set, "a", "new", 3, &err), err);
    tern_out_file f;
    REQUIRE_OK(tern_out_begin(&set, "b", &f, &err), err);
    CHECK(tern_out_commit(&set, "a", &err) == TERN_ERR_ARGUMENT); // b is not ended
    tern_out_drop(&f);
    tern_out_close(&set);
    CHECK(set_is(folder, "old", true) && count_left_overs(folder) == 0);
    REQUIRE_OK(write_set(folder, "new", false, &err), err);
    CHECK(set_is(folder, "new", false) && count_left_overs(folder) == 0);
    // A folder made for a set that is never committed is removed.
    const char *made = test_tmp("out made");
    REQUIRE_OK(tern_out_open(&set, made, true, &err), err);
    tern_out_close(&set);
    CHECK(access(made, F_OK) != 0);
}

static void write_new(void *folder) { write_set(folder, "new", false, NULL); }

// Killed before each of its system calls in turn: the result is old, new, or refused; and the next
// writer of anything in that folder turns it into one of the first two. Seen to fail with renames
// straight into the folder, and with the last file renamed among the others.
TEST(out_set_is_never_mixed_when_its_writer_is_killed) {
    char folder[64], *other = NULL;
    tern_error err = {0};
    REQUIRE(memory_folder(folder, sizeof folder) && (other = tern_path_join(folder, "other")));
    int n_old = 0, n_new = 0, n_refused = 0;
    kill_outcome outcome = KILL_KILLED;
    for (int n = 1; outcome == KILL_KILLED && n < 1000; n += KILL_STEP) {
        REQUIRE_OK(write_set(folder, "old", true, &err), err);
        outcome = kill_at_call(n, write_new, (void *)folder);
        if (outcome == KILL_IMPOSSIBLE) break;
        bool refused = tern_out_check(folder, "last", &err) != TERN_OK;
        bool is_old = set_is(folder, "old", true), is_new = set_is(folder, "new", false);
        n_refused += refused;
        n_old += is_old && !refused;
        n_new += is_new && !refused;
        CHECK_MSG(refused || is_old || is_new, "mixed when killed at call %d", n);
        REQUIRE_OK(tern_file_write(other, "x", 1, &err), err);
        CHECK(tern_out_check(folder, "last", &err) == TERN_OK && count_left_overs(folder) == 0);
        CHECK_MSG(set_is(folder, refused || is_new ? "new" : "old", !refused && !is_new),
                  "not settled after call %d", n);
    }
    tern_free(other);
    remove_folder(folder);
    if (outcome == KILL_IMPOSSIBLE) {
        test_skip("right to trace a child");
        return;
    }
    CHECK(outcome == KILL_DONE);
    CHECK_MSG(enough(n_old, n_new, n_refused), "old %d, new %d, refused %d", n_old, n_new,
              n_refused);
}

// Seen to fail: with the umask alone, with the permissions of the replaced file.
TEST(out_private_files_are_for_their_user) {
    char *folder = tern_strdup(TERN_MEM_MISC, test_tmp("private"));
    char *path = tern_path_join(folder, "said");
    struct stat st;
    tern_error err = {0};
    int fd;
    mode_t old = umask(0);
    REQUIRE_OK(tern_folder_make_private(folder, &err), err);
    CHECK(stat(folder, &st) == 0 && (st.st_mode & 0777) == 0700 && !tern_folder_is_others(folder));
    REQUIRE_OK(tern_file_write(path, "a", 1, &err), err);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0666);
    REQUIRE_OK(tern_file_write_private(path, "b", 1, &err), err);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    tern_file_remove(path);
    REQUIRE_OK(tern_file_open_log(&fd, path, UINT64_MAX, true, &err), err);
    tern_fd_close(fd);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(chmod(folder, 0770) == 0 && tern_folder_is_others(folder));
    CHECK(chmod(folder, 0755) == 0 && !tern_folder_is_others(folder));
    umask(old);
    tern_free(path);
    tern_free(folder);
}
