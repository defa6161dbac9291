// Tests: x is name.
#include "input/jinja/jinja.h"

#include <string.h>

// For tests that only look at the value.
#define IS(name, condition)                                                                        \
    static bool is_##name(jrun *r, const jcall *c, jvalue *out) {                                  \
        jvalue v = c->self;                                                                        \
        (void)r, (void)v;                                                                          \
        *out = J_BOOL_OF(condition);                                                               \
        return true;                                                                               \
    }

IS(defined, v.type != J_UNDEFINED)
IS(undefined, v.type == J_UNDEFINED)
IS(none, v.type == J_NONE)
IS(boolean, v.type == J_BOOL)
IS(true, v.type == J_BOOL && v.b)
IS(false, v.type == J_BOOL && !v.b)
IS(integer, v.type == J_INT)
IS(float, v.type == J_FLOAT)
IS(number, tern_jinja_is_number(v))
IS(string, v.type == J_STRING)
IS(mapping, v.type == J_DICT)
IS(iterable, v.type == J_STRING || v.type == J_LIST || v.type == J_DICT || v.type == J_UNDEFINED ||
                 v.type == J_LOOP)
// Values that have a length and can be indexed.
IS(sequence, v.type == J_STRING || v.type == J_DICT || v.type == J_UNDEFINED ||
                 (v.type == J_LIST && v.list->kind <= J_TUPLE))
IS(callable, v.type == J_MACRO || v.type == J_FUNCTION || v.type == J_METHOD ||
                 v.type == J_UNDEFINED || v.type == J_LOOP || v.type == J_JOINER ||
                 v.type == J_BLOCK_REF)
IS(escaped, tern_jinja_is_markup(v))

static bool is_sameas(jrun *r, const jcall *c, jvalue *out) {
    jvalue a = c->self, b = c->arg[0];
    bool same = a.type == b.type;
    if (same && a.type >= J_STRING)
        same = a.i == b.i && a.n == b.n;
    else if (same && !tern_jinja_equal(r, a, b, &same))
        return false;
    *out = J_BOOL_OF(same);
    return true;
}

static bool has_case(jrun *r, const jcall *c, const char *method, jvalue *out) {
    jvalue text;
    const jargs none = {0};
    return tern_jinja_to_string(r, c->self, &text) &&
           tern_jinja_call_builtin(r, tern_jinja_find_method(J_STRING, method, strlen(method)),
                                   text, &none, out);
}
static bool is_lower(jrun *r, const jcall *c, jvalue *out) {
    return has_case(r, c, "islower", out);
}
static bool is_upper(jrun *r, const jcall *c, jvalue *out) {
    return has_case(r, c, "isupper", out);
}

// self % divisor == rest
static bool has_rest(jrun *r, jvalue self, jvalue divisor, int64_t rest, jvalue *out) {
    bool same;
    if (!tern_jinja_binary(r, '%', self, divisor, out) ||
        !tern_jinja_equal(r, *out, J_INT_OF(rest), &same))
        return false;
    *out = J_BOOL_OF(same);
    return true;
}
static bool is_even(jrun *r, const jcall *c, jvalue *out) {
    return has_rest(r, c->self, J_INT_OF(2), 0, out);
}
static bool is_odd(jrun *r, const jcall *c, jvalue *out) {
    return has_rest(r, c->self, J_INT_OF(2), 1, out);
}
static bool is_divisibleby(jrun *r, const jcall *c, jvalue *out) {
    return has_rest(r, c->self, c->arg[0], 0, out);
}

static bool is_in(jrun *r, const jcall *c, jvalue *out) {
    bool found;
    if (!tern_jinja_contains(r, c->arg[0], c->self, &found)) return false;
    *out = J_BOOL_OF(found);
    return true;
}

static bool is_eq(jrun *r, const jcall *c, jvalue *out) {
    bool same;
    if (!tern_jinja_equal(r, c->self, c->arg[0], &same)) return false;
    *out = J_BOOL_OF(same);
    return true;
}
static bool is_ne(jrun *r, const jcall *c, jvalue *out) {
    if (!is_eq(r, c, out)) return false;
    out->b = !out->b;
    return true;
}

static bool in_order(jrun *r, const char *op, jvalue a, jvalue b, bool want, jvalue *out) {
    bool less;
    if (!tern_jinja_less(r, op, a, b, &less)) return false;
    *out = J_BOOL_OF(less == want);
    return true;
}
static bool is_lt(jrun *r, const jcall *c, jvalue *out) {
    return in_order(r, "<", c->self, c->arg[0], true, out);
}
static bool is_ge(jrun *r, const jcall *c, jvalue *out) {
    return in_order(r, ">=", c->self, c->arg[0], false, out);
}
static bool is_gt(jrun *r, const jcall *c, jvalue *out) {
    return in_order(r, ">", c->arg[0], c->self, true, out);
}
static bool is_le(jrun *r, const jcall *c, jvalue *out) {
    return in_order(r, "<=", c->arg[0], c->self, false, out);
}

static bool is_filter(jrun *r, const jcall *c, jvalue *out) {
    (void)r;
    *out =
        J_BOOL_OF(c->self.type == J_STRING && tern_jinja_find_filter(c->self.s, c->self.n) != NULL);
    return true;
}
static bool is_test(jrun *r, const jcall *c, jvalue *out) {
    (void)r;
    *out =
        J_BOOL_OF(c->self.type == J_STRING && tern_jinja_find_test(c->self.s, c->self.n) != NULL);
    return true;
}

const jbuiltin *tern_jinja_find_test(const char *name, size_t n) {
    static const jbuiltin table[] = {
        {"defined", "", is_defined},
        {"undefined", "", is_undefined},
        {"none", "", is_none},
        {"string", "", is_string},
        {"mapping", "", is_mapping},
        {"iterable", "", is_iterable},
        {"sequence", "", is_sequence},
        {"number", "", is_number},
        {"boolean", "", is_boolean},
        {"true", "", is_true},
        {"false", "", is_false},
        {"integer", "", is_integer},
        {"float", "", is_float},
        {"callable", "", is_callable},
        {"escaped", "", is_escaped},
        {"sameas", "other", is_sameas},
        {"lower", "", is_lower},
        {"upper", "", is_upper},
        {"even", "", is_even},
        {"odd", "", is_odd},
        {"divisibleby", "num", is_divisibleby},
        {"in", "seq", is_in},
        {"eq", "other", is_eq},
        {"equalto", "other", is_eq},
        {"==", "other", is_eq},
        {"ne", "other", is_ne},
        {"!=", "other", is_ne},
        {"lt", "other", is_lt},
        {"lessthan", "other", is_lt},
        {"<", "other", is_lt},
        {"gt", "other", is_gt},
        {"greaterthan", "other", is_gt},
        {">", "other", is_gt},
        {"le", "other", is_le},
        {"<=", "other", is_le},
        {"ge", "other", is_ge},
        {">=", "other", is_ge},
        {"filter", "", is_filter},
        {"test", "", is_test},
    };
    return tern_jinja_find(table, sizeof table / sizeof *table, name, n);
}
