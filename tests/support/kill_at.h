// Kills a job as it begins its n-th system call: the state on the disk between two calls is what a
// power cut or kill -9 may leave. With ptrace, so that the code under test has no hooks.
#ifndef TERN_TESTS_KILL_AT_H
#define TERN_TESTS_KILL_AT_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "tests/support/harness.h"

// Forks of a process under a sanitizer are slow: there not every call is tried.
#if defined(__SANITIZE_ADDRESS__)
enum { KILL_STEP = 3 };
#else
enum { KILL_STEP = 1 };
#endif

typedef void (*kill_job)(void *ctx);

// Starts work(ctx) in a child and stops it as it begins its n-th call. Returns the child, or 0 if
// it ended before (*status: how), or -1 if tracing is not allowed.
static pid_t stop_at_call(int n, kill_job work, void *ctx, int *status) {
    int begun = 0;
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(99);
        raise(SIGSTOP);
        work(ctx);
        _exit(0);
    }
    if (child < 0 || waitpid(child, status, 0) != child || !WIFSTOPPED(*status)) return -1;
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD));
    for (bool inside = false; begun < n;) {
        int deliver = 0;
        if (WSTOPSIG(*status) == (SIGTRAP | 0x80)) {
            inside = !inside; // stopped as a call begins, and as it ends
            begun += inside;
        } else if (WSTOPSIG(*status) != SIGSTOP && WSTOPSIG(*status) != SIGTRAP) {
            deliver = WSTOPSIG(*status);
        }
        if (begun == n) break;
        ptrace(PTRACE_SYSCALL, child, NULL, (void *)(intptr_t)deliver);
        if (waitpid(child, status, 0) != child || !WIFSTOPPED(*status)) return 0;
    }
    return child;
}

typedef enum kill_outcome { KILL_DONE, KILL_KILLED, KILL_IMPOSSIBLE } kill_outcome;

// Runs work(ctx) in a child, to its end or to its n-th call. IMPOSSIBLE: tracing is not allowed.
static kill_outcome kill_at_call(int n, kill_job work, void *ctx) {
    int status;
    pid_t child = stop_at_call(n, work, ctx, &status);
    if (child <= 0) return child < 0 ? KILL_IMPOSSIBLE : KILL_DONE;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return KILL_KILLED;
}

// Whether all three ends were seen, each more than by chance.
static bool enough(int n_old, int n_new, int n_refused) {
    return n_old > 20 / KILL_STEP && n_new > 0 && n_refused > 5 / KILL_STEP;
}

// Counts the private folders of writers in a folder.
static size_t count_left_overs(const char *folder) {
    tern_names names = {0};
    tern_folder_list(&names, folder, ".tern-", "", NULL);
    size_t n = names.n;
    tern_names_free(&names);
    return n;
}

// A folder in memory if there is one: these tests wait for the disk hundreds of times.
static bool memory_folder(char *path, size_t size) {
    bool shm = access("/dev/shm", W_OK) == 0;
    snprintf(path, size, "%s/tern-kill-XXXXXX", shm ? "/dev/shm" : "/tmp");
    return mkdtemp(path) != NULL;
}

static void remove_folder(const char *folder) { // with the files in it
    tern_names names = {0};
    tern_folder_list(&names, folder, "", "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        char *path = tern_path_join(folder, names.list[i]);
        if (path && unlink(path) != 0) remove_folder(path);
        tern_free(path);
    }
    tern_names_free(&names);
    rmdir(folder);
}

#endif
