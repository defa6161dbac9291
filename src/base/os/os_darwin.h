// What Darwin's C library lacks, or has under another name, of what the other POSIX systems have:
// included before each file there (mk/config.mk).
#ifndef TERN_BASE_OS_DARWIN_H
#define TERN_BASE_OS_DARWIN_H

#include <stddef.h>

#define st_mtim st_mtimespec

void *memrchr(const void *text, int c, size_t n);
int pipe2(int ends[2], int flags); // not at once, so no other thread may fork meanwhile

#endif
