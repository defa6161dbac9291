#!/bin/sh
# What `make` makes again, what it says is left out, and what tools/install_deps.sh does without rights.
#
#     tests/make_test.sh MAKE CC
#
# Seen to fail: with objects that do not depend on their flags (nothing was compiled again); with flags of one
# package for all files; with a command that is remembered although it failed; with a set of packages that is
# not in the table; without CPPFLAGS; without LDFLAGS in one of the commands.
set -u
make=$1 cc=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
wrong() { echo "make: $*"; failed=1; }

one=$dir/obj/src/base/utf8.o other=$dir/obj/src/train/data/data_stream.o
compiled() { # WHAT EXPECTED [VARIABLE=VALUE...]: how many files are compiled now
    what=$1 expected=$2
    shift 2
    got=$("$make" --no-print-directory CC="$cc" BUILD="$dir" ZLIB= "$@" "$one" "$other" 2>"$dir/err" | grep -c '^  cc ')
    [ "$got" = "$expected" ] || wrong "$what: $got files are compiled, not $expected: $(head -n 3 "$dir/err")"
}
unset MAKEFLAGS MFLAGS MAKELEVEL EXTRA_CFLAGS CFLAGS
compiled "at first" 2
compiled "once more" 0
[ ! -e /usr/include/zlib.h ] || {
    compiled "a package that came" 1 ZLIB=1
    compiled "and stayed" 0 ZLIB=1
    compiled "and went" 1
}
compiled "other flags" 2 "EXTRA_CFLAGS=-DA='\"x#y\$\$z\"'"
compiled "the same other flags" 0 "EXTRA_CFLAGS=-DA='\"x#y\$\$z\"'"
compiled "none again" 2
compiled "a packager's flags" 2 CPPFLAGS=-DPACKAGED
compiled "without them again" 2
for file in tern libtern.so tern_tests; do
    "$make" -n CC="$cc" BUILD="$dir" LDFLAGS=-Wl,--as-packaged V=1 "$dir/$file" 2>&1 | grep -q -- "--as-packaged.* -o $dir/$file " || wrong "$file is linked without LDFLAGS"
done
compiled "another compiler" 2 CC="env $cc"
"$make" CC="$cc" BUILD="$dir" ZLIB= EXTRA_CFLAGS=-no-such-flag "$one" >/dev/null 2>&1 && wrong "a flag that is none"
compiled "after a failure" 2
touch -d 1970-01-02 "$one"
compiled "an object older than its source" 1

# Parts that are left out are named, with what brings them.
"$make" -n CC="$cc" BUILD="$dir" LIBCURL= LIBEVENT= IMAGES=1 all >"$dir/out" 2>&1
grep -q 'tern serve.*(libevent-dev libssl-dev)' "$dir/out" || wrong "nothing is said of the server that is left out"
grep -q 'tern pull.*(libcurl4-openssl-dev)' "$dir/out" || wrong "nothing is said of downloads that are left out"
grep -q 'classify.*(libjpeg' "$dir/out" && wrong "images are said to be left out"
[ ! -e "$dir/set-up.mk" ] || wrong "a dry run installs"

# A system whose packages are not known, and that has no compiler.
mkdir "$dir/bin"
for tool in sh sed dirname; do ln -s "$(command -v $tool)" "$dir/bin/$tool"; done
env -i PATH="$dir/bin" tools/install_deps.sh >"$dir/out" 2>&1 && wrong "no compiler is no failure"
grep -q '^missing: a C compiler (gcc): install what your system calls gcc ' "$dir/out" || wrong "$(cat "$dir/out")"
[ "$failed" = 0 ] && echo "make: what flags change is made again"
exit "$failed"
