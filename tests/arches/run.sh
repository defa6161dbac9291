#!/bin/sh
# The engine on another processor, under qemu: its tests, and 60 tokens of the carried model as this machine
# writes them. A big-endian one says so of itself where a model is opened, and has no test but of that.
# usage: run.sh HERE THERE ARCH ROOT JOBS [TEST...]
#
# HERE and THERE: folders with arch_story and, there, tern_tests; ROOT: the processor's C library.
# Seen to fail: another seed there (aarch64); the order of bytes not looked at (s390x).
set -u
here=$1 there=$2 arch=$3 root=$4 jobs=$5
shift 5
run="qemu-$arch -L $root"
expected=$("$here/arch_story" models/stories.gguf)
got=$($run "$there/arch_story" models/stories.gguf)
case $arch in
s390x)
    expected="models/stories.gguf: tern reads models on little-endian machines, and this one is big-endian"
    [ "$got" = "$expected" ] || { echo "$arch: of a model it says: $got"; exit 1; }
    echo "$arch: $got"
    exit 0
    ;;
esac
[ "$got" = "$expected" ] && [ -n "$got" ] || { echo "$arch: another text: $got"; exit 1; }
echo "$arch: the same text"
# shellcheck disable=SC2086
exec $run "$there/tern_tests" -j "$jobs" "$@"
