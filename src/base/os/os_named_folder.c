// Open folders on systems where they do not survive a change of their names: Windows, and WASI,
// whose hosts look up a folder's name again at each call. Here the name stands for the folder.
#if defined(_WIN32) || defined(__wasi__)
#include <errno.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#if defined(_WIN32)
#include "base/os/os_windows.h"
#endif

bool tern_folder_open(tern_folder *f, const char *path, bool follow) {
    *f = (tern_folder){.fd = -1};
    tern_path_kind kind = follow ? tern_path_look(path) : tern_path_look_at(path);
    if (kind != TERN_PATH_FOLDER) {
        if (kind != TERN_PATH_NONE) errno = ENOTDIR;
        return false;
    }
    f->path = tern_strdup(TERN_MEM_MISC, path);
    f->is_open = f->path != NULL;
    if (!f->path) errno = ENOMEM;
    return f->is_open;
}

// These systems have no world-writable folders: the parent folder determines who may write.
bool tern_folder_open_private(tern_folder *f, const char *path, const char *outer) {
    (void)outer;
    return tern_folder_open(f, path, false);
}

void tern_folder_close(tern_folder *f) {
#if defined(_WIN32)
    if (f->handle) tern_handle_close(f->handle);
#endif
    tern_free(f->path);
    *f = (tern_folder){0};
}

bool tern_folder_has_name(const tern_folder *f) { return tern_folder_is(f->path); }

bool tern_folder_rename(tern_folder *f, const char *from, const char *to) {
    char *path = tern_strdup(TERN_MEM_MISC, to);
    if (!path) {
        errno = ENOMEM;
        return false;
    }
    bool ok = !tern_folder_is(to) && tern_path_rename(from, to);
    if (!ok && tern_folder_is(to)) errno = EEXIST; // Windows calls it "access denied"
    tern_free(ok ? f->path : path);
    if (ok) f->path = path;
    return ok;
}

tern_status tern_folder_names(const tern_folder *f, tern_names *names, tern_error *err) {
    return tern_folder_read(names, f->path, "", "", err);
}

bool tern_folder_has_folder(const tern_folder *f, const char *name) {
    char *path = tern_path_join(f->path, name);
    bool has = path && tern_path_look_at(path) == TERN_PATH_FOLDER;
    tern_free(path);
    return has;
}

bool tern_folder_remove_entry(const tern_folder *f, const char *name) {
    char *path = tern_path_join(f->path, name);
    if (!path) errno = ENOMEM;
    bool ok = path && (tern_file_remove(path) || tern_folder_remove(path));
    tern_free(path);
    return ok;
}

bool tern_folder_move_entry(const tern_folder *f, const char *name, const char *to) {
    char *path = tern_path_join(f->path, name);
    if (!path) errno = ENOMEM;
    bool ok = path && tern_path_rename(path, to);
    tern_free(path);
    return ok;
}

#endif
