#!/bin/sh
# `make install` into folders whose names have spaces, and what a program finds there.
#
#     tests/install_test.sh MAKE CC
#
# Seen to fail: with a library that --static leaves out, with a prefix in the CMake files that is not that of
# the tree, with names that are not quoted, without strip, without the completions' rule, with PUBLIC of one header.
set -eu
make=$1 cc=$2
dir=$(mktemp -d)
export TERN_DEVICE=cpu # also on machines with a GPU
trap 'rm -rf "$dir"' EXIT
failed=0
check() { # what, command...
    what=$1
    shift
    "$@" >"$dir/log" 2>&1 || { echo "install: $what"; cat "$dir/log"; failed=1; }
}
no_symbols() { ! nm "$1" 2>/dev/null | grep -q .; }
no_debug() { ! readelf -S "$1" | grep -q debug_info; }

to="$dir/a prefix"
check "make install" $make --no-print-directory install "PREFIX=$to"
for file in bin/tern lib/libtern.a lib/libtern.so lib/libtern.so.0 include/tern.h include/tern_agent.h include/tern_tools.h include/tern_train.h lib/cmake/tern/tern-config.cmake share/man/man1/tern.1 \
    share/bash-completion/completions/tern share/zsh/site-functions/_tern share/fish/vendor_completions.d/tern.fish; do
    check "$file is not there" test -s "$to/$file"
done
if "$to/bin/tern" serve --help >/dev/null 2>&1 && ! "$to/bin/tern" serve no-model 2>&1 | grep -q "without libevent"; then
    check "the unit does not name the program" grep -q "^ExecStart=\"$to/bin/tern\" serve" "$to/lib/systemd/system/tern@.service"
fi
check "the program is not stripped" no_symbols "$to/bin/tern"
check "the library is not stripped" no_debug "$to/lib/libtern.a"
check "the program does not run" "$to/bin/tern" --version
check "bash does not read its completions" bash -c '. "$1"; complete -p tern' - "$to/share/bash-completion/completions/tern"
mkdir "$dir/empty"
away() { (cd "$dir/empty" && env -u TERN_MODELS -u XDG_DATA_HOME HOME="$dir/empty" "$@"); }
run_carried() { away "$1/bin/tern" run stories "Once upon a time" -n 4 --seed 1 </dev/null; }
lists_carried() { away "$1/bin/tern" list | grep -q '^stories '; }
moved() { mv "$to" "$dir/elsewhere" && run_carried "$dir/elsewhere"; mv "$dir/elsewhere" "$to"; }
check "the carried model is not found by its name" run_carried "$to"
check "it is not listed" lists_carried "$to"
check "it is not found where the tree was moved" moved
if command -v pkg-config >/dev/null; then
    flags() { PKG_CONFIG_PATH="$to/lib/pkgconfig" pkg-config "$@" tern; }
    check "pkg-config does not find it" flags --exists
    compile() { eval "$cc" -o '"$dir/hello"' examples/hello.c "$(flags --cflags --libs)"; }
    check "the example is not compiled" compile
    check "the example does not run" env LD_LIBRARY_PATH="$to/lib" "$dir/hello" models/stories.gguf "Once upon a time"
    # One file that needs nothing: where all that the library needs is there as an archive.
    archives=yes
    for lib in $(flags --static --libs-only-l); do
        lib=lib${lib#-l}.a
        [ "$lib" = libtern.a ] || [ "$($cc -print-file-name="$lib")" != "$lib" ] || archives=
    done
    if [ -n "$archives" ]; then
        static() { eval "$cc" -static -o '"$dir/static"' examples/hello.c "$(flags --static --cflags --libs)"; }
        check "the example is not linked statically" static
        is_static() { ! readelf -d "$dir/static" | grep -q NEEDED; }
        check "the static example needs libraries" is_static
        check "the static example does not run" "$dir/static" models/stories.gguf "Once upon a time"
    fi
fi
if command -v cmake >/dev/null; then
    mkdir "$dir/cmake"
    cat >"$dir/cmake/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.13)
project(hello C)
find_package(tern 0.1 REQUIRED)
add_executable(shared "$PWD/examples/hello.c")
target_link_libraries(shared tern::tern)
add_executable(static "$PWD/examples/hello.c")
target_link_libraries(static tern::static)
END
    build() { cmake -S "$dir/cmake" -B "$dir/cmake/$1" "-DCMAKE_C_COMPILER=${cc%% *}" "-DCMAKE_PREFIX_PATH=$2" && cmake --build "$dir/cmake/$1"; }
    runs() { "$dir/cmake/$1/shared" models/stories.gguf "Once" && "$dir/cmake/$1/static" models/stories.gguf "Once"; }
    check "CMake does not find it" build here "$to"
    check "what CMake built does not run" runs here
    sed -i 's/tern 0.1/tern 9.0/' "$dir/cmake/CMakeLists.txt"
    wrong() { ! cmake -S "$dir/cmake" -B "$dir/cmake/wrong" "-DCMAKE_PREFIX_PATH=$to"; }
    check "CMake takes it for another version" wrong
fi
exported() { nm -D --defined-only --with-symbol-versions "$to/lib/libtern.so" | sed -n 's/.* [TWDBR] //p'; }
versioned() { exported | grep -q '^tern_abi_version@@TERN_0$' && ! exported | grep -v '^tern_.*@@TERN_0$' | grep -v '^TERN_0'; }
check "what the library exports has no version" versioned
named() { readelf -d "$to/lib/libtern.so" | grep -q "SONAME.*libtern.so.$("$to/bin/tern" --version | sed 's/.*(ABI \(.*\))/\1/')\]"; }
check "the library's name is not that of its ABI" named
# As Debian's packages are made.
check "make install with DESTDIR" $make --no-print-directory install "DESTDIR=$dir/an image" PREFIX=/usr LIBDIR=/usr/lib/an-arch MANDIR=/usr/man
multi="$dir/an image/usr/lib/an-arch"
check "LIBDIR was left out" test -s "$multi/libtern.so" -a -s "$multi/libtern.a" -a -s "$multi/pkgconfig/tern.pc" -a ! -e "$dir/an image/usr/lib/libtern.a"
check "MANDIR was left out" test -s "$dir/an image/usr/man/man1/tern.1" -a ! -e "$dir/an image/usr/share/man"
pc_lib() { PKG_CONFIG_PATH="$multi/pkgconfig" pkg-config --variable=libdir tern | grep -qx /usr/lib/an-arch; }
command -v pkg-config >/dev/null && check "pkg-config does not know LIBDIR" pc_lib
if command -v cmake >/dev/null; then
    sed -i 's/tern 9.0/tern 0.1/' "$dir/cmake/CMakeLists.txt"
    build_multi() { cmake -S "$dir/cmake" -B "$dir/cmake/multi" "-DCMAKE_C_COMPILER=${cc%% *}" "-Dtern_DIR=$multi/cmake/tern" && cmake --build "$dir/cmake/multi"; }
    check "CMake does not find the headers from LIBDIR" build_multi
fi
check "DESTDIR was left out" test -s "$dir/an image/usr/bin/tern"
check "an image's model is not found" run_carried "$dir/an image/usr"
check "make uninstall" $make --no-print-directory uninstall "PREFIX=$to"
left=$(find "$to" ! -type d)
[ -z "$left" ] || { echo "install: uninstall leaves $left"; failed=1; }
exit $failed
