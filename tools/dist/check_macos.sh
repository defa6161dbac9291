#!/bin/sh
# The programs of `make dist-macos` as far as Linux can see: they need the system's library alone, and the library
# shows the public functions alone. Nothing here runs them.
#
#     tools/dist/check_macos.sh BUILD KIND        KIND: aarch64-macos
#
# Seen to fail: a library linked by zig, which shows all names.
set -u
build=$1 kind=$2 failed=0
wrong() { echo "$kind: $*"; failed=1; }
for file in tern libtern.dylib; do
    needed=$(llvm-otool-19 -L "$build/$file" | sed -n 's/^\t\([^ ]*\) .*/\1/p' | grep -v '^@rpath/libtern\.')
    [ "$needed" = /usr/lib/libSystem.B.dylib ] || wrong "$file needs" $needed
done
shown=$(llvm-nm-19 --extern-only --defined-only "$build/libtern.dylib" | awk '{ print $3 }')
others=$(echo "$shown" | grep -v '^_tern_' | head -n 5)
[ -n "$shown" ] && [ -z "$others" ] || wrong "libtern.dylib shows" $others
case $kind in aarch64-*) cpu=arm64 ;; *) cpu=x86_64 ;; esac
llvm-objdump-19 --macho --private-headers "$build/tern" | grep -qiE " $cpu " || wrong "another processor's"
[ $failed = 0 ] && echo "$kind: $(stat -c %s "$build/tern") bytes, needs libSystem alone; not run"
exit $failed
