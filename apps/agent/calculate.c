// calculate: the value of an expression, exactly. Numbers are fractions (rational.h), so that
// 0.1 + 0.2 is 0.3, and (1/3) * 3 is 1.
//
//     sum     = product { ("+" | "-") product }
//     product = signed { ("*" | "/" | "%") signed }
//     signed  = ("-" | "+") signed | power
//     power   = value [ ("^" | "**") signed ] { "!" comes with value }
//     value   = number | "(" sum ")" | function "(" sum { "," sum } ")"
#include <string.h>
#include "apps/agent/rational.h"
#include "apps/agent/tools.h"
#include "base/json.h"

#define DEPTH_MAX     100
#define BYTES_MAX     1000 // which limits it to some hundred operations
#define FACTORIAL_MAX 800  // has 1,977 digits

typedef struct parser {
    const char *text;
    size_t n, at;
    int depth;
    tern_error *err;
} parser;

static tern_status read_sum(parser *p, rational *out);
static tern_status read_signed(parser *p, rational *out);

static tern_status unexpected(const parser *p) {
    if (p->at >= p->n) return tern_fail(p->err, TERN_ERR_ARGUMENT, "the expression ends too early");
    size_t n = p->n - p->at < 20 ? p->n - p->at : 20;
    return tern_fail(p->err, TERN_ERR_ARGUMENT, "unexpected '%.*s' at byte %zu", (int)n,
                     p->text + p->at, p->at + 1);
}

static char peek(parser *p) {
    while (p->at < p->n && strchr(" \t\r\n", p->text[p->at]) && p->text[p->at]) p->at++;
    return p->at < p->n ? p->text[p->at] : 0;
}

static bool take(parser *p, const char *sign) {
    peek(p);
    size_t n = strlen(sign);
    if (p->n - p->at < n || memcmp(p->text + p->at, sign, n)) return false;
    p->at += n;
    return true;
}

// ---- Functions ---------------------------------------------------------------------------------

static tern_status set(rational *out, long value, tern_error *err) {
    char digits[24];
    size_t n = 0;
    unsigned long v = value < 0 ? 0ul - (unsigned long)value : (unsigned long)value;
    do digits[sizeof digits - ++n] = (char)('0' + v % 10);
    while (v /= 10);
    TERN_TRY(rational_read(out, digits + sizeof digits - n, n, err));
    out->is_negative = value < 0;
    return TERN_OK;
}

static tern_status power(rational *out, const rational *base, const rational *exponent,
                         tern_error *err) {
    long n = 0;
    if (!rational_small(exponent, -100000, 100000, &n))
        return tern_fail(err, TERN_ERR_ARGUMENT, "exponents are whole numbers, up to 100000");
    if (n < 0 && rational_is_zero(base))
        return tern_fail(err, TERN_ERR_ARGUMENT, "a division by 0");
    rational result = {0}, factor = {0};
    tern_status status = set(&result, 1, err);
    if (status == TERN_OK) status = rational_copy(&factor, base, err);
    for (unsigned long left = (unsigned long)(n < 0 ? -n : n); left && status == TERN_OK;) {
        if (left & 1) status = rational_multiply(&result, &result, &factor, err);
        left >>= 1;
        if (left && status == TERN_OK) status = rational_multiply(&factor, &factor, &factor, err);
    }
    rational one = {0};
    if (status == TERN_OK && n < 0) {
        status = set(&one, 1, err);
        if (status == TERN_OK) status = rational_divide(&result, &one, &result, err);
    }
    if (status == TERN_OK) status = rational_copy(out, &result, err);
    rational_free(&one);
    rational_free(&result);
    rational_free(&factor);
    return status;
}

static tern_status factorial(rational *v, tern_error *err) {
    long n = 0;
    rational factor = {0};
    if (!rational_small(v, 0, FACTORIAL_MAX, &n))
        return tern_fail(err, TERN_ERR_ARGUMENT, "factorials are of whole numbers from 0 to %d",
                         FACTORIAL_MAX);
    tern_status status = set(v, 1, err);
    for (long i = 2; i <= n && status == TERN_OK; i++) {
        status = set(&factor, i, err);
        if (status == TERN_OK) status = rational_multiply(v, v, &factor, err);
    }
    rational_free(&factor);
    return status;
}

// a mod b has the sign of b, as in modular arithmetic.
static tern_status modulo(rational *out, const rational *b, tern_error *err) {
    rational q = {0};
    tern_status status = rational_divide(&q, out, b, err);
    if (status == TERN_OK) status = rational_round(&q, &q, ROUND_DOWN, err);
    if (status == TERN_OK) status = rational_multiply(&q, &q, b, err);
    if (status == TERN_OK) status = rational_add(out, out, &q, true, err);
    rational_free(&q);
    return status;
}

typedef enum function { ABS, FLOOR, CEIL, ROUND, MIN, MAX, N_FUNCTIONS } function;
static const char *const function_names[] = {"abs", "floor", "ceil", "round", "min", "max"};

// round(x, n): to n decimals.
static tern_status round_to(rational *out, const rational *decimals, tern_error *err) {
    rational ten = {0};
    tern_status status = set(&ten, 10, err);
    if (status == TERN_OK) status = power(&ten, &ten, decimals, err);
    if (status == TERN_OK) status = rational_multiply(out, out, &ten, err);
    if (status == TERN_OK) status = rational_round(out, out, ROUND_NEAREST, err);
    if (status == TERN_OK) status = rational_divide(out, out, &ten, err);
    rational_free(&ten);
    return status;
}

// Applies the function to the value so far and one more argument; b: NULL: none.
static tern_status apply(parser *p, function f, rational *out, const rational *b) {
    bool failed = false;
    if (b && f == ROUND) return round_to(out, b, p->err);
    if (b && (f == MIN || f == MAX)) {
        int order = rational_compare(out, b, &failed);
        if (failed) return tern_fail(p->err, TERN_ERR_ARGUMENT, "numbers that are too long");
        return (f == MIN) == (order > 0) && order ? rational_copy(out, b, p->err) : TERN_OK;
    }
    if (b) return tern_fail(p->err, TERN_ERR_ARGUMENT, "%s takes one number", function_names[f]);
    if (f == ABS) out->is_negative = false;
    if (f == MIN || f == MAX || f == ABS) return TERN_OK;
    return rational_round(out, out,
                          f == FLOOR  ? ROUND_DOWN
                          : f == CEIL ? ROUND_UP
                                      : ROUND_NEAREST,
                          p->err);
}

static tern_status read_function(parser *p, rational *out) {
    size_t f = 0, from = p->at, n;
    while (p->at < p->n && ((p->text[p->at] | 32) >= 'a' && (p->text[p->at] | 32) <= 'z')) p->at++;
    n = p->at - from;
    while (f < N_FUNCTIONS &&
           (strlen(function_names[f]) != n || memcmp(function_names[f], p->text + from, n)))
        f++;
    p->at = f < N_FUNCTIONS ? p->at : from;
    if (f == N_FUNCTIONS || !take(p, "(")) return unexpected(p);
    TERN_TRY(read_sum(p, out));
    size_t n_more = 0;
    for (; take(p, ","); n_more++) {
        rational b = {0};
        tern_status status = read_sum(p, &b);
        if (status == TERN_OK && f == ROUND && n_more)
            status = tern_fail(p->err, TERN_ERR_ARGUMENT, "round takes a number and decimals");
        if (status == TERN_OK) status = apply(p, (function)f, out, &b);
        rational_free(&b);
        TERN_TRY(status);
    }
    if (!take(p, ")")) return unexpected(p);
    return n_more ? TERN_OK : apply(p, (function)f, out, NULL);
}

// ---- The grammar, from the inside --------------------------------------------------------------

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits with at most one point, and an exponent of ten.
static tern_status read_number(parser *p, rational *out) {
    size_t from = p->at;
    bool has_point = false;
    while (p->at < p->n && (is_digit(p->text[p->at]) || (p->text[p->at] == '.' && !has_point)))
        has_point |= p->text[p->at++] == '.';
    if (p->at == from + has_point) return unexpected(p);
    TERN_TRY(rational_read(out, p->text + from, p->at - from, p->err));
    if (p->at >= p->n || (p->text[p->at] | 32) != 'e') return TERN_OK;
    size_t at = p->at + 1;
    bool is_negative = at < p->n && p->text[at] == '-';
    if (at < p->n && (p->text[at] == '-' || p->text[at] == '+')) at++;
    long exponent = 0;
    if (at >= p->n || !is_digit(p->text[at])) return TERN_OK;
    for (; at < p->n && is_digit(p->text[at]) && exponent < 100000; at++)
        exponent = exponent * 10 + (p->text[at] - '0');
    p->at = at;
    rational ten = {0}, by = {0};
    tern_status status = set(&ten, 10, p->err);
    if (status == TERN_OK) status = set(&by, is_negative ? -exponent : exponent, p->err);
    if (status == TERN_OK) status = power(&ten, &ten, &by, p->err);
    if (status == TERN_OK) status = rational_multiply(out, out, &ten, p->err);
    rational_free(&ten);
    rational_free(&by);
    return status;
}

static tern_status read_value(parser *p, rational *out) {
    char c = peek(p);
    if (take(p, "(")) {
        TERN_TRY(read_sum(p, out));
        if (!take(p, ")")) return unexpected(p);
    } else if ((c | 32) >= 'a' && (c | 32) <= 'z') {
        TERN_TRY(read_function(p, out));
    } else {
        TERN_TRY(read_number(p, out));
    }
    while (take(p, "!")) TERN_TRY(factorial(out, p->err));
    return TERN_OK;
}

static tern_status read_power(parser *p, rational *out) {
    TERN_TRY(read_value(p, out));
    if (!take(p, "^") && !take(p, "**")) return TERN_OK;
    rational exponent = {0};
    tern_status status = read_signed(p, &exponent);
    if (status == TERN_OK) status = power(out, out, &exponent, p->err);
    rational_free(&exponent);
    return status;
}

static tern_status read_signed(parser *p, rational *out) {
    bool is_negative = false;
    if (++p->depth > DEPTH_MAX)
        return tern_fail(p->err, TERN_ERR_ARGUMENT, "the expression is nested too deeply");
    for (;;) {
        if (take(p, "-"))
            is_negative = !is_negative;
        else if (!take(p, "+"))
            break;
    }
    tern_status status = read_power(p, out);
    p->depth--;
    if (status == TERN_OK && is_negative && !rational_is_zero(out))
        out->is_negative = !out->is_negative;
    return status;
}

static tern_status read_product(parser *p, rational *out) {
    TERN_TRY(read_signed(p, out));
    for (;;) {
        char c = peek(p);
        // Also the typographic multiplication and division signs.
        if (take(p, "\xC3\x97"))
            c = '*';
        else if (take(p, "\xC3\xB7"))
            c = '/';
        else if (c == '*' || c == '/' || c == '%')
            p->at++;
        else
            return TERN_OK;
        rational b = {0};
        tern_status status = read_signed(p, &b);
        if (status == TERN_OK)
            status = c == '*'   ? rational_multiply(out, out, &b, p->err)
                     : c == '/' ? rational_divide(out, out, &b, p->err)
                                : modulo(out, &b, p->err);
        rational_free(&b);
        TERN_TRY(status);
    }
}

static tern_status read_sum(parser *p, rational *out) {
    TERN_TRY(read_product(p, out));
    for (;;) {
        char c = peek(p);
        if (c != '+' && c != '-') return TERN_OK;
        p->at++;
        rational b = {0};
        tern_status status = read_product(p, &b);
        if (status == TERN_OK) status = rational_add(out, out, &b, c == '-', p->err);
        rational_free(&b);
        TERN_TRY(status);
    }
}

tern_status agent_calculate(const char *expression, size_t n, tern_strbuf *out, tern_error *err) {
    parser p = {.text = expression, .n = n, .err = err};
    rational value = {0};
    if (n > BYTES_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "an expression of more than %d characters",
                         BYTES_MAX);
    tern_status status = read_sum(&p, &value);
    peek(&p);
    if (status == TERN_OK && p.at < p.n) status = unexpected(&p);
    if (status == TERN_OK) status = rational_print(&value, out, err);
    rational_free(&value);
    return status;
}

// ---- The tool ----------------------------------------------------------------------------------

static bool run_calculate(void *user, const tern_agent_call *call, tern_text_fn put,
                          void *put_user) {
    tern_json_doc doc = {0};
    tern_strbuf out = {0};
    tern_error err = {0};
    (void)user;
    tern_str text = {0};
    if (tern_json_parse(&doc, call->arguments, strlen(call->arguments), NULL) == TERN_OK)
        text = tern_json_str(tern_json_get(&doc, tern_json_root(&doc), "expression"));
    bool ok = text.ptr && agent_calculate(text.ptr, text.len, &out, &err) == TERN_OK;
    if (ok)
        agent_tool_put(put, put_user, &out);
    else
        agent_tool_fail(put, put_user, "%s", text.ptr ? err.message : "there is no expression");
    tern_strbuf_free(&out);
    tern_json_free(&doc);
    return ok;
}

tern_status agent_add_calculator(agent_tools *t, tern_error *err) {
    agent_tool *tool;
    TERN_TRY(agent_tools_add(
        t, "calculate",
        "Calculates exactly: + - * / % ^ ! ( ), abs, floor, ceil, round(x, decimals), min, max.",
        "{\"type\":\"object\",\"properties\":{\"expression\":{\"type\":\"string\",\"description\":"
        "\"Such as (12.5 + 3) * 4\"}},\"required\":[\"expression\"],"
        "\"additionalProperties\":false}",
        &tool, err));
    tool->is_harmless = true;
    tool->run = run_calculate;
    return TERN_OK;
}
