// Prefixes as files in a folder, written and read on a thread of their own, so that answers do not
// wait for a disk. A file's name has a digest of the model, its settings and the owner, and the
// hash of the text. The contents are checked and the text is compared, whoever wrote the file:
// damaged files are removed, those of other models and owners are left alone. Files are renamed to
// their names once complete, so servers may share a folder, and one that is killed leaves no
// half-written file under such a name.
//
// The engine's thread submits tasks and takes finished ones.
#ifndef TERN_SERVE_PREFIX_FILES_H
#define TERN_SERVE_PREFIX_FILES_H

#include <stdbool.h>
#include "tern.h"

typedef struct prefix_files prefix_files;

typedef enum prefix_task_kind {
    PREFIX_SAVE,   // takes the session
    PREFIX_LOAD,   // gives a session
    PREFIX_REMOVE, // the file
    PREFIX_SCAN,   // for files that other servers wrote; each is reported as a PREFIX_FOUND
    PREFIX_FOUND,
} prefix_task_kind;

typedef struct prefix_task {
    struct prefix_task *next;
    prefix_task_kind kind;
    tern_session *session;
    uint64_t held;  // bytes that the session takes on the device until it is saved
    uint64_t bytes; // of the file, once it exists
    size_t owner;   // of the text: an index in the list of owners
    bool is_done;   // it succeeded
    size_t n;
    int32_t ids[]; // [n] the text
} prefix_task;

typedef struct prefix_files_desc {
    const char *folder;     // NULL: none is used
    uint64_t bytes;         // limit of its files together
    const uint64_t *owners; // [n_owners] their ids, whose texts are separate; NULL: one owner, 0
    size_t n_owners;
    tern_model *model;
    tern_session_desc session;
    // Called by the thread: a task is done; an error, as one line.
    void (*wake)(void *user);
    void (*complain)(void *user, const char *what);
    void *user;
} prefix_files_desc;

// Creates the folder if it is missing. Reads all weights once.
tern_status prefix_files_open(prefix_files **out, const prefix_files_desc *desc, tern_error *err);
// Waits for submitted tasks; NULL is allowed.
void prefix_files_close(prefix_files *f);
// Submits a task, which belongs to the thread until it is done; its session may be NULL. False: no
// memory, and the session is still the caller's. Loading has priority.
bool prefix_files_do(prefix_files *f, prefix_task_kind kind, tern_session *session, size_t owner,
                     const int32_t *ids, size_t n);
// The tasks that are done, oldest first; free each with prefix_task_free, which closes its session.
prefix_task *prefix_files_take(prefix_files *f);
void prefix_task_free(prefix_task *t);

#endif
