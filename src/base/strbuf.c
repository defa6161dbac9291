#include "base/strbuf.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

bool tern_str_eq(tern_str a, tern_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool tern_str_is(tern_str a, const char *terminated) {
    return tern_str_eq(a, (tern_str){terminated, strlen(terminated)});
}

bool tern_str_ends(tern_str a, const char *end) {
    size_t n = strlen(end);
    return a.len >= n && memcmp(a.ptr + a.len - n, end, n) == 0;
}

bool tern_name_begins(const char *name, const char *begin) {
    return strncmp(name, begin, strlen(begin)) == 0;
}

bool tern_name_ends(const char *name, const char *end) {
    return tern_str_ends((tern_str){name, strlen(name)}, end);
}

static bool reserve(tern_strbuf *b, size_t more) {
    if (b->failed || more == (size_t)-1 ||
        tern_array_reserve(TERN_MEM_MISC, &b->ptr, &b->capacity, b->len, more + 1) != 0)
        b->failed = true;
    return !b->failed;
}

void tern_strbuf_append(tern_strbuf *b, const void *bytes, size_t n) {
    if (!reserve(b, n)) return;
    if (n) memcpy(b->ptr + b->len, bytes, n);
    b->len += n;
    b->ptr[b->len] = 0;
}

void tern_strbuf_puts(tern_strbuf *b, const char *text) {
    tern_strbuf_append(b, text, strlen(text));
}

void tern_strbuf_putc(tern_strbuf *b, char c) { tern_strbuf_append(b, &c, 1); }

void tern_strbuf_vprintf(tern_strbuf *b, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->ptr + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void tern_strbuf_printf(tern_strbuf *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tern_strbuf_vprintf(b, format, args);
    va_end(args);
}

void tern_strbuf_json(tern_strbuf *b, const char *text, size_t n) {
    tern_strbuf_putc(b, '"');
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int length = tern_utf8_decode(text + i, n - i, &code);
        if (length <= 0) {
            tern_strbuf_puts(b, "\xEF\xBF\xBD");
            i++;
            continue;
        }
        if (code == '"' || code == '\\')
            tern_strbuf_printf(b, "\\%c", (char)code);
        else if (code == '\n')
            tern_strbuf_puts(b, "\\n");
        else if (code == '\t')
            tern_strbuf_puts(b, "\\t");
        else if (code == '\r')
            tern_strbuf_puts(b, "\\r");
        else if (code < 0x20 || code == 0x7f)
            tern_strbuf_printf(b, "\\u%04x", (unsigned)code);
        else
            tern_strbuf_append(b, text + i, (size_t)length);
        i += (size_t)length;
    }
    tern_strbuf_putc(b, '"');
}

void tern_strbuf_json_number(tern_strbuf *b, double v) {
    char text[40] = "null";
    for (int digits = 6; isfinite(v) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    tern_strbuf_puts(b, text);
}

void tern_strbuf_json_float(tern_strbuf *b, float v) {
    char text[40] = "null";
    for (int digits = 6; isfinite(v) && digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    tern_strbuf_puts(b, text);
}

void tern_strbuf_base64(tern_strbuf *b, const void *bytes, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++) v = v << 8 | (i + k < n ? at[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            tern_strbuf_putc(b, i + k <= n ? digits[v >> (18 - 6 * k) & 63] : '=');
    }
}

static int value64(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool tern_strbuf_unbase64(tern_strbuf *b, tern_str text) {
    char bytes[512]; // appended in blocks: an image has millions
    size_t n = 0;
    uint32_t bits = 0;
    int n_bits = 0;
    for (; text.len; text.len--)
        if (text.ptr[text.len - 1] != '=' && text.ptr[text.len - 1] != '\n') break;
    for (size_t i = 0; i < text.len; i++) {
        int v = value64(text.ptr[i]);
        if (v < 0 && (text.ptr[i] == '\n' || text.ptr[i] == '\r')) continue;
        if (v < 0) return false;
        bits = (bits << 6 | (uint32_t)v) & 0xFFFF;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        bytes[n++] = (char)(bits >> n_bits);
        if (n == sizeof bytes) {
            tern_strbuf_append(b, bytes, n);
            n = 0;
        }
    }
    tern_strbuf_append(b, bytes, n);
    return n_bits < 6; // a digit alone does not make a byte
}

void tern_strbuf_clear(tern_strbuf *b) {
    b->len = 0;
    if (b->ptr) b->ptr[0] = 0;
}

void tern_strbuf_free(tern_strbuf *b) {
    tern_free(b->ptr);
    *b = (tern_strbuf){0};
}

const char *tern_strbuf_text(const tern_strbuf *b) { return b->ptr ? b->ptr : ""; }
