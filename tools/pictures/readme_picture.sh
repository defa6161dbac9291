#!/bin/sh
# Makes docs/images/chat.svg again, from a real chat with the carried model in a window of 84 columns.
# Run it after `make` when the model or chat has changed.
#
#     tools/pictures/readme_picture.sh [MODEL [SEED [LINES OF THE ANSWER AT MOST]]]
set -eu
cd "$(dirname "$0")/../.."
model=${1:-models/stories.gguf} seed=${2:-4} lines=${3:-30}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What a terminal would draw over (the bar while a model loads) and styles are dropped.
(sleep 1; echo 'Write a bedtime story about a fox.'; sleep 15; echo /quit) |
    script -qec "stty cols 84 rows 50; NO_COLOR=1 build/tern chat '$model' -t 2 --seed $seed" /dev/null |
    sed -e 's/.*\r\x1b\[K//' -e 's/\r//g' -e 's/\x1b\[[0-9;?]*[a-zA-Z]//g' >"$work/seen"
grep -q ' tokens/s$' "$work/seen" || { echo "no answer within 15 seconds" >&2; exit 1; }
{
    echo '$ tern chat models/stories.gguf'
    sed '/ tokens\/s$/,$d' "$work/seen" >"$work/told"
    head -n $((3 + lines)) "$work/told"
    [ "$(wc -l <"$work/told")" -le $((3 + lines)) ] || printf '[...]\n'
    echo
    grep ' tokens/s$' "$work/seen"
    echo '>'
} | tools/pictures/terminal_picture.sh 'tern chat' >"$work/chat.svg"
mv "$work/chat.svg" docs/images/chat.svg
