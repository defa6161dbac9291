// Fractions of whole numbers of any length up to a bound, for arithmetic without rounding.
#ifndef TERN_AGENT_RATIONAL_H
#define TERN_AGENT_RATIONAL_H

#include "base/status.h"
#include "base/strbuf.h"

#define RATIONAL_DIGITS_MAX 2000 // of numerator or denominator; more is refused

typedef struct whole { // digits to the base 10^9, the lowest first; no zeros at the top
    uint32_t *digits;  // [n]
    size_t n, capacity;
} whole;

typedef struct rational {
    bool is_negative;  // never of 0
    whole over, under; // without a common factor; under is at least 1
} rational;

// Each replaces *out, which must be zeroed or a value, and may be one of the operands. They fail if
// memory is out, a number is too long, or the result does not exist (1 / 0).
tern_status rational_read(rational *out, const char *digits, size_t n, tern_error *err); // "1.50"
tern_status rational_add(rational *out, const rational *a, const rational *b, bool subtract,
                         tern_error *err);
tern_status rational_multiply(rational *out, const rational *a, const rational *b, tern_error *err);
tern_status rational_divide(rational *out, const rational *a, const rational *b, tern_error *err);
// Rounded to a whole number: down, up (is_up), or to the nearest one, halves away from 0.
typedef enum rational_rounding { ROUND_DOWN, ROUND_UP, ROUND_NEAREST } rational_rounding;
tern_status rational_round(rational *out, const rational *a, rational_rounding how,
                           tern_error *err);
int rational_compare(const rational *a, const rational *b, bool *failed); // -1, 0, 1
bool rational_is_whole(const rational *a);
bool rational_is_zero(const rational *a);
// Whether it is whole and within these bounds; then *out is the value.
bool rational_small(const rational *a, long least, long most, long *out);
void rational_free(rational *a);
tern_status rational_copy(rational *out, const rational *a, tern_error *err);
// A decimal if it is finite; else "1/3 (about 0.333333333333333333)".
tern_status rational_print(const rational *a, tern_strbuf *out, tern_error *err);

#endif
