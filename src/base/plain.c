#include "base/plain.h"

#include <stdio.h>
#include <string.h>
#include "base/utf8.h"

// Characters that show nothing or move others: Unicode's Default_Ignorable_Code_Point, controls,
// separators of lines and paragraphs, annotation marks, noncharacters.
static const struct {
    uint32_t first, last;
} hidden[] = {
    {0x0000, 0x001F},   {0x007F, 0x009F}, {0x00AD, 0x00AD}, {0x034F, 0x034F},   {0x061C, 0x061C},
    {0x115F, 0x1160},   {0x17B4, 0x17B5}, {0x180B, 0x180F}, {0x200B, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x206F},   {0x3164, 0x3164}, {0xFDD0, 0xFDEF}, {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},
    {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
    {0xE0000, 0xE0FFF},
};

bool tern_plain_is(uint32_t code) {
    size_t low = 0, high = sizeof hidden / sizeof *hidden;
    if (code > 0xFFFF && (code & 0xFFFE) == 0xFFFE) return false;
    while (low < high) {
        size_t i = (low + high) / 2;
        if (code < hidden[i].first)
            high = i;
        else if (code > hidden[i].last)
            low = i + 1;
        else
            return false;
    }
    return true;
}

// Joiners within words of Persian or Indian scripts and within emoji, and selectors of an emoji's
// or symbol's variant. In rows of them, which can hide text, they do not follow a visible
// character.
static bool belongs(uint32_t code, uint32_t before) {
    bool joins = code == 0x200C || code == 0x200D, selects = code >= 0xFE00 && code <= 0xFE0F;
    bool is_key =
        code == 0xFE0F && ((before >= '0' && before <= '9') || before == '#' || before == '*');
    if (code == 0x200D && before == 0xFE0F) return true; // an emoji's variant is joined
    return is_key || ((joins || selects) && before >= 0xA1 && tern_plain_is(before));
}

size_t tern_plain_next(tern_plain *p, const char *text, size_t n, char out[TERN_PLAIN_BYTES],
                       size_t *n_out) {
    uint32_t code = 0;
    int length = tern_utf8_decode(text, n, &code);
    bool stays =
        length > 0 && (tern_plain_is(code) ||
                       (p->is_text && (code == '\n' || code == '\t' || belongs(code, p->before))));
    p->before = stays ? code : 0;
    if (stays) {
        memcpy(out, text, (size_t)length);
        *n_out = (size_t)length;
    } else if (length > 0 && (code == '\n' || code == '\t')) {
        *n_out = (size_t)snprintf(out, TERN_PLAIN_BYTES, code == '\n' ? "\\n" : "\\t");
    } else {
        unsigned number = length > 0 ? code : (unsigned char)*text;
        *n_out =
            (size_t)snprintf(out, TERN_PLAIN_BYTES, "\\%c{%02X}", length > 0 ? 'u' : 'x', number);
    }
    return length > 0 ? (size_t)length : 1;
}

void tern_plain_put(tern_plain *p, const char *text, size_t n, tern_strbuf *out) {
    char shown[TERN_PLAIN_BYTES];
    size_t n_shown;
    for (size_t i = 0; i < n;) {
        i += tern_plain_next(p, text + i, n - i, shown, &n_shown);
        tern_strbuf_append(out, shown, n_shown);
    }
}

void tern_plain_line(const char *text, size_t n, tern_strbuf *out) {
    tern_plain p = {0};
    tern_plain_put(&p, text, n, out);
}
