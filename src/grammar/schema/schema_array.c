// Arrays: elements by place, counts of them, and counts of those that `contains` asks for.
#include <string.h>
#include "base/alloc.h"
#include "grammar/schema/schema.h"

#define STATES_MAX 20000
#define UNIQUE_MAX 8 // values, which have 256 subsets

// ---- Reading ------------------------------------------------------------------------------------

// The schemas of the first elements, one by one, and of the others; either may be NULL.
static void parts_of(const tern_schema *x, const tern_json *s, const tern_json **prefix,
                     const tern_json **rest) {
    *prefix = tern_schema_get(x, s, "prefixItems");
    *rest = tern_schema_get(x, s, "items");
    if (!tern_json_is(*rest, TERN_JSON_ARRAY)) return;
    *prefix = *rest;
    *rest = tern_schema_get(x, s, "additionalItems");
}

static tern_status add_contains(tern_array *a, tern_contains c, const tern_json *at) {
    if (c.low == 0 && c.high == TERN_NO_LIMIT) return TERN_OK;
    if (a->n_contains == sizeof a->contains / sizeof *a->contains)
        return tern_schema_fail(a->x, at, "more than 4 'contains' at once");
    a->contains[a->n_contains++] = c;
    return TERN_OK;
}

static tern_status limit(tern_array *a, const tern_json *v, bool is_least, bool holds) {
    return tern_schema_limit(a->x, v, is_least, holds, &a->min, &a->max);
}

static tern_status read_schema(tern_array *a, const tern_json *s) {
    const tern_schema *x = a->x;
    const tern_json *prefix, *rest, *v;
    parts_of(x, s, &prefix, &rest);
    if (prefix && !tern_json_is(prefix, TERN_JSON_ARRAY))
        return tern_schema_fail(x, prefix, "no list of schemas");
    if (prefix && prefix->n > a->n_fixed) a->n_fixed = prefix->n;
    TERN_TRY(limit(a, tern_schema_get(x, s, "minItems"), true, true));
    TERN_TRY(limit(a, tern_schema_get(x, s, "maxItems"), false, true));
    if (tern_json_bool(tern_schema_get(x, s, "uniqueItems"), false)) a->unique = true;
    v = tern_schema_get(x, s, "contains");
    if (!v) return TERN_OK;
    const tern_json *min = tern_schema_get(x, s, "minContains"),
                    *max = tern_schema_get(x, s, "maxContains");
    tern_contains c = {tern_schema_item(x, v), 1, TERN_NO_LIMIT};
    if (min) TERN_TRY(tern_schema_count(x, min, &c.low));
    if (max) TERN_TRY(tern_schema_count(x, max, &c.high));
    return add_contains(a, c, v);
}

static tern_status read_not(tern_array *a, const tern_fact *f) {
    const tern_schema *x = a->x;
    if (tern_str_is(f->name, "minItems")) return limit(a, f->at, true, false);
    if (tern_str_is(f->name, "maxItems")) return limit(a, f->at, false, false);
    if (tern_str_is(f->name, "uniqueItems"))
        return tern_schema_fail(x, f->at, "'uniqueItems' that must not hold is not known");
    if (tern_schema_fact_values(x, f) & TERN_TYPE_ARRAY)
        return tern_schema_fail(x, f->at, "an array that must not be is not known");
    return TERN_OK;
}

tern_status tern_schema_array_read(tern_schema *x, const tern_fact *f, size_t n, tern_array *a) {
    *a = (tern_array){.x = x, .facts = f, .n_facts = n, .max = TERN_NO_LIMIT};
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == TERN_FACT_SCHEMA) TERN_TRY(read_schema(a, f[i].at));
        if (f[i].kind == TERN_FACT_NOT) TERN_TRY(read_not(a, &f[i]));
        if (f[i].kind == TERN_FACT_LENGTH && f[i].low > a->min) a->min = f[i].low;
        if (f[i].kind == TERN_FACT_ELEMENT && f[i].low >= a->n_fixed) a->n_fixed = f[i].low + 1;
        if (f[i].kind == TERN_FACT_CONTAINS)
            TERN_TRY(add_contains(a, (tern_contains){f[i].item, f[i].low, f[i].high},
                                  tern_schema_at(x, f[i].item)));
    }
    return TERN_OK;
}

typedef struct part {
    const tern_array *a;
    uint32_t index;
} part;

static tern_status evaluates(const tern_fact *f, const void *of, bool *out) {
    const part *p = of;
    const tern_schema *x = p->a->x;
    const tern_json *prefix, *rest, *contains = tern_schema_get(x, f->at, "contains");
    parts_of(x, f->at, &prefix, &rest);
    *out = rest || (prefix && p->index < prefix->n);
    // From 2020-12 on, elements that satisfy `contains` are evaluated: these are known only with
    // values.
    if (contains && !*out && x->draft >= 9)
        return tern_schema_fail(x, contains, "'contains' beside 'unevaluatedItems' is not known");
    return TERN_OK;
}

tern_status tern_schema_array_demand(const tern_array *a, uint32_t index, const tern_item *more,
                                     size_t n_more, uint32_t *out) {
    tern_item few[64];
    size_t n = 0;
    for (size_t i = 0; i < n_more && n < 64; i++) few[n++] = more[i];
    for (size_t i = 0; i < a->n_facts && n < 64; i++) {
        const tern_fact *f = &a->facts[i];
        if (f->kind == TERN_FACT_ELEMENT && f->low == index) few[n++] = f->item;
        if (f->kind != TERN_FACT_SCHEMA) continue;
        const tern_json *prefix, *rest, *s;
        parts_of(a->x, f->at, &prefix, &rest);
        s = rest;
        if (prefix && index < prefix->n) {
            s = tern_json_first(&a->x->doc, prefix);
            for (uint32_t k = 0; k < index; k++) s = tern_json_next(&a->x->doc, prefix, s);
        }
        if (s) few[n++] = tern_schema_item(a->x, s);
        TERN_TRY(
            tern_schema_unevaluated(a->x,
                                    &(tern_schema_rest){a->facts, a->n_facts, "unevaluatedItems",
                                                        evaluates, &(part){a, index}},
                                    f, &s));
        if (s && n < 64) few[n++] = tern_schema_item(a->x, s);
    }
    if (n == 64)
        return tern_schema_fail(a->x, a->facts[0].at, "more than 63 schemas of an element");
    return tern_schema_demand(a->x, few, n, out);
}

// ---- Rules --------------------------------------------------------------------------------------
//
// A state is the number of elements so far, and for each `contains` the number of those that
// satisfied it, each counted only as far as it matters.

typedef struct builder {
    const tern_array *a;
    uint32_t n_places;              // places 0..n_places - 1; the last is for all later ones, too
    uint32_t n_counts[4], n_states; // states of each contains; of a place
    bool endless;                   // the last place repeats
    tern_expr *tails;               // [n_places * n_states] what may follow
    tern_rule *rules;               // of the last place, if it repeats
} builder;

static uint32_t cap_of(const tern_contains *c) {
    return c->high == TERN_NO_LIMIT ? c->low : c->high;
}

static tern_expr space(const tern_schema *x) { return tern_expr_term(x->rules, x->space); }

// Adds the ways to go on with one element: contains[k..] are not decided yet. state: the counts
// before it.
typedef struct ways {
    builder *b;
    uint32_t place;
    tern_item *items;
    tern_expr *sum;
} ways;

static tern_status add_ways(const ways *w, size_t k, uint32_t state, uint32_t next, uint32_t weight,
                            size_t n_items) {
    builder *b = w->b;
    const uint32_t place = w->place;
    tern_item *items = w->items;
    const tern_array *a = b->a;
    tern_schema *x = a->x;
    if (k < a->n_contains) {
        const tern_contains *c = &a->contains[k];
        uint32_t count = state % b->n_counts[k], rest = state / b->n_counts[k];
        uint32_t more = weight * b->n_counts[k];
        bool limited = c->high != TERN_NO_LIMIT;
        if (count < cap_of(c)) {
            items[n_items] = c->item;
            TERN_TRY(add_ways(w, k + 1, rest, next + weight * (count + 1), more, n_items + 1));
        }
        if (limited) items[n_items++] = tern_item_not(c->item);
        return add_ways(w, k + 1, rest, next + weight * count, more, n_items);
    }
    uint32_t demand;
    tern_expr element, tail;
    bool is_last = place + 1 == b->n_places;
    TERN_TRY(tern_schema_array_demand(a, place < a->n_fixed ? place : a->n_fixed, items, n_items,
                                      &demand));
    TERN_TRY(tern_schema_demand_expr(x, demand, &element));
    if (is_last)
        tail = tern_expr_call(x->rules, b->rules[next]);
    else
        tail = b->tails[(place + 1) * b->n_states + next];
    tern_expr before = space(x);
    if (place)
        before = tern_expr_cat(x->rules, tern_expr_term(x->rules, tern_term_byte(x->terms, ',')),
                               before);
    *w->sum = tern_expr_or(x->rules, *w->sum,
                           tern_expr_cat(x->rules, before, tern_expr_cat(x->rules, element, tail)));
    return TERN_OK;
}

static tern_status tail_of(builder *b, uint32_t place, uint32_t state, tern_expr *out) {
    const tern_array *a = b->a;
    tern_rules *r = a->x->rules;
    tern_expr sum = TERN_EXPR_NOTHING;
    bool enough = place >= a->min;
    for (size_t k = 0, s = state; k < a->n_contains; s /= b->n_counts[k++])
        enough = enough && s % b->n_counts[k] >= a->contains[k].low;
    bool is_last = place + 1 == b->n_places;
    if (!is_last || b->endless) {
        tern_item items[8];
        TERN_TRY(add_ways(&(ways){b, place, items, &sum}, 0, state, 0, 1, 0));
    }
    if (enough)
        sum = tern_expr_or(
            r, tern_expr_cat(r, space(a->x), tern_expr_term(r, tern_term_byte(a->x->terms, ']'))),
            sum);
    *out = sum;
    return TERN_OK;
}

static tern_status build(builder *b, tern_expr *out) {
    const tern_array *a = b->a;
    tern_rules *r = a->x->rules;
    for (uint32_t place = b->n_places; place-- > 0;) {
        bool is_last = place + 1 == b->n_places;
        for (uint32_t s = 0; s < b->n_states; s++) {
            tern_expr e;
            if (is_last) b->rules[s] = tern_rules_new(r);
            if (is_last) continue;
            TERN_TRY(tail_of(b, place, s, &e));
            b->tails[place * b->n_states + s] = place % 16 == 15 ? tern_expr_rule(r, e) : e;
        }
        for (uint32_t s = 0; s < b->n_states && is_last; s++) {
            tern_expr e;
            TERN_TRY(tail_of(b, place, s, &e));
            tern_rules_define(r, b->rules[s], e);
            b->tails[place * b->n_states + s] = tern_expr_call(r, b->rules[s]);
        }
    }
    *out = tern_expr_cat(r, tern_expr_term(r, tern_term_byte(a->x->terms, '[')), b->tails[0]);
    return TERN_OK;
}

// uniqueItems with a list of values: what may follow depends on which values have been used.
static tern_status build_unique(const tern_array *a, tern_expr *out) {
    tern_schema *x = a->x;
    tern_rules *r = x->rules;
    const tern_json *values[UNIQUE_MAX];
    tern_expr rest[1 << UNIQUE_MAX];
    size_t n = UNIQUE_MAX + 1;
    uint32_t demand;
    if (a->n_fixed == 0 && a->n_contains == 0) {
        TERN_TRY(tern_schema_array_demand(a, 0, NULL, 0, &demand));
        TERN_TRY(tern_schema_listed(x, demand, values, UNIQUE_MAX, &n));
    }
    if (n > UNIQUE_MAX)
        return tern_schema_fail(x, a->facts[0].at,
                                "'uniqueItems' is known of elements from an 'enum' of at most %d",
                                UNIQUE_MAX);
    for (uint32_t set = (uint32_t)1 << n; set-- > 0;) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < n; i++) count += set >> i & 1;
        tern_expr end =
            tern_expr_cat(r, space(x), tern_expr_term(r, tern_term_byte(x->terms, ']')));
        tern_expr sum = count >= a->min ? end : TERN_EXPR_NOTHING;
        tern_expr before = space(x);
        if (count)
            before = tern_expr_cat(r, tern_expr_term(r, tern_term_byte(x->terms, ',')), before);
        for (uint32_t i = 0; i < n && count < a->max; i++) {
            if (set >> i & 1) continue;
            tern_expr value = tern_expr_term(r, tern_schema_literal(x, values[i]));
            tern_expr more = tern_expr_cat(r, value, rest[set | (uint32_t)1 << i]);
            sum = tern_expr_or(r, sum, tern_expr_cat(r, before, more));
        }
        rest[set] = set && sum != TERN_EXPR_NOTHING ? tern_expr_rule(r, sum) : sum;
    }
    *out = tern_expr_cat(r, tern_expr_term(r, tern_term_byte(x->terms, '[')), rest[0]);
    return TERN_OK;
}

tern_status tern_schema_array(tern_schema *x, const tern_fact *f, size_t n, tern_expr *out) {
    tern_array a;
    *out = TERN_EXPR_NOTHING;
    TERN_TRY(tern_schema_array_read(x, f, n, &a));
    if (a.min > a.max) return TERN_OK;
    if (a.unique && a.max > 1) return build_unique(&a, out);
    builder b = {.a = &a, .n_states = 1, .endless = a.max == TERN_NO_LIMIT};
    uint64_t n_states = 1;
    for (size_t k = 0; k < a.n_contains; k++) {
        if (a.contains[k].low > a.contains[k].high) return TERN_OK;
        b.n_counts[k] = cap_of(&a.contains[k]) + 1;
        n_states *= cap_of(&a.contains[k]) + 1;
        if (n_states > STATES_MAX) break;
    }
    uint32_t places = a.n_fixed > a.min ? a.n_fixed : a.min;
    if (places < 1) places = 1; // the first element has no comma before it
    if (!b.endless) places = a.max;
    b.n_places = places + 1;
    if (n_states * ((uint64_t)places + 1) > STATES_MAX)
        return tern_schema_fail(x, f[0].at, "an array of more than %d elements to be counted",
                                STATES_MAX);
    b.n_states = (uint32_t)n_states;
    b.tails = tern_alloc_array(TERN_MEM_SESSION, (size_t)b.n_places * b.n_states, sizeof *b.tails);
    b.rules = tern_alloc_array(TERN_MEM_SESSION, b.n_states, sizeof *b.rules);
    tern_status status = b.tails && b.rules ? build(&b, out) : tern_schema_memory(x);
    tern_free(b.tails);
    tern_free(b.rules);
    return status;
}
