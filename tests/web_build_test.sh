#!/bin/sh
# The same sources give the same WebAssembly modules, in any folder: copies the tracked files, builds the
# modules there and compares them with those here.
# usage: web_build_test.sh MAKE BUILD        (make test-web-build; two minutes on four cores)
# Seen to fail: with __TIME__ in a source.
set -eu
make=$1
build=$2
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' HUP INT TERM
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"
mkdir -p "$copy/elsewhere/web"
cp -rp "$build/web/deps" "$copy/elsewhere/web/deps"
(cd "$copy" && $make --no-print-directory BUILD=elsewhere web-modules >"$copy/log" 2>&1) || { tail -n 20 "$copy/log" >&2; exit 1; }
status=0
for module in "$build"/web/tern*.wasm "$build"/web/tern-shaders.json; do
    name=$(basename "$module")
    cmp "$module" "$copy/elsewhere/web/$name" || status=1
done
[ $status = 0 ] && echo "the modules have the same bytes wherever they are built"
exit $status
