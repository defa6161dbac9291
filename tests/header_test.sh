#!/bin/sh
# Each public header alone: as C and as C++, its examples, its structs initialised with = {0} and, as
# C++, with = {}, the way that gives no warning; the functions of all of them called with nothing
# (null_calls.c); whether each that can fail begins with an error that says nothing; and whether none
# has more than six parameters: what a call has beyond that belongs into a struct.
# usage: header_test.sh BUILD MODEL CC CXX LIBS...
#
# Seen to fail: a status as tern_error's first member (C++ takes no 0 for it), a function that
# null_calls.c does not call, an example with a word left out, tern_train.h without its #include,
# a type of tern_tools.h in tern.h, tern_embed_begin with its vectors as a seventh parameter.
set -eu
build=$1 model=$2 cc=$3 cxx=$4
shift 4
strict="-Wall -Wextra -Werror -pedantic -Iinclude"
to=$build/header_test
mkdir -p "$to"

compiles() { # FILE, as C and as C++
    # shellcheck disable=SC2086
    $cc -std=c99 $strict -fsyntax-only "$1"
    # g++ warns about every member that = {0} does not name, gcc does not.
    # shellcheck disable=SC2086
    $cxx -std=c++11 $strict -Wno-missing-field-initializers -x c++ -fsyntax-only "$1"
}
for header in include/*.h; do
    name=$(basename "$header" .h)
    # Each run of lines indented by five blanks after // is the body of a function.
    {
        echo "#include \"$name.h\""
        echo '#include <stdio.h>'
        echo 'bool on_text(void *user, const char *text, size_t n_bytes);'
        awk '/^\/\/     / { if (!open) print "void example_" ++n "(void *user);\nvoid example_" n \
                                "(void *user) {\n(void)user;"
                            open = 1; sub(/^\/\/ */, ""); print; next }
             open { print "}"; open = 0 }' "$header"
    } >"$to/$name.examples.c"
    grep -q 'example_1' "$to/$name.examples.c" || { echo "no example in $header" >&2; exit 1; }
    {
        echo "#include \"$name.h\""
        echo 'size_t all(void);'
        echo 'size_t all(void) { size_t n = 0;'
        sed -n 's/^typedef struct \(tern_[a-z_]*\) {.*/{ \1 x = {0}; n += sizeof x; (void)x; }/p' "$header"
        echo 'return n; }'
    } >"$to/$name.zeros.c"
    compiles "$to/$name.examples.c"
    compiles "$to/$name.zeros.c"
    sed 's/= {0}/= {}/' "$to/$name.zeros.c" >"$to/$name.zeros.cpp"
    # shellcheck disable=SC2086
    $cxx -std=c++17 $strict -fsyntax-only "$to/$name.zeros.cpp"
done

sed -n 's/^TERN_API .*[ *]\(tern_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort -u >"$to/functions"
lines=$(cat include/*.h | grep -c '^TERN_API ')
[ "$(wc -l <"$to/functions")" -eq "$lines" ] ||
    { echo "include: $lines lines begin with TERN_API, but not as many functions were found" >&2; exit 1; }
awk '/^TERN_API / { declaration = ""; open = 1 }
     open { sub(/\/\/.*/, ""); declaration = declaration $0 }
     open && /;/ {
         open = 0; depth = 0; n = 1
         for (i = 1; i <= length(declaration); i++) {
             c = substr(declaration, i, 1)
             depth += (c == "(") - (c == ")")
             n += c == "," && depth == 1
         }
         match(declaration, /tern_[a-z0-9_]*\(/)
         if (n > 6) print FILENAME ": " substr(declaration, RSTART, RLENGTH - 1) " has " n " parameters: expected 6 or fewer"
     }' include/*.h >"$to/long"
[ ! -s "$to/long" ] || { cat "$to/long" >&2; exit 1; }
# src/store/store_none.c is what stands for the others in a build without SQLite.
sed -n 's/^TERN_API tern_status \(tern_[a-z0-9_]*\)(.*/\1/p' include/*.h | sort >"$to/failing"
find src -name '*.c' ! -name '*_test.c' ! -name store_none.c -exec awk '
    /^tern_status tern_[a-z0-9_]*\(/ { name = $2; sub(/\(.*/, "", name) }
    name != "" && /\{$/ { getline; if (/^    tern_clear\(err\);$/) print name; name = "" }
    /;$/ { name = "" }' {} + | sort >"$to/clearing"
comm -23 "$to/failing" "$to/clearing" | sed 's/$/ does not begin with tern_clear(err)/' >"$to/unclear"
[ ! -s "$to/unclear" ] || { cat "$to/unclear" >&2; exit 1; }
for name in $(cat "$to/functions"); do
    grep -qE "(FAILS\(|RUNS\(|GIVES\([A-Za-z0-9_]*, |holds\()$name\b" tests/support/null_calls.c ||
        { echo "tests/support/null_calls.c does not call $name" >&2; exit 1; }
done
$cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Iinclude -o "$to/null_calls" tests/support/null_calls.c \
    "$build/public/libtern.a" "$@"
$cxx -std=c++11 -Wall -Wextra -Werror -Wno-missing-field-initializers -Iinclude \
    -o "$to/null_calls_cpp" -x c++ tests/support/null_calls.c -x none "$build/public/libtern.a" "$@"
"$to/null_calls" "$model" "$to/unwritten"
"$to/null_calls_cpp" "$model" "$to/unwritten"
[ ! -e "$to/unwritten" ] || { echo "null_calls wrote a file of nothing" >&2; exit 1; }
