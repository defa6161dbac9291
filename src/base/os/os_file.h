// The file system. Common code is in os_file.c, system-specific code in os_*_file.c. Names are
// UTF-8 of any length; the system's own limit appears as ENAMETOOLONG. Functions that return a
// bool, a descriptor or a kind set errno when they fail.
#ifndef TERN_BASE_OS_FILE_H
#define TERN_BASE_OS_FILE_H

#include "base/status.h"

// ---- Paths -------------------------------------------------------------------------------------

// "folder/name"; an empty folder is the current one. The caller frees it; NULL: out of memory.
char *tern_path_join(const char *folder, const char *name);
// The folder of a path, "." if it names none; as above.
char *tern_path_folder(const char *path);
// The part of path after the last slash.
const char *tern_path_name(const char *path);

static inline bool tern_is_slash(char c) {
#if defined(_WIN32)
    return c == '/' || c == '\\';
#else
    return c == '/';
#endif
}

typedef enum tern_path_kind {
    TERN_PATH_NONE, // nothing, or it cannot be looked at: errno
    TERN_PATH_FILE, // a regular one
    TERN_PATH_FOLDER,
    TERN_PATH_LINK,  // only from tern_path_look_at
    TERN_PATH_OTHER, // a device, a pipe, a socket
} tern_path_kind;
tern_path_kind tern_path_look(const char *path);    // follows links
tern_path_kind tern_path_look_at(const char *path); // a link itself
// The path with all links resolved. The caller frees it; NULL: no such file, or out of memory.
char *tern_path_real(const char *path);
// Identifies the file at a path: it differs if the file has been replaced meanwhile.
typedef struct tern_stamp {
    uint64_t device, number, seconds, nanoseconds; // all 0: there is none
} tern_stamp;
tern_stamp tern_file_stamp(const char *path);
bool tern_stamp_same(const tern_stamp *a, const tern_stamp *b);
bool tern_path_same(const char *a, const char *b); // the same existing file, perhaps by other names

bool tern_path_rename(const char *from, const char *to); // a file; may replace one
bool tern_file_remove(const char *path);
bool tern_folder_remove(const char *path); // an empty one
// is_private: for this user only. EEXIST if the name is taken.
bool tern_folder_create(const char *path, bool is_private);
void tern_folder_sync(const char *path); // so that names survive a loss of power, where possible
// Bytes that this user may still write to the disk of a folder; UINT64_MAX: not known.
uint64_t tern_disk_room(const char *folder);

// ---- Folders -----------------------------------------------------------------------------------

bool tern_folder_is(const char *path);
// An existing folder is fine; only the path's last folder is created.
tern_status tern_folder_make(const char *folder, tern_error *err);

// Whether users other than this one and root may write into it, or own it: its files may be theirs.
bool tern_folder_is_others(const char *path);
// Creates a folder for this user alone, regardless of the umask; an existing one stays as it is.
tern_status tern_folder_make_private(const char *folder, tern_error *err);

typedef struct tern_names { // zero-initialise
    char **list;            // [n], sorted by bytes
    size_t n, capacity;
} tern_names;
// Names in a folder, without the folder, that begin and end with these texts ("" for any), which
// have no wildcards. `names` is empty before, and also after a failure.
tern_status tern_folder_list(tern_names *names, const char *folder, const char *begin,
                             const char *end, tern_error *err);
// The same, unsorted. Allocates only for the matching names.
tern_status tern_folder_read(tern_names *names, const char *folder, const char *begin,
                             const char *end, tern_error *err);
tern_status tern_names_add(tern_names *names, const char *name, tern_error *err); // at the end
// Adds a folder's entry if it matches the request of tern_folder_list and is not "." or "..". Frees
// all names if it fails.
tern_status tern_names_add_entry(tern_names *names, const char *name, const char *begin,
                                 const char *end, tern_error *err);
void tern_names_free(tern_names *names);

// ---- Open folders and locks ---------------------------------------------------------------------

// An open folder. On systems with folder descriptors it stays the same folder if it is renamed; on
// others only tern_folder_rename may rename it. Zero-initialise.
typedef struct tern_folder {
    bool is_open;
    int fd;       // on systems with folder descriptors
    void *handle; // on others: its lock
    char *path;   // and its name
} tern_folder;

// follow: follows links; else a link is refused.
bool tern_folder_open(tern_folder *f, const char *path, bool follow);
// EPERM if it belongs neither to this user nor to the owner of its parent folder `outer`: in a
// world-writable folder another user may have put it there.
bool tern_folder_open_private(tern_folder *f, const char *path, const char *outer);
void tern_folder_close(tern_folder *f);          // and unlocks it; a zeroed one is allowed
bool tern_folder_has_name(const tern_folder *f); // false: it was removed
bool tern_folder_rename(tern_folder *f, const char *from, const char *to); // replaces nothing
tern_status tern_folder_names(const tern_folder *f, tern_names *names, tern_error *err);
// For an entry. remove: a file or an empty folder. move: a file, which may replace one.
bool tern_folder_has_folder(const tern_folder *f, const char *name);
bool tern_folder_remove_entry(const tern_folder *f, const char *name);
bool tern_folder_move_entry(const tern_folder *f, const char *name, const char *to);

// Excludes other takers of this lock, in this process or another one. The system releases it when
// the folder is closed or the process ends in any way, and leaves no file behind.
typedef enum tern_lock_state {
    TERN_LOCK_HELD,
    TERN_LOCK_TAKEN, // by another holder
    TERN_LOCK_NONE,  // the file system has no locks
} tern_lock_state;
tern_lock_state tern_folder_lock(tern_folder *f);

typedef struct tern_lock { // zero-initialise
    tern_folder folder;    // not open after success: the file system has no locks
} tern_lock;

// One writer at a time in an existing folder. Fails with TERN_ERR_IO if another writer has it; does
// not wait. On a file system without locks this succeeds and excludes nobody.
tern_status tern_lock_folder(tern_lock *lock, const char *folder, tern_error *err);
void tern_unlock(tern_lock *lock); // a zeroed one is allowed

// ---- Files -------------------------------------------------------------------------------------

// Opens for reading, only a regular file: opening a pipe, socket or device could block or have
// effects. *n_bytes: its size.
tern_status tern_file_open_regular(int *fd, const char *path, uint64_t *n_bytes, tern_error *err);

// For a log that grows line by line: cuts the file to its first n_keep bytes (UINT64_MAX: all) and
// returns a descriptor that appends. Creates the file if needed, and locks it until the descriptor
// is closed: a second writer is refused. is_private: a new file is for this user only.
tern_status tern_file_open_log(int *fd, const char *path, uint64_t n_keep, bool is_private,
                               tern_error *err);

// A small file that processes share, read and written whole, created if needed. Excludes other
// openers by this function, in this process or another one. May be opened for reading only. -1: it
// cannot be opened or, with *taken, another opener has it; `anyway`: opens it even then.
int tern_file_open_shared(const char *path, bool anyway, bool *taken);

// A new file for writing; with the permissions of the file `like` if it exists. -1: errno.
int tern_file_create(const char *path, const char *like);
// A new file for this user only, regardless of the umask.
int tern_file_create_private(const char *path);
// Whether it is a device, a pipe, or a name such as /dev/stdout for a descriptor of this process.
// Such a descriptor is used directly, not reopened, so that the output continues after earlier
// writes. *is_stdout: it is standard output.
bool tern_device_is(const char *path);
int tern_device_open(const char *path, bool *is_stdout); // for writing; -1: errno

uint64_t tern_fd_size(int fd);                    // bytes; 0: unknown, as for a pipe
tern_stamp tern_fd_stamp(int fd);                 // of the open file
int64_t tern_fd_read(int fd, void *to, size_t n); // fewer than n only at the end; -1: errno
// The same from an offset on. Any thread.
int64_t tern_fd_read_at(int fd, void *to, size_t n, uint64_t offset);
bool tern_fd_write(int fd, const void *bytes, uint64_t n); // all of it
bool tern_fd_write_at(int fd, const void *bytes, uint64_t n, uint64_t offset);
bool tern_fd_cut(int fd, uint64_t n); // to its first n bytes
bool tern_fd_sync(int fd);            // to the disk
bool tern_fd_close(int fd);

#endif
