// For Windows only, included before every file by compiler flags (mk/config.mk): functions of
// <string.h> that POSIX systems have and Windows lacks.
#ifndef TERN_BASE_OS_WINDOWS_H
#define TERN_BASE_OS_WINDOWS_H

#include <stddef.h>

void *memmem(const void *text, size_t n, const void *part, size_t n_part);
void *memrchr(const void *text, int c, size_t n);
void tern_handle_close(void *handle);

// UTF-16 of UTF-8 and back; an absolute path that the system takes at any length. The caller frees
// them; NULL: errno.
wchar_t *tern_windows_wide(const char *text);
char *tern_windows_narrow(const wchar_t *wide);
wchar_t *tern_windows_path(const char *path);

#endif
