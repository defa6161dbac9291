// UTF-8, strict: no overlong forms, no surrogates, nothing above U+10FFFF.
#ifndef TERN_BASE_UTF8_H
#define TERN_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

// Decodes one character from n bytes (n > 0). Returns its length 1..4 and sets *code; 0 if the
// bytes are invalid, -1 if they are the valid beginning of a character that is cut off.
int tern_utf8_decode(const char *bytes, size_t n, uint32_t *code);
// Writes 1..4 bytes, returns how many; code must be a valid scalar value (else U+FFFD is written).
int tern_utf8_encode(uint32_t code, char out[4]);
// Length of the longest prefix that does not end inside a character (for streaming output).
size_t tern_utf8_complete_prefix(const char *bytes, size_t n);
// Length of a leading byte-order mark U+FEFF, which is not part of the text: 3 or 0.
size_t tern_utf8_mark(const char *bytes, size_t n);

#endif
