// Whether a value satisfies a demand: for enumerations, whose values are judged one by one.
#include <string.h>
#include "base/alloc.h"
#include "grammar/schema/schema.h"

#define JUDGING_MAX 32 // nested values

unsigned tern_schema_type_of(const tern_json *v) {
    switch ((tern_json_type)v->type) {
    case TERN_JSON_NULL: return TERN_TYPE_NULL;
    case TERN_JSON_BOOL: return v->n ? TERN_TYPE_TRUE : TERN_TYPE_FALSE;
    case TERN_JSON_STRING: return TERN_TYPE_STRING;
    case TERN_JSON_ARRAY: return TERN_TYPE_ARRAY;
    case TERN_JSON_OBJECT: return TERN_TYPE_OBJECT;
    case TERN_JSON_NUMBER: break;
    }
    if (v->n == TERN_JSON_WHOLE || v->n == TERN_JSON_LONG) return TERN_TYPE_WHOLE;
    // A number is whole by its value; from 2^53 on every double is.
    double d = v->number;
    bool whole = d >= 9007199254740992.0 || d <= -9007199254740992.0 || (double)(int64_t)d == d;
    return whole ? TERN_TYPE_WHOLE : TERN_TYPE_FRACTION;
}

unsigned tern_schema_fact_values(const tern_schema *x, const tern_fact *f) {
    if (tern_str_is(f->name, "const")) return tern_schema_type_of(f->at);
    return tern_str_is(f->name, "enum") ? tern_schema_types_in(x, f->at) : 0;
}

unsigned tern_schema_types_in(const tern_schema *x, const tern_json *list) {
    unsigned types = 0;
    for (const tern_json *e = tern_json_first(&x->doc, list); e;
         e = tern_json_next(&x->doc, list, e))
        types |= tern_schema_type_of(e);
    return types;
}

// ---- Equality -----------------------------------------------------------------------------------

// Values lie in arrays of nodes; v's `next` is an index from the start of its document. Here the
// document is not known, so children are found by walking.
static const tern_json *skip(const tern_json *v) {
    const tern_json *at = v + 1;
    size_t n = v->type == TERN_JSON_ARRAY    ? v->n
               : v->type == TERN_JSON_OBJECT ? 2 * (size_t)v->n
                                             : 0;
    if (v->type == TERN_JSON_NUMBER && v->n == TERN_JSON_LONG) return at + 1;
    while (n-- > 0) at = skip(at);
    return at;
}

static const tern_json *find(const tern_json *object, tern_str name) {
    const tern_json *k = object + 1;
    for (size_t i = 0; i < object->n; i++, k = skip(k + 1))
        if (tern_str_eq(tern_json_str(k), name)) return k + 1;
    return NULL;
}

bool tern_schema_equal(const tern_schema *x, const tern_json *a, const tern_json *b) {
    x->terms->work++;
    if (a->type != b->type) return false;
    switch ((tern_json_type)a->type) {
    case TERN_JSON_NULL: return true;
    case TERN_JSON_BOOL: return a->n == b->n;
    case TERN_JSON_STRING: return tern_str_eq(tern_json_str(a), tern_json_str(b));
    case TERN_JSON_NUMBER:
        if (a->n == TERN_JSON_LONG && b->n == TERN_JSON_LONG)
            return tern_schema_equal(x, a + 1, b + 1);
        return a->number == b->number && (a->n == TERN_JSON_LONG) == (b->n == TERN_JSON_LONG);
    case TERN_JSON_ARRAY:
        if (a->n != b->n) return false;
        for (size_t i = 0, n = a->n; i < n; i++) {
            a = i ? skip(a) : a + 1;
            b = i ? skip(b) : b + 1;
            if (!tern_schema_equal(x, a, b)) return false;
        }
        return true;
    case TERN_JSON_OBJECT:
        if (a->n != b->n) return false;
        const tern_json *k = a + 1;
        for (size_t i = 0; i < a->n; i++, k = skip(k + 1)) {
            x->terms->work += b->n / 4;
            const tern_json *other = find(b, tern_json_str(k));
            if (!other || !tern_schema_equal(x, k + 1, other)) return false;
        }
        return true;
    }
    return false;
}

// ---- Facts --------------------------------------------------------------------------------------

static bool is_listed(const tern_schema *x, const tern_json *list, const tern_json *v) {
    const tern_json *e = list + 1;
    for (size_t i = 0; i < list->n; i++, e = skip(e))
        if (tern_schema_equal(x, e, v)) return true;
    return false;
}

// Whether the value fits const and enum of all facts.
static bool fits_lists(const tern_schema *x, const tern_fact *f, size_t n, const tern_json *v) {
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == TERN_FACT_SCHEMA) {
            const tern_json *one = tern_schema_get(x, f[i].at, "const"),
                            *list = tern_schema_get(x, f[i].at, "enum");
            if (one && !tern_schema_equal(x, one, v)) return false;
            if (list && list != x->taken && !is_listed(x, list, v)) return false;
        } else if (f[i].kind == TERN_FACT_NOT) {
            if (tern_str_is(f[i].name, "const") && tern_schema_equal(x, f[i].at, v)) return false;
            if (tern_str_is(f[i].name, "enum") && is_listed(x, f[i].at, v)) return false;
        }
    }
    return true;
}

// Not inlined, to keep the digits of a number off the stack of the recursion.
__attribute__((noinline)) static tern_status fits_text(tern_schema *x, const tern_fact *f, size_t n,
                                                       const tern_json *v, bool *out) {
    tern_term term;
    tern_strbuf b = {0};
    if (v->type == TERN_JSON_STRING) {
        TERN_TRY(tern_schema_string(x, f, n, &term));
        tern_strbuf_json(&b, v->text, v->n);
        *out = !b.failed && tern_term_matches(x->terms, term, b.ptr + 1, b.len - 2);
    } else {
        // The value without an exponent, as bounds need it; a plain number may have one.
        TERN_TRY(tern_schema_number(x, f, n, TERN_TYPE_NUMBER, &term));
        if (v->n == TERN_JSON_LONG)
            tern_strbuf_append(&b, v[1].text, v[1].n);
        else
            tern_strbuf_json_number(&b, v->number);
        tern_decimal d;
        *out = tern_decimal_read(&d, tern_strbuf_text(&b), b.len);
        tern_strbuf_clear(&b);
        if (d.is_negative) tern_strbuf_putc(&b, '-');
        tern_strbuf_append(&b, d.digits, d.n_whole);
        if (d.n_digits > d.n_whole) {
            tern_strbuf_putc(&b, '.');
            tern_strbuf_append(&b, d.digits + d.n_whole, d.n_digits - d.n_whole);
        }
        *out = *out && !b.failed && tern_term_matches(x->terms, term, tern_strbuf_text(&b), b.len);
    }
    tern_strbuf_free(&b);
    return tern_terms_check(x->terms, x->err);
}

static tern_status item_holds(tern_schema *x, tern_item item, const tern_json *v, bool *out) {
    uint32_t demand;
    TERN_TRY(tern_schema_demand(x, &item, 1, &demand));
    return tern_schema_holds(x, demand, v, out);
}

static tern_status fits_array(tern_schema *x, const tern_fact *f, size_t n, const tern_json *v,
                              bool *out) {
    tern_array a;
    TERN_TRY(tern_schema_array_read(x, f, n, &a));
    *out = v->n >= a.min && v->n <= a.max;
    const tern_json *e = v + 1;
    for (uint32_t i = 0; i < v->n && *out; i++, e = skip(e)) {
        uint32_t demand;
        TERN_TRY(tern_schema_array_demand(&a, i < a.n_fixed ? i : a.n_fixed, NULL, 0, &demand));
        TERN_TRY(tern_schema_holds(x, demand, e, out));
        const tern_json *other = v + 1;
        for (uint32_t k = 0; k < i && a.unique && *out; k++, other = skip(other))
            *out = !tern_schema_equal(x, other, e);
    }
    for (size_t k = 0; k < a.n_contains && *out; k++) {
        uint32_t count = 0;
        e = v + 1;
        for (uint32_t i = 0; i < v->n; i++, e = skip(e)) {
            bool fits;
            TERN_TRY(tern_schema_work(x, 1));
            TERN_TRY(item_holds(x, a.contains[k].item, e, &fits));
            count += fits;
        }
        *out = count >= a.contains[k].low && count <= a.contains[k].high;
    }
    return TERN_OK;
}

static tern_status fits_object(tern_schema *x, const tern_object *o, const tern_json *v,
                               bool *out) {
    *out = v->n >= o->min && v->n <= o->max;
    for (size_t i = 0; i < o->n_members && *out; i++) {
        TERN_TRY(tern_schema_work(x, 1 + v->n / 4));
        const tern_member *m = &o->members[i];
        bool is_there = find(v, m->name) != NULL;
        if (m->is_required && !is_there) *out = false;
        if (m->is_forbidden && is_there) *out = false;
    }
    const tern_json *k = v + 1;
    for (size_t i = 0; i < v->n && *out; i++, k = skip(k + 1)) {
        uint32_t demand;
        TERN_TRY(tern_schema_object_may_name(o, tern_json_str(k), out));
        if (!*out) break;
        TERN_TRY(tern_schema_object_demand(o, tern_json_str(k), &demand));
        TERN_TRY(tern_schema_holds(x, demand, k + 1, out));
    }
    return TERN_OK;
}

tern_status tern_schema_facts_hold(tern_schema *x, const tern_fact *f, size_t n, const tern_json *v,
                                   bool *out) {
    *out = fits_lists(x, f, n, v);
    if (!*out) return TERN_OK;
    if (v->type == TERN_JSON_STRING || v->type == TERN_JSON_NUMBER)
        return fits_text(x, f, n, v, out);
    if (v->type == TERN_JSON_ARRAY) return fits_array(x, f, n, v, out);
    if (v->type != TERN_JSON_OBJECT) return TERN_OK;
    tern_object o;
    tern_status status = tern_schema_object_read(x, f, n, &o);
    if (status == TERN_OK) status = fits_object(x, &o, v, out);
    tern_schema_object_free(&o);
    return status;
}

tern_status tern_schema_holds(tern_schema *x, uint32_t demand, const tern_json *v, bool *out) {
    const tern_demand d = x->demands[demand];
    const tern_json *taken = x->taken;
    tern_cases cases = {0};
    *out = false;
    x->taken = NULL;
    if (x->n_judging == JUDGING_MAX)
        return tern_schema_fail(x, tern_json_root(&x->doc),
                                "a value is nested too deep to be judged by another schema");
    x->n_judging++;
    if (x->n_work++ > TERN_SCHEMA_WORK_MAX)
        return tern_schema_fail(x, tern_json_root(&x->doc), "too many alternatives");
    tern_status status = tern_schema_cases(x, tern_demand_items(x, &d), d.n, &cases);
    for (size_t i = 0; i < cases.n && status == TERN_OK && !*out; i++) {
        const tern_case *c = &cases.cases[i];
        if (!(c->types & tern_schema_type_of(v))) continue;
        status = tern_schema_facts_hold(x, tern_case_facts(&cases, c), c->n, v, out);
    }
    tern_schema_cases_free(&cases);
    x->taken = taken;
    x->n_judging--;
    return status;
}
