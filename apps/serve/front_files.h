// Fronts as files in a folder, written and read on a thread of their own, so that answers do not
// wait for a disk. A file's name has a digest of what it was computed with and of whose it is, and
// the hash of its text; what is in it is checked and its text compared, whoever wrote it: damaged
// files are removed, those of others are left alone. Files get their names when they are whole, so
// servers may share a folder, and one that is killed leaves nothing that is half there.
//
// The engine's thread hands tasks over and takes those that are done.
#ifndef TERN_SERVE_FRONT_FILES_H
#define TERN_SERVE_FRONT_FILES_H

#include <stdbool.h>
#include "tern.h"

typedef struct front_files front_files;

typedef enum front_task_kind {
    FRONT_SAVE,   // gives the session up
    FRONT_LOAD,   // gives a session
    FRONT_REMOVE, // the file
    FRONT_SCAN,   // for files that others wrote; each comes as a FRONT_FOUND
    FRONT_FOUND,
} front_task_kind;

typedef struct front_task {
    struct front_task *next;
    front_task_kind kind;
    tern_session *session;
    uint64_t held;  // bytes that the session takes on the device until it is saved
    uint64_t bytes; // of the file, once it is there
    size_t owner;   // whose text it is: a place in the list of owners
    bool is_done;   // it did not fail
    size_t n;
    int32_t ids[]; // [n] the text
} front_task;

typedef struct front_files_desc {
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
} front_files_desc;

// Makes the folder if there is none. Reads all weights once.
tern_status front_files_open(front_files **out, const front_files_desc *desc, tern_error *err);
// Waits for what has been handed over; NULL is allowed.
void front_files_close(front_files *f);
// Hands a task over, which is the thread's until it is done; its session may be NULL. False: no
// memory, and the session is still the caller's. Loading goes before all else.
bool front_files_do(front_files *f, front_task_kind kind, tern_session *session, size_t owner,
                    const int32_t *ids, size_t n);
// The tasks that are done, oldest first; free each with front_task_free, which closes its session.
front_task *front_files_take(front_files *f);
void front_task_free(front_task *t);

#endif
