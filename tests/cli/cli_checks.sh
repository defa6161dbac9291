# What the tests of commands share, sourced: a folder $dir that goes with them, $n checks, $bad of them
# failed, and the words to check with.
dir=$(mktemp -d)
export TERN_DEVICE=cpu # also on machines with a GPU
trap 'rm -rf "$dir"' EXIT
n=0 bad=0

wrong() { # DESCRIPTION
    echo "  $1" >&2
    bad=$((bad + 1))
}
ends() { # STATUS COMMAND...: it must exit with it; output goes to $dir/out and $dir/err
    want=$1
    shift
    n=$((n + 1))
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    [ $got = "$want" ] || wrong "exit $got, not $want: $*: $(cat "$dir/err")"
}
fails() { # STATUS PATTERN COMMAND...: and prints one line that begins with "tern: "
    status=$1 pattern=$2
    shift 2
    ends "$status" "$@"
    [ "$(wc -l <"$dir/err")" = 1 ] || wrong "not one line: $*: $(cat "$dir/err")"
    grep -q "^tern: .*$pattern" "$dir/err" || wrong "no '$pattern': $*: $(cat "$dir/err")"
    [ -s "$dir/out" ] && wrong "output in spite of the failure: $*"
}
says() { # PATTERN: on standard error of the last command
    n=$((n + 1))
    grep -q -- "$1" "$dir/err" || wrong "no '$1' said in: $(head -c 600 "$dir/err")"
}
has() { # PATTERN: in the output of the last command
    n=$((n + 1))
    grep -q -- "$1" "$dir/out" || wrong "no '$1' in: $(head -c 600 "$dir/out")"
}
same() { # A B DESCRIPTION
    n=$((n + 1))
    [ "$1" = "$2" ] || wrong "$3: '$1' is not '$2'"
}
count_and_exit() { # WHAT
    echo "$1: $n checks, $bad failed"
    [ $bad = 0 ]
    exit
}
