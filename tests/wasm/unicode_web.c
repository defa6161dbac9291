// What the WebAssembly modules have in utf8proc's place, under names that leave utf8proc's alone.
#define utf8proc_category        web_category
#define utf8proc_get_property    web_get_property
#define utf8proc_tolower         web_tolower
#define utf8proc_toupper         web_toupper
#define utf8proc_totitle         web_totitle
#define utf8proc_decompose_char  web_decompose_char
#define utf8proc_normalize_utf32 web_normalize_utf32
#include "apps/web/unicode/web_unicode.c"
#include "tests/wasm/unicode_functions.h"

#define UNICODE_TABLE web_unicode
#include "tests/wasm/unicode_functions.inl"
