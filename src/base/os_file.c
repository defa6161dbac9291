#include "base/os_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"

// ---- Paths -------------------------------------------------------------------------------------

char *tern_path_join(const char *folder, const char *name) {
    size_t n = strlen(folder), n_name = strlen(name);
    bool slash = n > 0 && folder[n - 1] != '/';
    char *path = tern_alloc(TERN_MEM_MISC, n + slash + n_name + 1);
    if (!path) return NULL;
    memcpy(path, folder, n);
    if (slash) path[n] = '/';
    memcpy(path + n + slash, name, n_name + 1);
    return path;
}

const char *tern_path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *tern_path_folder(const char *path) {
    size_t n = (size_t)(tern_path_name(path) - path);
    while (n > 1 && path[n - 1] == '/') n--; // the root keeps its slash
    return n ? tern_strndup(TERN_MEM_MISC, path, n) : tern_strdup(TERN_MEM_MISC, ".");
}

// ---- Folders -----------------------------------------------------------------------------------

bool tern_folder_is(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

tern_status tern_folder_make(const char *folder, tern_error *err) {
    if (mkdir(folder, 0777) == 0) return TERN_OK;
    int reason = errno;
    if (tern_folder_is(folder)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be made: %s", folder,
                     strerror(reason == EEXIST ? ENOTDIR : reason));
}

tern_status tern_names_add(tern_names *names, const char *name, tern_error *err) {
    char *copy = tern_strdup(TERN_MEM_MISC, name);
    if (!copy ||
        tern_array_reserve(TERN_MEM_MISC, &names->list, &names->capacity, names->n, 1) != 0) {
        tern_free(copy);
        return tern_fail_memory(err, strlen(name) + 1);
    }
    names->list[names->n++] = copy;
    return TERN_OK;
}

void tern_names_free(tern_names *names) {
    for (size_t i = 0; i < names->n; i++) tern_free(names->list[i]);
    tern_free(names->list);
    *names = (tern_names){0};
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

tern_status tern_folder_list(tern_names *names, const char *folder, const char *begin,
                             const char *end, tern_error *err) {
    size_t n_begin = strlen(begin), n_end = strlen(end);
    DIR *dir = opendir(folder);
    if (!dir)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be listed: %s", folder, strerror(errno));
    tern_status status = TERN_OK;
    for (struct dirent *e; status == TERN_OK && (e = readdir(dir));) {
        size_t n = strlen(e->d_name);
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || n < n_begin + n_end ||
            strncmp(e->d_name, begin, n_begin) != 0 || strcmp(e->d_name + n - n_end, end) != 0)
            continue;
        status = tern_names_add(names, e->d_name, err);
    }
    closedir(dir);
    if (names->n) qsort(names->list, names->n, sizeof *names->list, by_bytes);
    return status;
}

// ---- Locks -------------------------------------------------------------------------------------

// flock and not fcntl: the lock belongs to this descriptor, so it also excludes other threads of
// the process, works on folders, and no close() of another descriptor releases it.
tern_lock_state tern_lock_fd(int fd) {
    int result;
    do result = flock(fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    return result == 0 ? TERN_LOCK_HELD : errno == EWOULDBLOCK ? TERN_LOCK_TAKEN : TERN_LOCK_NONE;
}

tern_status tern_lock_folder(tern_lock *lock, const char *folder, tern_error *err) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", folder, strerror(errno));
    tern_lock_state state = tern_lock_fd(fd);
    if (state == TERN_LOCK_HELD) *lock = (tern_lock){.fd = fd, .is_held = true};
    else close(fd);
    if (state != TERN_LOCK_TAKEN) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: another process is writing there", folder);
}

void tern_unlock(tern_lock *lock) {
    if (lock->is_held) close(lock->fd);
    *lock = (tern_lock){0};
}

// ---- Files -------------------------------------------------------------------------------------

tern_status tern_file_open_regular(int *fd, const char *path, uint64_t *n_bytes, tern_error *err) {
    struct stat st;
    *fd = -1;
    // Checked by name first, since opening a device can have effects; checked again on the open
    // descriptor, without blocking, since the name may mean something else by now.
    int result = stat(path, &st);
    if (result == 0 && S_ISREG(st.st_mode)) {
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        result = *fd < 0 ? -1 : fstat(*fd, &st);
    }
    if (result != 0)
        tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        tern_fail(err, TERN_ERR_IO, "%s: not a regular file", path);
    else {
        *n_bytes = (uint64_t)st.st_size;
        return TERN_OK;
    }
    int reason = errno;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    errno = result != 0 ? reason : EINVAL; // so that a caller can tell a missing file
    return TERN_ERR_IO;
}

tern_stamp tern_file_stamp(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return (tern_stamp){0};
    return (tern_stamp){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_mtim.tv_sec,
                        (uint64_t)st.st_mtim.tv_nsec};
}

bool tern_stamp_same(const tern_stamp *a, const tern_stamp *b) {
    return a->device == b->device && a->number == b->number && a->seconds == b->seconds &&
           a->nanoseconds == b->nanoseconds;
}

tern_status tern_file_open_log(int *fd, const char *path, uint64_t n_keep, tern_error *err) {
    struct stat st;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (*fd < 0 || fstat(*fd, &st) != 0) {
        tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        tern_fail(err, TERN_ERR_IO, "%s: not a regular file", path);
    } else if (tern_lock_fd(*fd) == TERN_LOCK_TAKEN) {
        tern_fail(err, TERN_ERR_IO, "%s: another process is writing there", path);
    } else if (n_keep != UINT64_MAX && ftruncate(*fd, (off_t)n_keep) != 0) {
        tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    } else {
        return TERN_OK;
    }
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return TERN_ERR_IO;
}
