// Numbers: bounds, multiples and kinds, as a term of JSON's digits.
#include <string.h>
#include "grammar/rules/pattern.h"
#include "grammar/schema/schema.h"

typedef struct number {
    tern_schema *x;
    tern_term all;
    bool whole, plain; // plain: its value is not constrained, so it may have an exponent
} number;

static void add(number *p, tern_term term) {
    p->all = tern_term_and(p->x->terms, p->all, term);
    p->plain = false;
}

static tern_status read_decimal(const tern_schema *x, const tern_json *v, tern_decimal *d) {
    tern_strbuf b = {0};
    if (!tern_json_is(v, TERN_JSON_NUMBER)) return tern_schema_fail(x, v, "no number");
    if (v->n == TERN_JSON_LONG) {
        tern_strbuf_append(&b, v[1].text, v[1].n);
    } else {
        tern_strbuf_json_number(&b, v->number);
    }
    bool ok = !b.failed && tern_decimal_read(d, tern_strbuf_text(&b), b.len);
    tern_strbuf_free(&b);
    return ok ? TERN_OK : tern_schema_fail(x, v, "a number with too many digits");
}

static tern_status add_bound(number *p, const tern_json *v, bool least, bool strict) {
    tern_decimal d;
    TERN_TRY(read_decimal(p->x, v, &d));
    add(p, least ? tern_term_at_least(p->x->terms, &d, strict, p->whole)
                 : tern_term_at_most(p->x->terms, &d, strict, p->whole));
    return TERN_OK;
}

static tern_status multiple_of(const tern_schema *x, const tern_json *v, tern_term *out) {
    tern_decimal d;
    TERN_TRY(read_decimal(x, v, &d));
    size_t n_decimals = d.n_digits - d.n_whole;
    uint64_t m = 0;
    for (size_t i = 0; i < d.n_digits && m <= UINT32_MAX; i++)
        m = m * 10 + (uint64_t)(d.digits[i] - '0');
    if (m == 0 || d.is_negative) return tern_schema_fail(x, v, "no number above 0");
    if (m > UINT32_MAX || n_decimals >= 32)
        return tern_schema_fail(x, v, "a multiple of a number with more than 9 digits");
    *out = tern_term_multiple(x->terms, (uint32_t)m, (uint32_t)n_decimals);
    return TERN_OK;
}

// A schema's own keywords about numbers.
static tern_status add_schema(number *p, const tern_json *s) {
    static const char *const names[] = {"minimum", "maximum"}, *const strict_names[] = {
                                                                   "exclusiveMinimum",
                                                                   "exclusiveMaximum"};
    tern_schema *x = p->x;
    for (int i = 0; i < 2; i++) {
        const tern_json *v = tern_schema_get(x, s, names[i]),
                        *strict = tern_schema_get(x, s, strict_names[i]);
        bool is_flag = tern_json_is(strict, TERN_JSON_BOOL); // draft 4
        if (v) TERN_TRY(add_bound(p, v, i == 0, is_flag && tern_json_bool(strict, false)));
        if (strict && !is_flag) TERN_TRY(add_bound(p, strict, i == 0, true));
    }
    const tern_json *v = tern_schema_get(x, s, "multipleOf");
    tern_term multiple;
    if (!v) return TERN_OK;
    TERN_TRY(multiple_of(x, v, &multiple));
    add(p, multiple);
    return TERN_OK;
}

static tern_status add_not_equal(number *p, const tern_json *v) {
    tern_decimal d;
    if (!tern_json_is(v, TERN_JSON_NUMBER)) return TERN_OK;
    TERN_TRY(read_decimal(p->x, v, &d));
    add(p, tern_term_not(p->x->terms, tern_term_equal(p->x->terms, &d)));
    return TERN_OK;
}

// Adds the negation of a keyword.
static tern_status add_not(number *p, const tern_fact *f) {
    tern_schema *x = p->x;
    bool draft4 = false;
    tern_term multiple;
    if (tern_str_is(f->name, "minimum")) {
        draft4 = tern_json_bool(tern_schema_get(x, f->of, "exclusiveMinimum"), false);
        return add_bound(p, f->at, false, !draft4);
    }
    if (tern_str_is(f->name, "maximum")) {
        draft4 = tern_json_bool(tern_schema_get(x, f->of, "exclusiveMaximum"), false);
        return add_bound(p, f->at, true, !draft4);
    }
    if (tern_str_is(f->name, "exclusiveMinimum")) return add_bound(p, f->at, false, false);
    if (tern_str_is(f->name, "exclusiveMaximum")) return add_bound(p, f->at, true, false);
    if (tern_str_is(f->name, "multipleOf")) {
        TERN_TRY(multiple_of(x, f->at, &multiple));
        add(p, tern_term_not(x->terms, multiple));
    }
    if (tern_str_is(f->name, "const")) return add_not_equal(p, f->at);
    if (!tern_str_is(f->name, "enum")) return TERN_OK;
    for (const tern_json *e = tern_json_first(&x->doc, f->at); e;
         e = tern_json_next(&x->doc, f->at, e))
        TERN_TRY(add_not_equal(p, e));
    return TERN_OK;
}

static tern_status form(tern_schema *x, unsigned types, bool plain, tern_term *out) {
    const char *p = "0|-?[1-9]\\d*";
    if (types == TERN_TYPE_FRACTION)
        p = "-?(?:0|[1-9]\\d*)\\.\\d*[1-9]\\d*";
    else if (types == TERN_TYPE_NUMBER && plain)
        p = "-?(?:0|[1-9]\\d*)(?:\\.\\d+)?(?:[eE][+-]?\\d+)?";
    else if (types == TERN_TYPE_NUMBER)
        p = "-?(?:0|[1-9]\\d*)(?:\\.\\d+)?";
    return tern_pattern_term(x->terms, p, strlen(p),
                             (tern_pattern_way){.spelling = TERN_SPELL_UTF8}, out, x->err);
}

tern_status tern_schema_number(tern_schema *x, const tern_fact *f, size_t n, unsigned types,
                               tern_term *out) {
    number p = {.x = x, .all = TERN_TERM_ALL, .whole = types == TERN_TYPE_WHOLE, .plain = true};
    tern_term shape;
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == TERN_FACT_SCHEMA) TERN_TRY(add_schema(&p, f[i].at));
        if (f[i].kind == TERN_FACT_NOT) TERN_TRY(add_not(&p, &f[i]));
    }
    TERN_TRY(form(x, types, p.plain, &shape));
    *out = tern_term_and(x->terms, p.all, shape);
    if (!tern_term_is_alive(x->terms, *out)) *out = TERN_TERM_NOTHING;
    return tern_terms_check(x->terms, x->err);
}
