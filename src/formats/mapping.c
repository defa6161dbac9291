#include "formats/file_private.h"

#include <errno.h>
#include <string.h>
#include "base/os_file.h"
#include "base/os_memory.h"

tern_status tern_mapping_open(tern_mapping *m, const char *path, bool missing_ok,
                              tern_error *err) {
    *m = (tern_mapping){0};
    uint64_t n;
    int fd;
    tern_status status = tern_file_open_regular(&fd, path, &n, err);
    if (status != TERN_OK && missing_ok && errno == ENOENT) {
        if (err) *err = (tern_error){0};
        return TERN_OK;
    }
    TERN_TRY(status);
    if (n == 0) {
        m->bytes = (const uint8_t *)""; // nothing can be mapped of an empty file
    } else if (n > SIZE_MAX) {
        status = tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: larger than the address space", path);
    } else {
        void *mapped = tern_map(fd, (size_t)n);
        if (!mapped)
            status = tern_fail(err, TERN_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
        else *m = (tern_mapping){mapped, n};
    }
    tern_fd_close(fd); // a mapping does not need it
    return status;
}

void tern_mapping_close(tern_mapping *m) {
    if (m->n) tern_unmap((void *)m->bytes, (size_t)m->n);
    *m = (tern_mapping){0};
}
