// What is remembered about a device between starts, whatever happens to the file that stores it.
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "kernels/webgpu/device/gpu.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"

#define DIES_WITH "TERN_TEST_DIES_WITH" // the state's folder of a process that is to die

static tern_device *device;   // of one test
static tern_webgpu_desc desc; // for trying out `device`

static bool open_test_device(const gpu_play *play) {
    tern_error err = {0};
    desc = *gpu_webgpu(play);
    desc.group = -1;
    tern_status status = gpu_device_new(&device, &desc, &err);
    if (status != TERN_OK && !gpu_is_absent(err.message)) CHECK_MSG(false, "%s", err.message);
    desc.group = 0;
    return status == TERN_OK;
}

// The one file in a folder; "" if there is none.
static const char *state_path(const char *folder) {
    static char path[700];
    char pattern[700];
    glob_t found;
    path[0] = 0;
    snprintf(pattern, sizeof pattern, "%s/webgpu-*", folder);
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1)
        snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static void write_file(const char *path, const char *text, size_t n) {
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(text, 1, n, f) == n;
    if (f) fclose(f);
    CHECK(ok);
}

static bool holds(const char *path, const char *text) {
    char found[100] = {0};
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(found, 1, sizeof found - 1, f) : 0;
    if (f) fclose(f);
    return f && n == strlen(text) && memcmp(found, text, n) == 0;
}

// One start: the size that is found, or -1.
static int start(void) {
    tern_error err = {0};
    size_t first = 0;
    gpu_policy *p = NULL;
    tern_status status = gpu_policy_begin(&p, device, &desc, 0, &err);
    for (bool done = false; status == TERN_OK && !done;) {
        device->api.InstanceProcessEvents(device->instance);
        status = gpu_policy_poll(p, &done, &first, &err);
    }
    gpu_policy_close(p);
    return status == TERN_OK ? (int)device->group : -1;
}

static void check_contents(const char *path) {
    static const struct {
        const char *before;
        int group;
        const char *after;
    } cases[] = {
        {"works 16\n", 16, "works 16\n"},
        {"trying 0\n", 64, "works 64\n"},
        {"trying 4\n", 1, "works 1\n"},
        {"trying 1\n", -1, "trying 1\n"},
        {"", 0, "works 0\n"},
        {"wor", 0, "works 0\n"},
        {"works 7\n", 0, "works 0\n"},
        {"trying 99999999999\n", 0, "works 0\n"},
        {"works\n\n\n-1", 0, "works 0\n"},
        {"\xff\xfe works 4", 0, "works 0\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(path, cases[i].before, strlen(cases[i].before));
        int group = start();
        CHECK_MSG(group == cases[i].group, "after \"%s\": %d", cases[i].before, group);
        CHECK_MSG(holds(path, cases[i].after), "after \"%s\"", cases[i].before);
    }
}

// A trial that is given up says nothing about the device. Seen to fail when gpu_policy_close writes
// nothing.
static void check_given_up(const char *path) {
    static const char *const before[] = {"", "trying 64\n"};
    for (size_t i = 0; i < 2; i++) {
        tern_error err = {0};
        gpu_policy *p;
        bool done = true;
        size_t first;
        write_file(path, before[i], strlen(before[i]));
        CHECK(gpu_policy_begin(&p, device, &desc, 0, &err) == TERN_OK);
        CHECK(gpu_policy_poll(p, &done, &first, &err) == TERN_OK && !done);
        CHECK(holds(path, i ? "trying 16\n" : "trying 0\n"));
        gpu_policy_close(p);
        CHECK(holds(path, before[i]));
    }
}

// Another start holds the file during its trial: this start polls for it and never waits.
static void check_taken(const char *path) {
    tern_error err = {0};
    gpu_policy *first, *second;
    bool done = true;
    size_t at;
    unlink(path);
    CHECK(gpu_policy_begin(&first, device, &desc, 0, &err) == TERN_OK);
    CHECK(gpu_policy_begin(&second, device, &desc, 0, &err) == TERN_OK);
    CHECK(gpu_policy_poll(first, &done, &at, &err) == TERN_OK && !done);
    for (int i = 0; i < 3; i++)
        CHECK(gpu_policy_poll(second, &done, &at, &err) == TERN_OK && !done);
    CHECK(holds(path, "trying 0\n"));
    tern_status status = TERN_OK;
    for (done = false; status == TERN_OK && !done;) {
        device->api.InstanceProcessEvents(device->instance);
        status = gpu_policy_poll(first, &done, &at, &err);
    }
    CHECK(status == TERN_OK && holds(path, "works 0\n"));
    gpu_policy_close(first);
    CHECK(gpu_policy_poll(second, &done, &at, &err) == TERN_OK && done); // it reads that
    gpu_policy_close(second);
}

static void check_odd_places(const char *folder) {
    char text[1200];
    const char *path = state_path(folder);
    unlink(path);
    CHECK(mkdir(path, 0700) == 0 && start() == 0); // a folder in its place
    rmdir(path);
    CHECK(symlink("/dev/full", path) == 0 && start() == 0); // not followed
    unlink(path);
    CHECK(mkfifo(path, 0600) == 0 && start() == 0);
    unlink(path);
    snprintf(text, sizeof text, "%s/file", folder);
    write_file(text, "", 0);
    desc.state_folder = text; // a file where the folder should be
    CHECK(start() == 0);
    memset(text, 'x', sizeof text - 1);
    text[0] = '/';
    text[sizeof text - 1] = 0;
    CHECK(start() == 0); // a name that no file can have
    desc.state_folder = "";
    CHECK(start() == 0);
    desc.state_folder = NULL;
    CHECK(start() == 0);
    desc.state_folder = folder;
}

TEST(gpu_policy_remembers_what_works) {
    char folder[600];
    if (!open_test_device(&(gpu_play){0})) return; // one that can be played with later
    snprintf(folder, sizeof folder, "%s", test_tmp("deep/in/a/cache"));
    desc.state_folder = folder;
    CHECK(start() == 0);
    const char *path = state_path(folder);
    CHECK(holds(path, "works 0\n"));
    if (path[0]) {
        check_contents(path);
        check_given_up(path);
        check_taken(path);
        check_odd_places(folder);
    }
    gpu_device_close(device);
    device = NULL;
}

// A process dies in the middle of a trial: the next start begins below that. The processes that die
// are this program again and open the device themselves: a GPU's driver is lost where a process
// that has it open forks and the child uses it.
TEST(gpu_policy_remembers_trials_that_killed) {
    char folder[600];
    const char *of_the_dying = getenv(DIES_WITH);
    snprintf(folder, sizeof folder, "%s", of_the_dying ? of_the_dying : test_tmp("killed"));
    if (!open_test_device(&(gpu_play){0})) return;
    desc.state_folder = folder;
    if (of_the_dying) {
        gpu_webgpu(&(gpu_play){.dispatches_max = 16, .kills = true});
        start();
        _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            setenv(DIES_WITH, folder, 1);
            // Its name is in that of the state's file: what stands for the library is in it.
            execl("/proc/self/exe", program_invocation_name,
                  "gpu_policy_remembers_trials_that_killed", (char *)NULL);
            _exit(127);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(holds(state_path(folder), i ? "trying 64\n" : "trying 0\n"));
    }
    CHECK(start() == 16 && holds(state_path(folder), "works 16\n"));
    gpu_device_close(device);
    device = NULL;
}

// Losing the device does not end a start, which opens another device and gives it less.
TEST(gpu_policy_goes_on_after_a_loss) {
    char folder[600];
    tern_error err = {0};
    snprintf(folder, sizeof folder, "%s", test_tmp("cache_of_a_weak_one"));
    tern_webgpu_desc weak = *gpu_webgpu(&(gpu_play){.dispatches_max = 4});
    weak.state_folder = folder;
    tern_status status = gpu_device_new(&device, &weak, &err);
    if (status != TERN_OK && !gpu_is_absent(err.message)) CHECK_MSG(false, "%s", err.message);
    if (status != TERN_OK) return;
    CHECK(device->group == 4 && !device->lost);
    CHECK(holds(state_path(folder), "works 4\n"));
    gpu_device_close(device);
    device = NULL;
    weak.group = 1; // decides without looking
    REQUIRE_OK(gpu_device_new(&device, &weak, &err), err);
    CHECK(device->group == 1);
    gpu_device_close(device);
    device = NULL;
}

// Running out of memory is not the device's fault: nothing is recorded.
TEST(gpu_policy_survives_failing_allocations) {
    if (!open_test_device(NULL)) return;
    gpu_device_close(device);
    tern_error err = {0};
    char folder[600];
    snprintf(folder, sizeof folder, "%s", test_tmp("cache"));
    desc.state_folder = folder;
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    uint64_t n = 0;
    while (status == TERN_ERR_MEMORY && n < 1000) {
        tern_mem_fail_at(++n);
        status = gpu_device_new(&device, &desc, &err);
        tern_mem_fail_at(0);
        const char *path = state_path(folder);
        if (status == TERN_ERR_MEMORY) CHECK(!path[0] || holds(path, ""));
        if (status == TERN_ERR_MEMORY) CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK_MSG(status == TERN_OK && n > 3, "after %d failures: %s", (int)n, err.message);
    CHECK(holds(state_path(folder), "works 0\n"));
    if (status == TERN_OK) gpu_device_close(device);
    CHECK(tern_mem_get_stats().total_now == before);
}
