#!/bin/bash
# The commands of tern.exe that talk to others, under Wine, by the scripts that test Linux's program: serve with TLS,
# mcp, pull, memory, agent. What a script cannot show there is left out: links and permissions of POSIX, signals.
#
#     tests/arches/windows_apps.sh TERN_EXE WINE
#
# Seen to fail: with a server's log that waits in a buffer; with a file that is open and cannot be renamed.
set -u
exe=$(realpath "$1") wine=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export WINEPREFIX=${WINEPREFIX:-$(dirname "$exe")/wine} WINEDEBUG=-all TERN_DEVICE=cpu
# Windows has Ctrl-C, and no request to end. The scripts clear the environment of some runs.
cat >"$dir/tern" <<END
#!/bin/sh
export WINEPREFIX='$WINEPREFIX' WINEDEBUG=-all TERN_DEVICE=cpu
exec 3<&0
'$wine' '$exe' "\$@" <&3 3<&- &
exec 3<&- </dev/null
pid=\$!
trap 'kill -INT \$pid' INT TERM
while wait \$pid; status=\$?; kill -0 \$pid 2>/dev/null; do :; done
exit \$status
END
chmod +x "$dir/tern"
n=0 failed=0
part() { # SCRIPT TEST...
    local script=$1
    shift
    for name in "$@"; do
        n=$((n + 1))
        timeout 100 "$script" "$dir/tern" "$name" >"$dir/log" 2>&1 && continue
        failed=$((failed + 1))
        echo "windows apps: $script $name"
        head -c 3000 "$dir/log"
    done
}
export TERN_AS_CHILD=$exe
part tests/agent_test.py calculate skills names_of_windows mcp_of_tern
if ! "$dir/tern" serve x 2>&1 | grep -q "built without"; then
    part tests/serve/serve_access_test.py keys_names the_queue
    part tests/serve/mcp/mcp_serve_test.py test_pipes
    part tests/serve/serve_test.py tls
    part tests/serve/serve_image_test.py images_have
    part tests/serve/serve_sound_test.py forms
fi
"$dir/tern" pull x 2>&1 | grep -q "built without" || part tests/hub_test.py cut_and_resume
"$dir/tern" memory list "$dir/none" 2>&1 | grep -q "built without" || part tests/memory_test.py vectors
echo "$((n - failed)) passed, $failed failed"
[ $failed = 0 ]
