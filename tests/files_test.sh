#!/bin/sh
# What commands leave on the disk when they are killed or stopped, or meet a full disk, another
# writer, a device or an odd name.
#     tests/files_test.sh build/tern build/tiny.gguf [LOOPS]
# LOOPS (3): how often a command is killed at some moment; `make test-kills` runs 300. (At every
# system call: tests/library/files_test.c.) Seen to fail without cancel_on_signals, with SIGXFSZ left to kill,
# and with /dev/stdout opened in place of its descriptor.
set -u
tern=$1 model=$2 loops=${3:-3}
dir=$(mktemp -d)
export TERN_DEVICE=cpu # also on machines with a GPU
trap 'rm -rf "$dir"' EXIT
n=0 bad=0

wrong() { # DESCRIPTION
    echo "  $1" >&2
    bad=$((bad + 1))
}
fails() { # PATTERN COMMAND...: with status 1 and one line
    pattern=$1
    shift
    n=$((n + 1))
    timeout 300 "$@" >"$dir/.out" 2>"$dir/.err" </dev/null
    got=$?
    [ $got = 1 ] || wrong "exit $got, not 1: $*: $(cat "$dir/.err")"
    [ "$(wc -l <"$dir/.err")" = 1 ] || wrong "not one line: $*: $(cat "$dir/.err")"
    grep -q "^tern: .*$pattern" "$dir/.err" || wrong "no '$pattern': $*: $(cat "$dir/.err")"
}
works() { # COMMAND...
    n=$((n + 1))
    timeout 300 "$@" >"$dir/.out" 2>"$dir/.err" </dev/null || wrong "exit $?: $*: $(cat "$dir/.err")"
}
nothing_left() { # FOLDER AFTER
    n=$((n + 1))
    left=$(ls -A "$1" 2>/dev/null | grep '^\.tern-')
    [ -z "$left" ] || wrong "$2 leaves $left"
}
says() { "$tern" run -m "$1" -p "Once upon" -n 8 --temp 0 --seed 1 2>"$dir/.err"; }
# Kills COMMAND with SIGNAL after a different delay each time; $1 counts.
kill_one() { # I SIGNAL COMMAND...
    moment=0.$(printf %03d $((($1 * 173) % 450))) signal=$2
    shift 2
    "$@" >/dev/null 2>&1 </dev/null &
    job=$!
    sleep "$moment"
    kill "-$signal" $job 2>/dev/null
    wait $job 2>/dev/null
}

# Two models that say different things, and slow enough to be killed in the middle.
here=$(dirname "$0")/..
works "$tern" convert "$here/models/stories.gguf" "$dir/a"
works "$tern" convert "$model" "$dir/b"
a=$(says "$dir/a") b=$(says "$dir/b")
[ -n "$a" ] && [ "$a" != "$b" ] || wrong "the two models say the same: '$a'"

# Killed: the old model, the new one, or a refusal; the next convert makes it whole.
for i in $(seq "$loops"); do
    for from in a b; do
        kill_one "$i" KILL "$tern" convert "$dir/$from" "$dir/out"
        [ -d "$dir/out" ] || continue
        n=$((n + 1)) got=$(says "$dir/out")
        case $got in "$a" | "$b") ;; *)
            grep -qE 'run that command again|neither .*model.safetensors' "$dir/.err" ||
                wrong "killed convert: '$got' $(cat "$dir/.err")" ;;
        esac
    done
done
works "$tern" convert "$dir/a" "$dir/out"
[ "$(says "$dir/out")" = "$a" ] || wrong "convert after those that were killed: $(cat "$dir/.err")"
nothing_left "$dir/out" "convert after those that were killed"

# Ctrl-C, and what a shutdown sends.
for i in $(seq "$loops"); do
    for signal in INT TERM; do
        rm -rf "$dir/new" "$dir/place" && mkdir "$dir/place"
        # Background commands of a shell start with Ctrl-C ignored; env undoes that.
        kill_one "$i" $signal env --default-signal=INT "$tern" convert "$dir/a" "$dir/new"
        [ -d "$dir/new" ] && [ ! -e "$dir/new/config.json" ] && wrong "SIG$signal leaves a folder"
        kill_one "$i" $signal env --default-signal=INT "$tern" convert "$dir/a" "$dir/place/x.gguf"
        nothing_left "$dir/place" "SIG$signal"
    done
done

# Two at once: one of them may be refused, and the result is one of the two.
for i in $(seq "$loops"); do
    for out in "$dir/out" "$dir/two.gguf"; do
        "$tern" convert "$dir/a" "$out" 2>/dev/null &
        "$tern" convert "$dir/b" "$out" 2>"$dir/second" ||
            grep -q "another process is writing there" "$dir/second" || wrong "$(cat "$dir/second")"
        wait $!
        n=$((n + 1)) got=$(says "$out")
        [ "$got" = "$a" ] || [ "$got" = "$b" ] || wrong "two at once: '$got' $(cat "$dir/.err")"
    done
done
nothing_left "$dir" "two converts to a file"

# A full disk, simulated by a limit on the size of files, which every machine has.
printf '#!/bin/sh\nulimit -f 8\nexec "$@"\n' >"$dir/full"
chmod +x "$dir/full"
full=$dir/full
works "$tern" convert "$dir/a" "$dir/out"
fails "File too large" "$full" "$tern" convert "$model" "$dir/out"
[ "$(says "$dir/out")" = "$a" ] || wrong "a full disk changed the model"
nothing_left "$dir/out" "a full disk"
printf '\001\000\000\000\002\000\000\000\003\000\000\000' >"$dir/ids"
logits="$tern logits -m $model --ids $dir/ids -o"
for i in 1 2 3 4 5 6; do cat "$dir/ids"; done >"$dir/more"
echo old >"$dir/logits"
fails "File too large" "$full" "$tern" logits -m "$model" --ids "$dir/more" -o "$dir/logits"
[ "$(cat "$dir/logits")" = old ] || wrong "a full disk destroyed old logits"
echo old >"$dir/talk.json"
{ printf '/system '; head -c 9000 /dev/zero | tr '\0' x; printf '\n/save %s\n' "$dir/talk.json"; } |
    "$full" "$tern" chat -m "$model" >"$dir/.out" 2>"$dir/.err"
grep -q "File too large" "$dir/.err" || wrong "/save on a full disk: $(cat "$dir/.err")"
[ "$(cat "$dir/talk.json")" = old ] || wrong "/save on a full disk destroyed the old file"
nothing_left "$dir" "a full disk"

# Devices and pipes are written to.
works $logits "$dir/logits"
mkfifo "$dir/pipe"
cat "$dir/pipe" >"$dir/through" &
works $logits "$dir/pipe"
wait $!
cmp -s "$dir/through" "$dir/logits" || wrong "logits through a named pipe"
[ -p "$dir/pipe" ] || wrong "the pipe was replaced"
if mknod "$dir/null" c 1 3 2>/dev/null; then # not the machine's own: a mistake would replace it
    works $logits "$dir/null"
    [ -c "$dir/null" ] || wrong "a device was replaced"
fi
{ echo head; $logits /dev/stdout; echo tail; } >"$dir/both" 2>/dev/null
[ "$(wc -c <"$dir/both")" = $(($(wc -c <"$dir/logits") + 10)) ] || wrong "/dev/stdout loses text"
$logits - >/dev/full 2>"$dir/.err" && wrong "logits to a full device"
grep -q "^tern: standard output: cannot be written: No space" "$dir/.err" || wrong "$(cat "$dir/.err")"

# Pipes under the names of a model's files.
works "$tern" convert "$dir/b" "$dir/piped"
for file in config.json tokenizer.json model.safetensors generation_config.json; do
    rm -f "$dir/piped/$file"
    mkfifo "$dir/piped/$file"
    fails "$file: not a regular file" "$tern" convert "$dir/piped" "$dir/x.gguf"
    fails "$file: not a regular file" "$tern" inspect "$dir/piped"
    fails "$file: not a regular file" "$tern" run -m "$dir/piped" -p x
    rm "$dir/piped/$file"
    works "$tern" convert "$dir/b" "$dir/piped"
done

# Names that are patterns elsewhere, and long ones.
for i in 1 2 3 4 5 6 7 8 9; do
    printf 'Story %s: the cat and the dog went to the river, and came home again.<|endoftext|>' $i
done >"$dir/stories.txt"
long=$(printf 'x%.0s' $(seq 240))
deep="$dir/$long/$long/$long/$long/$long"
mkdir -p "$deep"
for place in "$dir/[1]*?" "$deep"; do
    mkdir -p "$place/1"
    works "$tern" convert "$model" "$place/m.gguf"
    works "$tern" convert "$place/m.gguf" "$place/hf"
    [ "$(says "$place/hf")" = "$b" ] || wrong "another model in '$place': $(cat "$dir/.err")"
    works "$tern" data tokenizer "$dir/stories.txt" -o "$place/tok/" --vocab 280
    works "$tern" data build "$dir/stories.txt" --tokenizer "$model" -o "$place/sh[a]rds"
    works "$tern" mine -m "$model" "$place/sh[a]rds" -o "$place/*.bin" --min-probability 0.001
    [ -e "$place/*.bin" ] || wrong "no table named *.bin"
    works $logits "$place/?"
    mkdir -p "$place/tasks/[a]"
    echo '{"goal":"To rest","sol1":"sit","sol2":"eat","label":0}' >"$place/tasks/[a]/piqa.jsonl"
    works "$tern" eval choice -m "$model" --task piqa -d "$place/tasks" --results "$place/r[1]"
    nothing_left "$place" "a command"
done
fails ": cannot be made: No such file" "$tern" convert "$model" ""
fails "File name too long" "$tern" convert "$model" "$dir/$long$long.gguf"
fails "File name too long" "$tern" convert "$model" "$dir/$long$long"
fails "File name too long" $logits "$dir/$long$long"
fails "File name too long" "$tern" inspect "$dir$(printf "/$long%.0s" $(seq 18))/x.gguf"

# Shards: when killed while an older build is replaced, the folder is either or refused.
for i in $(seq "$loops"); do
    kill_one "$i" KILL "$tern" data build "$dir/stories.txt" "$dir/stories.txt" --dedup none \
        --tokenizer "$model" -o "$dir/[1]*?/sh[a]rds" --shard-tokens 200
    n=$((n + 1))
    "$tern" mine -m "$model" "$dir/[1]*?/sh[a]rds" -o "$dir/x.bin" --min-probability 0.001 \
        >/dev/null 2>"$dir/.err" || grep -q 'run that command again' "$dir/.err" ||
        wrong "killed build: $(cat "$dir/.err")"
done

echo "files: $n checks, $bad failed"
[ $bad = 0 ]
