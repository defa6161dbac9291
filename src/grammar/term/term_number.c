// Numbers as texts: multiples and bounds, digit by digit.
#include <string.h>
#include "grammar/term/term.h"

static const char digits[] = "0123456789";

static tern_term digit_set(tern_terms *t, int first, int last) { // NOTHING where first > last
    tern_byteset s = {{0}};
    for (int d = first; d <= last; d++) tern_byteset_add(&s, (unsigned char)digits[d]);
    return tern_term_set(t, s);
}

static tern_term any_digits(tern_terms *t, uint32_t min, uint32_t max) {
    return tern_term_repeat(t, digit_set(t, 0, 9), min, max);
}

// ---- Multiples ----------------------------------------------------------------------------------
//
// A MULTIPLE has m (a), the remainder of the digits so far (b), and how many decimals count and how
// many were seen, + 1 after the point (c). Decimals that do not count must be 0.

static tern_term multiple(tern_terms *t, uint32_t m, uint32_t rest, uint32_t n_decimals,
                          uint32_t seen) {
    tern_byteset first = tern_byteset_range('0', '9');
    if (seen == 0) {
        tern_byteset_add(&first, '.');
        tern_byteset_add(&first, '-');
    } else if (seen > n_decimals) {
        first = tern_byteset_range('0', '0');
    }
    uint64_t r = rest;
    for (uint32_t i = seen ? seen - 1 : 0; i < n_decimals; i++) r = r * 10 % m;
    const tern_term_node node = {.kind = TERN_KIND_MULTIPLE,
                                 .flags = TERN_TERM_HARD | (r == 0 ? TERN_TERM_NULLABLE : 0),
                                 .a = m,
                                 .b = rest,
                                 .c = n_decimals << 8 | seen};
    return tern_term_intern(t, &node, &first);
}

tern_term tern_term_multiple(tern_terms *t, uint32_t m, uint32_t n_decimals) {
    return multiple(t, m, 0, n_decimals, 0);
}

tern_term tern_term_multiple_derive(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same) {
    const tern_term_node n = t->nodes[a];
    const tern_byteset one = tern_byteset_range(byte, byte);
    const uint32_t n_decimals = n.c >> 8, seen = n.c & 255;
    for (int i = 0; i < 4; i++) same->w[i] &= one.w[i];
    if (byte == '-') return multiple(t, n.a, n.b, n_decimals, seen);
    if (byte == '.') return multiple(t, n.a, n.b, n_decimals, 1);
    if (seen > n_decimals) return a; // a zero
    uint32_t rest = (uint32_t)(((uint64_t)n.b * 10 + (byte - '0')) % n.a);
    return multiple(t, n.a, rest, n_decimals, seen ? seen + 1 : 0);
}

// ---- Decimals -----------------------------------------------------------------------------------

bool tern_decimal_read(tern_decimal *d, const char *text, size_t n) {
    size_t i = 0, n_digits = 0;
    long point = -1, exponent = 0;
    *d = (tern_decimal){0};
    if (i < n && text[i] == '-') {
        d->is_negative = true;
        i++;
    }
    for (; i < n && (text[i] == '.' || (text[i] >= '0' && text[i] <= '9')); i++) {
        if (text[i] == '.')
            point = (long)n_digits;
        else if (n_digits == sizeof d->digits)
            return false;
        else
            d->digits[n_digits++] = text[i];
    }
    if (point < 0) point = (long)n_digits;
    if (i < n && (text[i] | 0x20) == 'e') {
        bool down = ++i < n && text[i] == '-';
        if (i < n && (text[i] == '-' || text[i] == '+')) i++;
        for (; i < n && exponent < 100000; i++) exponent = exponent * 10 + (text[i] - '0');
        point += down ? -exponent : exponent;
    }
    // Leading and trailing zeros, and zeros up to a point that lies outside the digits.
    size_t zeros = 0;
    while (zeros < n_digits && d->digits[zeros] == '0') zeros++;
    memmove(d->digits, d->digits + zeros, n_digits - zeros);
    n_digits -= zeros;
    point -= (long)zeros;
    if (n_digits == 0) point = 0;
    while (n_digits > 0 && (long)n_digits > point && d->digits[n_digits - 1] == '0') n_digits--;
    size_t before = point < 1 ? (size_t)(1 - point) : 0;
    if (n_digits == 0) before = 1;
    size_t after = point > (long)n_digits ? (size_t)point - n_digits : 0;
    if (before + n_digits + after > sizeof d->digits) return false;
    memmove(d->digits + before, d->digits, n_digits);
    memset(d->digits, '0', before);
    memset(d->digits + before + n_digits, '0', after);
    d->n_digits = before + n_digits + after;
    d->n_whole = point < 1 ? 1 : (size_t)point;
    if (d->n_digits == 1 && d->digits[0] == '0') d->is_negative = false;
    return true;
}

// ---- Comparing magnitudes -----------------------------------------------------------------------

static tern_term part(tern_terms *t, const char *d, size_t n) { return tern_term_text(t, d, n); }

// ".", then digits.
static tern_term point(tern_terms *t, tern_term rest) {
    return tern_term_cat(t, tern_term_byte(t, '.'), rest);
}

static tern_term zeros(tern_terms *t, uint32_t min) {
    return tern_term_repeat(t, digit_set(t, 0, 0), min, TERN_NO_LIMIT);
}

// Digits that are equal to d[0..n) up to some place, and greater (or less) there; then digits:
// exactly as many as are left, or any number.
static tern_term differ(tern_terms *t, const char *d, size_t n, bool greater, bool is_whole) {
    tern_term sum = TERN_TERM_NOTHING;
    for (size_t i = n; i-- > 0;) {
        int digit = d[i] - '0', low = is_whole && i == 0 && n > 1 ? 1 : 0;
        tern_term here = greater ? digit_set(t, digit + 1, 9) : digit_set(t, low, digit - 1);
        uint32_t left = (uint32_t)(n - i - 1);
        tern_term rest = is_whole ? any_digits(t, left, left) : any_digits(t, 0, TERN_NO_LIMIT);
        tern_term way = tern_term_cat(t, here, rest);
        sum = tern_term_or(t, sum, tern_term_cat(t, part(t, d, i), way));
    }
    return sum;
}

static tern_term whole_above(tern_terms *t, const tern_decimal *d) {
    tern_term longer =
        tern_term_cat(t, digit_set(t, 1, 9), any_digits(t, (uint32_t)d->n_whole, TERN_NO_LIMIT));
    return tern_term_or(t, longer, differ(t, d->digits, d->n_whole, true, true));
}

static tern_term whole_below(tern_terms *t, const tern_decimal *d) {
    tern_term sum = differ(t, d->digits, d->n_whole, false, true);
    if (d->n_whole == 1) return sum;
    sum = tern_term_or(t, sum, tern_term_byte(t, '0'));
    return tern_term_or(
        t, sum, tern_term_cat(t, digit_set(t, 1, 9), any_digits(t, 0, (uint32_t)d->n_whole - 2)));
}

// Fractions (with their point, or nothing) above, below and equal to the bound's.
static tern_term fraction_above(tern_terms *t, const char *f, size_t n) {
    tern_term more = tern_term_cat(
        t, zeros(t, 0), tern_term_cat(t, digit_set(t, 1, 9), any_digits(t, 0, TERN_NO_LIMIT)));
    return point(
        t, tern_term_or(t, differ(t, f, n, true, false), tern_term_cat(t, part(t, f, n), more)));
}

static tern_term fraction_below(tern_terms *t, const char *f, size_t n) {
    if (n == 0) return TERN_TERM_NOTHING;
    tern_term sum = differ(t, f, n, false, false);
    for (size_t i = 1; i < n; i++) sum = tern_term_or(t, sum, part(t, f, i));
    return tern_term_or(t, TERN_TERM_EMPTY, point(t, sum));
}

static tern_term fraction_equal(tern_terms *t, const char *f, size_t n) {
    if (n == 0) return tern_term_or(t, TERN_TERM_EMPTY, point(t, zeros(t, 1)));
    return point(t, tern_term_cat(t, part(t, f, n), zeros(t, 0)));
}

static tern_term any_fraction(tern_terms *t) {
    return tern_term_or(t, TERN_TERM_EMPTY, point(t, any_digits(t, 1, TERN_NO_LIMIT)));
}

// Magnitudes above (or below) the bound's, and, unless strict, equal to it.
static tern_term compare(tern_terms *t, const tern_decimal *d, bool above, bool strict,
                         bool whole) {
    const char *f = d->digits + d->n_whole;
    const size_t n = d->n_digits - d->n_whole;
    tern_term far = above ? whole_above(t, d) : whole_below(t, d);
    tern_term near = part(t, d->digits, d->n_whole), rest = TERN_TERM_NOTHING;
    if (whole) {
        bool is_in = n > 0 ? !above : !strict; // 3 is below 3.5
        return is_in ? tern_term_or(t, far, near) : far;
    }
    rest = above ? fraction_above(t, f, n) : fraction_below(t, f, n);
    if (!strict) rest = tern_term_or(t, rest, fraction_equal(t, f, n));
    far = tern_term_cat(t, far, any_fraction(t));
    return tern_term_or(t, far, tern_term_cat(t, near, rest));
}

// ---- Bounds -------------------------------------------------------------------------------------

static tern_term minus(tern_terms *t, tern_term a) {
    return tern_term_cat(t, tern_term_byte(t, '-'), a);
}

static tern_term any_magnitude(tern_terms *t, bool whole) {
    tern_term digits_of =
        tern_term_or(t, tern_term_byte(t, '0'),
                     tern_term_cat(t, digit_set(t, 1, 9), any_digits(t, 0, TERN_NO_LIMIT)));
    return whole ? digits_of : tern_term_cat(t, digits_of, any_fraction(t));
}

tern_term tern_term_at_least(tern_terms *t, const tern_decimal *b, bool strict, bool whole) {
    if (!b->is_negative) return compare(t, b, true, strict, whole);
    return tern_term_or(t, any_magnitude(t, whole), minus(t, compare(t, b, false, strict, whole)));
}

tern_term tern_term_at_most(tern_terms *t, const tern_decimal *b, bool strict, bool whole) {
    if (b->is_negative) return minus(t, compare(t, b, true, strict, whole));
    tern_term above_zero =
        compare(t, &(tern_decimal){.digits = "0", .n_whole = 1, .n_digits = 1}, true, true, whole);
    return tern_term_or(t, minus(t, above_zero), compare(t, b, false, strict, whole));
}

tern_term tern_term_equal(tern_terms *t, const tern_decimal *d) {
    tern_term a =
        tern_term_cat(t, part(t, d->digits, d->n_whole),
                      fraction_equal(t, d->digits + d->n_whole, d->n_digits - d->n_whole));
    bool is_zero = d->n_digits == 1 && d->digits[0] == '0';
    if (is_zero) return tern_term_or(t, a, minus(t, a));
    return d->is_negative ? minus(t, a) : a;
}
