// Sets of characters, and the bytes that spell them: UTF-8, or what may stand in a JSON string.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "grammar/term/term.h"

// ---- Sets ---------------------------------------------------------------------------------------

void tern_codes_add(tern_codes *c, uint32_t first, uint32_t last) {
    if (tern_array_reserve(TERN_MEM_SESSION, &c->ranges, &c->capacity, c->n, 1) != 0) {
        c->failed = true;
        return;
    }
    c->ranges[c->n++] = (tern_code_range){first, last};
}

void tern_codes_add_all(tern_codes *c, const tern_codes *from) {
    for (size_t i = 0; i < from->n; i++)
        tern_codes_add(c, from->ranges[i].first, from->ranges[i].last);
}

static int by_first(const void *a, const void *b) {
    uint32_t x = ((const tern_code_range *)a)->first, y = ((const tern_code_range *)b)->first;
    return x < y ? -1 : x > y;
}

void tern_codes_normalize(tern_codes *c) {
    size_t n = 0;
    if (c->n > 1) qsort(c->ranges, c->n, sizeof *c->ranges, by_first);
    for (size_t i = 0; i < c->n; i++) {
        tern_code_range r = c->ranges[i];
        if (n > 0 && r.first <= c->ranges[n - 1].last + 1) {
            if (r.last > c->ranges[n - 1].last) c->ranges[n - 1].last = r.last;
        } else {
            c->ranges[n++] = r;
        }
    }
    c->n = n;
}

void tern_codes_invert(tern_codes *c) {
    tern_codes out = {.failed = c->failed};
    uint32_t next = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->ranges[i].first > next) tern_codes_add(&out, next, c->ranges[i].first - 1);
        next = c->ranges[i].last + 1;
    }
    if (next <= TERN_CODE_MAX) tern_codes_add(&out, next, TERN_CODE_MAX);
    tern_free(c->ranges);
    *c = out;
}

void tern_codes_free(tern_codes *c) {
    tern_free(c->ranges);
    *c = (tern_codes){0};
}

// ---- Numbers as rows of digits ------------------------------------------------------------------
//
// UTF-8, \uXXXX and surrogate pairs all write a number as a fixed count of digits, each of some
// bits; only the bytes for a digit differ. So a range of characters is a few rows of ranges of
// digits.

typedef struct digit {
    int bits;
    const char *before; // text in front of it
    enum { AS_BYTE, AS_HEX } as;
    unsigned base; // added to the digit's value
} digit;

static tern_term digit_term(tern_terms *t, const digit *d, unsigned first, unsigned last) {
    tern_byteset s = {{0}};
    for (unsigned v = first + d->base; v <= last + d->base; v++) {
        if (d->as == AS_BYTE) {
            tern_byteset_add(&s, v);
        } else {
            tern_byteset_add(&s, (unsigned char)"0123456789abcdef"[v]);
            tern_byteset_add(&s, (unsigned char)"0123456789ABCDEF"[v]);
        }
    }
    return tern_term_cat(t, tern_term_text(t, d->before, strlen(d->before)), tern_term_set(t, s));
}

// All numbers of n digits from first to last.
static tern_term range_term(tern_terms *t, const digit *d, int n, uint32_t first, uint32_t last) {
    if (n == 0) return TERN_TERM_EMPTY;
    int bits = 0;
    for (int i = 1; i < n; i++) bits += d[i].bits;
    const uint32_t mask = ((uint32_t)1 << bits) - 1;
    unsigned low = first >> bits, high = last >> bits;
    if (low == high)
        return tern_term_cat(t, digit_term(t, d, low, low),
                             range_term(t, d + 1, n - 1, first & mask, last & mask));
    tern_term parts[3];
    size_t n_parts = 0;
    if (first & mask) {
        parts[n_parts++] = tern_term_cat(t, digit_term(t, d, low, low),
                                         range_term(t, d + 1, n - 1, first & mask, mask));
        low++;
    }
    if ((last & mask) != mask) {
        parts[n_parts++] = tern_term_cat(t, digit_term(t, d, high, high),
                                         range_term(t, d + 1, n - 1, 0, last & mask));
        high--;
    }
    if (low <= high) {
        parts[n_parts++] =
            tern_term_cat(t, digit_term(t, d, low, high), range_term(t, d + 1, n - 1, 0, mask));
    }
    return tern_term_either(t, parts, n_parts);
}

// The part of [first, last] that lies in [low, high], as digits of its distance from `base`.
static tern_term part_term(tern_terms *t, tern_code_range r, tern_code_range within, uint32_t base,
                           const digit *d, int n) {
    if (r.first < within.first) r.first = within.first;
    if (r.last > within.last) r.last = within.last;
    if (r.first > r.last) return TERN_TERM_NOTHING;
    return range_term(t, d, n, r.first - base, r.last - base);
}

static tern_term utf8_term(tern_terms *t, tern_code_range r) {
    static const digit one[] = {{7, "", AS_BYTE, 0}};
    static const digit two[] = {{5, "", AS_BYTE, 0xC0}, {6, "", AS_BYTE, 0x80}};
    static const digit three[] = {
        {4, "", AS_BYTE, 0xE0}, {6, "", AS_BYTE, 0x80}, {6, "", AS_BYTE, 0x80}};
    static const digit four[] = {{3, "", AS_BYTE, 0xF0},
                                 {6, "", AS_BYTE, 0x80},
                                 {6, "", AS_BYTE, 0x80},
                                 {6, "", AS_BYTE, 0x80}};
    const tern_term parts[] = {
        part_term(t, r, (tern_code_range){0, 0x7F}, 0, one, 1),
        part_term(t, r, (tern_code_range){0x80, 0x7FF}, 0, two, 2),
        part_term(t, r, (tern_code_range){0x800, 0xD7FF}, 0, three, 3),
        part_term(t, r, (tern_code_range){0xE000, 0xFFFF}, 0, three, 3),
        part_term(t, r, (tern_code_range){0x10000, TERN_CODE_MAX}, 0, four, 4)};
    return tern_term_either(t, parts, 5);
}

static const char escaped[] = "\"\\/\b\f\n\r\t", letters[] = "\"\\/bfnrt";

// Characters in a JSON string.
static tern_term json_term(tern_terms *t, tern_code_range r) {
    static const digit four[] = {
        {4, "\\u", AS_HEX, 0}, {4, "", AS_HEX, 0}, {4, "", AS_HEX, 0}, {4, "", AS_HEX, 0}};
    // D, then 8 to B or C to F. A digit of no bits is a constant.
    static const digit pair[] = {
        {0, "\\u", AS_HEX, 13}, {2, "", AS_HEX, 8},  {4, "", AS_HEX, 0}, {4, "", AS_HEX, 0},
        {0, "\\u", AS_HEX, 13}, {2, "", AS_HEX, 12}, {4, "", AS_HEX, 0}, {4, "", AS_HEX, 0}};
    tern_term parts[7] = {
        part_term(t, r, (tern_code_range){0, 0xD7FF}, 0, four, 4),
        part_term(t, r, (tern_code_range){0xE000, 0xFFFF}, 0, four, 4),
        part_term(t, r, (tern_code_range){0x10000, TERN_CODE_MAX}, 0x10000, pair, 8)};
    // Unescaped: all but controls, the quote and the backslash.
    static const tern_code_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, TERN_CODE_MAX}};
    for (size_t i = 0; i < 3; i++) {
        tern_code_range q = {r.first > plain[i].first ? r.first : plain[i].first,
                             r.last < plain[i].last ? r.last : plain[i].last};
        if (q.first <= q.last) parts[3 + i] = utf8_term(t, q);
    }
    tern_byteset letter = {{0}};
    for (size_t i = 0; i < sizeof escaped - 1; i++)
        if ((unsigned char)escaped[i] >= r.first && (unsigned char)escaped[i] <= r.last)
            tern_byteset_add(&letter, (unsigned char)letters[i]);
    if (!tern_byteset_is_empty(&letter))
        parts[6] = tern_term_cat(t, tern_term_byte(t, '\\'), tern_term_set(t, letter));
    return tern_term_either(t, parts, 7);
}

tern_term tern_term_codes(tern_terms *t, const tern_codes *c, tern_spelling spelling) {
    tern_term *parts = tern_alloc_array(TERN_MEM_SESSION, c->n + 1, sizeof *parts);
    if (!parts || c->failed) {
        tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
        tern_free(parts);
        return TERN_TERM_NOTHING;
    }
    for (size_t i = 0; i < c->n; i++)
        parts[i] = (spelling == TERN_SPELL_JSON ? json_term : utf8_term)(t, c->ranges[i]);
    tern_term all = tern_term_either(t, parts, c->n);
    tern_free(parts);
    return all;
}

tern_term tern_term_any_code(tern_terms *t, tern_spelling spelling) {
    tern_code_range all = {0, TERN_CODE_MAX};
    return tern_term_codes(t, &(tern_codes){.ranges = &all, .n = 1}, spelling);
}

tern_term tern_term_spelled(tern_terms *t, const char *text, size_t n, tern_spelling spelling) {
    if (spelling == TERN_SPELL_UTF8) return tern_term_text(t, text, n);
    tern_strbuf b = {0};
    tern_strbuf_json(&b, text, n);
    tern_term a = tern_term_text(t, tern_strbuf_text(&b) + 1, b.len < 2 ? 0 : b.len - 2);
    if (b.failed) {
        tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
    }
    tern_strbuf_free(&b);
    return a;
}
