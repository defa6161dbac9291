#!/bin/sh
# `make install` into folders whose names have spaces, and what a program finds there.
#
#     tests/install_test.sh MAKE CC
#
# Seen to fail: with names that are not quoted, without strip, without the completions' rule, with PUBLIC of one header.
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
for file in bin/tern lib/libtern.a lib/libtern.so lib/libtern.so.0 include/tern.h include/tern_agent.h include/tern_tools.h include/tern_train.h share/man/man1/tern.1 \
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
fi
check "make install with DESTDIR" $make --no-print-directory install "DESTDIR=$dir/an image" PREFIX=/usr
check "DESTDIR was left out" test -s "$dir/an image/usr/bin/tern"
check "an image's model is not found" run_carried "$dir/an image/usr"
check "make uninstall" $make --no-print-directory uninstall "PREFIX=$to"
left=$(find "$to" ! -type d)
[ -z "$left" ] || { echo "install: uninstall leaves $left"; failed=1; }
exit $failed
