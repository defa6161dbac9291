// The part of utf8proc that the library uses, declared as in its header, for the WebAssembly
// modules: there web_unicode.c replaces it. Code that uses other parts does not compile for
// browsers. unicode_tables.inc checks that the constants are utf8proc's.
#ifndef UTF8PROC_H
#define UTF8PROC_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t utf8proc_int32_t;
typedef ptrdiff_t utf8proc_ssize_t;

typedef struct utf8proc_property_struct {
    int16_t combining_class;
} utf8proc_property_t;

typedef enum {
    UTF8PROC_STABLE = 1 << 1,
    UTF8PROC_COMPAT = 1 << 2,
    UTF8PROC_COMPOSE = 1 << 3,
    UTF8PROC_DECOMPOSE = 1 << 4,
    UTF8PROC_CASEFOLD = 1 << 10,
} utf8proc_option_t;

typedef enum {
    UTF8PROC_CATEGORY_CN,
    UTF8PROC_CATEGORY_LU,
    UTF8PROC_CATEGORY_LL,
    UTF8PROC_CATEGORY_LT,
    UTF8PROC_CATEGORY_LM,
    UTF8PROC_CATEGORY_LO,
    UTF8PROC_CATEGORY_MN,
    UTF8PROC_CATEGORY_MC,
    UTF8PROC_CATEGORY_ME,
    UTF8PROC_CATEGORY_ND,
    UTF8PROC_CATEGORY_NL,
    UTF8PROC_CATEGORY_NO,
    UTF8PROC_CATEGORY_PC,
    UTF8PROC_CATEGORY_PD,
    UTF8PROC_CATEGORY_PS,
    UTF8PROC_CATEGORY_PE,
    UTF8PROC_CATEGORY_PI,
    UTF8PROC_CATEGORY_PF,
    UTF8PROC_CATEGORY_PO,
    UTF8PROC_CATEGORY_SM,
    UTF8PROC_CATEGORY_SC,
    UTF8PROC_CATEGORY_SK,
    UTF8PROC_CATEGORY_SO,
    UTF8PROC_CATEGORY_ZS,
    UTF8PROC_CATEGORY_ZL,
    UTF8PROC_CATEGORY_ZP,
    UTF8PROC_CATEGORY_CC,
    UTF8PROC_CATEGORY_CF,
    UTF8PROC_CATEGORY_CS,
    UTF8PROC_CATEGORY_CO,
} utf8proc_category_t;

enum { UTF8PROC_ERROR_NOTASSIGNED = -4, UTF8PROC_ERROR_INVALIDOPTS = -5 };

// For invalid code points: no category, class 0, and the number itself.
utf8proc_category_t utf8proc_category(utf8proc_int32_t c);
const utf8proc_property_t *utf8proc_get_property(utf8proc_int32_t c);
utf8proc_int32_t utf8proc_tolower(utf8proc_int32_t c);
utf8proc_int32_t utf8proc_toupper(utf8proc_int32_t c);
utf8proc_int32_t utf8proc_totitle(utf8proc_int32_t c);

// options: STABLE|DECOMPOSE, the same with COMPAT, or CASEFOLD. Returns how many code points c
// becomes (at most room are written), or an error. last_boundclass is not used.
utf8proc_ssize_t utf8proc_decompose_char(utf8proc_int32_t c, utf8proc_int32_t *out,
                                         utf8proc_ssize_t room, utf8proc_option_t options,
                                         int *last_boundclass);

// options: STABLE|COMPOSE. Composes decomposed text in canonical order, in place. Returns the new
// length, or an error.
utf8proc_ssize_t utf8proc_normalize_utf32(utf8proc_int32_t *codes, utf8proc_ssize_t n,
                                          utf8proc_option_t options);

#endif
