#!/bin/sh
# Programs on the public headers alone (tests/programs/*.c) and the examples: each compiles as C11 and
# as C++17 without a warning, links with the library, and runs.
# usage: programs_test.sh BUILD MODEL CC CXX FLAGS LIBS...
#
# FLAGS are those that the library was compiled with: sanitizers (`make asan`, `make tsan`).
# Seen to fail: a callback's parameter that is no pointer to const any more, an enum that C++ does
# not take, a leaked session (ASan), a log that is written from two threads (TSan).
set -eu
build=$1 model=$2 cc=$3 cxx=$4 flags=$5
shift 5
strict="-Wall -Wextra -Werror -pedantic -Iinclude $flags"
to=$build/programs
mkdir -p "$to"
for source in tests/programs/*.c; do
    name=$(basename "$source" .c)
    # shellcheck disable=SC2086
    $cxx -std=c++17 $strict -Wno-missing-field-initializers -x c++ -fsyntax-only "$source"
    # shellcheck disable=SC2086
    $cc -std=c11 -D_POSIX_C_SOURCE=200809L $strict -Wl,-S -o "$to/$name" "$source" "$build/libtern.a" "$@"
    "$to/$name" "$model" || { echo "tests/programs/$name failed" >&2; exit 1; }
done
for source in examples/*.c; do
    # shellcheck disable=SC2086
    $cc -std=c11 -D_POSIX_C_SOURCE=200809L $strict -Wl,-S -o "$to/$(basename "$source" .c)" "$source" "$build/libtern.a" "$@"
done
# Two texts, of which one is longer than the context: the other is answered, and the status tells.
"$to/many" "$model" the and >"$to/many.log"
[ "$(grep -c 'tokens\]' "$to/many.log")" = 2 ] || { echo "many: $(cat "$to/many.log")" >&2; exit 1; }
long=$(awk 'BEGIN { for (i = 0; i < 3000; i++) printf "word " }')
! "$to/many" "$model" the "$long" >"$to/many.log" 2>"$to/many.err" || { echo "many: hid a failure" >&2; exit 1; }
grep -q 'tokens\]' "$to/many.log" && grep -q 'context' "$to/many.err" ||
    { echo "many: $(cat "$to/many.log" "$to/many.err")" >&2; exit 1; }
printf 'Hello\nAnd again\n' | "$to/chat" "$model" >"$to/chat.log"
[ "$(wc -l <"$to/chat.log")" -ge 2 ] || { echo "chat: $(cat "$to/chat.log")" >&2; exit 1; }
# It would go on for ever. What an earlier run left says nothing of this one.
rm -f "$to/cancel.log"
"$to/cancel" "$model" >"$to/cancel.log" 2>"$to/cancel.err" &
running=$!
while [ ! -s "$to/cancel.log" ] && kill -0 $running 2>/dev/null; do sleep 0.05; done
kill -INT $running 2>/dev/null || true
wait $running || { echo "cancel: $(cat "$to/cancel.err")" >&2; exit 1; }
grep -q stopped "$to/cancel.err" || { echo "cancel: $(cat "$to/cancel.err")" >&2; exit 1; }
