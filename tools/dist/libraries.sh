#!/bin/sh
# The libraries of libraries.list as archives for one C compiler, from Debian's source packages.
#
#     tools/dist/libraries.sh DIR CC ARCH [PACKAGE...]      e.g. build/dist/x86_64-musl /path/to/cc x86_64
#
# DIR/lib, DIR/include and DIR/lib/pkgconfig get what is built, DIR/licences one file for each; what is there
# already is left. Without a PACKAGE, all of them. Sources are downloaded by apt-get into DIR/../sources, and checked. A version that Debian
# no longer has comes from MIRROR=http://snapshot.debian.org/archive/debian/20260901T000000Z.
# Needs Debian's build-essential, dpkg-dev, cmake, perl, tcl and ncurses-bin.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/../sources/apt/lists/partial" "$1/work" "$1/licences"
to=$(cd "$1" && pwd) cc=$2 arch=$3
shift 3
wanted=" $* "
sources=$(cd "$to/../sources" && pwd)
jobs=${JOBS:-$(nproc)}
mirror=${MIRROR:-http://deb.debian.org/debian}
for tool in cmake perl tclsh tic dpkg-source make; do
    command -v $tool >/dev/null || { echo "$tool is missing: tools/install_deps.sh build-essential dpkg-dev cmake perl tcl ncurses-bin" >&2; exit 1; }
done

# ---- Sources -------------------------------------------------------------------------------------

apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$sources/apt/list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root \
        -o Dir::State::lists="$sources/apt/lists" -o Acquire::Check-Valid-Until=false "$@"
}
download() { # SHA256 PACKAGE VERSION
    dsc=$2_${3#*:}.dsc
    if [ ! -f "$sources/$dsc" ]; then
        if [ ! -f "$sources/apt/list" ]; then
            security=$(echo "$mirror" | sed 's,/debian\(/\|$\),/debian-security\1,')
            printf 'deb-src %s main\n' "$mirror bookworm" "$security bookworm-security" >"$sources/apt/list"
            apt update
        fi
        # A signature that a mirror lacks is not needed: the hashes are below.
        (cd "$sources" && apt source --download-only "$2=$3" >apt/log 2>&1) || grep -q '\.asc' "$sources/apt/log" ||
            { cat "$sources/apt/log" >&2; exit 1; }
    fi
    echo "$1  $sources/$dsc" | sha256sum --check --quiet || exit 1
    sed -n '/^Checksums-Sha256:/,/^[A-Z]/s/^ \([0-9a-f]*\) [0-9]* \(.*\)/\1  \2/p' "$sources/$dsc" | grep -v '\.asc$' |
        (cd "$sources" && sha256sum --check --quiet) || exit 1
}
unpack() { # PACKAGE VERSION: becomes the current folder
    cd "$to/work"
    rm -rf "$1"
    dpkg-source --no-check -x "$sources/$1_${2#*:}.dsc" "$1" >/dev/null 2>&1
    cp "$1/debian/copyright" "$to/licences/$1.txt"
    cd "$1"
    epoch=$(dpkg-parsechangelog -S Timestamp)
    export SOURCE_DATE_EPOCH="$epoch"
}

# ---- How they are built --------------------------------------------------------------------------

CFLAGS="-O2 -ffunction-sections -fdata-sections -ffile-prefix-map=$to=."
host=$("$cc" -dumpmachine)
case $host in
*mingw*)
    system=Windows rc=$host-windres
    export AR="$host-ar" RANLIB="$host-ranlib" RC="$rc" NM="$host-nm" STRIP="$host-strip"
    ;;
*macos*)
    system=Darwin rc='' host=$arch-apple-darwin20
    export AR=llvm-ar-19 RANLIB=llvm-ranlib-19
    CFLAGS="$CFLAGS -fPIC -fvisibility=hidden"
    ;;
*)
    system=Linux rc='' host=$arch-linux-gnu
    CFLAGS="$CFLAGS -fPIC -fvisibility=hidden"
    ;;
esac
export CC="$cc" CFLAGS CPPFLAGS="-I$to/include" LDFLAGS="-L$to/lib" PKG_CONFIG_LIBDIR="$to/lib/pkgconfig" PKG_CONFIG_PATH=
configured() { # OPTION...: by ./configure, which is not made again where a patch was newer
    find . -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
    ./configure --host="$host" --build="$(gcc -dumpmachine)" --prefix="$to" --libdir="$to/lib" \
        --disable-shared --enable-static "$@"
}
made() {
    make -j"$jobs" "$@"
}
by_cmake() { # OPTION...
    cmake -S . -B made -DCMAKE_SYSTEM_NAME="$system" ${rc:+-DCMAKE_RC_COMPILER="$rc" -DCMAKE_CXX_COMPILER="$cc" -DCMAKE_CXX_COMPILER_ID=GNU -DCMAKE_CXX_COMPILER_FORCED=TRUE -DCMAKE_AR="$(command -v "$AR")" -DCMAKE_RANLIB="$(command -v "$RANLIB")"} -DCMAKE_SYSTEM_PROCESSOR="$arch" -DCMAKE_BUILD_TYPE=None \
        -DCMAKE_INSTALL_PREFIX="$to" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_FIND_ROOT_PATH="$to" -DCMAKE_PREFIX_PATH="$to" \
        -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY \
        -DCMAKE_FIND_ROOT_PATH_MODE_PACKAGE=ONLY -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF \
        -DBUILD_TESTING=OFF "$@"
    made -C made install
}

build_pcre2() { configured --enable-jit --disable-pcre2grep-libz && made libpcre2-8.la && made install-libLTLIBRARIES install-nodist_includeHEADERS install-pkgconfigDATA bin_PROGRAMS= lib_LTLIBRARIES=libpcre2-8.la; }
build_utf8proc() { made libutf8proc.a CFLAGS="$CFLAGS -DUTF8PROC_STATIC" && cp libutf8proc.a "$to/lib" && cp utf8proc.h "$to/include"; }
# On Darwin it takes fdopen for missing, where it is no macro.
build_zlib() { CFLAGS="$CFLAGS -Dfdopen=fdopen" ./configure --static --prefix="$to" && made libz.a && made install; }
# Terminals without a file of terminfo on this machine are known by themselves.
build_ncurses() {
    [ $system != Darwin ] || set -- --with-ospeed=unsigned # else it wants headers that are there no more
    configured "$@" --with-termlib --enable-widec --without-cxx --without-cxx-binding --without-ada --without-progs --without-tests \
        --without-manpages --without-debug --disable-db-install --disable-stripping --without-shared \
        --with-default-terminfo-dir=/usr/share/terminfo \
        --with-terminfo-dirs=/etc/terminfo:/lib/terminfo:/usr/share/terminfo:/usr/lib/terminfo \
        --with-fallbacks=xterm,xterm-256color,linux,screen,screen-256color,tmux-256color,vt100,dumb
    made libs
    cp lib/libtinfow.a "$to/lib/libtinfo.a"
    cp include/term.h include/curses.h include/ncurses_dll.h include/unctrl.h "$to/include"
    ln -sf curses.h "$to/include/ncurses.h"
}
# musl has such characters, and does not say so.
build_libedit() { configured --disable-examples LIBS=-ltinfo CPPFLAGS="$CPPFLAGS -D__STDC_ISO_10646__=201103L" && made -C src install && made install-pkgconfigDATA; }
build_sqlite3() {
    # Its amalgamation is made by Tcl; what tern asks of it is little.
    CC=gcc CFLAGS='' CPPFLAGS='' LDFLAGS='' ./configure --disable-tcl >/dev/null
    made sqlite3.c
    # shellcheck disable=SC2086
    $cc $CFLAGS -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_COLUMN_METADATA -c sqlite3.c -o sqlite3.o
    ar rcs "$to/lib/libsqlite3.a" sqlite3.o
    cp sqlite3.h "$to/include"
    pc sqlite3 -lsqlite3 '-lm -pthread'
}
build_openssl() {
    # Where Windows lets every user write nothing may be read as a configuration.
    target="linux-$arch" ssl=/etc/ssl
    [ $system = Linux ] || { target=mingw64 ssl='C:/Program Files/Common Files/SSL'; set -- no-autoload-config; }
    perl ./Configure "$target" "$@" --prefix="$to" --libdir=lib --openssldir="$ssl" no-shared no-tests no-engine no-async \
        no-dso no-legacy no-afalgeng no-comp no-ssl3 no-idea no-mdc2 no-rc4 no-rc5 no-camellia no-seed no-aria no-sm2 no-sm3 no-sm4 \
        no-whirlpool no-gost no-srp no-ts no-cms no-ct no-ui-console "$CFLAGS"
    made build_libs
    make install_dev
}
build_libevent() {
    by_cmake -DEVENT__LIBRARY_TYPE=STATIC -DEVENT__DISABLE_TESTS=ON -DEVENT__DISABLE_SAMPLES=ON -DEVENT__DISABLE_BENCHMARK=ON \
        -DEVENT__DISABLE_REGRESS=ON
    [ $system = Linux ] || sed -i 's/^Libs.private:.*/Libs.private: -lws2_32 -liphlpapi -lshell32 -ladvapi32/' "$to"/lib/pkgconfig/libevent*.pc
}
build_curl() {
    tls='-DCURL_USE_OPENSSL=ON'
    private='-lssl -lcrypto -lz' flags=
    [ $system = Linux ] || { tls='-DCURL_USE_SCHANNEL=ON'; private='-lz -lws2_32 -lcrypt32 -lbcrypt -ladvapi32' flags=-DCURL_STATICLIB; }
    by_cmake -DBUILD_CURL_EXE=OFF -DHTTP_ONLY=ON $tls -DCURL_USE_LIBSSH2=OFF -DUSE_LIBIDN2=OFF -DUSE_NGHTTP2=OFF \
        -DCURL_ZSTD=OFF -DCURL_BROTLI=OFF -DCURL_USE_LIBPSL=OFF -DCURL_CA_BUNDLE=none -DCURL_CA_PATH=none \
        -DCURL_CA_FALLBACK=ON -DENABLE_MANUAL=OFF -DCURL_DISABLE_NTLM=ON -DENABLE_THREADED_RESOLVER=ON
    sed -i -e 's/^Libs:.*/Libs: -L${libdir} -lcurl/' -e "s/^Libs.private:.*/Libs.private: $private/" \
        -e 's/^Cflags:.*/Cflags: -I${includedir} '"$flags/" "$to/lib/pkgconfig/libcurl.pc"
}
build_libjpegturbo() { by_cmake -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DCMAKE_INSTALL_LIBDIR="$to/lib"; }
build_libpng16() { by_cmake -DPNG_SHARED=OFF -DPNG_TESTS=OFF -DPNG_EXECUTABLES=OFF; }
build_libwebp() {
    by_cmake -DWEBP_BUILD_ANIM_UTILS=OFF -DWEBP_BUILD_CWEBP=OFF -DWEBP_BUILD_DWEBP=OFF -DWEBP_BUILD_GIF2WEBP=OFF \
        -DWEBP_BUILD_IMG2WEBP=OFF -DWEBP_BUILD_VWEBP=OFF -DWEBP_BUILD_WEBPINFO=OFF -DWEBP_BUILD_WEBPMUX=OFF -DWEBP_BUILD_EXTRAS=OFF
}
build_giflib() { made libgif.a CC="$cc" CFLAGS="$CFLAGS -std=gnu99" && cp libgif.a "$to/lib" && cp gif_lib.h "$to/include" && pc libgif -lgif; }
build_libogg() { by_cmake -DINSTALL_DOCS=OFF; }
build_libvorbis() { by_cmake; }
build_opus() { configured --disable-doc --disable-extra-programs --disable-stack-protector && made install; }
build_flac() { sed -i "/microbench/d" CMakeLists.txt && by_cmake -DBUILD_CXXLIBS=OFF -DBUILD_PROGRAMS=OFF -DBUILD_EXAMPLES=OFF -DBUILD_DOCS=OFF -DINSTALL_MANPAGES=OFF -DWITH_STACK_PROTECTOR=OFF; }
build_mpg123() { configured --disable-components --enable-libmpg123 && made install; }
build_lame() { configured --disable-frontend --disable-decoder && made install; }
build_libsoxr() { by_cmake -DBUILD_TESTS=OFF -DWITH_OPENMP=OFF -DWITH_LSR_BINDINGS=OFF -DBUILD_EXAMPLES=OFF && { [ $system = Linux ] || pc soxr -lsoxr -lm; }; }
build_libsndfile() { CFLAGS="$CFLAGS -DFLAC__NO_DLL" by_cmake -DBUILD_PROGRAMS=OFF -DBUILD_EXAMPLES=OFF -DENABLE_CPACK=OFF -DENABLE_EXTERNAL_LIBS=ON -DENABLE_MPEG=ON -DINSTALL_MANPAGES=OFF; }

pc() { # MODULE LIBS [PRIVATE LIBS]
    mkdir -p "$to/lib/pkgconfig"
    printf 'Name: %s\nDescription: %s\nVersion: 1\nLibs: -L%s/lib %s\nLibs.private: %s\nCflags: -I%s/include\n' \
        "$1" "$1" "$to" "$2" "${3-}" "$to" >"$to/lib/pkgconfig/$1.pc"
}

mkdir -p "$to/lib" "$to/include"
grep -v '^#' "$here/libraries.list" | while read -r sha256 package version; do
    case $system/$package in
    # Programs for macOS have the memory and compressed text so far, but neither network nor media.
    Darwin/openssl | Darwin/libevent | Darwin/curl | Darwin/*jpeg* | Darwin/libpng* | Darwin/libwebp | Darwin/giflib) continue ;;
    Darwin/libogg | Darwin/libvorbis | Darwin/opus | Darwin/flac | Darwin/mpg123 | Darwin/lame | Darwin/libsoxr | Darwin/libsndfile) continue ;;
    Windows/ncurses | Windows/libedit) continue ;; # its console edits lines by other calls
    esac
    case $wanted in "  " | *" $package "*) ;; *) continue ;; esac
    mark="$to/work/$package-${version#*:}.done"
    [ ! -f "$mark" ] || continue
    download "$sha256" "$package" "$version"
    echo "  build $package $version ($to)"
    set +e # as a condition, the subshell would go on after a failure
    (set -e; unpack "$package" "$version"; "build_$(echo "$package" | tr -d .-)") >"$to/work/$package.log" 2>&1
    bad=$?
    set -e
    [ $bad = 0 ] || { tail -n 30 "$to/work/$package.log" >&2; echo "$package cannot be built: $to/work/$package.log" >&2; exit 1; }
    rm -rf "${to:?}/work/$package"
    touch "$mark"
done
