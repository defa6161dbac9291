#!/bin/sh
# One archive of `make dist`, and its line in SHA256SUMS beside it: the same bytes from the same sources.
#
#     tools/dist/archive.sh TREE NAME LICENCES TO       TREE: what `make install PREFIX=/` made
#
# WEBGPU names a folder with a WebGPU library and its LICENSE, which are then beside the program's libraries.
set -eu
tree=$1 name=$2 licences=$3 to=$4
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# The archive of objects would need those of the libraries, which are not there.
rm -f "$tree/lib/libtern.a"
if [ -d "$tree/lib/pkgconfig" ]; then
    sed -i -e '/^Libs.private:/d' -e 's|^prefix=.*|prefix=${pcfiledir}/../..|' -e 's|^libdir=.*|libdir=${prefix}/lib|' "$tree/lib/pkgconfig/tern.pc"
    sed -i '/tern::static STATIC/,/INTERFACE_LINK_LIBRARIES/d' "$tree/lib/cmake/tern/tern-config.cmake"
fi
rm -rf "$tree/lib/systemd" # names the program by its place
install -D -m 644 LICENSE "$tree/share/doc/tern/LICENSE"
install -D -m 644 -t "$tree/share/doc/tern/licences" "$licences"/*
grep -v '^#' tools/dist/libraries.list >"$tree/share/doc/tern/sources"
if [ -n "${WEBGPU-}" ]; then
    install -D -m 644 -t "$tree/lib/tern" "$WEBGPU"/libwebgpu_*.so
    install -m 644 "$WEBGPU/LICENSE" "$tree/share/doc/tern/licences/webgpu.txt"
fi
find "$tree" -type d -empty -delete
find "$tree" -type d -exec chmod 755 {} +
mkdir -p "$to"
tar -C "$tree" --transform "s,^\.,$name," --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu \
    -cf - . | xz -9 -T1 >"$to/$name.tar.xz"
(cd "$to" && sha256sum ./*.tar.xz | sed 's|\./||' >SHA256SUMS)
ls -l "$to/$name.tar.xz"
