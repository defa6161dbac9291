// A growing byte string. Zero-initialise it; free it with tern_strbuf_free.
// After a failed allocation `failed` stays set and further appends do nothing, so that a writer may
// append many times and test once at the end.
#ifndef TERN_BASE_STRBUF_H
#define TERN_BASE_STRBUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

// A borrowed run of bytes, not terminated.
typedef struct tern_str {
    const char *ptr;
    size_t len;
} tern_str;
#define TERN_STR(literal) ((tern_str){(literal), sizeof(literal) - 1})
bool tern_str_eq(tern_str a, tern_str b);
bool tern_str_is(tern_str a, const char *terminated);
bool tern_str_ends(tern_str a, const char *end);        // with all of it
bool tern_name_ends(const char *name, const char *end); // the same for a terminated name
bool tern_name_begins(const char *name, const char *begin);

typedef struct tern_strbuf {
    char *ptr; // terminated by a 0 byte when not NULL
    size_t len, capacity;
    bool failed;
} tern_strbuf;

void tern_strbuf_append(tern_strbuf *b, const void *bytes, size_t n);
void tern_strbuf_puts(tern_strbuf *b, const char *text);
void tern_strbuf_putc(tern_strbuf *b, char c);
void tern_strbuf_printf(tern_strbuf *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tern_strbuf_vprintf(tern_strbuf *b, const char *format, va_list args);
// Appends text as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD.
void tern_strbuf_json(tern_strbuf *b, const char *text, size_t n);
// Appends a number in JSON: the shortest spelling that reads back as the same number, but with at
// least 6 digits if it has them; null for NaN and infinity, which JSON does not have.
void tern_strbuf_json_number(tern_strbuf *b, double v);
void tern_strbuf_json_float(tern_strbuf *b, float v); // the same for a float's digits
// Appends bytes in base64 (RFC 4648, section 4, with padding).
void tern_strbuf_base64(tern_strbuf *b, const void *bytes, size_t n);
// Appends the bytes of base64 text, with or without padding and with line ends. False: it is not
// base64.
bool tern_strbuf_unbase64(tern_strbuf *b, tern_str text);
void tern_strbuf_clear(tern_strbuf *b); // keeps the memory
void tern_strbuf_free(tern_strbuf *b);
// The bytes so far, never NULL.
const char *tern_strbuf_text(const tern_strbuf *b);

#endif
