#!/bin/sh
# Installs, with apt-get, the Debian packages that are named (default: what `make` needs) and not
# there yet. Does nothing, and needs no rights, when all of them are.
set -eu
[ $# -gt 0 ] || set -- gcc g++ make libc6-dev libpcre2-dev libutf8proc-dev libedit-dev pkg-config
command -v dpkg-query >/dev/null 2>&1 || exit 0 # not a Debian: the compiler will name what lacks
missing=
for package in "$@"; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "installing:$missing" >&2
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
