#!/bin/sh
# The Debian packages that are named (default: what `make` needs), where they are not there yet.
#
#     tools/install_deps.sh [--check] [PACKAGE...]
#
# --check installs nothing and fails with one line that names what is missing. Else they are
# installed with apt-get: as root at once, as anybody else through sudo, after saying what will be
# run; where there is no sudo, one line says what to ask for. Needs no rights when nothing is missing.
set -eu
check=
[ "${1-}" != --check ] || { check=1; shift; }
[ $# -gt 0 ] || set -- gcc g++ make libc6-dev libpcre2-dev libutf8proc-dev libedit-dev pkg-config
command -v dpkg-query >/dev/null 2>&1 || exit 0 # not a Debian: the compiler will name what is missing
missing=
for package in "$@"; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ -n "$check" ]; then
    echo "missing packages:$missing (\`make run\` and \`make test\` install them, or: apt-get install$missing)" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "missing packages:$missing (there is no sudo here: ask for \`apt-get install$missing\` as root)" >&2
        exit 1
    fi
    as_root=sudo
    echo "going to run: sudo apt-get update; sudo apt-get install$missing" >&2
else
    echo "installing:$missing" >&2
fi
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
