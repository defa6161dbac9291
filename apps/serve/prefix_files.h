// Prefixes as files in a folder, written and read on a thread of their own, so that answers do not
// wait for a disk. A file's name has a digest of what it was computed with and of whose it is, and
// the hash of its text; what is in it is checked and its text compared, whoever wrote it: damaged
// files are removed, those of others are left alone. Files get their names when they are whole, so
// servers may share a folder, and one that is killed leaves nothing that is half there.
//
// The engine's thread hands tasks over and takes those that are done.
#ifndef TERN_SERVE_PREFIX_FILES_H
#define TERN_SERVE_PREFIX_FILES_H

#include <stdbool.h>
#include "tern.h"

typedef struct prefix_files prefix_files;

typedef enum prefix_task_kind {
    PREFIX_SAVE,   // gives the session up
    PREFIX_LOAD,   // gives a session
    PREFIX_REMOVE, // the file
    PREFIX_SCAN,   // for files that others wrote; each comes as a PREFIX_FOUND
    PREFIX_FOUND,
} prefix_task_kind;

typedef struct prefix_task {
    struct prefix_task *next;
    prefix_task_kind kind;
    tern_session *session;
    uint64_t held;  // bytes that the session takes on the device until it is saved
    uint64_t bytes; // of the file, once it is there
    size_t owner;   // whose text it is: a place in the list of owners
    bool is_done;   // it did not fail
    size_t n;
    int32_t ids[]; // [n] the text
} prefix_task;

typedef struct prefix_files_desc {
    const char *folder;     // NULL: none is used
    uint64_t bytes;         // of the files that may be in it
    const uint64_t *owners; // [n_owners] numbers of whose texts are apart; NULL: one, whose is 0
    size_t n_owners;
    tern_model *model;
    tern_session_desc session;
    // Called by the thread: a task is done; something is wrong, in one line.
    void (*wake)(void *user);
    void (*complain)(void *user, const char *what);
    void *user;
} prefix_files_desc;

// Makes the folder if there is none. Reads all weights once.
tern_status prefix_files_open(prefix_files **out, const prefix_files_desc *desc, tern_error *err);
// Waits for what has been handed over; NULL is allowed.
void prefix_files_close(prefix_files *f);
// Hands a task over, which is the thread's until it is done; its session may be NULL. False: no
// memory, and the session is still the caller's. Loading goes before all else.
bool prefix_files_do(prefix_files *f, prefix_task_kind kind, tern_session *session, size_t owner,
                     const int32_t *ids, size_t n);
// The tasks that are done, oldest first; free each with prefix_task_free, which closes its session.
prefix_task *prefix_files_take(prefix_files *f);
void prefix_task_free(prefix_task *t);

#endif
