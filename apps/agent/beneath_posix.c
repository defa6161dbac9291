#include "apps/agent/beneath.h"

#if !defined(_WIN32)
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static tern_path_kind kind_of(const struct stat *st, uint64_t *n_bytes) {
    *n_bytes = (uint64_t)st->st_size;
    return S_ISREG(st->st_mode)   ? TERN_PATH_FILE
           : S_ISDIR(st->st_mode) ? TERN_PATH_FOLDER
           : S_ISLNK(st->st_mode) ? TERN_PATH_LINK
                                  : TERN_PATH_OTHER;
}

int beneath_root(const char *path) { return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

int beneath_open(int folder, const char *name, const char **why) {
    struct stat st;
    if (!strcmp(name, ".")) return openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!strcmp(name, "..")) {
        *why = "a path may not have '..'";
    } else if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        *why = errno == ENOTDIR ? "that is not a folder" : "there is no such file or folder";
    } else if (S_ISLNK(st.st_mode)) {
        *why = "links are not followed";
    } else if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        *why = "it is neither a file nor a folder";
    } else { // non-blocking: it may be a pipe by now
        *why = "it cannot be opened";
        return openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    return -1;
}

tern_path_kind beneath_kind(int fd, uint64_t *n_bytes) {
    struct stat st;
    return fstat(fd, &st) == 0 ? kind_of(&st, n_bytes) : TERN_PATH_NONE;
}

tern_path_kind beneath_look(int folder, const char *name, uint64_t *n_bytes) {
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return TERN_PATH_NONE;
    return kind_of(&st, n_bytes);
}

bool beneath_names(int folder, size_t n_most, tern_names *names) {
    // Opened again and not dup()ed, since a copy would share the position in the list.
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool ok = dir != NULL;
    for (struct dirent *e; ok && names->n < n_most && (e = readdir(dir));)
        ok = tern_names_add_entry(names, e->d_name, "", "", NULL) == TERN_OK;
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    return ok;
}

#endif
