// Files as streams of bytes; those that begin like gzip are unpacked, if the library was built with
// zlib.
#include <errno.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/utf8.h"
#include "train/data/data.h"

#ifdef TERN_ZLIB
#include <zlib.h>
#endif

#define BUFFER_BYTES ((size_t)64 << 10)

struct tern_stream {
    char *path;
    int fd;
    uint64_t n_file, n_read; // bytes of the file
    uint8_t *packed;         // read but not unpacked yet
    size_t n_packed, at;
    bool is_gzip, inside; // inside: within a gzip member
    bool has_begun;       // something was read
#ifdef TERN_ZLIB
    z_stream z;
    bool z_open;
#endif
};

static tern_status fill(tern_stream *s, tern_error *err) {
    int64_t n = tern_fd_read(s->fd, s->packed, BUFFER_BYTES);
    if (n < 0)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be read: %s", s->path, strerror(errno));
    s->n_packed = (size_t)n;
    s->at = 0;
    s->n_read += (uint64_t)n;
    return TERN_OK;
}

static tern_status open_file(tern_stream *s, tern_error *err) {
    TERN_TRY(tern_file_open_regular(&s->fd, s->path, &s->n_file, err));
    s->packed = tern_alloc(TERN_MEM_FILE, BUFFER_BYTES);
    if (!s->packed) return tern_fail_memory(err, BUFFER_BYTES);
    TERN_TRY(fill(s, err));
    s->is_gzip = s->n_packed >= 2 && s->packed[0] == 0x1F && s->packed[1] == 0x8B;
#ifdef TERN_ZLIB
    if (s->is_gzip && inflateInit2(&s->z, 15 + 16) != Z_OK) // 16: with gzip's header
        return tern_fail_memory(err, 1 << 15);
    s->z_open = s->is_gzip;
#else
    if (s->is_gzip)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: is compressed, and this tern was built "
                         "without zlib (zlib1g-dev): unpack it first",
                         s->path);
#endif
    return TERN_OK;
}

tern_status tern_stream_open(tern_stream **out, const char *path, tern_error *err) {
    tern_stream *s = tern_alloc(TERN_MEM_FILE, sizeof *s);
    *out = NULL;
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->fd = -1;
    s->path = tern_strdup(TERN_MEM_FILE, path);
    tern_status status = s->path ? open_file(s, err) : tern_fail_memory(err, strlen(path) + 1);
    if (status != TERN_OK)
        tern_stream_close(s);
    else
        *out = s;
    return status;
}

void tern_stream_close(tern_stream *s) {
    if (!s) return;
#ifdef TERN_ZLIB
    if (s->z_open) inflateEnd(&s->z);
#endif
    if (s->fd >= 0) tern_fd_close(s->fd);
    tern_free(s->packed);
    tern_free(s->path);
    tern_free(s);
}

double tern_stream_fraction(const tern_stream *s) {
    return s->n_file ? (double)(s->n_read - (s->n_packed - s->at)) / (double)s->n_file : 1;
}

#ifdef TERN_ZLIB
// A gzip file is one or several members in sequence.
static tern_status unpack(tern_stream *s, void *to, size_t capacity, size_t *n, tern_error *err) {
    s->z.next_out = to;
    s->z.avail_out = (uInt)(capacity < (size_t)1 << 30 ? capacity : (size_t)1 << 30);
    size_t room = s->z.avail_out;
    while (s->z.avail_out == room) {
        if (s->at == s->n_packed) TERN_TRY(fill(s, err));
        if (s->n_packed == 0 && !s->inside) break;
        if (s->n_packed == 0)
            return tern_fail(err, TERN_ERR_FORMAT, "%s: the compressed file is cut off", s->path);
        s->inside = true;
        s->z.next_in = s->packed + s->at;
        s->z.avail_in = (uInt)(s->n_packed - s->at);
        int result = inflate(&s->z, Z_NO_FLUSH);
        s->at = s->n_packed - s->z.avail_in;
        if (result == Z_STREAM_END) {
            s->inside = false;
            inflateReset(&s->z);
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            return tern_fail(err, TERN_ERR_FORMAT, "%s: the compressed file is damaged: %s",
                             s->path, s->z.msg ? s->z.msg : "not gzip");
        }
    }
    *n = room - s->z.avail_out;
    return TERN_OK;
}
#endif

static tern_status read_some(tern_stream *s, void *to, size_t capacity, size_t *n,
                             tern_error *err) {
#ifdef TERN_ZLIB
    if (s->is_gzip) return unpack(s, to, capacity, n, err);
#endif
    if (s->at == s->n_packed) TERN_TRY(fill(s, err));
    *n = s->n_packed - s->at < capacity ? s->n_packed - s->at : capacity;
    memcpy(to, s->packed + s->at, *n);
    s->at += *n;
    return TERN_OK;
}

tern_status tern_stream_read(tern_stream *s, void *to, size_t capacity, size_t *n,
                             tern_error *err) {
    TERN_TRY(read_some(s, to, capacity, n, err));
    size_t n_mark = s->has_begun ? 0 : tern_utf8_mark(to, *n);
    s->has_begun |= *n > 0;
    if (!n_mark) return TERN_OK;
    *n -= n_mark;
    if (!*n) return read_some(s, to, capacity, n, err);
    memmove(to, (char *)to + n_mark, *n);
    return TERN_OK;
}
