#!/bin/bash
# tern.exe under Wine against this machine's tern: texts, bytes of files, names, and the engine's tests.
#
#     tests/arches/windows.sh TERN FOLDER WINE      FOLDER: of tern.exe, tern.dll and tern_tests.exe
#
# Seen to fail: without the manifest's code page (names and words beyond ASCII), with streams in text mode. Long names
# pass also without the prefix that Windows needs for them: Wine has no limit for UTF-16.
set -u
tern=$(realpath "$1") folder=$(realpath "$2") wine=$3
model=$(realpath models/stories.gguf)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export WINEPREFIX=${WINEPREFIX:-$folder/wine} WINEDEBUG=-all TERN_DEVICE=cpu LC_ALL=C.UTF-8
n=0 failed=0
wrong() { echo "windows: $*"; failed=$((failed + 1)); }
windows() { "$wine" "$folder/tern.exe" "$@"; }
same() { # WORDS FILE FILE
    n=$((n + 1))
    [ -s "$2" ] && cmp -s "$2" "$3" || wrong "$1: differs"
}
# Both programs in folders of their own, with the same arguments; their output must be the same.
both() { # WORDS ARGUMENT...
    local words=$1
    shift
    (cd "$dir/linux" && "$tern" "$@" <"${in:-/dev/null}" >"$dir/linux.out" 2>"$dir/linux.err")
    (cd "$dir/windows" && windows "$@" <"${in:-/dev/null}" >"$dir/windows.out" 2>"$dir/windows.err")
    same "$words" "$dir/linux.out" "$dir/windows.out" || cat "$dir/windows.err"
}
mkdir "$dir/linux" "$dir/windows"
cp "$model" "$dir/linux/m.gguf"
ln "$dir/linux/m.gguf" "$dir/windows/m.gguf"

both "version" --version
both "text" run -m m.gguf -p "Once upon a time" -n 60 --temp 0.7 --seed 3
both "words beyond ASCII" tokenize m.gguf "é 你 ü"
printf 'Tom\nAnn\n/quit\n' >"$dir/lines"
in=$dir/lines both "chat from a pipe" chat m.gguf -n 8 --temp 0
printf 'a\r\nb\x1ac\n' >"$dir/bytes" # a stream of text would end at ^Z and lose \r
in=$dir/bytes both "bytes of standard input" tokenize m.gguf

for root in linux windows; do
    mkdir "$dir/$root/mödel ü"
    cp "$model" "$dir/$root/mödel ü/größe 你.gguf"
    head -c 60000 docs/cli.md >"$dir/$root/text.txt"
done
both "names beyond ASCII" inspect "mödel ü/größe 你.gguf"
long=$(printf 'd%.0s' {1..90})
for root in linux windows; do
    mkdir -p "$dir/$root/$long/$long/$long"
    cp "$model" "$dir/$root/$long/$long/$long/m.gguf"
done
both "names of more than 260 characters" run -m "$long/$long/$long/m.gguf" -p Once -n 8 --temp 0
for command in "convert m.gguf out.gguf --type q8_0" "convert m.gguf $long/$long/$long/out.gguf --type q4_0" \
    "data build text.txt -o shards --tokenizer m.gguf --end <|endoftext|>" \
    "train --data shards -o run --layers 1 --embd 32 --heads 2 --ff 64 --seq-len 32 --batch-tokens 256 -t 1 -n 4"; do
    # shellcheck disable=SC2086
    (cd "$dir/linux" && "$tern" $command >"$dir/linux.out" 2>&1) || wrong "$command: $(tail -n 1 "$dir/linux.out")"
    # shellcheck disable=SC2086
    (cd "$dir/windows" && windows $command >"$dir/windows.out" 2>&1) || wrong "$command: $(tail -n 1 "$dir/windows.out")"
done
for file in $(cd "$dir/linux" && find . -name 'out.gguf' -o -path './shards/*' -type f -o -name 'step-*.gguf'); do
    same "$file" "$dir/linux/$file" "$dir/windows/$file"
done

library=$(windows run -m "$model" -p a -n 1 --device webgpu 2>&1)
n=$((n + 1))
[ "$(printf '%s\n' "$library" | wc -l)" = 1 ] || wrong "of a GPU it says: $library"

# What a DLL and the program are for others.
needs=$(x86_64-w64-mingw32-objdump -p "$folder/tern.exe" "$folder/tern.dll" | sed -n 's/.*DLL Name: //p' | sort -u)
for library in $needs; do
    n=$((n + 1))
    case ${library,,} in kernel32.dll | msvcrt.dll | ntdll.dll | advapi32.dll | bcrypt.dll | crypt32.dll | ws2_32.dll) ;; *) wrong "needs $library" ;; esac
done
names=$(x86_64-w64-mingw32-objdump -p "$folder/tern.dll" | sed -n '/Name Pointer\] Table/,/^$/s/^.*[0-9]\] *\([a-zA-Z0-9_]*\)$/\1/p')
n=$((n + 1))
[ "$(printf '%s\n' "$names" | grep -c '^tern_')" -gt 100 ] && ! printf '%s\n' "$names" | grep -qv '^tern_' ||
    wrong "exports $(printf '%s\n' "$names" | grep -v '^tern_' | head -n 3)"

echo "windows: $n checks, $failed failed"
[ $failed = 0 ]
