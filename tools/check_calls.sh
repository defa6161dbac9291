#!/bin/sh
# The library never consults the environment, prints nothing, and neither ends the process nor
# changes signal handling: checked by the C library functions that the archive calls.
set -eu
[ -s "$1" ] || { echo "$1 is not built" >&2; exit 1; }
refused='(secure_)?getenv|(un)?setenv|putenv|environ
v?printf|__v?printf_chk|puts|putchar|perror|std(out|err|in)
_?_?exit|quick_exit|_Exit|at_quick_exit|atexit|abort|__assert_fail
raise|kill|signal|sigaction|system|popen|fork|v?fork|exec[vl]p?e?'
pattern=$(echo "$refused" | tr '\n' '|')
bad=$(nm -A -u "$1" | awk '{print $1 " calls " $NF}' | grep -E " ($pattern)\$" || true)
[ -z "$bad" ] && exit 0
echo "$bad" | sed 's/^[^:]*://' >&2
exit 1
