#include "formats/file_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

tern_status tern_mapping_open(tern_mapping *m, const char *path, bool missing_ok,
                              tern_error *err) {
    *m = (tern_mapping){0};
    // Not blocking: a named pipe must be refused, not waited for.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (missing_ok && errno == ENOENT) return TERN_OK;
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    struct stat st;
    tern_status status = TERN_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        status = tern_fail(err, TERN_ERR_IO, "%s: not a regular file", path);
    } else if (st.st_size == 0) {
        m->bytes = (const uint8_t *)""; // nothing can be mapped of an empty file
    } else if ((uint64_t)st.st_size > SIZE_MAX) {
        status = tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: larger than the address space", path);
    } else {
        void *mapped = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (mapped == MAP_FAILED)
            status = tern_fail(err, TERN_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
        else *m = (tern_mapping){mapped, (uint64_t)st.st_size};
    }
    close(fd); // a mapping does not need it
    return status;
}

void tern_mapping_close(tern_mapping *m) {
    if (m->n) munmap((void *)m->bytes, (size_t)m->n);
    *m = (tern_mapping){0};
}
