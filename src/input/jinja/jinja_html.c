// html.unescape(): character references of HTML to characters, by number or by name.
#include <string.h>
#include "base/utf8.h"
#include "input/jinja/jinja.h"

// One text, not an array of pointers: it is also in programs that are loaded over a network.
// TERN_FEW_HTML_NAMES: only the 106 oldest names.
static const char entities[] =
#ifdef TERN_FEW_HTML_NAMES
#include "html_entities_few.inl"
#else
#include "input/jinja/html_entities.inl"
#endif
    ;

// The text for the name s[0..n); empty: unknown.
static tern_str find_entity(const char *s, size_t n) {
    const char *low = entities, *high = entities + sizeof entities - 1;
    while (low < high) { // both point to the beginning of an entry
        const char *name = low + (high - low) / 2;
        while (name > low && name[-1]) name--;
        const char *space = strchr(name, ' '), *text = space + 1;
        size_t length = (size_t)(space - name);
        int order = memcmp(name, s, length < n ? length : n);
        if (order == 0 && length == n) return (tern_str){text, strlen(text)};
        if (order < 0 || (order == 0 && length < n))
            low = text + strlen(text) + 1;
        else
            high = name;
    }
    return (tern_str){0};
}

// The numbers that HTML reads as Windows-1252, from 0x80 on.
static const uint16_t windows[32] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                     0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                     0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                     0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};

// 0: none.
static uint32_t by_number(uint64_t number) {
    if (number == 0 || number > 0x10FFFF || (number >= 0xD800 && number <= 0xDFFF)) return 0xFFFD;
    if (number >= 0x80 && number < 0xA0) return windows[number - 0x80];
    bool control =
        number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r';
    bool none =
        number == 0x7F || (number >= 0xFDD0 && number <= 0xFDEF) || (number & 0xFFFE) == 0xFFFE;
    return control || none ? 0 : (uint32_t)number;
}

// Reads the number at the start of s[0..n), with "#" or "#x"; returns the bytes read, 0: no number.
static size_t read_reference(const char *s, size_t n, uint64_t *number) {
    bool hex = n > 1 && (s[1] | 32) == 'x';
    size_t first = hex ? 2 : 1, i = first;
    *number = 0;
    for (; i < n; i++) {
        char c = s[i], letter = (char)(c | 32);
        int digit = c >= '0' && c <= '9'                    ? c - '0'
                    : hex && letter >= 'a' && letter <= 'f' ? letter - 'a' + 10
                                                            : -1;
        if (digit < 0) break;
        if (*number < 0x110000) *number = *number * (hex ? 16 : 10) + (uint64_t)digit;
    }
    if (i == first) return 0;
    return i < n && s[i] == ';' ? i + 1 : i;
}

// Replaces the reference after an '&'; *used: the bytes read, 0: not a reference.
static bool put_reference(jrun *r, const char *s, size_t n, size_t *used) {
    uint64_t number;
    char text[4];
    *used = n && *s == '#' ? read_reference(s, n, &number) : 0;
    if (*used) {
        uint32_t code = by_number(number);
        return !code || tern_jinja_put(r, text, (size_t)tern_utf8_encode(code, text));
    }
    size_t length = 0, chars = 0;
    for (; chars < 32 && length < n && !strchr("\t\n\f <&#;", s[length]); chars++)
        length += tern_jinja_char(s + length, n - length);
    if (!length) return true;
    if (length < n && s[length] == ';') length++;
    if (!tern_jinja_work(r, 64 * length)) return false;
    for (size_t k = length; k > 1; k--) { // the longest name that it begins with
        tern_str found = find_entity(s, k);
        if (!found.len) continue;
        *used = k;
        return tern_jinja_put(r, found.ptr, found.len);
    }
    return true;
}

bool tern_jinja_unescape_html(jrun *r, tern_str s) {
    while (s.len) {
        const char *sign = memchr(s.ptr, '&', s.len);
        size_t before = sign ? (size_t)(sign - s.ptr) : s.len, used = 0;
        if (!tern_jinja_put(r, s.ptr, before)) return false;
        if (!sign) return true;
        size_t left = s.len - before - 1, mark = r->out->len;
        if (!put_reference(r, sign + 1, left, &used)) return false;
        if (!used && r->out->len == mark && !tern_jinja_put(r, "&", 1)) return false;
        s = (tern_str){sign + 1 + used, left - used};
    }
    return true;
}
