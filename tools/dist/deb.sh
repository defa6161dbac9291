#!/bin/sh
# Debian packages of what `make install` put into a tree: tern, libtern0, libtern-dev. lintian finds no error in them.
#
#     tools/dist/deb.sh TREE VERSION ABI TO STUB...    TREE: of PREFIX=/usr and LIBDIR with the machine's triplet
#
# STUBs (tools/lazy_stubs.sh) name the libraries that the program loads when it needs them: these are recommended.
set -eu
tree=$(cd "$1" && pwd) version=$2 abi=$3
mkdir -p "$4/debian"
to=$(cd "$4" && pwd)
shift 4
loaded=$(cat "$@" /dev/null | grep -o '"lib[^"]*\.so\.[0-9.]*"' | tr -d '"' | sort -u)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
maintainer=${MAINTAINER:-The tern authors <tern@users.noreply.github.com>}
for package in tern "libtern$abi" libtern-dev; do rm -rf "${to:?}/$package"; mkdir -p "$to/$package/DEBIAN"; done
take() { # PACKAGE PATH...: from the tree
    package=$1
    shift
    for path in "$@"; do
        mkdir -p "$to/$package/$(dirname "$path")"
        cp -a "$tree/$path" "$to/$package/$path"
    done
}
cd "$tree"
take tern usr/bin usr/share usr/lib/systemd
take "libtern$abi" usr/lib/"$triplet"/libtern.so."$abi"*  usr/lib/"$triplet"/libtern.so."$version"
take libtern-dev usr/include usr/lib/"$triplet"/libtern.a usr/lib/"$triplet"/libtern.so usr/lib/"$triplet"/pkgconfig usr/lib/"$triplet"/cmake
cd - >/dev/null
mv "$to/tern/usr/share/zsh/site-functions" "$to/tern/usr/share/zsh/vendor-completions"
gzip -9nf "$to/tern/usr/share/man/man1/tern.1"
chmod 644 "$to/libtern$abi/usr/lib/$triplet/libtern.so.$version"
echo "activate-noawait ldconfig" >"$to/libtern$abi/DEBIAN/triggers"
echo "libtern $abi libtern$abi (>= $version)" >"$to/libtern$abi/DEBIAN/shlibs"
printf 'Source: tern\n\nPackage: tern\nArchitecture: any\n' >"$to/debian/control"

package() { # NAME SECTION DEPENDS SUMMARY DESCRIPTION
    doc=$to/$1/usr/share/doc/$1
    mkdir -p "$doc"
    { echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"; echo; echo "Files: *"
      grep -m 1 '^Copyright' LICENSE | sed 's/^Copyright *\((c)\)* */Copyright: /'; echo "License: MIT"
      sed '1,/^Copyright/d; /./,$!d; s/^$/./; s/^/ /' LICENSE; } >"$doc/copyright"
    printf 'tern (%s) unstable; urgency=medium\n\n  * CHANGELOG.md of the sources tells.\n\n -- %s  %s\n' "$version" "$maintainer" \
        "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
    { echo "Package: $1"; echo "Source: tern"; echo "Version: $version"; echo "Architecture: $(dpkg --print-architecture)"
      echo "Maintainer: $maintainer"; echo "Section: $2"; echo "Priority: optional"; [ "$1" = tern ] || echo "Multi-Arch: same"
      echo "Installed-Size: $(du -sk "$to/$1/usr" | cut -f 1)"; echo "Depends: $3"
      [ "$1" != tern ] || [ -z "$recommended" ] || echo "Recommends: $recommended"; echo "Description: $4"; printf ' %s\n' "$5"; } >"$to/$1/DEBIAN/control"
    (cd "$to/$1" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$to/$1/DEBIAN/md5sums"
    find "$to/$1" -type d -exec chmod 755 {} +
    chmod -R u+w,go-w "$to/$1"
    dpkg-deb --root-owner-group -Zxz --build "$to/$1" "$to" >/dev/null
}
needs() { # FILE: the packages with its libraries
    (cd "$to" && dpkg-shlibdeps -O "$1" 2>/dev/null | sed 's/^shlibs:Depends=//')
}
recommended=$(for library in $loaded; do dpkg -S "*/$library" | sed -n '1s/:.*//p'; done | sort -u | paste -sd, | sed 's/,/, /g')
package tern science "$(needs "$to/tern/usr/bin/tern")" "engine for small language models" "It runs, trains and serves models of GGUF and Hugging Face."
package "libtern$abi" libs "$(needs "$to/libtern$abi/usr/lib/$triplet/libtern.so.$version")" "engine for small language models, library" \
    "A C library that programs are linked with: text, embeddings, images and sound."
package libtern-dev libdevel "libtern$abi (= $version), libpcre2-dev, libutf8proc-dev" "engine for small language models, headers" \
    "What programs are compiled with: headers, an archive, pkg-config's files."
lintian --fail-on error "$to"/*.deb
