#!/bin/sh
# Whether the tests find the faults of tests/mutants/list. `make mutants`; of some lines only:
#     tools/mutants.sh oracle            # lines whose test's name has "oracle" in it
# Works in build/mutants, a copy of the tree with its objects; the tree itself is not touched.
set -eu
only=${1:-} jobs=${JOBS:-3} copy=build/mutants
mkdir -p "$copy"
git ls-files -co --exclude-standard | grep -v '^models/' >"$copy.files"
# Files that have gone must go there, too; those that stay keep their times, and so their objects.
find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
tar cf - -T "$copy.files" models | tar xf - -C "$copy"
[ -d "$copy/build" ] || { mkdir -p "$copy/build" && cp -a build/obj build/libtern.a build/gen "$copy/build/"; }
list=$PWD/tests/mutants/list
[ -z "${TERN_WEBGPU_LIB:-}" ] && [ -f build/webgpu/libwebgpu_wrapper.so ] &&
    export TERN_WEBGPU_LIB="$PWD/build/webgpu/libwebgpu_wrapper.so"
cd "$copy"
# A mutation that was interrupted left objects that are newer than the file.
[ ! -f build/original ] || touch "$(cat build/mutated)"
n_found=0 n_missed=0 n_skipped=0

# -O1: compiled sooner, and the same bits.
build() { make -s -j"$jobs" OPT=-O1 build/tern_tests >build/mutant.log 2>&1; }
trial() { timeout 300 build/tern_tests "$1" >build/trial.log 2>&1; }
say() { printf '%-8s %s: %s: %s\n' "$1" "$test" "$file" "$expression"; }
failed() { n_missed=$((n_missed + 1)); say "$@"; }

build || { tail build/mutant.log; echo "the tree itself does not build"; exit 1; }
while IFS='|' read -r test file expression; do
    test=$(echo "$test" | tr -d ' ') file=$(echo "$file" | tr -d ' ') expression=${expression# }
    case $test in '' | '#'*) continue ;; esac
    case $test in *"$only"*) ;; *) continue ;; esac
    trial "$test" || true
    if grep -q '^0 passed, 0 failed, [1-9]' build/trial.log; then
        n_skipped=$((n_skipped + 1))
        say skipped
        continue
    elif ! grep -q '^[1-9][0-9]* passed, 0 failed' build/trial.log; then
        failed "BROKEN" # the test fails, or is not there, without any fault
        continue
    fi
    echo "$file" >build/mutated
    cp "$file" build/original
    sed -E "$expression" build/original >"$file"
    if cmp -s "$file" build/original; then
        failed "STALE" # the expression changes nothing
    elif ! build; then
        failed "NOBUILD"
    elif trial "$test"; then
        failed "MISSED"
    else
        n_found=$((n_found + 1))
        say found
    fi
    cp build/original "$file"
    build || { echo "$file does not build again"; exit 1; }
    rm build/original
done <"$list"
echo "mutants: $n_found found, $n_missed not, $n_skipped skipped"
[ $n_missed = 0 ] && [ $n_found -gt 0 ]
