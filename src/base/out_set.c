#include "base/out_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/strbuf.h"

#define BUFFER_BYTES ((size_t)256 << 10)
#define STAGING      ".tern-partial-"
#define COMMIT       ".tern-commit"

static tern_status fail_path(tern_error *err, const char *path, const char *what) {
    return tern_fail(err, TERN_ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

static tern_status fail_join(tern_error *err, const char *a, const char *b) {
    return tern_fail_memory(err, strlen(a) + strlen(b) + 2);
}

// ---- What others left --------------------------------------------------------------------------

static int open_own(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Opens a private folder; -1: it does not exist, or belongs neither to this user nor to the owner
// of the folder it is in: in a world-writable folder somebody else may have put it there.
static int open_private(const char *path, const char *folder) {
    struct stat st, outer;
    int fd = open_own(path);
    if (fd < 0) return fd;
    if (fstat(fd, &st) == 0 && stat(folder, &outer) == 0 &&
        (st.st_uid == geteuid() || st.st_uid == outer.st_uid))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

static tern_status list_private(int fd, tern_names *names, tern_error *err) {
    int copy = dup(fd);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    tern_status status = TERN_OK;
    if (!dir) {
        if (copy >= 0) close(copy);
        return tern_fail(err, TERN_ERR_IO, "a folder cannot be listed: %s", strerror(errno));
    }
    rewinddir(dir); // the copy shares its offset with fd
    for (struct dirent *e; status == TERN_OK && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            status = tern_names_add(names, e->d_name, err);
    closedir(dir);
    return status;
}

static void remove_private(int fd, const char *path) {
    tern_names names = {0};
    list_private(fd, &names, NULL);
    for (size_t i = 0; i < names.n; i++)
        if (unlinkat(fd, names.list[i], 0) != 0) unlinkat(fd, names.list[i], AT_REMOVEDIR);
    tern_names_free(&names);
    rmdir(path);
}

// Private folders whose writers are dead: nobody holds their locks.
static void remove_left_overs(const char *folder) {
    tern_names names = {0};
    tern_folder_list(&names, folder, STAGING, "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        char *path = tern_path_join(folder, names.list[i]);
        int fd = path ? open_private(path, folder) : -1;
        if (fd >= 0 && tern_lock_fd(fd) == TERN_LOCK_HELD) remove_private(fd, path);
        if (fd >= 0) close(fd);
        tern_free(path);
    }
    tern_names_free(&names);
}

static void sync_folder(const char *folder) { // so that a name survives a loss of power
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!fsync(fd); // not every file system can
    close(fd);
}

// Moves one file out of a committed folder; an empty folder marks a name to remove.
static tern_status publish_one(int fd, const char *folder, const char *name, tern_error *err) {
    struct stat st;
    char *to = tern_path_join(folder, name);
    if (!to) return fail_join(err, folder, name);
    tern_status status = TERN_OK;
    bool is_gone = fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    bool ok = true;
    if (!is_gone) ok = renameat(fd, name, AT_FDCWD, to) == 0;
    else ok = (unlink(to) == 0 || errno == ENOENT) && unlinkat(fd, name, AT_REMOVEDIR) == 0;
    if (!ok)
        status = tern_fail(err, TERN_ERR_IO, "%s: cannot be replaced: %s; the new files lie in "
                           "%s/" COMMIT, to, strerror(errno), folder);
    tern_free(to);
    return status;
}

static tern_status publish(int fd, const char *folder, const char *last, tern_error *err) {
    tern_names names = {0};
    tern_status status = list_private(fd, &names, err);
    for (size_t i = 0; status == TERN_OK && i < names.n; i++)
        if (!last || strcmp(names.list[i], last) != 0)
            status = publish_one(fd, folder, names.list[i], err);
    tern_names_free(&names);
    if (status == TERN_OK && last) {
        sync_folder(folder);
        status = publish_one(fd, folder, last, err);
    }
    char *commit = tern_path_join(folder, COMMIT);
    if (status == TERN_OK && commit) rmdir(commit);
    tern_free(commit);
    sync_folder(folder);
    return status;
}

// Waits for another writer's commit, which takes milliseconds, and finishes one whose writer died.
static tern_status settle(const char *folder, tern_error *err) {
    char *path = tern_path_join(folder, COMMIT);
    tern_status status = path ? TERN_OK : fail_join(err, folder, COMMIT);
    enum { TRIES = 200 };
    for (int i = 0; status == TERN_OK; i++) {
        int fd = open_private(path, folder);
        if (fd < 0 && errno == ENOENT) break;
        if (fd < 0) {
            status = fail_path(err, path, "is in the way");
            break;
        }
        tern_lock_state state = tern_lock_fd(fd);
        bool is_dead = state == TERN_LOCK_HELD || (state == TERN_LOCK_NONE && i == TRIES);
        if (is_dead) status = publish(fd, folder, NULL, err);
        close(fd);
        if (!is_dead && i == TRIES)
            status = tern_fail(err, TERN_ERR_IO, "%s: another process is writing there", folder);
        if (!is_dead) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    tern_free(path);
    return status;
}

tern_status tern_out_check(const char *folder, const char *name, tern_error *err) {
    tern_strbuf path = {0};
    tern_strbuf_printf(&path, "%s%s" COMMIT "/%s", folder, *folder ? "/" : "", name);
    if (path.failed) return fail_join(err, folder, name);
    bool is_there = access(path.ptr, F_OK) == 0;
    tern_strbuf_free(&path);
    if (!is_there) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "%s: its writer was stopped while it replaced these "
                     "files; run that command again", folder);
}

// ---- Opening -----------------------------------------------------------------------------------

// A private folder, locked before anybody can take it for a left-over.
static tern_status make_staging(tern_out_set *set, tern_error *err) {
    struct timespec now;
    struct stat st;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t number = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30 ^ (uintptr_t)set;
    number = tern_mix64(number ^ (uint64_t)getpid() << 40);
    for (int i = 0; i < 1000; i++) {
        tern_strbuf path = {0};
        tern_strbuf_printf(&path, "%s/" STAGING "%016llx", set->folder,
                           (unsigned long long)tern_mix64(number + (uint64_t)i));
        if (path.failed) return fail_join(err, set->folder, STAGING);
        bool made = mkdir(path.ptr, 0700) == 0;
        if (!made && errno != EEXIST) {
            tern_strbuf_free(&path);
            return fail_path(err, set->folder, "cannot be written");
        }
        // Between the two calls another writer's clean-up may have removed it: try another name.
        if (made && tern_lock_folder(&set->own_staging, path.ptr, NULL) == TERN_OK &&
            (!set->own_staging.is_held ||
             (fstat(set->own_staging.fd, &st) == 0 && st.st_nlink > 0))) {
            set->staging = path.ptr;
            return TERN_OK;
        }
        tern_unlock(&set->own_staging);
        tern_strbuf_free(&path);
    }
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: no name is free", set->folder);
}

static tern_status open_folder(tern_out_set *set, bool own, tern_error *err) {
    if (own) {
        set->made_folder = mkdir(set->folder, 0777) == 0;
        if (!set->made_folder) TERN_TRY(tern_folder_make(set->folder, err));
        TERN_TRY(tern_lock_folder(&set->own_folder, set->folder, err));
    }
    TERN_TRY(settle(set->folder, err));
    remove_left_overs(set->folder);
    return make_staging(set, err);
}

tern_status tern_out_open(tern_out_set *set, const char *folder, bool own, tern_error *err) {
    *set = (tern_out_set){0};
    set->folder = tern_strdup(TERN_MEM_MISC, folder);
    tern_status status = set->folder ? open_folder(set, own, err)
                                     : tern_fail_memory(err, strlen(folder) + 1);
    if (status != TERN_OK) tern_out_close(set);
    return status;
}

// The descriptor of this process that a path names, -1: none. It is used directly, not reopened, so
// that the output continues where others wrote.
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

static tern_status open_device(tern_out_set *set, const char *path, tern_error *err) {
    int fd = descriptor_of(path);
    set->is_device = true;
    set->device = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : open(path, O_WRONLY | O_CLOEXEC);
    set->only = tern_strdup(TERN_MEM_MISC, fd == STDOUT_FILENO ? "standard output" : path);
    if (set->device < 0) return fail_path(err, path, "cannot be opened");
    return set->only ? TERN_OK : tern_fail_memory(err, strlen(path) + 1);
}

static tern_status open_place(tern_out_set *set, const char *path, tern_error *err) {
    struct stat st;
    bool is_there = stat(path, &st) == 0;
    if (descriptor_of(path) >= 0 || (is_there && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return open_device(set, path, err);
    const char *name = tern_path_name(path);
    if (!*name || (is_there && S_ISDIR(st.st_mode))) {
        errno = *path ? EISDIR : ENOENT;
        return fail_path(err, path, "cannot be written");
    }
    set->folder = tern_path_folder(path);
    set->only = tern_strdup(TERN_MEM_MISC, name);
    if (!set->folder || !set->only) return tern_fail_memory(err, strlen(path) + 2);
    return open_folder(set, false, err);
}

tern_status tern_out_open_file(tern_out_set *set, const char *path, tern_error *err) {
    struct stat st;
    char *target = NULL;
    *set = (tern_out_set){.device = -1};
    bool follow = descriptor_of(path) < 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    if (follow) target = realpath(path, NULL); // NULL: a dangling link, which is replaced itself
    tern_status status = open_place(set, target ? target : path, err);
    free(target);
    if (status != TERN_OK) tern_out_close(set);
    return status;
}

// ---- Writing -----------------------------------------------------------------------------------

static tern_status create(tern_out_file *f, const char *name, tern_error *err) {
    tern_out_set *set = f->set;
    struct stat st;
    f->buffer = tern_alloc(TERN_MEM_MISC, BUFFER_BYTES);
    f->path = set->is_device ? tern_strdup(TERN_MEM_MISC, name) : tern_path_join(set->folder, name);
    if (!f->buffer || !f->path) return tern_fail_memory(err, BUFFER_BYTES);
    if (set->is_device) {
        f->fd = set->device;
        set->device = -1;
        if (f->fd >= 0) return TERN_OK;
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: holds one file", f->path);
    }
    bool is_there = lstat(f->path, &st) == 0;
    if (is_there && S_ISDIR(st.st_mode)) { // would stop the commit half-way
        errno = EISDIR;
        return fail_path(err, f->path, "cannot be written");
    }
    char *staged = tern_out_staged(set, name);
    if (!staged) return fail_join(err, set->staging, name);
    f->fd = open(staged, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    tern_free(staged);
    if (f->fd < 0) return fail_path(err, f->path, "cannot be written");
    if (is_there && S_ISREG(st.st_mode)) // a private file stays private
        (void)!fchmod(f->fd, st.st_mode & 0777);
    return tern_names_add(&set->names, name, err);
}

tern_status tern_out_begin(tern_out_set *set, const char *name, tern_out_file *f,
                           tern_error *err) {
    *f = (tern_out_file){.set = set, .fd = -1};
    set->n_open++;
    tern_status status = create(f, name ? name : set->only, err);
    if (status != TERN_OK) tern_out_drop(f);
    return status;
}

static tern_status fail_write(tern_out_file *f, ssize_t done, tern_error *err) {
    f->failed = true;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", f->path,
                     done < 0 ? strerror(errno) : "the device takes no more");
}

static tern_status write_fd(tern_out_file *f, const uint8_t *bytes, uint64_t n, tern_error *err) {
    while (n > 0) {
        size_t piece = n < (uint64_t)1 << 30 ? (size_t)n : (size_t)1 << 30;
        ssize_t done = write(f->fd, bytes, piece);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return fail_write(f, done, err);
        bytes += done;
        n -= (uint64_t)done;
    }
    return TERN_OK;
}

static tern_status flush(tern_out_file *f, tern_error *err) {
    size_t n = f->n_buffered;
    f->n_buffered = 0;
    return write_fd(f, f->buffer, n, err);
}

tern_status tern_out_write(tern_out_file *f, const void *bytes, uint64_t n, tern_error *err) {
    if (n > BUFFER_BYTES - f->n_buffered) TERN_TRY(flush(f, err));
    if (n >= BUFFER_BYTES) return write_fd(f, bytes, n, err);
    if (n) memcpy(f->buffer + f->n_buffered, bytes, (size_t)n);
    f->n_buffered += (size_t)n;
    return TERN_OK;
}

tern_status tern_out_rewrite(tern_out_file *f, uint64_t offset, const void *bytes, size_t n,
                             tern_error *err) {
    TERN_TRY(flush(f, err));
    for (const uint8_t *p = bytes; n > 0;) {
        ssize_t done = pwrite(f->fd, p, n, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return fail_write(f, done, err);
        p += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return TERN_OK;
}

tern_status tern_out_end(tern_out_file *f, tern_error *err) {
    tern_out_set *set = f->set;
    if (!set || f->failed)
        return tern_fail(err, TERN_ERR_ARGUMENT, "writing %s failed before", set ? f->path : "it");
    TERN_TRY(flush(f, err));
    bool ok = set->is_device || fsync(f->fd) == 0;
    ok = close(f->fd) == 0 && ok;
    f->fd = -1;
    if (!ok) return fail_write(f, -1, err);
    set->n_open--;
    tern_out_drop(f);
    return TERN_OK;
}

void tern_out_drop(tern_out_file *f) {
    if (!f->set) return;
    if (f->fd >= 0) close(f->fd);
    tern_free(f->buffer);
    tern_free(f->path);
    *f = (tern_out_file){0};
}

tern_status tern_out_put(tern_out_set *set, const char *name, const void *bytes, size_t n,
                         tern_error *err) {
    tern_out_file f;
    TERN_TRY(tern_out_begin(set, name, &f, err));
    tern_status status = tern_out_write(&f, bytes, n, err);
    if (status == TERN_OK) status = tern_out_end(&f, err);
    tern_out_drop(&f);
    return status;
}

// ---- The whole set -----------------------------------------------------------------------------

bool tern_out_has(const tern_out_set *set, const char *name) {
    for (size_t i = 0; i < set->names.n; i++)
        if (!strcmp(set->names.list[i], name)) return true;
    return false;
}

char *tern_out_staged(const tern_out_set *set, const char *name) {
    return tern_path_join(set->staging, name);
}

tern_status tern_out_remove(tern_out_set *set, const char *name, tern_error *err) {
    struct stat st;
    char *path = tern_path_join(set->folder, name), *mark = tern_out_staged(set, name);
    tern_status status = path && mark ? TERN_OK : fail_join(err, set->folder, name);
    bool is_there = status == TERN_OK && lstat(path, &st) == 0 && !S_ISDIR(st.st_mode);
    if (is_there && mkdir(mark, 0700) != 0)
        status = fail_path(err, path, "cannot be removed");
    if (is_there && status == TERN_OK) status = tern_names_add(&set->gone, name, err);
    tern_free(path);
    tern_free(mark);
    return status;
}

static tern_status commit_one(tern_out_set *set, tern_error *err) {
    const char *name = set->names.list[0];
    char *from = tern_out_staged(set, name), *to = tern_path_join(set->folder, name);
    tern_status status = from && to ? TERN_OK : fail_join(err, set->staging, name);
    if (status == TERN_OK && rename(from, to) != 0)
        status = fail_path(err, to, "cannot be replaced");
    tern_free(from);
    tern_free(to);
    if (status != TERN_OK) return status;
    rmdir(set->staging);
    sync_folder(set->folder);
    return TERN_OK;
}

static tern_status commit_all(tern_out_set *set, const char *last, tern_error *err) {
    char *commit = tern_path_join(set->folder, COMMIT);
    char *decides = tern_path_join(set->folder, last);
    tern_status status = commit && decides ? TERN_OK : fail_join(err, set->folder, COMMIT);
    sync_folder(set->staging);
    int fd = status == TERN_OK ? open_own(set->staging) : -1;
    if (status == TERN_OK && fd < 0) status = fail_path(err, set->staging, "cannot be opened");
    while (status == TERN_OK && rename(set->staging, commit) != 0)
        status = errno == ENOTEMPTY || errno == EEXIST ? settle(set->folder, err)
                                                       : fail_path(err, commit, "cannot be made");
    if (status == TERN_OK) { // from here on it will finish, if need be by another writer
        sync_folder(set->folder);
        unlink(decides);
        status = publish(fd, set->folder, last, err);
        tern_free(set->staging);
        set->staging = NULL;
    }
    if (fd >= 0) close(fd);
    tern_free(commit);
    tern_free(decides);
    return status;
}

tern_status tern_out_commit(tern_out_set *set, const char *last, tern_error *err) {
    tern_status status = TERN_OK;
    if (set->n_open || (!set->is_device && !set->staging))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: not all that was begun is written",
                         set->folder ? set->folder : set->only);
    if (set->is_device) return TERN_OK;
    if (set->names.n == 1 && set->gone.n == 0) status = commit_one(set, err);
    else if (set->names.n > 0) status = commit_all(set, last ? last : set->names.list[0], err);
    if (status != TERN_OK) return status;
    tern_free(set->staging); // nothing to remove any more
    set->staging = NULL;
    set->made_folder = false;
    return TERN_OK;
}

void tern_out_close(tern_out_set *set) {
    int fd = set->staging ? open_own(set->staging) : -1;
    if (fd >= 0) {
        remove_private(fd, set->staging);
        close(fd);
    }
    if (set->is_device && set->device >= 0) close(set->device);
    if (set->made_folder) rmdir(set->folder); // only when it is empty
    tern_unlock(&set->own_staging);
    tern_unlock(&set->own_folder);
    tern_names_free(&set->names);
    tern_names_free(&set->gone);
    tern_free(set->staging);
    tern_free(set->folder);
    tern_free(set->only);
    *set = (tern_out_set){0};
}

// ---- Files alone -------------------------------------------------------------------------------

struct tern_output {
    tern_out_set set;
    tern_out_file file;
};

tern_status tern_output_open(tern_output **out, const char *path, tern_error *err) {
    if (!out || !path) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_open: NULL argument");
    tern_output *o = *out = NULL;
    o = tern_alloc(TERN_MEM_MISC, sizeof *o);
    if (!o) return tern_fail_memory(err, sizeof *o);
    tern_status status = tern_out_open_file(&o->set, path, err);
    if (status == TERN_OK) status = tern_out_begin(&o->set, NULL, &o->file, err);
    if (status == TERN_OK) *out = o;
    else tern_output_close(o);
    return status;
}

tern_status tern_output_write(tern_output *o, const void *bytes, size_t n, tern_error *err) {
    if (!o || (!bytes && n))
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_write: NULL argument");
    if (!o->file.set)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_write: already finished");
    return tern_out_write(&o->file, bytes, n, err);
}

tern_status tern_output_finish(tern_output *o, tern_error *err) {
    if (!o) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_finish: NULL argument");
    TERN_TRY(tern_out_end(&o->file, err));
    return tern_out_commit(&o->set, NULL, err);
}

void tern_output_close(tern_output *o) {
    if (!o) return;
    tern_out_drop(&o->file);
    tern_out_close(&o->set);
    tern_free(o);
}

tern_status tern_file_write(const char *path, const void *bytes, size_t n, tern_error *err) {
    tern_output *o;
    TERN_TRY(tern_output_open(&o, path, err));
    tern_status status = tern_output_write(o, bytes, n, err);
    if (status == TERN_OK) status = tern_output_finish(o, err);
    tern_output_close(o);
    return status;
}
