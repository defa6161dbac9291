#include "base/file/blob.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_memory.h"

struct tern_blob_file {
    char *path;
    uint64_t n;
    const uint8_t *map; // NULL: the file is read
    int fd;             // -1: the file is mapped
    tern_stamp stamp;
};

static atomic_bool never_map;
static atomic_uint_fast64_t n_reads, n_held, n_left_before_fail;

void tern_blob_map_never(bool never) { atomic_store(&never_map, never); }
void tern_blob_fail_read_at(uint64_t n) { atomic_store(&n_left_before_fail, n); }
uint64_t tern_blob_n_reads(void) { return atomic_load(&n_reads); }
uint64_t tern_blob_n_held(void) { return atomic_load(&n_held); }

static bool must_fail(void) {
    uint_fast64_t left = atomic_load(&n_left_before_fail);
    atomic_fetch_add(&n_reads, 1);
    if (left > 1) atomic_store(&n_left_before_fail, left - 1);
    return left == 1; // stays at 1: all later reads fail too
}

// ---- Opening -----------------------------------------------------------------------------------

// A file that the system cannot map is read instead: perhaps only this file system cannot map.
static void map_or_keep(tern_blob_file *f, int fd) {
    bool fits = f->n > 0 && f->n <= SIZE_MAX;
    f->fd = -1;
    if (fits && !atomic_load(&never_map)) f->map = tern_map(fd, (size_t)f->n);
    if (f->map) {
        tern_fd_close(fd); // a mapping does not need it
        return;
    }
    f->fd = fd;
    f->stamp = tern_fd_stamp(fd);
}

tern_status tern_blob_open(tern_blob_file **file, const char *path, bool missing_ok, tern_blob *all,
                           tern_error *err) {
    uint64_t n;
    int fd;
    *file = NULL;
    *all = (tern_blob){0};
    tern_status status = tern_file_open_regular(&fd, path, &n, err);
    if (status != TERN_OK && missing_ok && errno == ENOENT) {
        if (err) *err = (tern_error){0};
        return TERN_OK;
    }
    TERN_TRY(status);
    tern_blob_file *f = tern_alloc(TERN_MEM_FILE, sizeof *f);
    if (f) f->path = tern_strdup(TERN_MEM_FILE, path);
    if (!f || !f->path) {
        tern_free(f);
        tern_fd_close(fd);
        return tern_fail_memory(err, sizeof *f + strlen(path));
    }
    f->n = n;
    map_or_keep(f, fd);
    *all = (tern_blob){.n = n, .memory = f->map, .file = f};
    *file = f;
    return TERN_OK;
}

void tern_blob_close(tern_blob_file *f) {
    if (!f) return;
    if (f->map) tern_unmap((void *)(uintptr_t)f->map, (size_t)f->n);
    if (f->fd >= 0) tern_fd_close(f->fd);
    tern_free(f->path);
    tern_free(f);
}

tern_blob tern_blob_of(const void *bytes, uint64_t n) {
    return (tern_blob){.n = n, .memory = bytes};
}

tern_blob tern_blob_join(const tern_blob *list, uint64_t n, uint64_t each) {
    return (tern_blob){.n = n * each, .joined = list, .each = each};
}

tern_blob tern_blob_made(const tern_blob_maker *maker, uint64_t n) {
    return (tern_blob){.n = n, .maker = maker};
}

tern_blob tern_blob_part(const tern_blob *b, uint64_t first, uint64_t n) {
    tern_blob part = *b;
    if (first > b->n) first = b->n;
    part.n = n < b->n - first ? n : b->n - first;
    part.at += first;
    if (part.memory) part.memory += first;
    if (!part.joined || part.n == 0) return part;
    uint64_t in = part.at % part.each;
    if (part.n > part.each - in) return part;
    return tern_blob_part(&part.joined[part.at / part.each], in, part.n);
}

// ---- Reading -----------------------------------------------------------------------------------

// All reads must see the same file: a change in between is a failure, too.
static tern_status read_file(const tern_blob_file *f, uint64_t at, uint64_t n, void *to,
                             tern_error *err) {
    unsigned long long first = at, end = at + n;
    bool fails = must_fail();
    errno = EIO;
    int64_t got = fails ? -1 : tern_fd_read_at(f->fd, to, (size_t)n, at);
    if (got < 0)
        return tern_fail(err, TERN_ERR_IO, "%s: bytes %llu to %llu cannot be read: %s", f->path,
                         first, end, strerror(errno));
    if ((uint64_t)got < n)
        return tern_fail(err, TERN_ERR_IO,
                         "%s: bytes %llu to %llu cannot be read: the file was "
                         "cut to %llu bytes while it was in use",
                         f->path, first, end, (unsigned long long)tern_fd_size(f->fd));
    tern_stamp now = tern_fd_stamp(f->fd);
    if (tern_stamp_same(&f->stamp, &now)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO,
                     "%s: bytes %llu to %llu cannot be used: the file was "
                     "changed while it was in use",
                     f->path, first, end);
}

static tern_status read_joined(const tern_blob *b, uint64_t at, uint64_t n, uint8_t *to,
                               tern_error *err) {
    while (n > 0) {
        uint64_t in = at % b->each, here = n < b->each - in ? n : b->each - in;
        TERN_TRY(tern_blob_read(&b->joined[at / b->each], in, here, to, err));
        at += here;
        to += here;
        n -= here;
    }
    return TERN_OK;
}

tern_status tern_blob_read(const tern_blob *b, uint64_t first, uint64_t n, void *to,
                           tern_error *err) {
    if (first > b->n || n > b->n - first || n > SIZE_MAX)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: %llu bytes at %llu of %llu: the file is shorter",
                         b->file ? b->file->path : "memory", (unsigned long long)n,
                         (unsigned long long)first, (unsigned long long)b->n);
    if (n == 0) return TERN_OK;
    if (b->joined) return read_joined(b, b->at + first, n, to, err);
    if (b->maker) return b->maker->make(b->maker, b->at + first, n, to, err);
    if (!b->memory) return read_file(b->file, b->at + first, n, to, err);
    memcpy(to, b->memory + first, (size_t)n);
    return TERN_OK;
}

tern_status tern_blob_hold(const tern_blob *b, tern_hold *out, tern_error *err) {
    tern_hold h = {.data = b->memory};
    *out = (tern_hold){0};
    if (!h.data) {
        if (b->n > SIZE_MAX / 2)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "%s: %llu bytes are more than the address space",
                             b->file ? b->file->path : "memory", (unsigned long long)b->n);
        h.data = h.owned = tern_alloc(TERN_MEM_FILE, (size_t)b->n);
        if (!h.owned) return tern_fail_memory(err, (size_t)b->n);
        tern_status status = tern_blob_read(b, 0, b->n, h.owned, err);
        if (status != TERN_OK) {
            tern_free(h.owned);
            return status;
        }
    }
    atomic_fetch_add(&n_held, 1);
    *out = h;
    return TERN_OK;
}

void tern_blob_release(tern_hold *h) {
    if (!h->data) return;
    tern_free(h->owned);
    *h = (tern_hold){0};
    atomic_fetch_sub(&n_held, 1);
}

// The caller's bytes, or a copy, must never be dropped: nothing would restore them.
void tern_blob_drop(const tern_blob *b) {
    for (uint64_t at = b->at; b->joined && at < b->at + b->n; at += b->each)
        tern_blob_drop(&b->joined[at / b->each]);
    if (b->maker) b->maker->drop(b->maker);
    const uint8_t *map = b->file ? b->file->map : NULL;
    if (map && b->memory == map + b->at) tern_map_drop(b->memory, (size_t)b->n);
}
