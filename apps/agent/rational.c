// See rational.h. Schoolbook arithmetic: numbers have a few hundred digits of nine at most.
#include "apps/agent/rational.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"

#define BASE      1000000000u
#define WIDTH     9
#define LIMBS_MAX ((RATIONAL_DIGITS_MAX + WIDTH - 1) / WIDTH)

// ---- Whole numbers, not negative ----------------------------------------------------------------

static tern_status resize(whole *w, size_t n, tern_error *err) {
    // Intermediate values may have twice the bound: products and common denominators shrink again.
    if (n > 2 * LIMBS_MAX + 2)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a number with more than %d digits",
                         RATIONAL_DIGITS_MAX);
    if (tern_array_reserve(TERN_MEM_MISC, &w->digits, &w->capacity, 0, n ? n : 1) != 0)
        return tern_fail_memory(err, n * sizeof *w->digits);
    if (n > w->n) memset(w->digits + w->n, 0, (n - w->n) * sizeof *w->digits);
    w->n = n;
    return TERN_OK;
}

static void trim(whole *w) {
    while (w->n && !w->digits[w->n - 1]) w->n--;
}

static void free_whole(whole *w) {
    tern_free(w->digits);
    *w = (whole){0};
}

static void move(whole *to, whole *from) {
    free_whole(to);
    *to = *from;
    *from = (whole){0};
}

static tern_status copy(whole *to, const whole *from, tern_error *err) {
    whole w = {0};
    TERN_TRY(resize(&w, from->n, err));
    if (from->n) memcpy(w.digits, from->digits, from->n * sizeof *w.digits);
    move(to, &w);
    return TERN_OK;
}

static int compare(const whole *a, const whole *b) {
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    for (size_t i = a->n; i-- > 0;)
        if (a->digits[i] != b->digits[i]) return a->digits[i] < b->digits[i] ? -1 : 1;
    return 0;
}

static tern_status add(whole *out, const whole *a, const whole *b, tern_error *err) {
    whole w = {0};
    size_t n = a->n > b->n ? a->n : b->n;
    uint32_t carry = 0;
    TERN_TRY(resize(&w, n + 1, err));
    for (size_t i = 0; i <= n; i++) {
        uint32_t sum = carry + (i < a->n ? a->digits[i] : 0) + (i < b->n ? b->digits[i] : 0);
        carry = sum >= BASE;
        w.digits[i] = carry ? sum - BASE : sum;
    }
    trim(&w);
    move(out, &w);
    return TERN_OK;
}

// a is at least b.
static tern_status subtract(whole *out, const whole *a, const whole *b, tern_error *err) {
    whole w = {0};
    uint32_t borrow = 0;
    TERN_TRY(resize(&w, a->n, err));
    for (size_t i = 0; i < a->n; i++) {
        uint32_t take = borrow + (i < b->n ? b->digits[i] : 0);
        borrow = a->digits[i] < take;
        w.digits[i] = a->digits[i] + (borrow ? BASE : 0) - take;
    }
    trim(&w);
    move(out, &w);
    return TERN_OK;
}

static tern_status multiply(whole *out, const whole *a, const whole *b, tern_error *err) {
    whole w = {0};
    TERN_TRY(resize(&w, a->n && b->n ? a->n + b->n : 0, err));
    for (size_t i = 0; i < a->n && b->n; i++) {
        uint64_t carry = 0;
        for (size_t k = 0; k < b->n || carry; k++) {
            uint64_t v = w.digits[i + k] + carry;
            if (k < b->n) v += (uint64_t)a->digits[i] * b->digits[k];
            w.digits[i + k] = (uint32_t)(v % BASE);
            carry = v / BASE;
        }
    }
    trim(&w);
    move(out, &w);
    return TERN_OK;
}

// Divides by one digit (base 10^9), in place; returns the remainder.
static uint32_t divide_small(whole *w, uint32_t by) {
    uint64_t rest = 0;
    for (size_t i = w->n; i-- > 0;) {
        rest = rest * BASE + w->digits[i];
        w->digits[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    trim(w);
    return (uint32_t)rest;
}

static void multiply_small(whole *w, uint32_t by) { // the top digit has room
    uint64_t carry = 0;
    for (size_t i = 0; i < w->n; i++) {
        carry += (uint64_t)w->digits[i] * by;
        w->digits[i] = (uint32_t)(carry % BASE);
        carry /= BASE;
    }
}

// Knuth's algorithm D: rest becomes rest mod by, quotient gets the digits. Both are normalised: the
// top digit of `by` is at least half the base, and rest has an extra 0 digit at the top.
static void divide_long(whole *quotient, whole *rest, const whole *by) {
    size_t n = by->n;
    for (size_t j = rest->n - n; j-- > 0;) {
        uint64_t top = (uint64_t)rest->digits[j + n] * BASE + rest->digits[j + n - 1];
        uint64_t guess = top / by->digits[n - 1], left = top % by->digits[n - 1];
        while (guess >= BASE || guess * by->digits[n - 2] > left * BASE + rest->digits[j + n - 2]) {
            guess--;
            left += by->digits[n - 1];
            if (left >= BASE) break;
        }
        int64_t borrow = 0;
        uint64_t carry = 0;
        for (size_t i = 0; i <= n; i++) {
            carry += i < n ? guess * by->digits[i] : 0;
            int64_t v = (int64_t)rest->digits[j + i] - (int64_t)(carry % BASE) - borrow;
            carry /= BASE;
            borrow = v < 0;
            rest->digits[j + i] = (uint32_t)(v + (borrow ? BASE : 0));
        }
        if (borrow) { // the guess was one too high
            uint32_t over = 0;
            guess--;
            for (size_t i = 0; i <= n; i++) {
                uint32_t sum = rest->digits[j + i] + over + (i < n ? by->digits[i] : 0);
                over = sum >= BASE;
                rest->digits[j + i] = over ? sum - BASE : sum;
            }
        }
        quotient->digits[j] = (uint32_t)guess;
    }
}

// quotient and rest must not be the operands; by must not be 0.
static tern_status divide(whole *quotient, whole *rest, const whole *a, const whole *by,
                          tern_error *err) {
    whole divisor = {0};
    TERN_TRY(copy(rest, a, err));
    if (compare(a, by) < 0) return resize(quotient, 0, err);
    if (by->n == 1) {
        TERN_TRY(copy(quotient, a, err));
        uint32_t left = divide_small(quotient, by->digits[0]);
        TERN_TRY(resize(rest, 0, err));
        TERN_TRY(resize(rest, left ? 1 : 0, err));
        if (left) rest->digits[0] = left;
        return TERN_OK;
    }
    tern_status status = copy(&divisor, by, err);
    uint32_t scale = BASE / (by->digits[by->n - 1] + 1);
    if (status == TERN_OK) status = resize(rest, a->n + 1, err);
    if (status == TERN_OK) status = resize(quotient, 0, err);
    if (status == TERN_OK) status = resize(quotient, a->n + 1 - by->n, err);
    if (status == TERN_OK) {
        multiply_small(rest, scale);
        multiply_small(&divisor, scale);
        divide_long(quotient, rest, &divisor);
        trim(quotient);
        trim(rest);
        divide_small(rest, scale);
    }
    free_whole(&divisor);
    return status;
}

static tern_status common_factor(whole *out, const whole *a, const whole *b, tern_error *err) {
    whole x = {0}, y = {0}, quotient = {0}, rest = {0};
    tern_status status = copy(&x, a, err);
    if (status == TERN_OK) status = copy(&y, b, err);
    while (status == TERN_OK && y.n) {
        status = divide(&quotient, &rest, &x, &y, err);
        move(&x, &y);
        move(&y, &rest);
    }
    if (status == TERN_OK) move(out, &x);
    free_whole(&x);
    free_whole(&y);
    free_whole(&quotient);
    free_whole(&rest);
    return status;
}

// ---- Fractions ---------------------------------------------------------------------------------

void rational_free(rational *a) {
    free_whole(&a->over);
    free_whole(&a->under);
    a->is_negative = false;
}

tern_status rational_copy(rational *out, const rational *a, tern_error *err) {
    bool is_negative = a->is_negative;
    TERN_TRY(copy(&out->over, &a->over, err));
    TERN_TRY(copy(&out->under, &a->under, err));
    out->is_negative = is_negative;
    return TERN_OK;
}

// Reduces the fraction; takes ownership of *a in any case.
static tern_status settle(rational *out, rational *a, tern_error *err) {
    whole factor = {0}, rest = {0}, over = {0}, under = {0};
    tern_status status = common_factor(&factor, &a->over, &a->under, err);
    if (status == TERN_OK) status = divide(&over, &rest, &a->over, &factor, err);
    if (status == TERN_OK) status = divide(&under, &rest, &a->under, &factor, err);
    if (status == TERN_OK && (over.n > LIMBS_MAX || under.n > LIMBS_MAX))
        status = tern_fail(err, TERN_ERR_ARGUMENT, "a number with more than %d digits",
                           RATIONAL_DIGITS_MAX);
    if (status == TERN_OK) {
        out->is_negative = a->is_negative && over.n > 0;
        move(&out->over, &over);
        move(&out->under, &under);
    }
    free_whole(&factor);
    free_whole(&rest);
    free_whole(&over);
    free_whole(&under);
    if (a != out) rational_free(a);
    return status;
}

tern_status rational_read(rational *out, const char *digits, size_t n, tern_error *err) {
    rational r = {0};
    size_t n_digits = 0, n_after = 0;
    bool after = false;
    for (size_t i = 0; i < n; i++) {
        after |= digits[i] == '.';
        n_digits += digits[i] != '.';
        n_after += after && digits[i] != '.';
    }
    if (n_digits > RATIONAL_DIGITS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a number with more than %d digits",
                         RATIONAL_DIGITS_MAX);
    tern_status status = resize(&r.over, n_digits / WIDTH + 1, err);
    if (status == TERN_OK) status = resize(&r.under, n_after / WIDTH + 1, err);
    if (status == TERN_OK) {
        static const uint32_t tens[] = {1,      10,      100,      1000,     10000,
                                        100000, 1000000, 10000000, 100000000};
        size_t at = 0; // digits from the end
        for (size_t i = n; i-- > 0;)
            if (digits[i] != '.') {
                r.over.digits[at / WIDTH] += (uint32_t)(digits[i] - '0') * tens[at % WIDTH];
                at++;
            }
        r.under.digits[n_after / WIDTH] = tens[n_after % WIDTH];
        trim(&r.over);
        return settle(out, &r, err);
    }
    rational_free(&r);
    return status;
}

tern_status rational_add(rational *out, const rational *a, const rational *b, bool subtracts,
                         tern_error *err) {
    rational r = {0};
    whole left = {0}, right = {0};
    bool is_negative = b->is_negative != subtracts;
    tern_status status = multiply(&left, &a->over, &b->under, err);
    if (status == TERN_OK) status = multiply(&right, &b->over, &a->under, err);
    if (status == TERN_OK) status = multiply(&r.under, &a->under, &b->under, err);
    if (status == TERN_OK) {
        int order = compare(&left, &right);
        r.is_negative = order >= 0 ? a->is_negative : is_negative;
        status = a->is_negative == is_negative ? add(&r.over, &left, &right, err)
                 : order >= 0                  ? subtract(&r.over, &left, &right, err)
                                               : subtract(&r.over, &right, &left, err);
    }
    free_whole(&left);
    free_whole(&right);
    if (status == TERN_OK) return settle(out, &r, err);
    rational_free(&r);
    return status;
}

// Multiplies by b, or by its inverse.
static tern_status scale(rational *out, const rational *a, const rational *b, bool inverse,
                         tern_error *err) {
    rational r = {.is_negative = a->is_negative != b->is_negative};
    tern_status status = multiply(&r.over, &a->over, inverse ? &b->under : &b->over, err);
    if (status == TERN_OK)
        status = multiply(&r.under, &a->under, inverse ? &b->over : &b->under, err);
    if (status == TERN_OK) return settle(out, &r, err);
    rational_free(&r);
    return status;
}

tern_status rational_multiply(rational *out, const rational *a, const rational *b,
                              tern_error *err) {
    return scale(out, a, b, false, err);
}

tern_status rational_divide(rational *out, const rational *a, const rational *b, tern_error *err) {
    if (rational_is_zero(b)) return tern_fail(err, TERN_ERR_ARGUMENT, "a division by 0");
    return scale(out, a, b, true, err);
}

tern_status rational_round(rational *out, const rational *a, rational_rounding how,
                           tern_error *err) {
    rational r = {.is_negative = a->is_negative};
    whole rest = {0}, twice = {0};
    static uint32_t one_digit[] = {1};
    const whole one = {.digits = one_digit, .n = 1};
    tern_status status = divide(&r.over, &rest, &a->over, &a->under, err);
    if (status == TERN_OK) status = add(&twice, &rest, &rest, err);
    if (status == TERN_OK) {
        bool away = how == ROUND_NEAREST ? compare(&twice, &a->under) >= 0
                                         : rest.n > 0 && a->is_negative == (how == ROUND_DOWN);
        if (away) status = add(&r.over, &r.over, &one, err);
    }
    if (status == TERN_OK) status = copy(&r.under, &one, err);
    free_whole(&rest);
    free_whole(&twice);
    if (status == TERN_OK) return settle(out, &r, err);
    rational_free(&r);
    return status;
}

int rational_compare(const rational *a, const rational *b, bool *failed) {
    rational difference = {0};
    *failed = rational_add(&difference, a, b, true, NULL) != TERN_OK;
    int order = rational_is_zero(&difference) ? 0 : difference.is_negative ? -1 : 1;
    rational_free(&difference);
    return order;
}

bool rational_is_whole(const rational *a) { return a->under.n == 1 && a->under.digits[0] == 1; }
bool rational_is_zero(const rational *a) { return a->over.n == 0; }

bool rational_small(const rational *a, long least, long most, long *out) {
    if (!rational_is_whole(a) || a->over.n > 1) return false;
    long v = a->over.n ? (long)a->over.digits[0] : 0;
    *out = a->is_negative ? -v : v;
    return *out >= least && *out <= most;
}

// ---- Printing ----------------------------------------------------------------------------------

static void print_whole(const whole *w, tern_strbuf *out) {
    tern_strbuf_printf(out, "%u", w->n ? w->digits[w->n - 1] : 0);
    for (size_t i = w->n ? w->n - 1 : 0; i-- > 0;) tern_strbuf_printf(out, "%09u", w->digits[i]);
}

// How many decimals the fraction has; SIZE_MAX: it never ends.
static size_t count_decimals(const rational *a, tern_error *err, tern_status *status) {
    whole w = {0}, tried = {0};
    size_t n_two = 0, n_five = 0;
    *status = copy(&w, &a->under, err);
    for (uint32_t factor = 2; *status == TERN_OK && factor <= 5; factor += 3)
        for (;;) {
            *status = copy(&tried, &w, err);
            if (*status != TERN_OK || divide_small(&tried, factor)) break;
            move(&w, &tried);
            if (factor == 2)
                n_two++;
            else
                n_five++;
        }
    bool ends = w.n == 1 && w.digits[0] == 1;
    free_whole(&w);
    free_whole(&tried);
    return !ends ? SIZE_MAX : n_two > n_five ? n_two : n_five;
}

// With n decimals; truncates the rest.
static tern_status print_decimals(const rational *a, size_t n, tern_strbuf *out, tern_error *err) {
    whole quotient = {0}, rest = {0}, scaled = {0};
    tern_status status = divide(&quotient, &rest, &a->over, &a->under, err);
    if (status == TERN_OK) {
        print_whole(&quotient, out);
        if (n) tern_strbuf_putc(out, '.');
    }
    for (size_t i = 0; i < n && status == TERN_OK; i++) {
        status = resize(&rest, rest.n + 1, err);
        if (status != TERN_OK) break;
        multiply_small(&rest, 10);
        trim(&rest);
        status = divide(&quotient, &scaled, &rest, &a->under, err);
        tern_strbuf_putc(out, (char)('0' + (quotient.n ? quotient.digits[0] : 0)));
        move(&rest, &scaled);
    }
    free_whole(&quotient);
    free_whole(&rest);
    free_whole(&scaled);
    return status;
}

tern_status rational_print(const rational *a, tern_strbuf *out, tern_error *err) {
    tern_status status = TERN_OK;
    size_t n = count_decimals(a, err, &status);
    TERN_TRY(status);
    if (a->is_negative) tern_strbuf_putc(out, '-');
    if (n <= 1000) {
        TERN_TRY(print_decimals(a, n, out, err));
    } else {
        print_whole(&a->over, out);
        tern_strbuf_putc(out, '/');
        print_whole(&a->under, out);
        tern_strbuf_printf(out, " (about %s", a->is_negative ? "-" : "");
        TERN_TRY(print_decimals(a, 20, out, err));
        tern_strbuf_putc(out, ')');
    }
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}
