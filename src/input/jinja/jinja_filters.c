// Filters (x | name) of sequences, choices and numbers. Those of text are in jinja_text.c.
#include "input/jinja/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name) static bool filter_##name(jrun *r, const jcall *c, jvalue *out)

// ---- Attributes of elements: "a.b.0" -----------------------------------------------------------

// otherwise: the value of a missing part; J_MISSING: undefined.
static bool get_path_or(jrun *r, jvalue item, jvalue path, jvalue otherwise, jvalue *out) {
    *out = item;
    if (path.type == J_MISSING || path.type == J_NONE) return true;
    if (path.type != J_STRING) return tern_jinja_get_item(r, item, path, out);
    for (uint32_t at = 0; at <= path.n;) {
        uint32_t n = 0;
        bool digits = true;
        while (at + n < path.n && path.s[at + n] != '.') {
            digits = digits && path.s[at + n] >= '0' && path.s[at + n] <= '9' && n < 9;
            n++;
        }
        jvalue key = J_STR_OF(path.s + at, n);
        if (n && digits) {
            key = J_INT_OF(0);
            for (uint32_t i = 0; i < n; i++) key.i = key.i * 10 + (path.s[at + i] - '0');
        }
        if (!tern_jinja_get_item(r, *out, key, out)) return false;
        if (out->type == J_UNDEFINED && otherwise.type != J_MISSING) *out = otherwise;
        at += n + 1;
    }
    return true;
}

static bool get_path(jrun *r, jvalue item, jvalue path, jvalue *out) {
    return get_path_or(r, item, path, (jvalue){0}, out);
}

// The value that sorting, unique, min and max compare: the attribute, in lower case if asked for.
static bool get_key(jrun *r, jvalue item, jvalue path, bool case_sensitive, jvalue *key) {
    if (!get_path(r, item, path, key)) return false;
    if (case_sensitive || key->type != J_STRING) return true;
    const jargs none = {0};
    const jbuiltin *lower = tern_jinja_find_method(J_STRING, "lower", 5);
    return tern_jinja_call_builtin(r, lower, *key, &none, key);
}

static bool new_iterator(jrun *r, jvalue v, const jvalue **items, uint32_t *n, jvalue *out) {
    return tern_jinja_iterate(r, v, items, n) && tern_jinja_list_new(r, J_ITERATOR, *n, out);
}

// ---- Sequences ---------------------------------------------------------------------------------

FILTER(length) {
    int64_t n;
    if (!tern_jinja_length(r, c->self, &n)) return false;
    *out = J_INT_OF(n);
    return true;
}

static bool copy_list(jrun *r, jvalue v, uint8_t kind, jvalue *out) {
    const jvalue *items;
    uint32_t n;
    if (!tern_jinja_iterate(r, v, &items, &n) || !tern_jinja_list_new(r, kind, n, out))
        return false;
    if (n) memcpy(out->list->items, items, n * sizeof *items);
    out->list->n = n;
    return true;
}

FILTER(list) { return copy_list(r, c->self, J_PLAIN, out); }

static bool end_item(jrun *r, const jcall *c, bool last, jvalue *out) {
    const jvalue *items;
    uint32_t n;
    if (last && c->self.type == J_STRING && c->self.n) // by position, so that markup stays markup
        return tern_jinja_get_item(r, c->self, J_INT_OF(-1), out);
    if (!tern_jinja_iterate(r, c->self, &items, &n)) return false;
    *out = n ? items[last ? n - 1 : 0] : tern_jinja_undefined(J_STR_LIT("item"), J_LIST);
    return true;
}

FILTER(first) { return end_item(r, c, false, out); }
FILTER(last) { return end_item(r, c, true, out); }

FILTER(reverse) {
    jvalue minus = J_INT_OF(-1);
    if (c->self.type == J_STRING) return tern_jinja_slice(r, c->self, NULL, NULL, &minus, out);
    if (!copy_list(r, c->self, J_ITERATOR, out)) return false;
    jvalue *items = out->list->items;
    for (uint32_t i = 0, j = out->list->n; i + 1 < j; i++) {
        jvalue swap = items[i];
        items[i] = items[--j];
        items[j] = swap;
    }
    return true;
}

// Under {% autoescape %} all is escaped if any part is markup.
static bool join_escaped(jrun *r, const jvalue *items, uint32_t n, jvalue by, jvalue *out) {
    bool is_safe = tern_jinja_is_markup(by);
    size_t mark = r->out->len;
    for (uint32_t i = 0; i < n; i++) is_safe = is_safe || tern_jinja_is_markup(items[i]);
    if (is_safe && !tern_jinja_escape(r, by, &by)) return false;
    for (uint32_t i = 0; i < n; i++) {
        jvalue item = items[i];
        if (is_safe && !tern_jinja_escape(r, item, &item)) return false;
        if ((i && !tern_jinja_put(r, by.s, by.n)) || !tern_jinja_print(r, item)) return false;
    }
    if (!tern_jinja_take(r, mark, out)) return false;
    out->owner = is_safe ? J_MARKUP : 0;
    return true;
}

FILTER(join) {
    const jvalue *items;
    uint32_t n;
    jvalue by = J_STR_LIT(""), parts;
    size_t mark = r->out->len;
    if (c->arg[0].type != J_MISSING && !tern_jinja_to_string(r, c->arg[0], &by)) return false;
    if (!tern_jinja_iterate(r, c->self, &items, &n) || !tern_jinja_list_new(r, J_PLAIN, n, &parts))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!get_path(r, items[i], c->arg[1], &parts.list->items[i])) return false;
    if (r->autoescape) return join_escaped(r, parts.list->items, n, by, out);
    for (uint32_t i = 0; i < n; i++)
        if ((i && !tern_jinja_put(r, by.s, by.n)) || !tern_jinja_print(r, parts.list->items[i]))
            return false;
    return tern_jinja_take(r, mark, out);
}

FILTER(items) {
    if (c->self.type == J_UNDEFINED) return tern_jinja_list_new(r, J_ITERATOR, 0, out);
    if (c->self.type != J_DICT) return tern_jinja_fail(r, "can only get item pairs from a mapping");
    const jbuiltin *items = tern_jinja_find_method(J_DICT, "items", 5);
    if (!tern_jinja_call_builtin(r, items, c->self, c->args, out)) return false;
    out->list->kind = J_ITERATOR;
    return true;
}

FILTER(batch) {
    const jvalue *items;
    uint32_t n;
    int64_t size;
    jvalue row = {0};
    if (!tern_jinja_arg_int(r, c->arg[0], 0, &size) || !new_iterator(r, c->self, &items, &n, out))
        return false;
    if (size < 1) return tern_jinja_fail(r, "batch() of less than 1");
    for (uint32_t i = 0; i < n; i++) {
        if (i % (uint64_t)size == 0 &&
            (!tern_jinja_list_new(r, J_PLAIN, 0, &row) || !tern_jinja_list_add(r, out->list, row)))
            return false;
        if (!tern_jinja_list_add(r, row.list, items[i])) return false;
    }
    while (row.list && c->arg[1].type != J_MISSING && c->arg[1].type != J_NONE &&
           row.list->n < size)
        if (!tern_jinja_list_add(r, row.list, c->arg[1])) return false;
    return true;
}

FILTER(slice) { // into n lists; if the items do not divide evenly, the first ones get one more
    const jvalue *items;
    uint32_t n;
    int64_t slices;
    jvalue row;
    bool fill = c->arg[1].type != J_MISSING && c->arg[1].type != J_NONE;
    if (!tern_jinja_arg_int(r, c->arg[0], 0, &slices) ||
        !tern_jinja_iterate(r, c->self, &items, &n) || !tern_jinja_list_new(r, J_ITERATOR, 0, out))
        return false;
    if (slices == 0) return tern_jinja_fail(r, "slice() into no parts");
    uint32_t each = slices > 0 ? (uint32_t)(n / (uint64_t)slices) : 0;
    uint32_t longer = slices > 0 ? (uint32_t)(n % (uint64_t)slices) : 0, at = 0;
    for (int64_t i = 0; i < slices; i++) {
        uint32_t count = each + (i < longer);
        if (!tern_jinja_list_new(r, J_PLAIN, count, &row) ||
            !tern_jinja_list_add(r, out->list, row))
            return false;
        for (uint32_t k = 0; k < count; k++)
            if (!tern_jinja_list_add(r, row.list, items[at++])) return false;
        if (fill && i >= longer && !tern_jinja_list_add(r, row.list, c->arg[1])) return false;
    }
    return true;
}

// ---- Order -------------------------------------------------------------------------------------

typedef struct keyed {
    jvalue key, item;
} keyed;

// Stable merge sort of a[0..n) with room for as many in b.
static bool merge_sort(jrun *r, keyed *a, keyed *b, uint32_t n, bool reverse) {
    uint32_t half = n / 2, i = 0, j = half;
    if (n < 2) return true;
    if (!merge_sort(r, a, b, half, reverse) || !merge_sort(r, a + half, b, n - half, reverse))
        return false;
    for (uint32_t k = 0; k < n; k++) {
        bool take_right = i == half;
        if (i < half && j < n) {
            bool ok = reverse ? tern_jinja_less(r, "<", a[i].key, a[j].key, &take_right)
                              : tern_jinja_less(r, "<", a[j].key, a[i].key, &take_right);
            if (!ok || !tern_jinja_work(r, 1)) return false;
        }
        b[k] = take_right ? a[j++] : a[i++];
    }
    memcpy(a, b, n * sizeof *a);
    return true;
}

// *rows has room for twice n.
static bool sort_rows(jrun *r, keyed *rows, uint32_t n, bool reverse, jvalue *out) {
    if (!merge_sort(r, rows, rows + n, n, reverse) || !tern_jinja_list_new(r, J_PLAIN, n, out))
        return false;
    for (uint32_t i = 0; i < n; i++) out->list->items[i] = rows[i].item;
    out->list->n = n;
    return true;
}

// "a,b" sorts by several attributes: the key is then a list.
static bool get_sort_key(jrun *r, jvalue item, jvalue path, bool case_sensitive, jvalue *key) {
    if (path.type != J_STRING || !path.n || !memchr(path.s, ',', path.n))
        return get_key(r, item, path, case_sensitive, key);
    if (!tern_jinja_list_new(r, J_PLAIN, 2, key)) return false;
    for (uint32_t at = 0, n; at <= path.n; at += n + 1) {
        jvalue part;
        for (n = 0; at + n < path.n && path.s[at + n] != ',';) n++;
        if (!get_key(r, item, J_STR_OF(path.s + at, n), case_sensitive, &part) ||
            !tern_jinja_list_add(r, key->list, part))
            return false;
    }
    return true;
}

FILTER(sort) { // reverse, case_sensitive, attribute
    const jvalue *items;
    uint32_t n;
    bool case_sensitive = tern_jinja_truth(c->arg[1]);
    if (!tern_jinja_iterate(r, c->self, &items, &n)) return false;
    keyed *rows = tern_jinja_alloc(r, (size_t)n * 2, sizeof *rows);
    if (!rows) return false;
    for (uint32_t i = 0; i < n; i++) {
        rows[i].item = items[i];
        if (!get_sort_key(r, items[i], c->arg[2], case_sensitive, &rows[i].key)) return false;
    }
    return sort_rows(r, rows, n, tern_jinja_truth(c->arg[0]), out);
}

static bool group_key(jrun *r, jvalue item, const jcall *c, bool case_sensitive, jvalue *key) {
    bool has_default = c->arg[1].type != J_MISSING && c->arg[1].type != J_NONE;
    if (!get_path_or(r, item, c->arg[0], has_default ? c->arg[1] : (jvalue){0}, key)) return false;
    return case_sensitive || get_key(r, *key, (jvalue){0}, false, key);
}

FILTER(groupby) { // pairs of an attribute and the items that have it, sorted by attribute
    const jvalue *items;
    uint32_t n;
    jvalue pair = {0}, group = {0}, key;
    bool case_sensitive = tern_jinja_truth(c->arg[2]), same = false;
    if (!tern_jinja_iterate(r, c->self, &items, &n) || !tern_jinja_list_new(r, J_PLAIN, 0, out))
        return false;
    keyed *rows = tern_jinja_alloc(r, (size_t)n * 2, sizeof *rows);
    if (!rows) return false;
    for (uint32_t i = 0; i < n; i++) {
        rows[i].item = items[i];
        if (!group_key(r, items[i], c, case_sensitive, &rows[i].key)) return false;
    }
    if (!merge_sort(r, rows, rows + n, n, false)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (i && !tern_jinja_equal(r, rows[i - 1].key, rows[i].key, &same)) return false;
        if (!i || !same) {
            if (!group_key(r, rows[i].item, c, true, &key) ||
                !tern_jinja_list_new(r, J_TUPLE, 2, &pair) ||
                !tern_jinja_list_new(r, J_PLAIN, 0, &group) ||
                !tern_jinja_list_add(r, pair.list, key) ||
                !tern_jinja_list_add(r, pair.list, group) ||
                !tern_jinja_list_add(r, out->list, pair))
                return false;
            pair.list->is_group = true;
        }
        if (!tern_jinja_list_add(r, group.list, rows[i].item)) return false;
    }
    return true;
}

FILTER(dictsort) { // case_sensitive, by, reverse
    jvalue pairs;
    tern_str by;
    if (c->self.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, c->self);
    if (c->self.type != J_DICT)
        return tern_jinja_fail(r, "dictsort of a '%s'", tern_jinja_type_name(c->self));
    if (!tern_jinja_arg_str(r, c->arg[1], "key", &by)) return false;
    const jbuiltin *method = tern_jinja_find_method(J_DICT, "items", 5);
    const jargs none = {0};
    if (!tern_jinja_call_builtin(r, method, c->self, &none, &pairs)) return false;
    uint32_t n = pairs.list->n;
    keyed *rows = tern_jinja_alloc(r, (size_t)n * 2, sizeof *rows);
    if (!rows) return false;
    for (uint32_t i = 0; i < n; i++) {
        rows[i].item = pairs.list->items[i];
        jvalue key = rows[i].item.list->items[tern_str_is(by, "value") ? 1 : 0];
        if (!get_key(r, key, (jvalue){0}, tern_jinja_truth(c->arg[0]), &rows[i].key)) return false;
    }
    return sort_rows(r, rows, n, tern_jinja_truth(c->arg[2]), out);
}

FILTER(unique) { // case_sensitive, attribute
    const jvalue *items;
    uint32_t n;
    jvalue seen, key;
    if (!new_iterator(r, c->self, &items, &n, out) || !tern_jinja_dict_new(r, J_DICT, &seen))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        bool known;
        if (!get_key(r, items[i], c->arg[1], tern_jinja_truth(c->arg[0]), &key) ||
            !tern_jinja_dict_get(r, seen.dict, key, NULL, &known))
            return false;
        if (!known && (!tern_jinja_dict_set(r, seen.dict, key, key) ||
                       !tern_jinja_list_add(r, out->list, items[i])))
            return false;
    }
    return true;
}

static bool extreme(jrun *r, const jcall *c, bool want_max, jvalue *out) {
    const jvalue *items;
    uint32_t n;
    jvalue key, best = {0};
    if (!tern_jinja_iterate(r, c->self, &items, &n)) return false;
    *out = tern_jinja_undefined(J_STR_LIT("item"), J_LIST);
    for (uint32_t i = 0; i < n; i++) {
        bool better = i == 0;
        if (!get_key(r, items[i], c->arg[1], tern_jinja_truth(c->arg[0]), &key)) return false;
        if (i && !(want_max ? tern_jinja_less(r, ">", best, key, &better)
                            : tern_jinja_less(r, "<", key, best, &better)))
            return false;
        if (!better) continue;
        best = key;
        *out = items[i];
    }
    return true;
}

FILTER(min) { return extreme(r, c, false, out); }
FILTER(max) { return extreme(r, c, true, out); }

FILTER(sum) { // attribute, start
    const jvalue *items;
    uint32_t n;
    jvalue item;
    *out = c->arg[1].type == J_MISSING ? J_INT_OF(0) : c->arg[1];
    if (!tern_jinja_iterate(r, c->self, &items, &n)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!get_path(r, items[i], c->arg[0], &item) || !tern_jinja_binary(r, '+', *out, item, out))
            return false;
    return true;
}

// ---- Choice ------------------------------------------------------------------------------------

static bool call_named(jrun *r, jvalue name, bool test, jvalue self, const jargs *all,
                       uint32_t n_used, jvalue *out) {
    const jbuiltin *b = NULL;
    if (name.type == J_STRING)
        b = test ? tern_jinja_find_test(name.s, name.n) : tern_jinja_find_filter(name.s, name.n);
    if (!b) return tern_jinja_fail(r, "no such %s", test ? "test" : "filter");
    jargs rest = *all;
    rest.at += n_used;
    rest.n -= n_used;
    return tern_jinja_call_builtin(r, b, self, &rest, out);
}

FILTER(map) { // map(filter, arguments...) or map(attribute=..., default=...)
    const jvalue *items;
    uint32_t n;
    jvalue path = {0}, otherwise = {0}, v;
    for (uint32_t i = 0; i < c->args->n_named; i++) {
        tern_str name = {c->args->named[i].name.s, c->args->named[i].name.n};
        if (tern_str_is(name, "attribute")) path = c->args->named[i].value;
        if (tern_str_is(name, "default")) otherwise = c->args->named[i].value;
    }
    bool by_path = c->args->n == 0;
    if (!tern_jinja_truth(c->self)) return tern_jinja_list_new(r, J_ITERATOR, 0, out);
    if (by_path && path.type == J_MISSING) return tern_jinja_fail(r, "map() needs a filter");
    if (!new_iterator(r, c->self, &items, &n, out)) return false;
    for (uint32_t i = 0; i < n; i++) {
        bool ok = by_path ? get_path_or(r, items[i], path, otherwise, &v)
                          : call_named(r, c->args->at[0], false, items[i], c->args, 1, &v);
        if (!ok) return false;
        if (!tern_jinja_list_add(r, out->list, v)) return false;
    }
    return true;
}

static bool choose(jrun *r, const jcall *c, bool by_attribute, bool keep, jvalue *out) {
    const jvalue *items;
    uint32_t n, first = by_attribute ? 1 : 0;
    jvalue v, verdict;
    if (!tern_jinja_truth(c->self)) return tern_jinja_list_new(r, J_ITERATOR, 0, out);
    if (c->args->n < first) return tern_jinja_fail(r, "needs the name of an attribute");
    if (!new_iterator(r, c->self, &items, &n, out)) return false;
    for (uint32_t i = 0; i < n; i++) {
        v = items[i];
        if (by_attribute && !get_path(r, items[i], c->args->at[0], &v)) return false;
        verdict = v;
        if (c->args->n > first &&
            !call_named(r, c->args->at[first], true, v, c->args, first + 1, &verdict))
            return false;
        if (tern_jinja_truth(verdict) == keep && !tern_jinja_list_add(r, out->list, items[i]))
            return false;
    }
    return true;
}

FILTER(select) { return choose(r, c, false, true, out); }
FILTER(reject) { return choose(r, c, false, false, out); }
FILTER(selectattr) { return choose(r, c, true, true, out); }
FILTER(rejectattr) { return choose(r, c, true, false, out); }

FILTER(default) {
    (void)r;
    bool use =
        c->self.type == J_UNDEFINED || (tern_jinja_truth(c->arg[1]) && !tern_jinja_truth(c->self));
    *out = !use ? c->self : c->arg[0].type == J_MISSING ? J_STR_LIT("") : c->arg[0];
    return true;
}

FILTER(attr) { // of the object itself, never an entry of a dict
    if (c->arg[0].type != J_STRING) return tern_jinja_fail(r, "attr: a name is needed");
    *out = tern_jinja_undefined(c->arg[0], c->self.type);
    return c->self.type == J_DICT || tern_jinja_get_attr(r, c->self, c->arg[0], out);
}

// ---- Numbers -----------------------------------------------------------------------------------

// Python's float(text): white space around and underscores between digits are allowed, strtod's
// hexadecimal and nan(...) are not.
static bool parse_float(jvalue v, double *out) {
    char text[80], *end;
    size_t n = 0;
    tern_str s = tern_jinja_strip((tern_str){v.s, v.n}, NULL, true, true);
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '_') continue;
        if (n >= sizeof text - 1 || strchr("xXpP(", s.ptr[i])) return false;
        text[n++] = s.ptr[i];
    }
    text[n] = 0;
    *out = strtod(text, &end);
    return n > 0 && *end == 0;
}

static bool parse_int(jvalue v, int64_t base, int64_t *out) {
    char text[80], *end;
    size_t n = 0;
    tern_str s = tern_jinja_strip((tern_str){v.s, v.n}, NULL, true, true);
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '_') continue;
        if (n >= 70) return false;
        text[n++] = s.ptr[i];
    }
    text[n] = 0;
    char *digits = text + (*text == '-' || *text == '+');
    if ((base == 2 || base == 8) && digits[0] == '0' && (digits[1] | 32) == (base == 2 ? 'b' : 'o'))
        memmove(digits, digits + 2, strlen(digits + 2) + 1);
    *out = strtoll(text, &end, (int)base);
    return n > 0 && *end == 0 && end != text;
}

FILTER(int) { // default, base
    int64_t base;
    double f = 0;
    if (!tern_jinja_arg_int(r, c->arg[1], 10, &base)) return false;
    if (c->self.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, c->self);
    *out = J_INT_OF(0);
    if (c->self.type == J_STRING && base >= 2 && base <= 36 && parse_int(c->self, base, &out->i))
        return true;
    bool ok =
        tern_jinja_is_number(c->self) || (c->self.type == J_STRING && parse_float(c->self, &f));
    if (tern_jinja_is_number(c->self)) f = tern_jinja_double(c->self);
    if (c->self.type == J_INT)
        *out = c->self;
    else if (ok && fabs(f) < 0x1p63)
        out->i = (int64_t)f;
    else if (c->arg[0].type != J_MISSING)
        *out = c->arg[0];
    return true;
}

FILTER(float) { // default
    double f;
    if (c->self.type == J_UNDEFINED) return tern_jinja_fail_undefined(r, c->self);
    if (tern_jinja_is_number(c->self))
        *out = J_FLOAT_OF(tern_jinja_double(c->self));
    else if (c->self.type == J_STRING && parse_float(c->self, &f))
        *out = J_FLOAT_OF(f);
    else
        *out = c->arg[0].type == J_MISSING ? J_FLOAT_OF(0) : c->arg[0];
    return true;
}

FILTER(abs) {
    if (!tern_jinja_is_number(c->self))
        return tern_jinja_fail(r, "bad operand type for abs(): '%s'",
                               tern_jinja_type_name(c->self));
    if (c->self.type == J_FLOAT)
        *out = J_FLOAT_OF(fabs(c->self.f));
    else if (tern_jinja_double(c->self) < 0)
        return tern_jinja_binary(r, '-', J_INT_OF(0), c->self, out);
    else
        *out = J_INT_OF(c->self.type == J_INT ? c->self.i : c->self.b);
    return true;
}

// Rounds as Python does: by the exact decimal expansion, ties to even.
static double round_decimals(double x, int64_t decimals) {
    char text[400];
    if (!isfinite(x) || decimals > 15) return x;
    if (decimals < 0) {
        double unit = pow(10, (double)-decimals);
        return nearbyint(x / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)decimals, x);
    return strtod(text, NULL);
}

FILTER(round) { // precision, method
    int64_t decimals;
    tern_str how;
    if (!tern_jinja_arg_int(r, c->arg[0], 0, &decimals) ||
        !tern_jinja_arg_str(r, c->arg[1], "common", &how))
        return false;
    if (!tern_jinja_is_number(c->self))
        return tern_jinja_fail(r, "round of a '%s'", tern_jinja_type_name(c->self));
    double x = tern_jinja_double(c->self), scale = pow(10, (double)decimals);
    if (tern_str_is(how, "ceil"))
        *out = J_FLOAT_OF(ceil(x * scale) / scale);
    else if (tern_str_is(how, "floor"))
        *out = J_FLOAT_OF(floor(x * scale) / scale);
    else if (!tern_str_is(how, "common"))
        return tern_jinja_fail(r, "round: the method must be common, ceil or floor");
    else if (c->self.type == J_FLOAT)
        *out = J_FLOAT_OF(round_decimals(x, decimals));
    else if (decimals >= 0)
        *out = J_INT_OF(c->self.type == J_INT ? c->self.i : c->self.b);
    else
        *out = J_INT_OF((int64_t)round_decimals(x, decimals));
    return true;
}

static const jbuiltin *find_in(const jbuiltin *table, const char *name, size_t n) {
    size_t count = 0;
    while (table[count].name) count++;
    return tern_jinja_find(table, count, name, n);
}

const jbuiltin *tern_jinja_find_filter(const char *name, size_t n) {
    static const jbuiltin table[] = {
        {"length", "", filter_length},
        {"count", "", filter_length},
        {"default", "?default_value ?boolean", filter_default},
        {"d", "?default_value ?boolean", filter_default},
        {"join", "?d ?attribute", filter_join},
        {"list", "", filter_list},
        {"first", "", filter_first},
        {"last", "", filter_last},
        {"items", "", filter_items},
        {"dictsort", "?case_sensitive ?by ?reverse", filter_dictsort},
        {"map", "*", filter_map},
        {"select", "*", filter_select},
        {"reject", "*", filter_reject},
        {"selectattr", "*", filter_selectattr},
        {"rejectattr", "*", filter_rejectattr},
        {"reverse", "", filter_reverse},
        {"sort", "?reverse ?case_sensitive ?attribute", filter_sort},
        {"unique", "?case_sensitive ?attribute", filter_unique},
        {"min", "?case_sensitive ?attribute", filter_min},
        {"max", "?case_sensitive ?attribute", filter_max},
        {"sum", "?attribute ?start", filter_sum},
        {"int", "?default ?base", filter_int},
        {"float", "?default", filter_float},
        {"abs", "", filter_abs},
        {"round", "?precision ?method", filter_round},
        {"batch", "linecount ?fill_with", filter_batch},
        {"slice", "slices ?fill_with", filter_slice},
        {"groupby", "attribute ?default ?case_sensitive", filter_groupby},
        {"attr", "name", filter_attr},
    };
    const jbuiltin *b = tern_jinja_find(table, sizeof table / sizeof *table, name, n);
    return b ? b : find_in(tern_jinja_text_filters, name, n);
}
