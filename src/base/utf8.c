#include "base/utf8.h"

#include <string.h>

int tern_utf8_decode(const char *bytes, size_t n, uint32_t *code) {
    const unsigned char *s = (const unsigned char *)bytes;
    uint32_t c = s[0];
    if (c < 0x80) {
        *code = c;
        return 1;
    }
    int length = c >= 0xC2 && c <= 0xDF   ? 2
                 : (c & 0xF0) == 0xE0     ? 3
                 : c >= 0xF0 && c <= 0xF4 ? 4
                                          : 0;
    if (length == 0) return 0;
    // The second byte's range is narrower after these leads: no overlong, surrogate or > 10FFFF.
    unsigned low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    unsigned high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    uint32_t value = c & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n) return -1;
        if (s[i] < low || s[i] > high) return 0;
        value = value << 6 | (s[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *code = value;
    return length;
}

int tern_utf8_encode(uint32_t code, char out[4]) {
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = 0xFFFD;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00u >> length & 0xFF) | code);
    return length;
}

size_t tern_utf8_complete_prefix(const char *bytes, size_t n) {
    // Only the last three bytes can belong to a character that is cut off.
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint32_t code;
        if (((unsigned char)bytes[n - back] & 0xC0) == 0x80) continue;
        return tern_utf8_decode(bytes + n - back, back, &code) == -1 ? n - back : n;
    }
    return n;
}

size_t tern_utf8_mark(const char *bytes, size_t n) {
    return n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}
