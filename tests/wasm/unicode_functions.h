// Two makers of utf8proc's functions side by side: the library, and the one that the WebAssembly
// modules have in its place (apps/web/unicode/web_unicode.c). Each is called through a table, so
// that one program can have both.
#ifndef TERN_TESTS_UNICODE_FUNCTIONS_H
#define TERN_TESTS_UNICODE_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>

typedef struct unicode_functions {
    int (*category)(int32_t c);
    int (*combining_class)(int32_t c);
    int32_t (*lower)(int32_t c);
    int32_t (*upper)(int32_t c);
    int32_t (*title)(int32_t c);
    ptrdiff_t (*canonical)(int32_t c, int32_t *out, ptrdiff_t room);
    ptrdiff_t (*compatible)(int32_t c, int32_t *out, ptrdiff_t room);
    ptrdiff_t (*fold)(int32_t c, int32_t *out, ptrdiff_t room);
    ptrdiff_t (*compose)(int32_t *codes, ptrdiff_t n);
} unicode_functions;

extern const unicode_functions library_unicode, web_unicode;

#endif
