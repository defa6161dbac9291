#!/bin/sh
# Whether the tests find the faults of tests/mutants/list. `make mutants`; of some lines only:
#     tools/mutants.sh oracle            # lines whose test's name has "oracle" in it
#     tools/mutants.sh --changed [BASE] [--seconds N]
#                                        # lines of files that changed since BASE (the commits of the last day),
#                                        # for N seconds: others each time, and it says how many were left
# Works in build/mutants, a copy of the tree with its objects; the tree itself is not touched.
set -eu
only='' changed='' seconds=0 jobs=${JOBS:-3} copy=build/mutants
while [ $# -gt 0 ]; do
    case $1 in
    --changed)
        day=$(($(git show -s --format=%ct HEAD) - 86400))
        base=$(git rev-list -1 --before="$day" HEAD)
        case ${2---} in --*) ;; '') shift ;; *) base=$2; shift ;; esac
        [ -n "$base" ] || base=$(git hash-object -t tree /dev/null)
        changed=$(git diff --name-only "$base"; echo none) ;;
    --seconds) seconds=$2; shift ;;
    *) only=$1 ;;
    esac
    shift
done
mkdir -p "$copy"
git ls-files -co --exclude-standard | grep -v '^models/' >"$copy.files"
# Files that have gone must go there, too; those that stay keep their times, and so their objects.
find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
tar cf - -T "$copy.files" models | tar xf - -C "$copy"
[ -d "$copy/build" ] || { mkdir -p "$copy/build" && cp -a build/obj build/libtern.a* build/tern_tests* build/gen "$copy/build/"; }
list=$PWD/build/mutants.list
# By a hash of the commit and the line, where there is not the time for all.
if [ "$seconds" != 0 ]; then
    key=$(git rev-parse HEAD)
    while IFS= read -r line; do
        printf '%s %s\n' "$(printf '%s%s' "$key" "$line" | cksum | cut -d' ' -f1)" "$line"
    done <tests/mutants/list | sort -n | cut -d' ' -f2- >"$list"
else
    cp tests/mutants/list "$list"
fi
[ -z "${TERN_WEBGPU_LIB:-}" ] && [ -f build/webgpu/libwebgpu_wrapper.so ] &&
    export TERN_WEBGPU_LIB="$PWD/build/webgpu/libwebgpu_wrapper.so"
cd "$copy"
# A mutation that was interrupted left objects that are newer than the file.
[ ! -f build/original ] || touch "$(cat build/mutated)"
n_found=0 n_missed=0 n_skipped=0 n_left=0 began=$(date +%s)

# The file alone at -O1: compiled sooner, and the same bits.
build() { make -s -j"$jobs" MUTATED="${1-}" build/tern_tests >build/mutant.log 2>&1; }
trial() { timeout 300 build/tern_tests "$1" >build/trial.log 2>&1; }
say() { printf '%-8s %s: %s: %s\n' "$1" "$test" "$file" "$expression"; }
failed() { n_missed=$((n_missed + 1)); say "$@"; }

build || { tail build/mutant.log; echo "the tree itself does not build"; exit 1; }
while IFS='|' read -r test file expression; do
    test=$(echo "$test" | tr -d ' ') file=$(echo "$file" | tr -d ' ') expression=${expression# }
    case $test in '' | '#'*) continue ;; esac
    case $test in *"$only"*) ;; *) continue ;; esac
    [ -z "$changed" ] || echo "$changed" | grep -qxF -e "$file" || continue
    if [ "$seconds" != 0 ] && [ $(($(date +%s) - began)) -ge "$seconds" ]; then
        n_left=$((n_left + 1))
        continue
    fi
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
    object=build/obj/${file%.c}.o
    [ ! -f "$object" ] || { cp -p "$object" build/original.o && cp -p "$object.was" build/original.was; }
    if cmp -s "$file" build/original; then
        failed "STALE" # the expression changes nothing
    elif ! build "$file"; then
        failed "NOBUILD"
    elif trial "$test"; then
        failed "MISSED"
    else
        n_found=$((n_found + 1))
        say found
    fi
    cp build/original "$file"
    # What was compiled of the file before is what would be compiled of it again.
    if [ -f build/original.o ]; then
        touch "$file"
        mv build/original.o "$object" && mv build/original.was "$object.was" && touch "$object"
    fi
    build || { echo "$file does not build again"; exit 1; }
    rm build/original
done <"$list"
echo "mutants: $n_found found, $n_missed not, $n_skipped skipped$([ $n_left = 0 ] || echo ", $n_left left for want of time")"
[ $n_missed = 0 ] && { [ $n_found -gt 0 ] || [ -n "$changed" ]; }
