// Collects what facts demand of an object's members: the known names, and a demand for each value.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "grammar/schema/schema.h"

// Fewer are searched one by one.
#define HASHED_MIN 16

static size_t find_slot(const tern_object *o, tern_str name) {
    const size_t mask = o->n_slots - 1;
    tern_terms *t = o->x->terms;
    size_t at = tern_hash64(t->secret, name.ptr, name.len) & mask, n = 0;
    for (; o->slots[at] && !tern_str_eq(o->members[o->slots[at] - 1].name, name);
         tern_terms_probe(t, ++n))
        at = (at + 1) & mask;
    return at;
}

static bool grow_slots(tern_object *o) {
    if (o->n_members * 2 < o->n_slots) return true;
    const size_t more = o->n_slots ? o->n_slots * 2 : 4 * HASHED_MIN;
    uint32_t *slots = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *slots);
    if (!slots) return false;
    tern_free(o->slots);
    o->slots = slots;
    o->n_slots = more;
    for (size_t i = 0; i < o->n_members; i++)
        o->slots[find_slot(o, o->members[i].name)] = (uint32_t)i + 1;
    return true;
}

static tern_status member(tern_object *o, tern_str name, tern_member **out) {
    size_t i = 0, at = 0;
    const bool is_hashed = o->n_members >= HASHED_MIN;
    TERN_TRY(tern_schema_work(o->x, 1));
    if (is_hashed) {
        if (!grow_slots(o)) return tern_schema_memory(o->x);
        at = find_slot(o, name);
        i = o->slots[at] ? o->slots[at] - 1 : o->n_members;
    } else {
        while (i < o->n_members && !tern_str_eq(o->members[i].name, name)) i++;
    }
    if (i == o->n_members) {
        if (tern_array_reserve(TERN_MEM_SESSION, &o->members, &o->members_capacity, i, 1) != 0)
            return tern_schema_memory(o->x);
        o->members[o->n_members++] = (tern_member){.name = name};
        if (is_hashed) o->slots[at] = (uint32_t)o->n_members;
    }
    *out = &o->members[i];
    return TERN_OK;
}

static tern_status limit(tern_object *o, const tern_json *v, bool is_least, bool holds) {
    return tern_schema_limit(o->x, v, is_least, holds, &o->min, &o->max);
}

#define EACH_MEMBER(x, k, map)                                                                     \
    for (const tern_json *k = map ? tern_json_first(&(x)->doc, map) : NULL; k;                     \
         k = tern_json_next(&(x)->doc, map, k))

static tern_status read_patterns(tern_object *o, const tern_json *s) {
    tern_schema *x = o->x;
    const tern_json *map = tern_schema_get(x, s, "patternProperties");
    if (map && !tern_json_is(map, TERN_JSON_OBJECT)) return tern_schema_fail(x, map, "no object");
    EACH_MEMBER(x, k, map) {
        tern_key_pattern p = {.of = s, .schema = tern_json_value_of(&(x)->doc, k)};
        TERN_TRY(tern_schema_pattern(x, k, tern_json_str(k), &p.term));
        if (tern_array_reserve(TERN_MEM_SESSION, &o->patterns, &o->patterns_capacity, o->n_patterns,
                               1) != 0)
            return tern_schema_memory(x);
        o->patterns[o->n_patterns++] = p;
    }
    return TERN_OK;
}

static tern_status read_required(tern_object *o, const tern_json *s) {
    tern_schema *x = o->x;
    const tern_json *list = tern_schema_get(x, s, "required");
    tern_member *m;
    if (!list) return TERN_OK;
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return tern_schema_fail(x, list, "no list of names");
    for (const tern_json *e = tern_json_first(&x->doc, list); e;
         e = tern_json_next(&x->doc, list, e)) {
        if (!tern_json_is(e, TERN_JSON_STRING)) return tern_schema_fail(x, e, "no name");
        TERN_TRY(member(o, tern_json_str(e), &m));
        m->is_required = true;
    }
    return TERN_OK;
}

static tern_status read_not(tern_object *o, const tern_fact *f) {
    const tern_schema *x = o->x;
    if (tern_str_is(f->name, "minProperties")) return limit(o, f->at, true, false);
    if (tern_str_is(f->name, "maxProperties")) return limit(o, f->at, false, false);
    if (tern_schema_fact_values(x, f) & TERN_TYPE_OBJECT)
        return tern_schema_fail(x, f->at, "an object that must not be is not known");
    return TERN_OK;
}

tern_status tern_schema_object_read(tern_schema *x, const tern_fact *f, size_t n, tern_object *o) {
    tern_item names[16];
    size_t n_names = 0;
    tern_member *m;
    *o = (tern_object){.x = x, .facts = f, .n_facts = n, .max = TERN_NO_LIMIT};
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == TERN_FACT_NOT) TERN_TRY(read_not(o, &f[i]));
        if (f[i].kind == TERN_FACT_PROPERTY) TERN_TRY(member(o, f[i].name, &m));
        if (f[i].kind != TERN_FACT_SCHEMA) continue;
        const tern_json *s = f[i].at, *map = tern_schema_get(x, s, "properties");
        if (map && !tern_json_is(map, TERN_JSON_OBJECT))
            return tern_schema_fail(x, map, "no object");
        EACH_MEMBER(x, k, map) TERN_TRY(member(o, tern_json_str(k), &m));
        TERN_TRY(read_patterns(o, s));
        TERN_TRY(limit(o, tern_schema_get(x, s, "minProperties"), true, true));
        TERN_TRY(limit(o, tern_schema_get(x, s, "maxProperties"), false, true));
        const tern_json *of_names = tern_schema_get(x, s, "propertyNames");
        if (of_names && n_names == 16)
            return tern_schema_fail(x, of_names, "more than 16 'propertyNames' at once");
        if (of_names) names[n_names++] = tern_schema_item(x, of_names);
    }
    // Members that are only required come after those with a schema.
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == TERN_FACT_SCHEMA) TERN_TRY(read_required(o, f[i].at));
        if (f[i].kind != TERN_FACT_REQUIRE && f[i].kind != TERN_FACT_FORBID) continue;
        TERN_TRY(member(o, f[i].name, &m));
        if (f[i].kind == TERN_FACT_REQUIRE) m->is_required = true;
        if (f[i].kind == TERN_FACT_FORBID) m->is_forbidden = true;
    }
    o->has_names = n_names > 0;
    return n_names ? tern_schema_demand(x, names, n_names, &o->names) : TERN_OK;
}

void tern_schema_object_free(tern_object *o) {
    tern_free(o->members);
    tern_free(o->patterns);
    tern_free(o->slots);
    o->slots = NULL;
    o->members = NULL;
    o->patterns = NULL;
}

// ---- Demands ------------------------------------------------------------------------------------

typedef struct items {
    tern_item few[64];
    size_t n;
} items;

static void add(items *to, const tern_schema *x, const tern_json *s) {
    if (to->n < 64) to->few[to->n++] = tern_schema_item(x, s);
}

static tern_status finish(const tern_object *o, items *in, uint32_t *out) {
    if (in->n == 64)
        return tern_schema_fail(o->x, o->facts[0].at, "more than 63 schemas of a property");
    return tern_schema_demand(o->x, in->few, in->n, out);
}

static const tern_json *named(const tern_schema *x, const tern_json *s, tern_str name) {
    const tern_json *map = tern_schema_get(x, s, "properties");
    return tern_schema_key(x, map, name);
}

static bool matches(const tern_object *o, tern_term term, tern_str name) {
    tern_strbuf b = {0};
    tern_strbuf_json(&b, name.ptr, name.len);
    bool result = !b.failed && tern_term_matches(o->x->terms, term, b.ptr + 1, b.len - 2);
    tern_strbuf_free(&b);
    return result;
}

// A member, by its name or, if no schema names it, by the patterns that it matches.
typedef struct part {
    const tern_object *o;
    const tern_str *name;
    uint32_t mask;
} part;

static tern_status evaluates(const tern_fact *f, const void *of, bool *out) {
    const part *p = of;
    const tern_object *o = p->o;
    *out = tern_schema_get(o->x, f->at, "additionalProperties") ||
           (p->name && named(o->x, f->at, *p->name));
    for (size_t k = 0; k < o->n_patterns && !*out; k++)
        *out = o->patterns[k].of == f->at &&
               (p->name ? matches(o, o->patterns[k].term, *p->name) : p->mask >> k & 1);
    return TERN_OK;
}

static tern_status add_unevaluated(items *to, const tern_fact *f, const part *p) {
    const tern_json *s;
    TERN_TRY(tern_schema_unevaluated(
        p->o->x,
        &(tern_schema_rest){p->o->facts, p->o->n_facts, "unevaluatedProperties", evaluates, p}, f,
        &s));
    if (s) add(to, p->o->x, s);
    return TERN_OK;
}

tern_status tern_schema_object_demand(const tern_object *o, tern_str name, uint32_t *out) {
    const tern_schema *x = o->x;
    const part which = {.o = o, .name = &name};
    items in = {.n = 0};
    for (size_t i = 0; i < o->n_facts; i++) {
        const tern_fact *f = &o->facts[i];
        if (f->kind == TERN_FACT_PROPERTY && tern_str_eq(f->name, name) && in.n < 64)
            in.few[in.n++] = f->item;
        TERN_TRY(tern_schema_work(x, 1));
        if (f->kind != TERN_FACT_SCHEMA) continue;
        const tern_json *s = named(x, f->at, name),
                        *others = tern_schema_get(x, f->at, "additionalProperties");
        bool is_known = s != NULL;
        if (s) add(&in, x, s);
        for (size_t k = 0; k < o->n_patterns; k++) {
            if (o->patterns[k].of != f->at || !matches(o, o->patterns[k].term, name)) continue;
            add(&in, x, o->patterns[k].schema);
            is_known = true;
        }
        if (!is_known && others) add(&in, x, others);
        TERN_TRY(add_unevaluated(&in, f, &which));
    }
    return finish(o, &in, out);
}

tern_status tern_schema_object_other_demand(const tern_object *o, uint32_t mask, uint32_t *out) {
    const tern_schema *x = o->x;
    const part which = {.o = o, .mask = mask};
    items in = {.n = 0};
    for (size_t i = 0; i < o->n_facts; i++) {
        const tern_fact *f = &o->facts[i];
        if (f->kind != TERN_FACT_SCHEMA) continue;
        const tern_json *others = tern_schema_get(x, f->at, "additionalProperties");
        bool is_known = false;
        for (size_t k = 0; k < o->n_patterns; k++) {
            if (o->patterns[k].of != f->at || !(mask >> k & 1)) continue;
            add(&in, x, o->patterns[k].schema);
            is_known = true;
        }
        if (!is_known && others) add(&in, x, others);
        TERN_TRY(add_unevaluated(&in, f, &which));
    }
    return finish(o, &in, out);
}

tern_status tern_schema_object_may_name(const tern_object *o, tern_str name, bool *out) {
    tern_json v = {.type = TERN_JSON_STRING, .n = (uint32_t)name.len, .text = name.ptr};
    *out = true;
    return o->has_names ? tern_schema_holds(o->x, o->names, &v, out) : TERN_OK;
}
