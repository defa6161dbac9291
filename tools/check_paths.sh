#!/bin/sh
# Names of files have any length and any characters: no buffer of a fixed size for one, no path made
# by snprintf, no glob() over names, which treats [ ] * ? in them as wildcards. Files are written by
# base/file/out_set.c alone (logs that grow: tern_file_open_log). Tests may do all of this.
set -eu
status=0
refuse() { # PATTERN REASON [FILES TO LEAVE OUT]
    found=$(grep -rnE "$1" src apps --include='*.c' --include='*.h' --include='*.inl' |
        grep -vE '^[^:]*(_test|_check)\.c:|^[^:]*fixture\.h:' | grep -vE "^${3:-/}" || true)
    [ -z "$found" ] && return
    echo "$found" >&2
    echo "  ^ $2" >&2
    status=1
}
refuse '(^|[^a-z_])w?glob(free)?\(|<glob\.h>' 'no glob(): tern_folder_list compares names as they are'
refuse '(^|[^A-Z_])(PATH_MAX|FILENAME_MAX|NAME_MAX)([^A-Z_]|$)' 'no bound on names: tern_strbuf, text or tern_path_join'
refuse 'char ([^*;()]*[^a-z*;()])?(history_)?(path|folder|dir|file|pattern|program|library)[a-z_]*\[[^]]' \
    'a fixed buffer for a path: tern_strbuf, text or tern_path_join'
refuse 'snprintf\(.*"[^"]*%s/' 'a path in a fixed buffer: tern_strbuf, text or tern_path_join'
refuse '(fopen|freopen)\([^;]*"[wa]|(^|[^a-z_])creat\(|O_TRUNC|(^|[^a-z_])rename\(|mkstemp' \
    'files are written by base/file/out_set.c' 'src/base/(file/out_set|os/os_[a-z]+_file)\.c:'
exit $status
