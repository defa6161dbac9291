#!/bin/sh
# The law of the folders. What a file of the library needs of another is what it includes and which of
# its symbols it uses (a table of functions that is passed down is none). A file is its .c with its .h.
# - A folder of src needs only folders that sort before it, and includes of them only their front
#   door A/A.h (base has many doors, formats, kernels and runtime a few).
# - Sub-folders of one folder may need each other, but never in a circle.
# - The programs' order is that of `order` below; their sub-folders need each other in no circle.
# - No folder has more than 25 files of its own.
# - No circle of files joins two folders, neither a folder and its own sub-folder.
# Programs include only include/, and apps/serve, apps/mcp, apps/agent and apps/hub base/, too; the
# command line of base/ what shows text from elsewhere (plain.h), the bytes of strings, files and lazy.h.
# usage: check_layers.sh LIBTERN.A
#
# Seen to fail: base/hash.c calling tern_graph_free by a declaration of its own, tok_vocab.c calling
# template/'s tern_template_free, tok_write.c including learn.h, gpu_device.c including train/'s header.
set -eu
archive=$1
[ -s "$archive" ] || { echo "$archive is not built" >&2; exit 1; }
status=0
complain() { echo "$1" >&2; status=1; }
order='system hub load mcp agent serve cli'
programs=$(find apps -name '*.[ch]' ! -path 'apps/web/*' | sort)
sources=$(find src \( -name '*.[ch]' -o -name '*.inl' -o -name '*.inc' \) \
    ! -name '*_test.[ch]' ! -name '*_check.c' ! -name '*_fixture.h' ! -name '*_small.h' | sort)

# ---- Front doors ---------------------------------------------------------------------------------
for file in $sources; do
    own=${file#src/}; own=${own%%/*}
    for header in $(sed -n 's/^#include "\([a-z0-9_/.]*\)".*/\1/p' "$file"); do
        folder=${header%%/*}
        case $header in *.inl|*.inc) continue ;; esac
        [ -d "src/$folder" ] && [ "$folder" != "$own" ] || continue
        case $header in
        base/*|"$folder/$folder.h"|formats/chains.h|formats/shard/shard.h|kernels/backend.h|runtime/runner.h|kernels/train.h|kernels/cpu/kernels.h|kernels/cpu/gemm/gemm.h) ;;
        *) complain "$file: $header is private to src/$folder" ;;
        esac
    done
done
# apps/web is a part of the library's build rather than a program that links it: it reads JSON with
# base/ and implements the functions that kernels/webgpu/device/wgpu_api.h declares. apps/serve reads what
# strangers send with base's JSON, texts and counted memory, whose failures tests can cause, and so
# do apps/mcp, apps/agent, apps/hub and apps/load.
for file in $(find apps examples -name '*.[ch]'); do
    case $file in apps/web/*) inner='formats/|graph/|input/|kernels/([^w]|w[^e])|kernels/webgpu/([^d]|device/[^w])|models/|runtime/|session/|tasks/|train/' ;;
    apps/serve/*|apps/mcp/*|apps/agent/*|apps/hub/*|apps/load/*) inner='src/|formats/|graph/|input/|kernels/|models/|runtime/|session/|tasks/|train/' ;;
    apps/cli/*) inner='src/|base/([^oplu]|os/([^lo]|os_[^f])|p[^l]|l|u[^t])|formats/|graph/|input/|kernels/|models/|runtime/|session/|tasks/|train/' ;;
    *) inner='src/|base/|formats/|graph/|input/|kernels/|models/|runtime/|session/|tasks/|train/' ;; esac
    if grep -nE "^#include \"($inner)" "$file"; then
        complain "$file: programs use include/ only"
    fi
done
for name in $(find src apps tests tools fuzz bench -name '*.[ch]' -exec basename {} \; | sort | uniq -d); do
    complain "the file name $name is used twice" # below, an object's name is its file's
done

# ---- Size ----------------------------------------------------------------------------------------
# Seeds of fuzzers are data, a folder for each target.
git ls-files | grep -v '^fuzz/corpus/' | sed -n 's|/[^/]*$||p' | sort | uniq -c |
    while read -r n folder; do
        [ "$n" -le 25 ] || echo "$folder has $n files of its own: 25 are enough for a room"
    done >"$archive.layers"
[ ! -s "$archive.layers" ] || { cat "$archive.layers" >&2; status=1; }

# ---- Order and circles ---------------------------------------------------------------------------

# A program's object whose source has moved or gone stays in the build folder, and is left out.
{
    # shellcheck disable=SC2086
    printf 'file %s\n' $sources $programs
    # shellcheck disable=SC2086
    grep -H '^#include "' $sources $programs | sed 's/^\(.*\):#include "\([^"]*\)".*/include \1 src\/\2/'
    { nm -A "$archive" | sed 's/^[^:]*:\([^:]*\)\.o:/\1 /'
      find "${archive%/*}" -path '*/obj/apps/*' -name '*.o' ! -path '*/apps/web/*' |
          while read -r o; do [ ! -e "apps/$(echo "$o" | sed 's|.*/obj/apps/||; s|o$|c|')" ] || echo "$o"; done |
          xargs nm -A 2>/dev/null |
          sed 's/^[^:]*\/\([^:\/]*\)\.o:/\1 /'; } |
        awk '$(NF - 1) == "U" { print "uses", $1, $NF } $(NF - 1) ~ /^[A-TV-Z]$/ { print "has", $1, $NF }'
} | awk -v order="$order" 'BEGIN { n = split(order, names, " "); for (i = 1; i <= n; i++) rank[names[i]] = i }
    function stem(file) { sub(/^src\//, "", file); sub(/\.[a-z]+$/, "", file); return file }
    function folder(file) { sub(/\/[^\/]*$/, "", file); return file }
    # In `to`, what leads from node a to b, the shortest way; "": none does.
    function way(to, a, b,    queue, head, tail, from, i, n, next_ones, text) {
        split("", from); queue[tail = 1] = a; head = 1; from[a] = a
        while (head <= tail && !(b in from)) {
            n = split(to[queue[head]], next_ones, " ")
            for (i = 1; i <= n; i++)
                if (!(next_ones[i] in from)) { from[next_ones[i]] = queue[head]; queue[++tail] = next_ones[i] }
            head++
        }
        if (!(b in from)) return ""
        for (text = b; b != a; text = b " -> " text) b = from[b]
        return text
    }
    function step(a, b, why,    i, n, m, from, to, left, right) {
        if (a == b || ((a, b) in reason)) return
        reason[a, b] = why; needs[a] = needs[a] " " b; pair_a[++n_pairs] = a; pair_b[n_pairs] = b
        n = split(folder(a), from, "/"); m = split(folder(b), to, "/")
        for (i = 1; i < n && i < m && from[i] == to[i]; i++) { left = left from[i] "/" }
        if (from[i] == to[i]) return # the same folder, or one within the other
        if (i == 2 && from[1] == "apps" && rank[to[2]] > rank[from[2]])
            print a " " why ": a step back, apps/" to[2] " comes after apps/" from[2]
        right = left to[i]; left = left from[i]
        if (i == 1 && from[1] != "apps" && right > left) print a " " why ": a step back, " to[1] " sorts after " from[1]
        if (i > 1 && !((left, right) in example)) {
            example[left, right] = a " " why; rooms[left] = rooms[left] " " right
            room_a[++n_rooms] = left; room_b[n_rooms] = right
        }
    }
    $1 == "file" { s = stem($2); is_file[s] = 1; if ($2 ~ /\.c$/) { name = s; sub(/.*\//, "", name); source[name] = s } }
    $1 == "include" && (stem($3) in is_file) { step(stem($2), stem($3), "includes " substr($3, 5)) }
    $1 == "has" { n_has++ }
    $1 == "has" && ($2 in source) { where[$3] = source[$2] }
    $1 == "uses" { user[++n_uses] = $2; symbol[n_uses] = $3 }
    END {
        for (i = 1; i <= n_uses; i++)
            if (symbol[i] in where && source[user[i]] != "") {
                n_found++
                step(source[user[i]], where[symbol[i]], "uses " symbol[i] " of " where[symbol[i]])
            }
        if (n_has < 100 || n_found < 100) print "the archive tells of too few symbols: " n_has + 0 ", " n_found + 0
        for (i = 1; i <= n_rooms; i++)
            if ((text = way(rooms, room_b[i], room_a[i])) != "")
                print "folders in a circle: " room_a[i] " -> " text ": " example[room_a[i], room_b[i]]
        for (i = 1; i <= n_pairs; i++)
            if (folder(pair_a[i]) != folder(pair_b[i]) && (text = way(needs, pair_b[i], pair_a[i])) != "")
                print "files in a circle: " pair_a[i] " " reason[pair_a[i], pair_b[i]] "; back by " text
    }' >"$archive.layers"
[ ! -s "$archive.layers" ] || { cat "$archive.layers" >&2; status=1; }
exit $status
