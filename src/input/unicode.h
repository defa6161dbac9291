// Unicode for tokenizers and templates: character classes, normalization forms, case, repair of
// invalid UTF-8. The tables are utf8proc's.
#ifndef TERN_INPUT_UNICODE_H
#define TERN_INPUT_UNICODE_H

#include "base/status.h"
#include "base/strbuf.h"

// The classes that pre-tokenizer patterns use; each character is in exactly one.
typedef enum tern_char_class {
    TERN_CHAR_OTHER,
    TERN_CHAR_LETTER,  // \p{L}
    TERN_CHAR_NUMBER,  // \p{N}
    TERN_CHAR_SPACE,   // \s except the next two
    TERN_CHAR_NEWLINE, // \r and \n
} tern_char_class;

tern_char_class tern_unicode_class(uint32_t c);
bool tern_unicode_is_space(uint32_t c); // White_Space
bool tern_unicode_is_punct(uint32_t c); // \p{P}, and every ASCII sign
bool tern_unicode_is_word(uint32_t c);  // \w
// As in BERT: controls, format and private characters, except \t, \n and \r.
bool tern_unicode_is_control(uint32_t c);
bool tern_unicode_is_han(uint32_t c);                        // Chinese characters, as in BERT
bool tern_unicode_is_mark(uint32_t c, bool only_nonspacing); // \p{M}; \p{Mn}

// Length of the ill-formed sequence that begins at bytes[0], counted as the Unicode standard
// recommends (the longest beginning of a well-formed one, at least 1): one U+FFFD replaces it.
size_t tern_unicode_bad_length(const char *bytes, size_t n);
bool tern_unicode_is_valid(const char *bytes, size_t n);
// Appends text with U+FFFD in place of invalid UTF-8.
void tern_unicode_repair(tern_strbuf *out, const char *bytes, size_t n);

typedef enum tern_normal_form { TERN_NFC, TERN_NFD, TERN_NFKC, TERN_NFKD } tern_normal_form;
// Appends the form of valid UTF-8.
tern_status tern_unicode_normalize(tern_strbuf *out, tern_normal_form form, const char *text,
                                   size_t n, tern_error *err);
// Appends text in lower case, character by character (no rule looks at neighbours).
void tern_unicode_lower(tern_strbuf *out, const char *text, size_t n);

// ---- Case (unicode_case.c) ---------------------------------------------------------------------

bool tern_unicode_is_upper(uint32_t c); // the derived properties Uppercase, Lowercase, Cased and
bool tern_unicode_is_lower(uint32_t c); // Case_Ignorable, and the category Lt
bool tern_unicode_is_title(uint32_t c);
bool tern_unicode_is_cased(uint32_t c);
bool tern_unicode_is_case_ignorable(uint32_t c);

typedef enum tern_case { TERN_LOWER, TERN_UPPER, TERN_TITLE } tern_case;
// The one to three characters that c becomes; returns their number. The caller handles the final
// sigma, which depends on its neighbours.
int tern_unicode_change_case(uint32_t c, tern_case to, uint32_t out[3]);

#endif
