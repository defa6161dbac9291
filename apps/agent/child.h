// A child process: started without a shell, with its input, output and errors on pipes. It has its
// own session, so that it has no terminal to write to, Ctrl-C does not reach it, and it is ended
// together with the processes that it started.
#ifndef TERN_AGENT_CHILD_H
#define TERN_AGENT_CHILD_H

#include <sys/types.h>
#include "base/status.h"
#include "base/strbuf.h"

typedef struct child_desc {
    const char *const *argv; // [n + 1] ends with NULL; searched in PATH
    const char *folder;      // its working directory; NULL: this process's
    const char *const *env;  // [n + 1] "NAME=VALUE", its whole environment; ends with NULL
    bool shows_errors;       // its errors go to this process's standard error
} child_desc;

typedef struct child {   // begin with CHILD_NONE
    pid_t pid;           // 0: none
    int in, out, errors; // -1: closed, or none; non-blocking
    bool has_ended;
    int status; // from waitpid, once it has ended
} child;
#define CHILD_NONE                                                                                 \
    { .in = -1, .out = -1, .errors = -1 }

tern_status child_start(child *c, const child_desc *desc, tern_error *err);
bool child_has_ended(child *c); // does not wait
void child_close_input(child *c);
// Kills it and its whole session at once, and closes the pipes. CHILD_NONE is allowed.
void child_kill(child *c);
// The same step by step: closes its input, then asks it to end, then kills it, each after some
// seconds.
void child_stop(child *c, double seconds);

// The environment of programs: PATH, HOME and the like, without the other variables of this
// process, which may be secret. Zero-initialise it.
typedef struct child_env {
    char **list; // [n + 1] ends with NULL
    size_t n, capacity;
    bool failed; // no memory
} child_env;
void child_env_add_usual(child_env *e);
void child_env_set(child_env *e, tern_str name, tern_str value); // replaces
void child_env_pass(child_env *e, tern_str name); // copies this process's variable, if set
void child_env_free(child_env *e);

// Reads the available bytes and appends them up to a length of n_most; more are read and dropped.
// *n: how many were read. False: the other end is closed.
bool child_read(int *fd, tern_strbuf *to, size_t n_most, size_t *n);
// Writes as much as the pipe takes. False: the other end is closed.
bool child_write(int *fd, const char *bytes, size_t n, size_t *n_written);

#endif
