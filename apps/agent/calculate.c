// calculate: the value of an expression in doubles: whole numbers up to 2^53 are exact, others
// are printed with 15 digits, so that 0.1 + 0.2 is 0.3.
//
//     sum     = product { ("+" | "-") product }
//     product = signed { ("*" | "/" | "%") signed }
//     signed  = { "-" | "+" } power
//     power   = value [ ("^" | "**") signed ] { "!" comes with value }
//     value   = number | "(" sum ")" | function "(" sum { "," sum } ")"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "apps/agent/tools.h"
#include "base/json/json.h"

#define DEPTH_MAX     100
#define BYTES_MAX     1000
#define FACTORIAL_MAX 170
#define EXACT_MAX     9007199254740992.0 // whole numbers up to it are exact

typedef struct parser {
    const char *text;
    size_t n, at;
    int depth;
    tern_error *err;
} parser;

static tern_status read_sum(parser *p, double *out);
static tern_status read_signed(parser *p, double *out);

static tern_status refuse(const parser *p, const char *why) {
    return tern_fail(p->err, TERN_ERR_ARGUMENT, "%s", why);
}

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

// ---- Operations --------------------------------------------------------------------------------

static tern_status divide(const parser *p, double *a, double b) {
    if (b == 0) return refuse(p, "a division by 0");
    *a /= b;
    return TERN_OK;
}

// a mod b has the sign of b, as in modular arithmetic.
static tern_status modulo(const parser *p, double *a, double b) {
    if (b == 0) return refuse(p, "a division by 0");
    if (fabs(*a) > EXACT_MAX || fabs(b) > EXACT_MAX)
        return refuse(p, "remainders are of numbers up to 2^53");
    *a = fmod(*a, b);
    if (*a != 0 && (*a < 0) != (b < 0)) *a += b;
    return TERN_OK;
}

static tern_status power(const parser *p, double *a, double b) {
    if (*a == 0 && b < 0) return refuse(p, "a division by 0");
    if (*a < 0 && b != floor(b)) return refuse(p, "a root of a negative number");
    *a = pow(*a, b);
    return TERN_OK;
}

static tern_status factorial(const parser *p, double *v) {
    if (!(*v >= 0 && *v <= FACTORIAL_MAX && *v == floor(*v)))
        return tern_fail(p->err, TERN_ERR_ARGUMENT, "factorials are of whole numbers from 0 to %d",
                         FACTORIAL_MAX);
    double product = 1;
    for (int i = 2; i <= (int)*v; i++) product *= i;
    *v = product;
    return TERN_OK;
}

// Halves away from 0, also those that no double is: round(1.005, 2) is 1.01.
static tern_status round_to(const parser *p, double *v, double decimals) {
    if (decimals != floor(decimals) || fabs(decimals) > 300)
        return refuse(p, "round takes whole decimals, up to 300");
    const double scale = pow(10, decimals), x = *v * scale;
    if (isfinite(x) && fabs(x) < EXACT_MAX) *v = round(x * (1 + 2 * DBL_EPSILON)) / scale;
    return TERN_OK;
}

typedef enum function { ABS, FLOOR, CEIL, ROUND, MIN, MAX, N_FUNCTIONS } function;
static const char *const function_names[] = {"abs", "floor", "ceil", "round", "min", "max"};

static function name_of_function(parser *p) {
    size_t f = 0, from = p->at;
    while (p->at < p->n && ((p->text[p->at] | 32) >= 'a' && (p->text[p->at] | 32) <= 'z')) p->at++;
    const size_t n = p->at - from;
    while (f < N_FUNCTIONS &&
           (strlen(function_names[f]) != n || memcmp(function_names[f], p->text + from, n)))
        f++;
    if (f == N_FUNCTIONS) p->at = from;
    return (function)f;
}

static tern_status read_function(parser *p, double *out) {
    const size_t from = p->at;
    const function f = name_of_function(p);
    if (f == N_FUNCTIONS || !take(p, "(")) {
        p->at = f == N_FUNCTIONS ? from : p->at;
        return unexpected(p);
    }
    TERN_TRY(read_sum(p, out));
    size_t n_more = 0;
    for (double b; take(p, ","); n_more++) {
        TERN_TRY(read_sum(p, &b));
        if (f == MIN || f == MAX) {
            *out = f == MIN ? fmin(*out, b) : fmax(*out, b);
            continue;
        }
        if (f != ROUND)
            return tern_fail(p->err, TERN_ERR_ARGUMENT, "%s takes one number", function_names[f]);
        if (n_more) return refuse(p, "round takes a number and decimals");
        TERN_TRY(round_to(p, out, b));
    }
    if (!take(p, ")")) return unexpected(p);
    if (f == ABS) *out = fabs(*out);
    if (f == FLOOR) *out = floor(*out);
    if (f == CEIL) *out = ceil(*out);
    return f == ROUND && !n_more ? round_to(p, out, 0) : TERN_OK;
}

// ---- The grammar, from the inside --------------------------------------------------------------

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits with at most one point, and an exponent of ten.
static tern_status read_number(parser *p, double *out) {
    char text[BYTES_MAX + 1];
    const size_t from = p->at;
    bool has_point = false;
    while (p->at < p->n && (is_digit(p->text[p->at]) || (p->text[p->at] == '.' && !has_point)))
        has_point |= p->text[p->at++] == '.';
    if (p->at == from + has_point) return unexpected(p);
    if (p->at < p->n && (p->text[p->at] | 32) == 'e') {
        size_t at = p->at + 1;
        if (at < p->n && (p->text[at] == '-' || p->text[at] == '+')) at++;
        if (at < p->n && is_digit(p->text[at]))
            for (p->at = at; p->at < p->n && is_digit(p->text[p->at]);) p->at++;
    }
    memcpy(text, p->text + from, p->at - from);
    text[p->at - from] = 0;
    *out = strtod(text, NULL);
    return TERN_OK;
}

static tern_status read_value(parser *p, double *out) {
    const char c = peek(p);
    if (take(p, "(")) {
        TERN_TRY(read_sum(p, out));
        if (!take(p, ")")) return unexpected(p);
    } else if ((c | 32) >= 'a' && (c | 32) <= 'z') {
        TERN_TRY(read_function(p, out));
    } else {
        TERN_TRY(read_number(p, out));
    }
    while (take(p, "!")) TERN_TRY(factorial(p, out));
    return TERN_OK;
}

static tern_status read_power(parser *p, double *out) {
    double exponent;
    TERN_TRY(read_value(p, out));
    if (!take(p, "^") && !take(p, "**")) return TERN_OK;
    TERN_TRY(read_signed(p, &exponent));
    return power(p, out, exponent);
}

static tern_status read_signed(parser *p, double *out) {
    bool is_negative = false;
    if (++p->depth > DEPTH_MAX) return refuse(p, "the expression is nested too deeply");
    for (;;) {
        if (take(p, "-"))
            is_negative = !is_negative;
        else if (!take(p, "+"))
            break;
    }
    TERN_TRY(read_power(p, out));
    p->depth--;
    if (is_negative) *out = -*out;
    return TERN_OK;
}

static tern_status read_product(parser *p, double *out) {
    TERN_TRY(read_signed(p, out));
    for (double b;;) {
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
        TERN_TRY(read_signed(p, &b));
        if (c == '*')
            *out *= b;
        else
            TERN_TRY(c == '/' ? divide(p, out, b) : modulo(p, out, b));
    }
}

static tern_status read_sum(parser *p, double *out) {
    TERN_TRY(read_product(p, out));
    for (double b;;) {
        const char c = peek(p);
        if (c != '+' && c != '-') return TERN_OK;
        p->at++;
        TERN_TRY(read_product(p, &b));
        *out += c == '-' ? -b : b;
    }
}

tern_status agent_calculate(const char *expression, size_t n, tern_strbuf *out, tern_error *err) {
    parser p = {.text = expression, .n = n, .err = err};
    double value = 0;
    if (n > BYTES_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "an expression of more than %d characters",
                         BYTES_MAX);
    TERN_TRY(read_sum(&p, &value));
    peek(&p);
    if (p.at < p.n) return unexpected(&p);
    if (!isfinite(value)) return refuse(&p, "a number of more than 308 digits");
    const bool is_whole = value == floor(value) && fabs(value) <= EXACT_MAX;
    tern_strbuf_printf(out, is_whole ? "%.0f" : "%.15g", value == 0 ? 0.0 : value);
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
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
        "Calculates to 15 digits: + - * / % ^ ! ( ), abs, floor, ceil, round(x, decimals), min, "
        "max.",
        "{\"type\":\"object\",\"properties\":{\"expression\":{\"type\":\"string\",\"description\":"
        "\"Such as (12.5 + 3) * 4\"}},\"required\":[\"expression\"],"
        "\"additionalProperties\":false}",
        &tool, err));
    tool->is_harmless = true;
    tool->run = run_calculate;
    return TERN_OK;
}
