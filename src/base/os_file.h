// The file system, behind one door: another system needs another os_file.c. Nothing here limits the
// length of a name; the system's own limit shows as ENAMETOOLONG.
#ifndef TERN_BASE_OS_FILE_H
#define TERN_BASE_OS_FILE_H

#include "base/status.h"

// ---- Paths -------------------------------------------------------------------------------------

// "folder/name"; an empty folder is the current one. The caller frees it; NULL: no memory.
char *tern_path_join(const char *folder, const char *name);
// The folder of a path, "." if it names none; as above.
char *tern_path_folder(const char *path);
// The part of path after the last slash.
const char *tern_path_name(const char *path);

// ---- Folders -----------------------------------------------------------------------------------

bool tern_folder_is(const char *path);
// An existing folder is fine; only the last folder of the path is made.
tern_status tern_folder_make(const char *folder, tern_error *err);

typedef struct tern_names { // zero-initialise
    char **list;            // [n], sorted by bytes
    size_t n, capacity;
} tern_names;
// Names in a folder, without the folder, that begin and end with these texts ("" for any); no
// character is a wildcard.
tern_status tern_folder_list(tern_names *names, const char *folder, const char *begin,
                             const char *end, tern_error *err);
tern_status tern_names_add(tern_names *names, const char *name, tern_error *err); // at the end
void tern_names_free(tern_names *names);

// ---- Locks -------------------------------------------------------------------------------------

// Excludes others who ask for the same lock, in this process or another one. The system releases it
// when the process ends, in whatever way, and leaves no file behind. Zero-initialise.
typedef struct tern_lock {
    int fd;
    bool is_held; // false after success: the file system has no locks
} tern_lock;

// One writer at a time in an existing folder. Fails with TERN_ERR_IO if another one has it; it does
// not wait. On a file system without locks this succeeds and excludes nobody.
tern_status tern_lock_folder(tern_lock *lock, const char *folder, tern_error *err);
void tern_unlock(tern_lock *lock); // a zeroed one is allowed

typedef enum tern_lock_state {
    TERN_LOCK_HELD,  // until the descriptor is closed
    TERN_LOCK_TAKEN, // by somebody else
    TERN_LOCK_NONE,  // the file system has none
} tern_lock_state;
// The same for a descriptor.
tern_lock_state tern_lock_fd(int fd);

// ---- Files -------------------------------------------------------------------------------------

// For reading. Opens only a regular file: a pipe, socket or device of that name would block, or
// have effects. *n_bytes: its size.
tern_status tern_file_open_regular(int *fd, const char *path, uint64_t *n_bytes, tern_error *err);

// Identifies the file at a path: it differs if the file has been replaced meanwhile.
typedef struct tern_stamp {
    uint64_t device, number, seconds, nanoseconds; // all 0: there is none
} tern_stamp;
tern_stamp tern_file_stamp(const char *path);
bool tern_stamp_same(const tern_stamp *a, const tern_stamp *b);

// For a log that grows line by line: cuts the file to its first n_keep bytes (UINT64_MAX: all) and
// returns a descriptor that appends. Creates the file if needed, and locks it until the descriptor
// is closed: a second writer is refused.
tern_status tern_file_open_log(int *fd, const char *path, uint64_t n_keep, tern_error *err);

#endif
