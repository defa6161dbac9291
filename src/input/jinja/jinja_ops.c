// The operators of templates: comparison, membership, arithmetic, slices; all as in Python.
#include "input/jinja/jinja.h"

#include <math.h>
#include <string.h>

// ---- Comparison --------------------------------------------------------------------------------

static bool equal_lists(jrun *r, const jlist *a, const jlist *b, bool *out) {
    *out = a->n == b->n && a->kind == b->kind;
    for (uint32_t i = 0; *out && i < a->n; i++)
        if (!tern_jinja_equal(r, a->items[i], b->items[i], out)) return false;
    return true;
}

static bool equal_dicts(jrun *r, const jdict *a, const jdict *b, bool *out) {
    *out = a->n == b->n;
    for (uint32_t i = 0; *out && i < a->n; i++) {
        jvalue other;
        if (!tern_jinja_dict_get(r, b, a->keys[i], &other, out)) return false;
        if (*out && !tern_jinja_equal(r, a->values[i], other, out)) return false;
    }
    return true;
}

bool tern_jinja_equal(jrun *r, jvalue a, jvalue b, bool *out) {
    if (!tern_jinja_enter(r)) return false;
    bool ok = true;
    if (tern_jinja_is_number(a) && tern_jinja_is_number(b)) {
        *out = a.type == J_INT && b.type == J_INT ? a.i == b.i
                                                  : tern_jinja_double(a) == tern_jinja_double(b);
    } else if (a.type != b.type) {
        *out = false;
    } else if (a.type == J_STRING) {
        *out = a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
        ok = !*out || tern_jinja_work(r, a.n);
    } else if (a.type == J_LIST) {
        *out = a.list == b.list;
        if (!*out) ok = equal_lists(r, a.list, b.list, out);
    } else if (a.type == J_DICT) {
        *out = a.dict == b.dict;
        if (!*out) ok = equal_dicts(r, a.dict, b.dict, out);
    } else {
        *out = a.type <= J_NONE || a.dict == b.dict; // others: whether they are the same object
    }
    r->depth--;
    return ok;
}

bool tern_jinja_less(jrun *r, const char *op, jvalue a, jvalue b, bool *out) {
    bool ok = true;
    if (a.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, a);
    if (b.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, b);
    if (tern_jinja_is_number(a) && tern_jinja_is_number(b)) {
        *out = a.type == J_INT && b.type == J_INT ? a.i < b.i
                                                  : tern_jinja_double(a) < tern_jinja_double(b);
        return true;
    }
    if (a.type == J_STRING && b.type == J_STRING) { // bytes of UTF-8 sort like characters
        uint32_t n = a.n < b.n ? a.n : b.n;
        int order = n ? memcmp(a.s, b.s, n) : 0;
        *out = order < 0 || (order == 0 && a.n < b.n);
        return tern_jinja_work(r, n);
    }
    if (a.type != J_LIST || b.type != J_LIST || a.list->kind != b.list->kind ||
        a.list->kind > J_TUPLE)
        return tern_jinja_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                               tern_jinja_type_name(a), tern_jinja_type_name(b));
    if (!tern_jinja_enter(r)) return false;
    *out = a.list->n < b.list->n;
    for (uint32_t i = 0; ok && i < a.list->n && i < b.list->n; i++) {
        bool same;
        ok = tern_jinja_equal(r, a.list->items[i], b.list->items[i], &same);
        if (!ok || same) continue;
        ok = tern_jinja_less(r, op, a.list->items[i], b.list->items[i], out);
        break; // the first difference decides
    }
    r->depth--;
    return ok;
}

bool tern_jinja_contains(jrun *r, jvalue container, jvalue item, bool *out) {
    *out = false;
    if (container.type == J_DICT) return tern_jinja_dict_get(r, container.dict, item, NULL, out);
    if (container.type == J_STRING) {
        if (item.type == J_UNDEFINED || item.type != J_STRING)
            return tern_jinja_fail(r, "'in <string>' requires string as left operand, not %s",
                                   tern_jinja_type_name(item));
        *out = item.n == 0 || (container.n && memmem(container.s, container.n, item.s, item.n));
        return tern_jinja_work(r, container.n);
    }
    const jvalue *items;
    uint32_t n;
    if (container.type != J_LIST && container.type != J_UNDEFINED)
        return tern_jinja_fail(r, "argument of type '%s' is not iterable",
                               tern_jinja_type_name(container));
    if (!tern_jinja_iterate(r, container, &items, &n)) return false;
    for (uint32_t i = 0; i < n && !*out; i++)
        if (!tern_jinja_equal(r, items[i], item, out)) return false;
    return true;
}

// ---- Arithmetic --------------------------------------------------------------------------------

static const char *op_text(uint8_t op, char buffer[2]) {
    if (op == J_OP_FLOORDIV) return "//";
    if (op == J_OP_POW) return "** or pow()";
    buffer[0] = (char)op;
    buffer[1] = 0;
    return buffer;
}

static bool int_power(int64_t base, int64_t exponent, int64_t *out) { // false: overflow
    *out = 1;
    for (; exponent; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(*out, base, out)) return false;
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return false;
    }
    return true;
}

// Floored, so that the remainder has the divisor's sign.
static bool int_divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (a == INT64_MIN && b == -1) return false;
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder && (*remainder < 0) != (b < 0)) {
        --*quotient;
        *remainder += b;
    }
    return true;
}

static bool int_binary(jrun *r, uint8_t op, int64_t a, int64_t b, jvalue *out) {
    int64_t x = 0, other;
    bool fits = true;
    switch (op) {
    case '+': fits = !__builtin_add_overflow(a, b, &x); break;
    case '-': fits = !__builtin_sub_overflow(a, b, &x); break;
    case '*': fits = !__builtin_mul_overflow(a, b, &x); break;
    case J_OP_POW: fits = int_power(a, b, &x); break;
    case J_OP_FLOORDIV: fits = int_divide(a, b, &x, &other); break;
    default: fits = int_divide(a, b, &other, &x); break;
    }
    *out = J_INT_OF(x);
    return fits || tern_jinja_fail(r, "an integer is too large");
}

static double float_mod(double a, double b) {
    double rest = fmod(a, b);
    if (rest == 0) return copysign(0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static bool number_binary(jrun *r, uint8_t op, jvalue a, jvalue b, jvalue *out) {
    double x = tern_jinja_double(a), y = tern_jinja_double(b);
    bool is_int = a.type != J_FLOAT && b.type != J_FLOAT && op != '/';
    if (y == 0 && (op == '/' || op == J_OP_FLOORDIV || op == '%'))
        return tern_jinja_fail(r, "division by zero");
    if (op == J_OP_POW && x == 0 && y < 0) return tern_jinja_fail(r, "division by zero");
    if (is_int && !(op == J_OP_POW && y < 0))
        return int_binary(r, op, a.type == J_BOOL ? a.b : a.i, b.type == J_BOOL ? b.b : b.i, out);
    switch (op) {
    case '+': x += y; break;
    case '-': x -= y; break;
    case '*': x *= y; break;
    case '/': x /= y; break;
    case J_OP_FLOORDIV:
        x = (x - float_mod(x, y)) / y;
        x = floor(x + 0.5);
        break;
    case J_OP_POW: x = pow(x, y); break;
    default: x = float_mod(x, y); break;
    }
    *out = J_FLOAT_OF(x);
    return true;
}

static bool repeat(jrun *r, jvalue v, int64_t times, jvalue *out) {
    size_t n = v.type == J_STRING ? v.n : v.list->n, total;
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(n, (size_t)times, &total) || total > r->limits->text_bytes)
        return tern_jinja_fail(r, "repeats a value until it is larger than %zu MiB",
                               r->limits->text_bytes >> 20);
    if (v.type == J_STRING) {
        char *text = tern_jinja_alloc(r, total, 1);
        if (!text) return false;
        for (size_t at = 0; at < total; at += n) memcpy(text + at, v.s, n);
        *out = J_STR_OF(text, total);
        out->owner = v.owner;
        return true;
    }
    if (!tern_jinja_list_new(r, v.list->kind, total, out)) return false;
    for (size_t at = 0; at < total; at += n)
        memcpy(out->list->items + at, v.list->items, n * sizeof *v.list->items);
    out->list->n = (uint32_t)total;
    return true;
}

static bool add_lists(jrun *r, const jlist *a, const jlist *b, jvalue *out) {
    size_t n = (size_t)a->n + b->n;
    if (n > UINT32_MAX || !tern_jinja_list_new(r, a->kind, n, out))
        return tern_jinja_fail(r, "a list is too long");
    if (a->n) memcpy(out->list->items, a->items, a->n * sizeof *a->items);
    if (b->n) memcpy(out->list->items + a->n, b->items, b->n * sizeof *b->items);
    out->list->n = (uint32_t)n;
    return true;
}

static bool is_sequence(jvalue v) {
    return v.type == J_STRING || (v.type == J_LIST && v.list->kind <= J_TUPLE);
}

bool tern_jinja_binary(jrun *r, uint8_t op, jvalue a, jvalue b, jvalue *out) {
    char buffer[2];
    size_t mark = r->out->len;
    if (op == '%' && a.type == J_STRING) {
        r->escape_args = tern_jinja_is_markup(a);
        if (!tern_jinja_percent(r, (tern_str){a.s, a.n}, b) || !tern_jinja_take(r, mark, out))
            return false;
        out->owner = a.owner;
        return true;
    }
    if (a.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, a);
    if (b.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, b);
    if (tern_jinja_is_number(a) && tern_jinja_is_number(b)) return number_binary(r, op, a, b, out);
    if (op == '+' && a.type == J_STRING) {
        if (b.type != J_STRING)
            return tern_jinja_fail(r, "can only concatenate str (not \"%s\") to str",
                                   tern_jinja_type_name(b));
        bool is_safe = tern_jinja_is_markup(a) || tern_jinja_is_markup(b);
        if (is_safe && (!tern_jinja_escape(r, a, &a) || !tern_jinja_escape(r, b, &b))) return false;
        if (!tern_jinja_put(r, a.s, a.n) || !tern_jinja_put(r, b.s, b.n) ||
            !tern_jinja_take(r, mark, out))
            return false;
        out->owner = is_safe ? J_MARKUP : 0;
        return true;
    }
    if (op == '+' && is_sequence(a) && is_sequence(b) && b.type == J_LIST &&
        a.list->kind == b.list->kind)
        return add_lists(r, a.list, b.list, out);
    if (op == '*' && is_sequence(a) && (b.type == J_INT || b.type == J_BOOL))
        return repeat(r, a, b.type == J_INT ? b.i : b.b, out);
    if (op == '*' && is_sequence(b) && (a.type == J_INT || a.type == J_BOOL))
        return repeat(r, b, a.type == J_INT ? a.i : a.b, out);
    return tern_jinja_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'",
                           op_text(op, buffer), tern_jinja_type_name(a), tern_jinja_type_name(b));
}

// ---- Slices ------------------------------------------------------------------------------------

static bool slice_index(jrun *r, const jvalue *v, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (!v || v->type == J_NONE) return true;
    if (v->type == J_UNDEFINED) return tern_jinja_fail_undefined(r, *v);
    if (v->type != J_INT && v->type != J_BOOL)
        return tern_jinja_fail(r, "slice indices must be integers or None");
    *out = v->type == J_INT ? v->i : v->b;
    return true;
}

static int64_t clamp_index(int64_t i, int64_t n, bool backwards) {
    if (i < 0) i = i < -n ? -1 : i + n;
    if (backwards) return i < 0 ? -1 : i >= n ? n - 1 : i;
    return i < 0 ? 0 : i > n ? n : i;
}

// Elements at first, first + step, ... (count of them) of a string of n characters.
typedef struct slice {
    int64_t first, step, count;
} slice;

static bool slice_string(jrun *r, jvalue v, int64_t n, slice s, jvalue *out) {
    const int64_t first = s.first, step = s.step, count = s.count;
    bool wide = (uint32_t)n != v.n; // some characters have several bytes
    uint32_t *starts = NULL;
    size_t mark = r->out->len;
    if (wide) {
        starts = tern_jinja_alloc(r, (size_t)n + 1, sizeof *starts);
        if (!starts) return false;
        for (int64_t i = 0; i < n; i++)
            starts[i + 1] = starts[i] + (uint32_t)tern_jinja_char(v.s + starts[i], v.n - starts[i]);
    }
    if (step == 1) { // a part of the same bytes
        uint32_t from = wide ? starts[first] : (uint32_t)first;
        uint32_t to = wide ? starts[first + count] : (uint32_t)(first + count);
        *out = J_STR_OF(v.s + from, to - from);
        out->owner = v.owner;
        return true;
    }
    for (int64_t i = 0, at = first; i < count; i++, at += step) {
        uint32_t from = wide ? starts[at] : (uint32_t)at;
        if (!tern_jinja_put(r, v.s + from, wide ? starts[at + 1] - from : 1)) return false;
    }
    if (!tern_jinja_take(r, mark, out)) return false;
    out->owner = v.owner;
    return true;
}

bool tern_jinja_slice(jrun *r, jvalue v, const jvalue *start, const jvalue *stop,
                      const jvalue *step, jvalue *out) {
    int64_t n, by, from, to, count;
    if (v.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, v);
    if (!is_sequence(v)) {
        *out = tern_jinja_undefined(J_STR_LIT("slice"), v.type | J_OWNER_ELEMENT);
        return true;
    }
    if (!tern_jinja_length(r, v, &n) || !slice_index(r, step, 1, &by)) return false;
    if (by == 0) return tern_jinja_fail(r, "slice step cannot be zero");
    if (by < -n - 1) by = -n - 1; // the same elements, and no overflow below
    if (by > n + 1) by = n + 1;
    bool back = by < 0;
    if (!slice_index(r, start, back ? n - 1 : 0, &from)) return false;
    // A missing stop when going backwards is before the first element, which is not an index.
    bool to_end = !stop || stop->type == J_NONE;
    if (!slice_index(r, stop, n, &to)) return false;
    from = clamp_index(from, n, back);
    to = to_end ? (back ? -1 : n) : clamp_index(to, n, back);
    count = back ? (from - to - by - 1) / -by : (to - from + by - 1) / by;
    if (count < 0) count = 0;
    if (count == 0) from = 0;
    if (v.type == J_STRING) return slice_string(r, v, n, (slice){from, by, count}, out);
    if (!tern_jinja_list_new(r, v.list->kind, (size_t)count, out)) return false;
    for (int64_t i = 0; i < count; i++, from += by) out->list->items[i] = v.list->items[from];
    out->list->n = (uint32_t)count;
    return true;
}
