#!/bin/sh
# Debian's packages that are named, one by one or by what they bring, where they are not there yet.
#
#     tools/install_deps.sh [--check] [NAME...] [--also NAME...]
#
# NAME is a package, or a set of mk/packages.mk: needed (what `make` needs; the default), tests,
# gz, memory, images, sounds, serve, pull, or complete: these six parts of tern together. A part that
# pkg-config finds needs no package, whoever brought it.
#
# --check installs nothing and fails with one line that names what is missing. Else it is installed with
# apt-get: as root at once, as anybody else through sudo, after saying what will be run; where there is no
# sudo, one line says what to ask for. Without what stands after --also one can go on: where that cannot
# be installed, a line says so, and no more. Needs no rights when nothing is missing.
set -eu
table=$(dirname "$0")/../mk/packages.mk
check=
[ "${1-}" != --check ] || { check=1; shift; }
[ $# -gt 0 ] || set -- needed

entry() { sed -n "s/^$1 *:= *//p" "$table"; }
has_part() {
    modules=$(entry "MODULES_$1")
    # shellcheck disable=SC2086
    [ -n "$modules" ] && pkg-config --exists $modules 2>/dev/null
}
packages_of() {
    for name in "$@"; do
        if [ "$name" = complete ]; then
            # shellcheck disable=SC2046
            packages_of $(entry PARTS)
        elif ! has_part "$name"; then
            packages=$(entry "PACKAGES_$name")
            echo "${packages:-$name}"
        fi
    done
}

# No Debian: no names of packages are known, but what must be there is.
if ! command -v apt-get >/dev/null 2>&1 || ! dpkg-query -W dpkg >/dev/null 2>&1; then
    cc=${CC:-gcc} missing=
    # shellcheck disable=SC2086
    command -v ${cc%% *} >/dev/null 2>&1 || missing=" a C compiler ($cc),"
    for header in pcre2.h utf8proc.h histedit.h; do
        [ -z "$missing" ] || break
        # shellcheck disable=SC2086
        printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n' $header | $cc ${CFLAGS-} -E -x c - >/dev/null 2>&1 ||
            missing="$missing $header,"
    done
    [ -n "$missing" ] || exit 0
    echo "missing:${missing%,}: install what your system calls $(entry PACKAGES_needed) (these are Debian's names)" >&2
    exit 1
fi

needed= wanted= after=
for name in "$@"; do
    if [ "$name" = --also ]; then
        after=1
    elif [ -z "$after" ]; then
        needed="$needed $name"
    else
        wanted="$wanted $name"
    fi
done
# One call for all of them: each reads the whole list of what is installed.
missing_of() {
    # shellcheck disable=SC2046
    set -- $(packages_of "$@")
    [ $# -gt 0 ] || return 0
    there=$(dpkg-query -W -f '${Package} ${Status}\n' "$@" 2>/dev/null | sed -n 's/ install ok installed$//p')
    for package in "$@"; do
        echo "$there" | grep -qxF -e "$package" || printf ' %s' "$package"
    done
}
needed=$(missing_of $needed) wanted=$(missing_of $wanted)
[ -n "$needed$wanted" ] || exit 0
if [ -n "$check" ]; then
    echo "missing packages:$needed$wanted (\`make run\` and \`make test\` install them, or: apt-get install$needed$wanted)" >&2
    exit 1
fi

as_root=
install() { # PACKAGE...: nothing is removed for them
    $as_root apt-get -o DPkg::Lock::Timeout=120 update -qq &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-remove \
            --no-install-recommends "$@" >/dev/null
}
go_on() { # what the parts that are not there need can be had another time
    echo "going on without:$wanted" >&2
    exit 0
}
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "missing packages:$needed$wanted (there is no sudo here: ask for \`apt-get install$needed$wanted\` as root)" >&2
        [ -n "$needed" ] || go_on
        exit 1
    fi
    as_root=sudo
    echo "going to run: sudo apt-get update; sudo apt-get install$needed$wanted" >&2
else
    echo "installing:$needed$wanted" >&2
fi
# shellcheck disable=SC2086
install $needed $wanted && exit 0
[ -n "$wanted" ] || exit 1
# shellcheck disable=SC2086
[ -z "$needed" ] || install $needed || exit 1
go_on
