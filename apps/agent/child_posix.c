// Processes of POSIX. See child.h.
#include "apps/agent/child.h"

#if !defined(_WIN32)
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"

// ---- Starting ----------------------------------------------------------------------------------

static bool open_pipe(int ends[2]) {
    ends[0] = ends[1] = -1;
    if (pipe(ends) != 0) return false;
    // The child's ends are never 0, 1 or 2: dup2 of one onto itself would leave it close-on-exec.
    for (int i = 0; i < 2; i++) {
        int up = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
        close(ends[i]);
        ends[i] = up;
    }
    return ends[0] >= 0 && ends[1] >= 0;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

// POSIX lacks these functions; glibc added them one after the other. Darwin closes by a flag.
#if defined(__GLIBC__)
#define HAS_ADDCHDIR  __GLIBC_PREREQ(2, 29)
#define HAS_CLOSEFROM __GLIBC_PREREQ(2, 34)
#else
#define HAS_ADDCHDIR  1
#define HAS_CLOSEFROM 0
#endif

#define FDS_MAX 1024
#if !defined(POSIX_SPAWN_CLOEXEC_DEFAULT)
#define POSIX_SPAWN_CLOEXEC_DEFAULT 0
#endif

#if !HAS_ADDCHDIR
// A shell that changes to the folder and execs the program.
static const char **through_shell(const child_desc *d, int *bad) {
    static const char *const words[] = {"/bin/sh", "-c", "cd -- \"$0\" && exec \"$@\""};
    size_t n = 0, n_words = sizeof words / sizeof *words;
    while (d->argv[n]) n++;
    const char **argv = tern_alloc_array(TERN_MEM_MISC, n_words + 1 + n + 1, sizeof *argv);
    *bad = argv ? 0 : ENOMEM;
    if (!argv) return NULL;
    memcpy(argv, words, sizeof words);
    argv[n_words] = d->folder;
    memcpy(argv + n_words + 1, d->argv, (n + 1) * sizeof *argv);
    return argv;
}
#endif

static int spawn(child *c, const child_desc *d, const int in[2], const int out[2],
                 const int errors[2]) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    pid_t pid = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    const char *const *argv = d->argv, **shell = NULL;
    int bad = posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    if (!bad) bad = posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    if (!bad && errors[1] >= 0) bad = posix_spawn_file_actions_adddup2(&actions, errors[1], 2);
#if HAS_ADDCHDIR
    if (!bad && d->folder) bad = posix_spawn_file_actions_addchdir_np(&actions, d->folder);
#else
    if (!bad && d->folder) argv = shell = through_shell(d, &bad);
#endif
#if HAS_CLOSEFROM
    if (!bad) bad = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
#elif defined(__APPLE__)
    if (!bad && errors[1] < 0) bad = posix_spawn_file_actions_addinherit_np(&actions, 2);
#else
    // This program's own descriptors are close-on-exec already; these are ones that it inherited.
    for (int fd = 3, flags; fd < FDS_MAX; fd++)
        if ((flags = fcntl(fd, F_GETFD)) >= 0) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
#endif
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_CLOEXEC_DEFAULT);
    if (!bad)
        bad = posix_spawnp(&pid, argv[0], &actions, &attributes, (char *const *)argv,
                           (char *const *)d->env);
    c->process = bad ? 0 : pid;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    tern_free(shell);
    return bad;
}

static void no_waiting(int fd) {
    int flags = fd >= 0 ? fcntl(fd, F_GETFL) : -1;
    if (flags >= 0) fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

tern_status child_start(child *c, const child_desc *d, tern_error *err) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, errors[2] = {-1, -1};
    *c = (child)CHILD_NONE;
    int bad = 0;
    if (!open_pipe(in) || !open_pipe(out) || (!d->shows_errors && !open_pipe(errors)))
        bad = errno ? errno : EMFILE;
    if (!bad) bad = spawn(c, d, in, out, errors);
    close_fd(&in[0]);
    close_fd(&out[1]);
    close_fd(&errors[1]);
    const int ours[] = {in[1], out[0], errors[0]};
    for (int i = 0; i < CHILD_N_PIPES; i++) no_waiting(c->pipes[i] = ours[i]);
    if (!bad) return TERN_OK;
    child_kill(c);
    return tern_fail(err, TERN_ERR_IO, "%.200s: it cannot be started: %s", d->argv[0],
                     bad == ENOENT && d->folder ? "it or its folder is not there" : strerror(bad));
}

// ---- Ending ------------------------------------------------------------------------------------

static void take_status(child *c, int options) {
    int status;
    pid_t got = waitpid((pid_t)c->process, &status, options);
    c->has_ended = got == c->process || (got < 0 && errno != EINTR);
    if (got != c->process) return;
    c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    c->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool child_has_ended(child *c) {
    if (c->process && !c->has_ended) take_status(c, WNOHANG);
    return !c->process || c->has_ended;
}

bool child_ask_to_end(child *c) { return kill(-(pid_t)c->process, SIGTERM) == 0; }

void child_kill(child *c) {
    if (c->process) {
        kill(-(pid_t)c->process, SIGKILL); // its descendants, too, even if it has ended
        while (!c->has_ended) take_status(c, 0);
    }
    c->process = 0;
    for (int i = 0; i < CHILD_N_PIPES; i++) child_close(c, (child_pipe)i);
}

// ---- Pipes -------------------------------------------------------------------------------------

void child_close(child *c, child_pipe which) { close_fd(&c->pipes[which]); }
bool child_is_open(const child *c, child_pipe which) { return c->pipes[which] >= 0; }

void child_wait(child *c, bool writes, double seconds) {
    struct pollfd fds[3] = {{.fd = c->pipes[CHILD_OUT], .events = POLLIN},
                            {.fd = c->pipes[CHILD_ERRORS], .events = POLLIN},
                            {.fd = writes ? c->pipes[CHILD_IN] : -1, .events = POLLOUT}};
    poll(fds, 3, (int)(seconds * 1000));
}

bool child_read(child *c, child_pipe which, tern_strbuf *to, size_t n_most, size_t *n) {
    char bytes[16384];
    *n = 0;
    if (c->pipes[which] < 0) return false;
    ssize_t got = read(c->pipes[which], bytes, sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
        child_close(c, which);
        return false;
    }
    *n = (size_t)got;
    child_keep(to, n_most, bytes, *n);
    return true;
}

bool child_write(child *c, const char *bytes, size_t n, size_t *n_written) {
    *n_written = 0;
    if (c->pipes[CHILD_IN] < 0) return false;
    ssize_t put = write(c->pipes[CHILD_IN], bytes, n);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (put < 0) {
        child_close(c, CHILD_IN);
        return false;
    }
    *n_written = (size_t)put;
    return true;
}

#endif
