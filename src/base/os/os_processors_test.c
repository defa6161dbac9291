// Quotas of control groups, on made-up systems: version 1, version 2, nested, in containers.
#if defined(__linux__)
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "base/os/os_file.h"
#include "base/os/os_processors.h"
#include "base/os/os_thread.h"
#include "base/strbuf.h"
#include "tests/support/harness.h"

static char root[512];

// A file and the folders that it is in.
static void put(const char *path, const char *text) {
    tern_strbuf whole = {0};
    tern_error err = {0};
    tern_strbuf_printf(&whole, "%s/%s", root, path);
    for (char *slash = whole.ptr + strlen(root); (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        REQUIRE_OK(tern_folder_make(whole.ptr, &err), err);
        *slash = '/';
    }
    FILE *f = fopen(whole.ptr, "w");
    CHECK(f != NULL);
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    tern_strbuf_free(&whole);
}

static void begin(const char *name, const char *mountinfo, const char *cgroup) {
    tern_error err = {0};
    snprintf(root, sizeof root, "%s", test_tmp(name));
    REQUIRE_OK(tern_folder_make(root, &err), err);
    put("proc/self/mountinfo", mountinfo);
    put("proc/self/cgroup", cgroup);
}

#define V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

// Seen to fail: with the number of processors that are online; with the group of the process alone;
// with quotas rounded down to 0.
TEST(processors_granted_by_cgroup2) {
    begin("two", "22 1 0:20 / / rw - ext4 /dev/vda rw\n" V2, "0::/user.slice/job/inner\n");
    CHECK(tern_processors_granted(root, 8) == 8); // no file says anything
    put("sys/fs/cgroup/user.slice/job/inner/cpu.max", "max 100000\n");
    CHECK(tern_processors_granted(root, 8) == 8);
    put("sys/fs/cgroup/user.slice/job/cpu.max", "300000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 3); // of a parent group
    CHECK(tern_processors_granted(root, 2) == 2); // more than the machine has
    put("sys/fs/cgroup/user.slice/job/inner/cpu.max", "25000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 1);
    put("sys/fs/cgroup/user.slice/job/inner/cpu.max", "75000 50000\n");
    CHECK(tern_processors_granted(root, 8) == 2); // one and a half
    put("sys/fs/cgroup/user.slice/cpu.max", "110000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 1);
    put("sys/fs/cgroup/user.slice/cpu.max", "nonsense");
    put("sys/fs/cgroup/user.slice/job/cpu.max", "");
    CHECK(tern_processors_granted(root, 8) == 2);
}

TEST(processors_granted_in_a_container) {
    begin("namespace", V2, "0::/\n"); // with a namespace of groups
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 2);
    // Without one, the path names a group outside, and the container sees its end, or nothing.
    begin("part", "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
          "0::/docker/ab/x\n");
    put("sys/fs/cgroup/x/cpu.max", "400000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 4);
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 3);
    begin("other", "30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
          "0::/docker/abc\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    put("sys/fs/cgroup/c/cpu.max", "100000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 3);
    begin("up", V2, "0::/../..\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    CHECK(tern_processors_granted(root, 8) == 3);
}

TEST(processors_granted_by_cgroup1) {
    begin("one",
          "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
          "32 25 0:28 / /sys/fs/cgroup/cpu\\040time rw - cgroup cgroup rw,cpu,cpuacct\n"
          "33 25 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
          "12:memory:/other\n4:cpu,cpuacct:/a/b\n2:cpuset:/\n0::/unified\n");
    put("sys/fs/cgroup/cpu time/a/b/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu time/a/b/cpu.cfs_period_us", "100000\n");
    CHECK(tern_processors_granted(root, 8) == 8);
    put("sys/fs/cgroup/cpu time/a/cpu.cfs_quota_us", "250000\n");
    CHECK(tern_processors_granted(root, 8) == 8); // half of it
    put("sys/fs/cgroup/cpu time/a/cpu.cfs_period_us", "50000\n");
    CHECK(tern_processors_granted(root, 8) == 5);
    put("sys/fs/cgroup/memory/other/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/memory/other/cpu.cfs_period_us", "100000\n");
    CHECK(tern_processors_granted(root, 8) == 5);
    CHECK(tern_processors_granted("/nowhere", 8) == 8);
}

// Seen to fail: with the number of processors that are online.
TEST(processors_that_this_may_run_on) {
    cpu_set_t before, one;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    int first = 0, n = CPU_COUNT(&before);
    while (!CPU_ISSET(first, &before)) first++;
    CHECK(tern_n_processors() >= 1 && tern_n_processors() <= n);
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(tern_n_processors() == 1);
    sched_setaffinity(0, sizeof before, &before);
}
#endif
