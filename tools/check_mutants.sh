#!/bin/sh
# Each line of tests/mutants/list still is a fault: its file is there, its expression changes that file,
# and its test's part is in the name of a TEST. `make mutants` says whether the tests find the faults.
set -eu
list=tests/mutants/list status=0 n=0
names=$(grep -rhoE '^TEST\([a-z0-9_]+' src apps tests --include='*.c')
changed=$(mktemp)
trap 'rm -f "$changed"' EXIT
refuse() {
    echo "$list:$n: $1" >&2
    status=1
}
while IFS='|' read -r test file expression; do
    n=$((n + 1)) test=${test%% *} file=${file# }
    file=${file%% *}
    case $test in '' | '#'*) continue ;; esac
    case $names in *"$test"*) ;; *) refuse "no TEST has \"$test\" in its name" ;; esac
    if [ ! -f "$file" ]; then
        refuse "there is no $file"
    elif ! sed -E "${expression# }" "$file" >"$changed"; then
        refuse "sed does not take the expression"
    elif cmp -s "$file" "$changed"; then
        refuse "the expression changes nothing in $file"
    fi
done <"$list"
exit $status
