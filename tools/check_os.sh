#!/bin/sh
# What a system gives stands behind src/base/*/os_*.h: no other file of the library includes a header
# that not every system has, or names a function of <time.h> that is not ISO C's. Tests may.
set -eu
headers='pthread|unistd|dlfcn|fcntl|dirent|signal|sched|poll|termios|netdb|pwd|windows|io|direct|process|sys/[a-z]+'
functions='nanosleep|clock_gettime|localtime_r|gmtime_r|usleep|getpid|realpath|aligned_alloc|posix_memalign|fmaf'
found=$(find src -name '*.[ch]' -o -name '*.inl' |
    grep -vE '(_test|_check)\.c$|fixture\.h$|^src/base/([a-z]+/)?(os_|fma\.h)' |
    xargs grep -nE "^#[ ]*include[ ]*<($headers)\.h>|(^|[^a-zA-Z0-9_.>])($functions)\(" |
    grep -vE '^src/kernels/cpu/select\.c:[0-9]+:#include <sys/auxv\.h>' || true) # the processor's
[ -z "$found" ] && exit 0
echo "$found" >&2
echo "  ^ belongs into src/base/*/os_*.c, behind a function of src/base/*/os_*.h" >&2
exit 1
