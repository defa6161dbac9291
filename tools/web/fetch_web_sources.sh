#!/bin/sh
# The sources of PCRE2, which the WebAssembly modules contain, and of utf8proc, of which their tables
# of Unicode are made, unpacked into FOLDER as pcre2/ and utf8proc/: Debian's source packages, fetched
# with apt-get by a list of sources of its own, so that it works without root and changes nothing of
# the system.
#
#     tools/web/fetch_web_sources.sh FOLDER
#
# The upstream archives must have the checksums below. Debian's patches on top of them, its security
# fixes among these, are what the archive has today, checked by apt against Debian's signature.
set -eu
folder=$1
sums='c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f  pcre2_10.42.orig.tar.gz
a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc  utf8proc_2.8.0.orig.tar.gz'
keys=/usr/share/keyrings/debian-archive-keyring.gpg
for tool in apt-get dpkg-source; do
    command -v $tool >/dev/null || { echo "$0: there is no $tool here: fetch PCRE2 10.42 and utf8proc 2.8.0 into $folder/pcre2 and $folder/utf8proc yourself" >&2; exit 1; }
done
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work" # apt-get run by root fetches as another user
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/new"
mirror=${DEBIAN_MIRROR:-http://deb.debian.org}
cat >"$work/sources" <<END
deb-src [signed-by=$keys] $mirror/debian bookworm main
deb-src [signed-by=$keys] $mirror/debian-security bookworm-security main
END
apt() {
    apt-get -qq -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=- \
        -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User= "$@"
}
apt update
cd "$work"
for name in pcre2 utf8proc; do
    # Mirrors without the security archive's files have its lists nevertheless.
    if ! apt source --download-only "$name" >apt.log 2>&1; then
        apt source --download-only "$name/bookworm" >apt.log 2>&1 || { cat apt.log >&2; exit 1; }
        echo "$0: $name without the fixes of Debian's security archive, whose files this mirror lacks" >&2
    fi
    rm -f ./*.asc
done
echo "$sums" | sha256sum --quiet --check
for name in pcre2 utf8proc; do
    # The newest: after a failed attempt the .dsc of another version may lie there, too.
    dsc=$(ls -t "$name"_*.dsc | head -n 1)
    dpkg-source -x "$dsc" "$work/new/$name" >dpkg.log 2>&1 || { cat dpkg.log >&2; exit 1; }
    echo "${dsc%.dsc}" >>"$work/new/versions"
done
cd - >/dev/null
rm -rf "$folder/pcre2" "$folder/utf8proc"
mv "$work/new/pcre2" "$work/new/utf8proc" "$folder/"
mv "$work/new/versions" "$folder/versions" # last: says that all is there
