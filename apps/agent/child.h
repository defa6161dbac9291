// A child process: started without a shell, with its input, output and errors on pipes. It has its
// own session, so that it has no terminal to write to, Ctrl-C does not reach it, and it is ended
// together with the processes that it started.
#ifndef TERN_AGENT_CHILD_H
#define TERN_AGENT_CHILD_H

#include <stdint.h>
#include "base/status.h"
#include "base/strbuf.h"

typedef struct child_desc {
    const char *const *argv; // [n + 1] ends with NULL; searched in PATH
    const char *folder;      // its working directory; NULL: this process's
    const char *const *env;  // [n + 1] "NAME=VALUE", its whole environment; ends with NULL
    bool shows_errors;       // its errors go to this process's standard error
} child_desc;

typedef enum child_pipe { CHILD_IN, CHILD_OUT, CHILD_ERRORS, CHILD_N_PIPES } child_pipe;

typedef struct child {        // begin with CHILD_NONE
    intptr_t process;         // its number, on Windows its handle; 0: none
    int pipes[CHILD_N_PIPES]; // -1: closed, or none; non-blocking
    void *job, *writing;      // on Windows: it and its descendants; child_windows.c
    bool has_ended;
    int exit_status, signal; // once it has ended; signal 0: by itself
} child;
#define CHILD_NONE                                                                                 \
    {                                                                                              \
        .pipes = { -1, -1, -1 }                                                                    \
    }

tern_status child_start(child *c, const child_desc *desc, tern_error *err);
bool child_has_ended(child *c); // does not wait
void child_close(child *c, child_pipe which);
bool child_is_open(const child *c, child_pipe which);
// False: this system has no such request.
bool child_ask_to_end(child *c);
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

// Until a pipe has something to read, or with `writes` takes bytes, or for so long.
void child_wait(child *c, bool writes, double seconds);
// Reads the available bytes and appends them up to a length of n_most; more are read and dropped.
// *n: how many were read. False: the other end is closed.
bool child_read(child *c, child_pipe which, tern_strbuf *to, size_t n_most, size_t *n);
// Writes as much as the pipe takes. False: the other end is closed.
bool child_write(child *c, const char *bytes, size_t n, size_t *n_written);
// Appends bytes up to a length of n_most.
void child_keep(tern_strbuf *to, size_t n_most, const char *bytes, size_t n);

#endif
