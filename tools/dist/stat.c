// zig 0.11 brings stat() and its kin for glibc before 2.33 in each program, and these store the
// reason of a failure where errno is not. Those of glibc itself have other names there.
#define _GNU_SOURCE
#include <sys/stat.h>

#if defined(__x86_64__)
#define VERSION 1 // of struct stat
#else
#define VERSION 0
#endif

#define FAMILY(suffix)                                                                             \
    int __xstat##suffix(int version, const char *path, struct stat##suffix *st);                   \
    int __lxstat##suffix(int version, const char *path, struct stat##suffix *st);                  \
    int __fxstat##suffix(int version, int fd, struct stat##suffix *st);                            \
    int __fxstatat##suffix(int version, int fd, const char *path, struct stat##suffix *st,         \
                           int flags);                                                             \
    int stat##suffix(const char *path, struct stat##suffix *st) {                                  \
        return __xstat##suffix(VERSION, path, st);                                                 \
    }                                                                                              \
    int lstat##suffix(const char *path, struct stat##suffix *st) {                                 \
        return __lxstat##suffix(VERSION, path, st);                                                \
    }                                                                                              \
    int fstat##suffix(int fd, struct stat##suffix *st) {                                           \
        return __fxstat##suffix(VERSION, fd, st);                                                  \
    }                                                                                              \
    int fstatat##suffix(int fd, const char *path, struct stat##suffix *st, int flags) {            \
        return __fxstatat##suffix(VERSION, fd, path, st, flags);                                   \
    }

FAMILY()
FAMILY(64)
