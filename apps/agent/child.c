// See child.h.
#include "apps/agent/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/os/os_time.h"

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

// POSIX lacks these functions; glibc added them one after the other.
#if defined(__GLIBC__)
#define HAS_ADDCHDIR  __GLIBC_PREREQ(2, 29)
#define HAS_CLOSEFROM __GLIBC_PREREQ(2, 34)
#else
#define HAS_ADDCHDIR  1
#define HAS_CLOSEFROM 0
#endif

#if !HAS_CLOSEFROM
#define FDS_MAX 1024
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
#else
    // This program's own descriptors are close-on-exec already; these are ones that it inherited.
    for (int fd = 3, flags; fd < FDS_MAX; fd++)
        if ((flags = fcntl(fd, F_GETFD)) >= 0) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
#endif
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    if (!bad)
        bad = posix_spawnp(&c->pid, argv[0], &actions, &attributes, (char *const *)argv,
                           (char *const *)d->env);
    if (bad) c->pid = 0;
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
    c->in = in[1], c->out = out[0], c->errors = errors[0];
    no_waiting(c->in);
    no_waiting(c->out);
    no_waiting(c->errors);
    if (!bad) return TERN_OK;
    child_kill(c);
    return tern_fail(err, TERN_ERR_IO, "%.200s: it cannot be started: %s", d->argv[0],
                     bad == ENOENT && d->folder ? "it or its folder is not there" : strerror(bad));
}

// ---- Ending ------------------------------------------------------------------------------------

bool child_has_ended(child *c) {
    if (!c->pid || c->has_ended) return true;
    pid_t got = waitpid(c->pid, &c->status, WNOHANG);
    c->has_ended = got == c->pid || (got < 0 && errno != EINTR);
    return c->has_ended;
}

void child_close_input(child *c) { close_fd(&c->in); }

void child_kill(child *c) {
    if (c->pid) {
        kill(-c->pid, SIGKILL); // its descendants, too, even if it has ended
        while (!c->has_ended) {
            pid_t got = waitpid(c->pid, &c->status, 0);
            c->has_ended = got == c->pid || (got < 0 && errno != EINTR);
        }
    }
    c->pid = 0;
    close_fd(&c->in);
    close_fd(&c->out);
    close_fd(&c->errors);
}

static bool wait_for(child *c, double seconds) {
    for (double end = tern_seconds() + seconds; !child_has_ended(c); tern_sleep(0.01)) {
        tern_strbuf none = {0};
        size_t n;
        if (tern_seconds() > end) return false;
        child_read(&c->out, &none, 0, &n); // a full pipe would block it for ever
        child_read(&c->errors, &none, 0, &n);
    }
    return true;
}

void child_stop(child *c, double seconds) {
    child_close_input(c);
    if (c->pid && !wait_for(c, seconds)) {
        kill(-c->pid, SIGTERM);
        wait_for(c, seconds);
    }
    child_kill(c);
}

// ---- Environment -------------------------------------------------------------------------------

void child_env_set(child_env *e, tern_str name, tern_str value) {
    char *text = tern_alloc(TERN_MEM_MISC, name.len + value.len + 2);
    if (!text || tern_array_reserve(TERN_MEM_MISC, &e->list, &e->capacity, e->n, 2) != 0) {
        tern_free(text);
        e->failed = true;
        return;
    }
    memcpy(text, name.ptr, name.len);
    text[name.len] = '=';
    if (value.len) memcpy(text + name.len + 1, value.ptr, value.len);
    for (size_t i = 0; i < e->n; i++)
        if (!strncmp(e->list[i], text, name.len + 1)) {
            tern_free(e->list[i]);
            e->list[i] = text;
            return;
        }
    e->list[e->n++] = text;
    e->list[e->n] = NULL;
}

void child_env_pass(child_env *e, tern_str name) {
    char *terminated = tern_strndup(TERN_MEM_MISC, name.ptr, name.len);
    const char *value = terminated ? getenv(terminated) : NULL;
    e->failed |= !terminated;
    if (value) child_env_set(e, name, (tern_str){value, strlen(value)});
    tern_free(terminated);
}

void child_env_add_usual(child_env *e) {
    static const char *const names[] = {"PATH", "HOME",   "USER",     "LOGNAME", "SHELL",
                                        "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR",  "TZ"};
    if (tern_array_reserve(TERN_MEM_MISC, &e->list, &e->capacity, 0, 1) != 0) e->failed = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        child_env_pass(e, (tern_str){names[i], strlen(names[i])});
}

void child_env_free(child_env *e) {
    for (size_t i = 0; i < e->n; i++) tern_free(e->list[i]);
    tern_free(e->list);
    *e = (child_env){0};
}

// ---- Pipes -------------------------------------------------------------------------------------

bool child_read(int *fd, tern_strbuf *to, size_t n_most, size_t *n) {
    char bytes[16384];
    *n = 0;
    if (*fd < 0) return false;
    ssize_t got = read(*fd, bytes, sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) {
        close_fd(fd);
        return false;
    }
    *n = (size_t)got;
    size_t room = n_most > to->len ? n_most - to->len : 0;
    if (room) tern_strbuf_append(to, bytes, *n < room ? *n : room);
    return true;
}

bool child_write(int *fd, const char *bytes, size_t n, size_t *n_written) {
    *n_written = 0;
    if (*fd < 0) return false;
    ssize_t put = write(*fd, bytes, n);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (put < 0) {
        close_fd(fd);
        return false;
    }
    *n_written = (size_t)put;
    return true;
}
