// A program that runs beside this one: started without a shell, its input, output and errors on
// pipes. It has a session of its own, so that it has no terminal to write to, Ctrl-C does not reach
// it, and it is ended together with what it has started.
#ifndef TERN_AGENT_CHILD_H
#define TERN_AGENT_CHILD_H

#include <sys/types.h>
#include "base/status.h"
#include "base/strbuf.h"

typedef struct child_desc {
    const char *const *argv; // [n + 1] ends with NULL; looked for in PATH
    const char *folder;      // where it runs; NULL: where this one does
    const char *const *env;  // [n + 1] "NAME=VALUE", nothing else; ends with NULL
    bool shows_errors;       // its errors go where this one's go
} child_desc;

typedef struct child {   // begin with CHILD_NONE
    pid_t pid;           // 0: none
    int in, out, errors; // -1: closed, or none; they do not block
    bool has_ended;
    int status; // as waitpid gives it, once it has ended
} child;
#define CHILD_NONE                                                                                 \
    { .in = -1, .out = -1, .errors = -1 }

tern_status child_start(child *c, const child_desc *desc, tern_error *err);
bool child_has_ended(child *c); // looks
void child_close_input(child *c);
// Ends it and all of its session, at once, and closes the pipes. One that is none is allowed.
void child_kill(child *c);
// The same in order: its input ends, then it is asked to end, then it is made to, each after some
// seconds.
void child_stop(child *c, double seconds);

// The environment of programs: PATH, HOME and the like, without what else is in this one's, which
// may be secret. Zero-initialise.
typedef struct child_env {
    char **list; // [n + 1] ends with NULL
    size_t n, capacity;
    bool failed; // no memory
} child_env;
void child_env_add_usual(child_env *e);
void child_env_set(child_env *e, tern_str name, tern_str value); // replaces
void child_env_pass(child_env *e, tern_str name);                // as this one has it, if it does
void child_env_free(child_env *e);

// Bytes that are there to be read, appended up to a length of n_most; more are read and dropped.
// *n gets what was read. False: the other end is closed.
bool child_read(int *fd, tern_strbuf *to, size_t n_most, size_t *n);
// Writes what the pipe takes. False: the other end is closed.
bool child_write(int *fd, const char *bytes, size_t n, size_t *n_written);

#endif
