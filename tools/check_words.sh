#!/bin/sh
# Wordings that a native reader has to read twice, in comments and messages of the folders below: house style is
# subject, verb, object. A folder is added when its comments have been gone through.
#
#     tools/check_words.sh            # all
#     tools/check_words.sh FILE...    # these
set -eu
folders='include src apps'
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $(find $folders -name '*.[ch]' -o -name '*.inc')
awk '
    function bad(why) { print FILENAME ":" FNR ": " why ":" $0; n_bad++ }
    !/\/\/|"/ { next }
    / of which[ ,]/ { bad("\"of which\"") }
    /[ (]so many[ ,.;:)]/ && !/so many (that|as)/ { bad("\"so many\" without \"that\": at most n, this many") }
    / (that|which) (is|are) none([ ,.;:]|$)/ { bad("\"that is none\": is not one") }
    / to be had/ { bad("\"to be had\": available") }
    /(\/\/|[.:;]) Of (a|an|the|its|it|one|several|all|what|these|those|each|any|both)? ?[a-z]/ { bad("a sentence that begins with \"Of\": for, in") }
    / (is|are) no [a-z]/ && !/([Tt]here|it) (is|are) no / && !/(is|are) no (longer|more|other|better|worse|less|larger|smaller|matter)/ { bad("\"is no X\": is not an X") }
    / (is|are) nobody.s| nobody is / { bad("\"nobody\": none") }
    / what (is|are|has|was|were) [a-z]+[.,;:]/ { bad("\"what is Y\" as a noun: name the thing") }
    END { exit n_bad > 0 }' "$@"
