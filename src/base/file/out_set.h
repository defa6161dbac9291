// The only way to write files.
//
// Files that belong together are a *set*. They are written into a private folder next to their
// destination, FOLDER/.tern-partial-…, synced, and renamed when all of them are complete. Until
// then the old files stay unchanged, whatever fails, and even if the process is killed.
//
// A single file is renamed in one step. Several are renamed in a *commit*: the private folder
// becomes FOLDER/.tern-commit, which only one writer can have; the file that readers open first
// (`last`) is removed, the others are renamed, and `last` is put in place at the end. While it is
// in .tern-commit, readers refuse the folder (tern_out_check), so they never see a mix of old and
// new files; a commit whose writer was killed is finished by the next writer in that folder.
//
// The private folder is locked as long as its writer lives. One without a lock is left over from a
// dead writer, and the next writer in that folder removes it.
#ifndef TERN_BASE_OUT_SET_H
#define TERN_BASE_OUT_SET_H

#include "base/os/os_file.h"
#include "tern_tools.h"

typedef struct tern_out_set { // zero-initialise
    char *folder;             // where the files will be
    char *staging;            // the private folder
    char *only;               // the name, for a single file
    tern_lock own_folder, own_staging;
    tern_names names, gone; // written; to be removed with the commit
    size_t n_open;          // files begun but not ended
    bool made_folder, is_device;
    bool is_private; // its files are for this user only; may be set after opening
    int device;      // a descriptor, if a single file is a device or a pipe
} tern_out_set;

typedef struct tern_out_file { // zero-initialise
    tern_out_set *set;         // NULL: not open
    char *path;                // for messages
    uint8_t *buffer;
    size_t n_buffered;
    int fd;
    bool failed;
} tern_out_file;

// For files in a folder. own: creates it if need be, and excludes other writers until it is closed.
tern_status tern_out_open(tern_out_set *set, const char *folder, bool own, tern_error *err);
// For one file. A link's target is replaced, not the link. A device, a pipe or /dev/stdout is
// written to directly, and nothing needs a commit.
tern_status tern_out_open_file(tern_out_set *set, const char *path, tern_error *err);
// name: NULL for tern_out_open_file's.
tern_status tern_out_begin(tern_out_set *set, const char *name, tern_out_file *f, tern_error *err);
tern_status tern_out_write(tern_out_file *f, const void *bytes, uint64_t n, tern_error *err);
// Overwrites n bytes at `offset`.
tern_status tern_out_rewrite(tern_out_file *f, uint64_t offset, const void *bytes, size_t n,
                             tern_error *err);
tern_status tern_out_end(tern_out_file *f, tern_error *err);
void tern_out_drop(tern_out_file *f); // a set with a file that was not ended cannot be committed
// Adds a whole file to the set.
tern_status tern_out_put(tern_out_set *set, const char *name, const void *bytes, size_t n,
                         tern_error *err);
// The commit removes this name. A missing file is not an error.
tern_status tern_out_remove(tern_out_set *set, const char *name, tern_error *err);
bool tern_out_has(const tern_out_set *set, const char *name); // was it begun?
// Path of an ended file of the set, to read it before the commit; the caller frees it.
char *tern_out_staged(const tern_out_set *set, const char *name);
// last: the file that readers need before any other of the set; NULL for a single file.
tern_status tern_out_commit(tern_out_set *set, const char *last, tern_error *err);
void tern_out_close(tern_out_set *set); // removes what was not committed

// Like tern_output_open and tern_file_write (tern.h), for private text such as conversations: the
// file is for this user only, regardless of the umask and of the file it replaces.
struct tern_output;
tern_status tern_output_open_private(struct tern_output **out, const char *path, tern_error *err);
tern_status tern_file_write_private(const char *path, const void *bytes, size_t n, tern_error *err);

// For readers of sets whose last file is folder/name: refuses a set that is half replaced.
tern_status tern_out_check(const char *folder, const char *name, tern_error *err);

#endif
