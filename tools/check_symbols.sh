#!/bin/sh
# Every symbol that the library's files define for one another begins with tern_, but for the private
# ones of the backends (cpu_, gpu_) and the stubs of src/base/os/lazy.h. What is installed, shared or static, defines for others to link
# what the headers in include/ declare, and nothing else.
# usage: check_symbols.sh LIBTERN.A PUBLIC_LIBTERN.A
set -eu
defined() { nm -g --defined-only "$1" | awk '/:$/ { stubs = /^lazy_/ } NF == 3 && !stubs { print $3 }' | sed 's/^_tern/tern/' | sort; }
status=0
for archive in "$@"; do
    [ -s "$archive" ] || { echo "$archive is not built" >&2; exit 1; }
done
bad=$(defined "$1" | grep -vE '^(tern|cpu|gpu)_' || true)
[ -z "$bad" ] || { echo "symbols that do not begin with tern_:" "$bad" >&2; status=1; }
sed -n 's/^TERN_API .*[ *]\(tern_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort >"$2.names"
defined "$2" | diff "$2.names" - >&2 ||
    { echo "$2: < is declared in include/ and not there, > is there and not declared" >&2; status=1; }
exit $status
