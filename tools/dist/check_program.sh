#!/bin/sh
# The programs of `make dist`, and of `make static`, against the one that is built for this machine.
#
#     tools/dist/check_program.sh TERN PROGRAM KIND        KIND: x86_64-gnu, aarch64-musl, ...
#
# Those of 64-bit ARM run under qemu, where the time of a start says little and has no limit.
# Seen to fail: with TERN itself, which is linked dynamically, for this machine's glibc, in place of PROGRAM.
set -u
tern=$1 program=$2 kind=$3
case $kind in
aarch64-*) tool=aarch64-linux-gnu- run="qemu-aarch64 -L /usr/aarch64-linux-gnu $program" limit=1000000 ;;
*) tool='' run=$program limit=2000 ;;
esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
wrong() { echo "$kind: $*"; failed=1; }
export TERN_DEVICE=cpu

story() { $1 run -m models/stories.gguf -p "Once upon a time" -n 60 --temp 0.7 --seed 3 2>"$dir/error"; }
story "$tern" >"$dir/expected"
story "$run" >"$dir/got"
[ -s "$dir/got" ] && cmp -s "$dir/expected" "$dir/got" || wrong "another text: $(cat "$dir/error")"
[ "$($run --version)" = "$("$tern" --version)" ] || wrong "another version"
embed() { $1 embed models/embed.gguf "a cat" "a small dog" "stock prices"; }
[ "$(embed "$run")" = "$(embed "$tern")" ] || wrong "other vectors: $(embed "$run" | cut -c 1-200)"

needed=$(readelf -dW "$program" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
newest=$(readelf -VW "$program" "${program%/*}/libtern.so" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
device=$($run run -m models/stories.gguf -p Once -n 1 --device webgpu 2>&1 >/dev/null) && wrong "runs without a GPU"
case $kind in
*-musl)
    [ -z "$needed$newest" ] && ! readelf -lW "$program" | grep -q INTERP || wrong "it is not static: $needed"
    case $device in *"linked statically"*) ;; *) wrong "a device is asked for: $device" ;; esac
    # As in a container that has nothing else.
    if [ "$(id -u)" = 0 ] && [ -z "$tool" ]; then
        mkdir "$dir/root"
        cp "$program" models/stories.gguf "$dir/root"
        alone=$(chroot "$dir/root" /tern run stories.gguf -p "Once upon a time" -n 60 --temp 0.7 --seed 3 2>&1)
        [ "$alone" = "$(cat "$dir/expected")" ] || wrong "alone, it writes: $alone"
    fi
    ;;
*)
    for library in $needed; do
        case $library in libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux-*) ;; *) wrong "needs $library" ;; esac
    done
    [ "$(printf '%s\n' "$newest" GLIBC_2.28 | sort -V | tail -n 1)" = GLIBC_2.28 ] && [ -n "$newest" ] || wrong "needs $newest"
    ;;
esac
[ "$(printf '%s\n' "$device" | wc -l)" = 1 ] || wrong "of the device it says: $device"

# Every part is in it.
$run serve no-model 2>&1 | grep -q "built without" && wrong "no server"
$run pull hf:a/b --endpoint http://127.0.0.1:9 --models-dir "$dir" 2>&1 | grep -q "built without" && wrong "no downloads"
$run serve -m models/stories.gguf --port 0 >"$dir/serve" 2>&1 &
server=$!
for _ in $(seq 100); do
    port=$(sed -n 's/.*:\([0-9][0-9]*\).*/\1/p' "$dir/serve" | head -n 1)
    [ -z "$port" ] || break
    sleep 0.1
done
curl -s --retry 20 --retry-all-errors --retry-delay 1 "http://127.0.0.1:$port/health" | grep -q ok || wrong "its server is not well: $(cat "$dir/serve")"
kill $server

cp "$program" "$dir/tern" && "${tool}strip" "$dir/tern"
size=$(stat -c %s "$dir/tern")
[ "$size" -le 20000000 ] || wrong "$size bytes"
# The shortest of many starts: others use this machine, too.
start=$(python3 - ${run%"$program"}"$dir/tern" <<'END'
import os, sys, time
best = 1.0
out = os.open("/dev/null", os.O_WRONLY)
program = sys.argv[1] if sys.argv[1][0] == "/" else "/usr/bin/" + sys.argv[1]
for _ in range(100):
    begin = time.perf_counter()
    pid = os.posix_spawn(program, sys.argv[1:] + ["--version"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])
    os.waitpid(pid, 0)
    best = min(best, time.perf_counter() - begin)
print(int(best * 1e6))
END
)
[ "$start" -le $limit ] || wrong "--version takes $start us"
[ $failed = 0 ] && echo "$kind: $size bytes, --version in $start us, ${newest:-static}"
exit $failed
