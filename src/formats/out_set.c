#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "formats/tensor_writer.h"

#define BUFFER_BYTES ((size_t)256 << 10)
#define PARTIAL ".partial"

static char *partial_name(const char *path) {
    size_t n = strlen(path);
    char *name = tern_alloc(TERN_MEM_MISC, n + sizeof PARTIAL);
    if (!name) return NULL;
    memcpy(name, path, n);
    memcpy(name + n, PARTIAL, sizeof PARTIAL);
    return name;
}

static const char *current(const tern_out_set *set) { return set->paths[set->n_paths - 1]; }

tern_status tern_out_begin(tern_out_set *set, const char *path, tern_error *err) {
    if (!set->buffer) set->buffer = tern_alloc(TERN_MEM_MISC, BUFFER_BYTES);
    if (!set->buffer) return tern_fail_memory(err, BUFFER_BYTES);
    if (tern_array_reserve(TERN_MEM_MISC, &set->paths, &set->capacity, set->n_paths, 1) != 0)
        return tern_fail_memory(err, (set->n_paths + 1) * sizeof *set->paths);
    char *copy = tern_strdup(TERN_MEM_MISC, path), *partial = partial_name(path);
    tern_status status = TERN_OK;
    if (!copy || !partial) {
        status = tern_fail_memory(err, strlen(path));
    } else {
        set->fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (set->fd < 0)
            status = tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", partial,
                               strerror(errno));
    }
    tern_free(partial);
    if (status == TERN_OK) set->paths[set->n_paths++] = copy;
    else tern_free(copy);
    return status;
}

static tern_status write_fd(tern_out_set *set, const uint8_t *bytes, uint64_t n, tern_error *err) {
    while (n > 0) {
        size_t piece = n < (uint64_t)1 << 30 ? (size_t)n : (size_t)1 << 30;
        ssize_t done = write(set->fd, bytes, piece);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", current(set),
                             done < 0 ? strerror(errno) : "the device takes no more");
        bytes += done;
        n -= (uint64_t)done;
    }
    return TERN_OK;
}

static tern_status flush(tern_out_set *set, tern_error *err) {
    size_t n = set->n_buffered;
    set->n_buffered = 0;
    return write_fd(set, set->buffer, n, err);
}

tern_status tern_out_write(tern_out_set *set, const void *bytes, uint64_t n, tern_error *err) {
    if (n > BUFFER_BYTES - set->n_buffered) TERN_TRY(flush(set, err));
    if (n >= BUFFER_BYTES) return write_fd(set, bytes, n, err);
    if (n) memcpy(set->buffer + set->n_buffered, bytes, (size_t)n);
    set->n_buffered += (size_t)n;
    return TERN_OK;
}

tern_status tern_out_rewrite(tern_out_set *set, uint64_t offset, const void *bytes, size_t n,
                             tern_error *err) {
    TERN_TRY(flush(set, err));
    for (const uint8_t *p = bytes; n > 0;) {
        ssize_t done = pwrite(set->fd, p, n, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", current(set),
                             done < 0 ? strerror(errno) : "the device takes no more");
        p += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return TERN_OK;
}

tern_status tern_out_end(tern_out_set *set, tern_error *err) {
    TERN_TRY(flush(set, err));
    int failed = fsync(set->fd) != 0;
    failed |= close(set->fd) != 0;
    set->fd = -1;
    if (failed)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", current(set),
                         strerror(errno));
    return TERN_OK;
}

static tern_status give_name(tern_out_set *set, size_t i, tern_error *err) {
    char *partial = partial_name(set->paths[i]);
    if (!partial) return tern_fail_memory(err, strlen(set->paths[i]) + sizeof PARTIAL);
    tern_status status = TERN_OK;
    if (rename(partial, set->paths[i]) != 0)
        status = tern_fail(err, TERN_ERR_IO, "%s: cannot be renamed: %s", partial,
                           strerror(errno));
    tern_free(partial);
    if (status != TERN_OK) return status;
    tern_free(set->paths[i]);
    set->paths[i] = NULL; // nothing to remove any more
    return TERN_OK;
}

// So that the new name, too, survives a loss of power. Not all file systems can.
static void sync_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? tern_strndup(TERN_MEM_MISC, path, (size_t)(slash - path) + 1)
                         : tern_strdup(TERN_MEM_MISC, ".");
    int fd = folder ? open(folder, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
    tern_free(folder);
}

tern_status tern_out_commit(tern_out_set *set, size_t last, tern_error *err) {
    for (size_t i = 0; i < set->n_paths; i++)
        if (i != last) TERN_TRY(give_name(set, i, err));
    char *path = tern_strdup(TERN_MEM_MISC, set->paths[last]);
    tern_status status = give_name(set, last, err);
    if (path && status == TERN_OK) sync_folder_of(path);
    tern_free(path);
    return status;
}

void tern_out_free(tern_out_set *set) {
    if (set->fd >= 0) close(set->fd);
    for (size_t i = 0; i < set->n_paths; i++) {
        char *partial = set->paths[i] ? partial_name(set->paths[i]) : NULL;
        if (partial) unlink(partial);
        tern_free(partial);
        tern_free(set->paths[i]);
    }
    tern_free(set->paths);
    tern_free(set->buffer);
    *set = (tern_out_set){.fd = -1};
}

tern_status tern_file_write(const char *path, const void *bytes, size_t n, tern_error *err) {
    tern_out_set set = {.fd = -1};
    tern_status status = tern_out_begin(&set, path, err);
    if (status == TERN_OK) status = tern_out_write(&set, bytes, n, err);
    if (status == TERN_OK) status = tern_out_end(&set, err);
    if (status == TERN_OK) status = tern_out_commit(&set, 0, err);
    tern_out_free(&set);
    return status;
}
