// Files on Linux, macOS, the BSDs and Emscripten, and on WASI, whose C library has POSIX except
// locks, owners, permissions, real paths and copies of descriptors.
#if !defined(_WIN32)
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#ifndef __wasi__
#include <sys/file.h>
#include <sys/statvfs.h>
#endif

// ---- Paths -------------------------------------------------------------------------------------

static tern_path_kind kind_of(const struct stat *st) {
    return S_ISREG(st->st_mode)   ? TERN_PATH_FILE
           : S_ISDIR(st->st_mode) ? TERN_PATH_FOLDER
           : S_ISLNK(st->st_mode) ? TERN_PATH_LINK
                                  : TERN_PATH_OTHER;
}

tern_path_kind tern_path_look(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? kind_of(&st) : TERN_PATH_NONE;
}

tern_path_kind tern_path_look_at(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 ? kind_of(&st) : TERN_PATH_NONE;
}

char *tern_path_real(const char *path) {
#ifdef __wasi__
    (void)path;
    errno = ENOSYS;
    return NULL;
#else
    char *real = realpath(path, NULL);
    char *copy = real ? tern_strdup(TERN_MEM_MISC, real) : NULL;
    if (real && !copy) errno = ENOMEM;
    free(real);
    return copy;
#endif
}

static tern_stamp stamp_of(const struct stat *st) {
#if defined(__APPLE__)
    struct timespec changed = st->st_mtimespec;
#else
    struct timespec changed = st->st_mtim;
#endif
    return (tern_stamp){(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)changed.tv_sec,
                        (uint64_t)changed.tv_nsec};
}

tern_stamp tern_file_stamp(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? stamp_of(&st) : (tern_stamp){0};
}

tern_stamp tern_fd_stamp(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? stamp_of(&st) : (tern_stamp){0};
}

bool tern_path_rename(const char *from, const char *to) { return rename(from, to) == 0; }
bool tern_file_remove(const char *path) { return unlink(path) == 0; }
bool tern_folder_remove(const char *path) { return rmdir(path) == 0; }
bool tern_folder_create(const char *path, bool is_private) {
    return mkdir(path, is_private ? 0700 : 0777) == 0;
}

bool tern_folder_is_others(const char *path) {
#ifdef __wasi__
    (void)path; // there are no users
    return false;
#else
    struct stat st;
    if (stat(path, &st) != 0) return false;
    return (st.st_mode & 022) != 0 || (st.st_uid != geteuid() && st.st_uid != 0);
#endif
}

void tern_folder_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!tern_fd_sync(fd); // not every file system can sync
    close(fd);
}

uint64_t tern_disk_room(const char *folder) {
#ifdef __wasi__
    (void)folder;
    return UINT64_MAX;
#else
    struct statvfs fs;
    return statvfs(folder, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
#endif
}

// ---- Folders -----------------------------------------------------------------------------------

static tern_status read_names(DIR *dir, tern_names *names, const char *begin, const char *end,
                              tern_error *err) {
    tern_status status = TERN_OK;
    for (struct dirent *e; status == TERN_OK && (e = readdir(dir));)
        status = tern_names_add_entry(names, e->d_name, begin, end, err);
    closedir(dir);
    return status;
}

tern_status tern_folder_read(tern_names *names, const char *folder, const char *begin,
                             const char *end, tern_error *err) {
    DIR *dir = opendir(folder);
    if (dir) return read_names(dir, names, begin, end, err);
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be listed: %s", folder, strerror(errno));
}

#ifndef __wasi__ // it has os_named_folder.c

bool tern_folder_open(tern_folder *f, const char *path, bool follow) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
    *f = (tern_folder){.is_open = fd >= 0, .fd = fd};
    return f->is_open;
}

static bool is_trusted(const struct stat *st, const struct stat *outer) {
    return st->st_uid == geteuid() || st->st_uid == outer->st_uid;
}

bool tern_folder_open_private(tern_folder *f, const char *path, const char *outer) {
    struct stat st, out;
    if (!tern_folder_open(f, path, false)) return false;
    if (fstat(f->fd, &st) == 0 && stat(outer, &out) == 0 && is_trusted(&st, &out)) return true;
    tern_folder_close(f);
    errno = EPERM;
    return false;
}

void tern_folder_close(tern_folder *f) {
    if (f->is_open) close(f->fd);
    *f = (tern_folder){0};
}

bool tern_folder_has_name(const tern_folder *f) {
    struct stat st;
    return fstat(f->fd, &st) == 0 && st.st_nlink > 0;
}

bool tern_folder_rename(tern_folder *f, const char *from, const char *to) {
    (void)f; // a descriptor follows the renaming
    return rename(from, to) == 0;
}

tern_status tern_folder_names(const tern_folder *f, tern_names *names, tern_error *err) {
    // Opened again and not dup()ed, since a copy would share the position in the list.
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir) return read_names(dir, names, "", "", err);
    tern_fail(err, TERN_ERR_IO, "a folder cannot be listed: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return TERN_ERR_IO;
}

bool tern_folder_has_folder(const tern_folder *f, const char *name) {
    struct stat st;
    return fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

bool tern_folder_remove_entry(const tern_folder *f, const char *name) {
    return unlinkat(f->fd, name, 0) == 0 || unlinkat(f->fd, name, AT_REMOVEDIR) == 0;
}

bool tern_folder_move_entry(const tern_folder *f, const char *name, const char *to) {
    return renameat(f->fd, name, AT_FDCWD, to) == 0;
}

// ---- Locks -------------------------------------------------------------------------------------

// flock and not fcntl: the lock belongs to this descriptor, so it also excludes other threads of
// the process, works on folders, and no close() of another descriptor releases it.
static tern_lock_state lock_fd(int fd) {
    int result;
    do result = flock(fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    return result == 0 ? TERN_LOCK_HELD : errno == EWOULDBLOCK ? TERN_LOCK_TAKEN : TERN_LOCK_NONE;
}

tern_lock_state tern_folder_lock(tern_folder *f) { return lock_fd(f->fd); }

#else

static tern_lock_state lock_fd(int fd) {
    (void)fd;
    return TERN_LOCK_NONE;
}

tern_lock_state tern_folder_lock(tern_folder *f) { return lock_fd(f->fd); }

#endif

// ---- Opening files -----------------------------------------------------------------------------

tern_status tern_file_open_regular(int *fd, const char *path, uint64_t *n_bytes, tern_error *err) {
    struct stat st;
    *fd = -1;
    // Checked by name first, since opening a device can have effects; checked again on the open
    // descriptor, without blocking, since the name may refer to something else by now.
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

tern_status tern_file_open_log(int *fd, const char *path, uint64_t n_keep, bool is_private,
                               tern_error *err) {
    struct stat st;
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
    *fd = open(path, flags, is_private ? 0600 : 0666);
    if (*fd < 0 || fstat(*fd, &st) != 0) {
        tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        tern_fail(err, TERN_ERR_IO, "%s: not a regular file", path);
    } else if (lock_fd(*fd) == TERN_LOCK_TAKEN) {
        tern_fail(err, TERN_ERR_IO, "%s: another process is writing there", path);
    } else if (n_keep != UINT64_MAX && !tern_fd_cut(*fd, n_keep)) {
        tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    } else {
        return TERN_OK;
    }
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return TERN_ERR_IO;
}

int tern_file_open_shared(const char *path, bool anyway, bool *taken) {
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; // in case it is a pipe
    int fd = open(path, O_RDWR | O_CREAT | flags, 0600);
    if (fd < 0) fd = open(path, O_RDONLY | flags);
    *taken = fd >= 0 && lock_fd(fd) == TERN_LOCK_TAKEN && !anyway;
    if (!*taken) return fd;
    close(fd);
    return -1;
}

int tern_file_create(const char *path, const char *like) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
#ifdef __wasi__
    (void)like;
#else
    struct stat st;
    if (fd >= 0 && lstat(like, &st) == 0 && S_ISREG(st.st_mode))
        (void)!fchmod(fd, st.st_mode & 0777);
#endif
    return fd;
}

int tern_file_create_private(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

// The descriptor of this process that a path names, -1: none.
static int descriptor_of(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (!strcmp(path, "/dev/stdout")) return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr")) return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        size_t n = strlen(folders[i]);
        char *end;
        if (strncmp(path, folders[i], n) != 0 || path[n] < '0' || path[n] > '9') continue;
        long fd = strtol(path + n, &end, 10);
        if (*end == 0 && fd < 1 << 20) return (int)fd;
    }
    return -1;
}

bool tern_device_is(const char *path) {
    return descriptor_of(path) >= 0 || tern_path_look(path) == TERN_PATH_OTHER;
}

int tern_device_open(const char *path, bool *is_stdout) {
    int fd = descriptor_of(path);
    *is_stdout = fd == STDOUT_FILENO;
#ifndef __wasi__
    if (fd >= 0) return fcntl(fd, F_DUPFD_CLOEXEC, 3);
#endif
    return open(path, O_WRONLY | O_CLOEXEC);
}

// ---- Descriptors -------------------------------------------------------------------------------

#define PIECE ((uint64_t)1 << 30) // less than the limit of any system

uint64_t tern_fd_size(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

// at: UINT64_MAX for the descriptor's position.
static int64_t read_all(int fd, char *to, size_t n, uint64_t at) {
    size_t got = 0;
    while (got < n) {
        size_t piece = n - got < PIECE ? n - got : PIECE;
        ssize_t done = at == UINT64_MAX ? read(fd, to + got, piece)
                                        : pread(fd, to + got, piece, (off_t)(at + got));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        if (done == 0) break;
        got += (size_t)done;
    }
    return (int64_t)got;
}

int64_t tern_fd_read(int fd, void *to, size_t n) { return read_all(fd, to, n, UINT64_MAX); }
int64_t tern_fd_read_at(int fd, void *to, size_t n, uint64_t offset) {
    return read_all(fd, to, n, offset);
}

// The same for `at`.
static bool write_all(int fd, const char *bytes, uint64_t n, uint64_t at) {
    for (uint64_t put = 0; put < n;) {
        size_t piece = n - put < PIECE ? (size_t)(n - put) : PIECE;
        ssize_t done = at == UINT64_MAX ? write(fd, bytes + put, piece)
                                        : pwrite(fd, bytes + put, piece, (off_t)(at + put));
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = ENOSPC;
        if (done <= 0) return false;
        put += (uint64_t)done;
    }
    return true;
}

bool tern_fd_write(int fd, const void *bytes, uint64_t n) {
    return write_all(fd, bytes, n, UINT64_MAX);
}

bool tern_fd_write_at(int fd, const void *bytes, uint64_t n, uint64_t offset) {
    return write_all(fd, bytes, n, offset);
}

bool tern_fd_cut(int fd, uint64_t n) { return ftruncate(fd, (off_t)n) == 0; }
bool tern_fd_sync(int fd) {
#if defined(F_FULLFSYNC) // of Darwin, whose fsync may leave bytes in the disk's cache
    if (fcntl(fd, F_FULLFSYNC) == 0) return true;
#endif
    return fsync(fd) == 0;
}
bool tern_fd_close(int fd) { return close(fd) == 0; }

#endif
