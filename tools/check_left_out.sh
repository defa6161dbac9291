#!/bin/sh
# Each line of .ci/left_out says a stage that .ci/run has, and words that the name of a test has: a line that
# leaves nothing out would stay behind when its test is gone.
cd "$(dirname "$0")/.." || exit 1
bad=0
while read -r stage words; do
    case $stage in '#'* | '') continue ;; esac
    grep -q "left_out $stage\$" .ci/run || { echo ".ci/left_out: .ci/run has no stage \"$stage\"" && bad=1; }
    case $stage in
    web) found=$(grep -rlF --include='*_test.mjs' "$(echo "$words" | sed -E 's/(: (simd|relaxed))?( in (chromium|firefox|webkit))?$//')" tests) ;;
    *) found=$(grep -rlE --include='*.c' "TEST\\([a-z0-9_]*$words" src tests) ;;
    esac
    [ -n "$found" ] || { echo ".ci/left_out: no test of \"$stage\" is named \"$words\"" && bad=1; }
done <.ci/left_out
exit $bad
